#!/usr/bin/env bash
# Several ranks on one GPU over NCCL: runs all tests of it, under MPS where it can be started, and prints one table.
#   tests/nccl/run.sh BUILD_FOLDER [LOG_FOLDER]
# BUILD_FOLDER has the programs nccl_*_test in tests/ (ninja nccl_collectives_test nccl_training_test nccl_train_test
# nccl_failure_test shoal_cli shoal_python). The exit code is the number of tests that failed. SECONDS_EACH: the most
# that one takes, 240. ONLY: a part of their names.
set -uo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
logs=${2:-$build/nccl-logs}
mkdir -p "$logs"
python=${PYTHON:-python3}
limit=${SECONDS_EACH:-240}
failed=0
table=$logs/table.txt
: > "$table"

mps=no
start_mps() {
  command -v nvidia-cuda-mps-control > /dev/null || return 0
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  export CUDA_DEVICE_MAX_CONNECTIONS=8  # worlds run side by side, and MPS has about 100 for all processes
  if timeout 20 nvidia-cuda-mps-control -d && echo get_server_list | timeout 20 nvidia-cuda-mps-control > /dev/null; then
    mps=yes
  else
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_DEVICE_MAX_CONNECTIONS
  fi
}
stop_mps() {
  [[ $mps == yes ]] || return 0
  echo quit | timeout 20 nvidia-cuda-mps-control > /dev/null 2>&1
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_DEVICE_MAX_CONNECTIONS
  mps=no
}
trap stop_mps EXIT

# run NAME COMMAND...
run() {
  local name=$1 begin=$SECONDS code
  shift
  [[ $name == *"${ONLY:-}"* ]] || return 0
  timeout "$limit" "$@" > "$logs/$name.log" 2>&1
  code=$?
  local result=passed
  if [[ $code -eq 77 ]]; then
    result="skipped: $(tail -1 "$logs/$name.log")"
  elif [[ $code -ne 0 ]]; then
    result="FAILED ($code)"
    failed=$((failed + 1))
  fi
  printf '%-28s %-4s %5d s  %s\n' "$name" "$mps" $((SECONDS - begin)) "$result" | tee -a "$table"
  grep -E '^\[ +FAILED +\] [A-Za-z]+.*\(' "$logs/$name.log" | sed 's/^/    /' | tee -a "$table"
}

printf '%-28s %-4s %7s  %s\n' test MPS time result | tee -a "$table"
start_mps
run collectives "$build/tests/nccl_collectives_test"
run training "$build/tests/nccl_training_test"
run train "$build/tests/nccl_train_test"
metadata=$build/python_metadata
run python env PYTHONPATH="$source/python:$metadata" OMP_NUM_THREADS=1 "$python" "$source/tests/python/nccl_test.py"
stop_mps  # processes are killed from here on, and a server of MPS would not like it; the rest is seen without it too
run failure "$build/tests/nccl_failure_test"
run collectives-2-without-mps "$build/tests/nccl_collectives_test" --gtest_filter='*world2*:NcclChoice*'
echo
for name in training train; do
  grep -hE '^(setting|stage|fp32|bf16|fp16|no overlap|states|gradients|weights|all on|two engines|[0-9]+ ranks on)' "$logs/$name.log" 2> /dev/null
done | tee -a "$table"
exit "$failed"
