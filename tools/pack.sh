#!/usr/bin/env bash
# Packs programs of a build into a folder that can be copied to a machine with the same torch wheel and run there.
#   tools/pack.sh [-b build/dev] -o FOLDER [PROGRAM...]     programs by name; left out: the command, GPU tests, GPU benchmarks
#   FOLDER/run shoal train ...                              on the other machine; finds torch through python3
#   FOLDER/run_gpu_tests                                    there: all packed GPU tests; --help says more
# The program `python` is the Python packages, with the extension that the build made; configure that build with
# -DSHOAL_EXTENSION_PYTHON=<a python of the version there> where versions differ. There: FOLDER/run python3 script.py
# Libraries that are neither torch's nor the C library's own come along. CUDA's runtime is linked statically.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

build=build/dev
folder=
while getopts b:o: flag; do
  case $flag in
    b) build=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ -n "$folder" ]] || { echo "[pack] give the folder to make: tools/pack.sh -o FOLDER" >&2; exit 2; }
folder=$(cd "$caller" && realpath -m "$folder")
if [[ -e "$folder" && ! -x "$folder/run" ]]; then
  echo "[pack] $folder is there and is no pack. Give a new folder, or remove it." >&2
  exit 2
fi

find_program() { find "$build" -type f -perm -u+x -name "$1" -not -path '*/CMakeFiles/*' | head -1; }

programs=("$@")
if [[ ${#programs[@]} -eq 0 ]]; then
  mapfile -t programs < <(find "$build" -type f -perm -u+x \( -name shoal -o -name 'cuda_*_test' -o -name 'bench_cuda_*' \) \
    -not -path '*/CMakeFiles/*' -printf '%f\n' | sort)
fi

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"

pack_libraries_of() {
  { ldd "$1" || true; } | awk '/=> \// {print $3}' |
    { grep -v -E '/(torch|nvidia)/|/lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|gomp|python.*)[-.]' || true; } |
    xargs -r -I{} cp -L {} "$folder/lib/"
}

# The distribution's metadata too: Hugging Face's packages look for it.
pack_python() {
  local python extension version
  python=$(sed -n 's/^SHOAL_EXTENSION_PYTHON:[A-Z]*=//p' "$build/CMakeCache.txt")
  extension=python/shoal/_core$("$python" -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
  [[ -e "$extension" ]] || { echo "[pack] there is no extension. Build the target shoal_python first." >&2; exit 1; }
  mkdir -p "$folder/python"
  tar -c -C python --exclude='*.so' --exclude=__pycache__ shoal deepspeed | tar -x -C "$folder/python"
  cp "$extension" "$folder/python/shoal/"
  strip "$folder/python/shoal/${extension##*/}"
  version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/deepspeed/version.py)
  mkdir "$folder/python/deepspeed-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: deepspeed\nVersion: %s\n' "$version" >"$folder/python/deepspeed-$version.dist-info/METADATA"
  pack_libraries_of "$extension"
}

for name in "${programs[@]}"; do
  if [[ "$name" == python ]]; then
    pack_python
    continue
  fi
  path=$(find_program "$name")
  [[ -n "$path" ]] || { echo "[pack] $build has no program $name. Build it first." >&2; exit 1; }
  cp "$path" "$folder/bin/"
  strip "$folder/bin/$name"
  pack_libraries_of "$path"
done

cp tools/packed/* "$folder/"
du -sh "$folder" | awk '{print "[pack] " $2 ": " $1}'
