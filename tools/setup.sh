#!/usr/bin/env bash
# Brings a Debian or Ubuntu machine to where Shoal builds: system packages by apt, Python packages in .venv.
#   tools/setup.sh            what building, testing and the demo need
#   tools/setup.sh lint       clang-tidy too
#   tools/setup.sh trl        TRL too, for its test, where Python is 3.11 or newer
#   tools/setup.sh monitors   tensorboard and wandb, for their tests, in .venv-monitors: beside .venv, where a Trainer would find them
#   tools/setup.sh browser    Chromium too, for the test of the report's page (about 400 MB)
#   tools/setup.sh hosts      what tests of several hosts use beside: a server of ssh, a firewall, Slurm. Debian starts
#                             the server of ssh on this machine; without all this those tests are skipped
# What is there already is left alone: a second call asks dpkg, compares one stamp, and touches no network.
# It does not configure or build; the Makefile does.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache libfmt-dev libgtest-dev libbenchmark-dev libcli11-dev libxxhash-dev liburing-dev
          openmpi-bin iproute2 util-linux)
[[ "${1:-}" == lint ]] && packages+=(clang-tidy)
[[ "${1:-}" == browser ]] && packages+=(chromium)
[[ "${1:-}" == hosts ]] && packages+=(openssh-server openssh-client nftables slurmctld slurmd slurm-client)

say() { echo "[setup] $*"; }
fail() { echo "[setup] $*" >&2; exit 1; }

# Python 3.10 or newer that can make an environment with pip in it. Debian's python3 needs python3-venv for that.
python_fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
python_makes_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  local package
  for package in "${packages[@]}"; do
    grep -qx "installed $package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  local as_root=()
  local command="apt-get update && apt-get install -y --no-install-recommends $*"
  if [[ $(id -u) -ne 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      fail "System packages are missing: $*. Run this once, then call make again:

  sudo sh -c '$command'
"
    fi
  fi
  say "installing system packages: $*"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

set_up_system() {
  if ! command -v dpkg-query >/dev/null; then
    local tool
    for tool in g++ cmake ninja; do
      command -v "$tool" >/dev/null ||
        fail "No $tool here, and this is not Debian or Ubuntu. Install what stands for: ${packages[*]}."
    done
    return
  fi
  # The environment may be made already; then the package that makes one is not needed any more.
  if [[ ! -x .venv/bin/python3 ]] && ! python_makes_venvs python3; then
    packages+=(python3 python3-venv)
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -gt 0 ]]; then
    install_packages "${missing[@]}"
  fi
}

choose_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if python_fits "$python" && python_makes_venvs "$python"; then
      echo "$python"
      return
    fi
  done
  fail "No python3 of version 3.10 or newer that can make environments (found: $(python3 --version 2>&1)).
        Install one, or put one first in PATH."
}

# CUDA's libraries beside all the rest: pip unpacks on one core, which takes longer than the download. Modules are
# compiled when they are imported, as most never are.
install_lock() {
  local pip=(.venv/bin/python3 -m pip install --disable-pip-version-check --no-deps --no-compile --progress-bar off)
  local cuda='^(nvidia-|triton)'
  "${pip[@]}" -r <(grep -E "$cuda" "$1") &
  local beside=$!
  "${pip[@]}" -r <(grep -vE "$cuda" "$1") || { wait "$beside" || true; fail "pip could not install what $1 names."; }
  wait "$beside" || fail "pip could not install the CUDA libraries that $1 names."
}

set_up_python() {
  # A changed lock, another interpreter, or a stamp that was copied from elsewhere: each gives another line.
  local want have=""
  want="$(sha256sum <requirements.lock | cut -c 1-64) $PWD/.venv"
  [[ -r .venv/.lock-stamp ]] && have=$(<.venv/.lock-stamp)
  if [[ "$have" == "$want" && -x .venv/bin/python3 ]]; then
    return
  fi
  if ! .venv/bin/python3 -m pip --version >/dev/null 2>&1 || ! python_fits .venv/bin/python3; then
    local python
    python=$(choose_python)
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  if .venv/bin/python3 tools/check_lock.py requirements.lock >/dev/null; then
    say ".venv already holds what requirements.lock names"
  else
    say "installing requirements.lock into .venv (about 5 GB with the CUDA libraries of the torch wheel)"
    install_lock requirements.lock
    .venv/bin/python3 tools/check_lock.py requirements.lock
  fi
  echo "$want" >.venv/.lock-stamp
}

set_up_system
set_up_python
if [[ "${1:-}" == trl ]]; then
  if ! .venv/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "TRL's test will be skipped: requirements-trl.lock needs Python 3.11, and .venv has $(.venv/bin/python3 --version)."
  elif ! .venv/bin/python3 tools/check_lock.py requirements-trl.lock >/dev/null; then
    .venv/bin/python3 -m pip install --disable-pip-version-check --no-deps --no-compile -r requirements-trl.lock
  fi
fi
if [[ "${1:-}" == monitors ]]; then
  if ! .venv/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "Tests of monitors will be skipped: requirements-monitors.lock needs Python 3.11, and .venv has $(.venv/bin/python3 --version)."
  elif ! PYTHONPATH=.venv-monitors .venv/bin/python3 tools/check_lock.py requirements-monitors.lock >/dev/null; then
    rm -rf .venv-monitors
    .venv/bin/python3 -m pip install --disable-pip-version-check --no-deps --no-compile --target .venv-monitors -r requirements-monitors.lock
  fi
fi
