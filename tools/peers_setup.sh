#!/usr/bin/env bash
# Makes .venv-deepspeed: the environment of the programs that Shoal is measured against (torch and DeepSpeed).
# Apart from .venv, so that DeepSpeed's own package never meets ours. A second call does nothing.
# DeepSpeed compiles its CPU Adam at first use: a C++ compiler and ninja are needed, no CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
deepspeed_version=0.19.6
venv=.venv-deepspeed
stamp="$venv/.ready-torch-$torch_version-deepspeed-$deepspeed_version"

if [[ ! -e "$stamp" ]]; then
  [[ -x "$venv/bin/python" ]] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "torch==$torch_version" ninja numpy setuptools wheel
  # DeepSpeed's setup imports torch, so it must be built inside this environment and after torch.
  DS_BUILD_OPS=0 "$venv/bin/pip" install --quiet --no-build-isolation "deepspeed==$deepspeed_version"
  touch "$stamp"
fi

export PATH="$PWD/$venv/bin:$PATH"
exec "$venv/bin/python" - <<'PY'
import deepspeed
import torch
from deepspeed.ops.op_builder import CPUAdamBuilder

CPUAdamBuilder().load(verbose=False)
print(f"peers ready: torch {torch.__version__}, deepspeed {deepspeed.__version__}, its CPU Adam compiled")
PY
