#!/usr/bin/env bash
# Builds the kernels and their tests for x86-64 alone, without CMake and torch, and runs them: on an x86-64 machine as
# they are, elsewhere through an emulator. Prints which instruction sets ran and why the others did not; ends with 1
# when a test fails, when no vector version ran at all, or when one that --require names did not.
#
#   tools/kernel_check_x86.sh                                  on x86-64
#   tools/kernel_check_x86.sh --require avx2,avx512            the same, and both must have run
#   tools/kernel_check_x86.sh --cxx x86_64-linux-gnu-g++ --emulator "qemu-x86_64 -cpu max -L /usr/x86_64-linux-gnu"
set -euo pipefail
cd "$(dirname "$0")/.."

cxx=${CXX:-g++}
emulator=
required=
filter='*'
out=build-kernel-check-x86
while [[ $# -gt 0 ]]; do
  case $1 in
    --cxx) cxx=$2; shift 2 ;;
    --emulator) emulator=$2; shift 2 ;;
    --require) required=${2//,/ }; shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) sed -n '2,9p' "$0"; exit 2 ;;
  esac
done
if ! "$cxx" -dumpmachine | grep -q x86_64; then
  echo "$cxx compiles for $("$cxx" -dumpmachine), not for x86-64. Name a cross compiler with --cxx."
  exit 2
fi
gtest=${GTEST_SOURCES:-/usr/src/googletest/googletest}
if [[ ! -f $gtest/src/gtest-all.cc ]]; then
  echo "GoogleTest's sources are not in $gtest. Install googletest, or name their folder in GTEST_SOURCES."
  exit 2
fi

mkdir -p "$out"
# The flags repeat src/CMakeLists.txt and cmake/Flags.cmake.
flags=(-std=c++20 -DNDEBUG -DFMT_HEADER_ONLY -Wall -Wextra -Wno-unused-parameter -ffp-contract=off)
flags+=(-Iinclude -Isrc -Itests -isystem "$gtest/include")
[[ -d /usr/include/fmt ]] && mkdir -p "$out/include" && ln -sfn /usr/include/fmt "$out/include/fmt"
flags+=(-isystem "$out/include")
kernel_flags=(-O3 -fno-math-errno)
avx2_flags=(-mavx2 -mfma -mf16c)
avx512_flags=("${avx2_flags[@]}" -mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-maybe-uninitialized)

objects=()
compile() {  # source, then flags
  local object="$out/$(echo "$1" | tr '/' '_').o"
  objects+=("$object")
  if [[ ! -e $object || -n $(find "$1" src/kernels src/base include tests/unit/kernels -name '*.h' -newer "$object") ||
        $1 -nt $object ]]; then
    "$cxx" "${flags[@]}" "${@:2}" -c "$1" -o "$object"
  fi
}

for source in src/kernels/*.cpp; do
  case $source in
    *_neon.cpp | */no_x86_*.cpp) ;;
    *_avx512.cpp) compile "$source" "${kernel_flags[@]}" "${avx512_flags[@]}" ;;
    *_avx2.cpp) compile "$source" "${kernel_flags[@]}" "${avx2_flags[@]}" ;;
    *) compile "$source" "${kernel_flags[@]}" ;;
  esac
done

# See [Note: nothing of an instruction set's file leaks] in src/kernels/element.h.
for object in "$out"/*_avx2.cpp.o "$out"/*_avx512.cpp.o; do
  leaked=$(nm -C "$object" | awk '$2 ~ /^[WVuBDC]$/' || true)
  count=$(nm "$object" | awk '$2 == "T"' | wc -l)
  if [[ -n $leaked || $count != 1 ]]; then
    echo "FAILED: $object gives the linker more than its one function:"
    nm -C "$object" | awk '$2 ~ /^[TWVuBDC]$/'
    exit 1
  fi
done
echo "symbols: each AVX2 and AVX-512 object exports its one function and nothing weak"

for source in src/base/error.cpp src/base/check.cpp tests/unit/kernels/*_test.cpp; do compile "$source" -O1; done
compile "$gtest/src/gtest-all.cc" -O1 -I"$gtest"
compile "$gtest/src/gtest_main.cc" -O1
"$cxx" "${objects[@]}" -o "$out/unit_kernels" -pthread -static-libstdc++ -static-libgcc

log=$out/log.txt
status=0
$emulator "$out/unit_kernels" --gtest_filter="$filter" --gtest_brief=0 >"$log" 2>&1 || status=$?
grep -E '^\[  FAILED|Failure$' "$log" | head -20 || true
echo "machine: $(uname -m), compiler: $("$cxx" --version | head -1)${emulator:+, through: $emulator}"
ran=
for isa in neon avx2 avx512; do
  passed=$(grep -cE "^\[       OK \] .*/$isa " "$log" || true)
  skipped=$(grep -cE "^\[  SKIPPED \] .*/$isa " "$log" || true)
  if [[ $passed -gt 0 ]]; then
    echo "$isa: ran, $passed tests passed"
    ran+=" $isa"
  elif [[ $skipped -gt 0 ]]; then
    echo "$isa: NOT RUN, $skipped tests skipped: $(grep -m1 -E "^$isa: " "$log" | cut -d' ' -f2-)"
  else
    echo "$isa: NOT RUN, no test passed or was skipped"
  fi
done
tail -n 30 "$log" | grep -E '^\[  (PASSED|SKIPPED|FAILED)' | grep -E 'tests?[,.]' || true
if [[ $status -ne 0 ]]; then
  echo "FAILED with status $status: see $log"
  exit 1
fi
if [[ -z $ran ]]; then
  echo "FAILED: no vector version ran, so nothing was compared with the reference"
  exit 1
fi
for isa in $required; do
  if [[ " $ran " != *" $isa "* ]]; then
    echo "FAILED: $isa was required and did not run"
    exit 1
  fi
done
