#!/usr/bin/env bash
# What `make wheel` does: wheels of shoal and of the package that answers as deepspeed, in build/wheels.
#   tools/wheel.sh          for the torch of .venv
#   tools/wheel.sh 2.15     for the newest torch 2.15, in .venv-torch-2.15, which is made when it is not there (about 5 GB)
# A wheel says its torch in its name (0.1.0-215torch) and depends on it.
set -euo pipefail
cd "$(dirname "$0")/.."

environment=.venv
if [[ $# -gt 0 ]]; then
  [[ "$1" =~ ^2\.[0-9]+$ ]] || { echo "[wheel] '$1' is no minor version of torch. Say TORCH=2.15 or the like." >&2; exit 2; }
  environment=.venv-torch-$1
  if ! "$environment/bin/python3" -c 'import torch' 2>/dev/null; then
    .venv/bin/python3 -m venv --clear "$environment"
    "$environment/bin/python3" -m pip install "torch==$1.*" numpy
  fi
fi
# pip builds in an environment of its own; the backend finds the torch of the one that it is called in. VIRTUAL_ENV may name another.
CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-${JOBS:-1}} \
  env -u VIRTUAL_ENV "$environment/bin/python3" -m pip wheel --no-deps -w build/wheels . ./python
