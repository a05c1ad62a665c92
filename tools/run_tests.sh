#!/usr/bin/env bash
# Runs the tests of one preset, then counts the skipped ones and prints their reasons.
#   tools/run_tests.sh <preset> [arguments for ctest: -L unit, -R name ...]
# ThreadSanitizer knows no address space with much randomness in it, so its programs run with fixed addresses.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
results="$PWD/build/$preset/test-results"
rm -rf "$results"
mkdir -p "$results"

prefix=()
if [[ "$preset" == tsan ]]; then
  prefix=(setarch "$(uname -m)" --addr-no-randomize)
  "${prefix[@]}" true || { echo "[tests] this system does not let a program fix its addresses (setarch -R)." >&2; exit 1; }
fi

# Where the environment keeps Python from writing bytecode, as containers do, each process would compile torch's sources
# anew: 4 of the 6 seconds that it takes to import it, 10 of transformers' 17.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$PWD/build/pycache"

# Importing torch takes seconds of a core in each Python test and in what its ranks are forks of: done once for all.
if [[ "$preset" == dev && "$*" != "-L unit" ]]; then
  SHOAL_WARM=$(mktemp -d)/socket
  export SHOAL_WARM
  OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' .venv/bin/python3 tests/python/warm.py serve "$SHOAL_WARM" &
  trap 'kill %1 2>/dev/null || true; rm -rf "$(dirname "$SHOAL_WARM")"' EXIT
fi

rc=0
jobs=$(($(tools/jobs.sh) + 4))  # two thirds of the cores were busy with two more than there are: many tests wait
GTEST_OUTPUT="xml:$results/" "${prefix[@]}" ctest --preset "$preset" -j "$jobs" "$@" || rc=$?
.venv/bin/python3 tools/count_tests.py "$results"
exit "$rc"
