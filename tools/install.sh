#!/usr/bin/env bash
# What `make install` does after the build: tools/install.sh BUILD PREFIX
# The command runs against the torch that the build used, and finds it where it was: keep that environment.
set -euo pipefail
build=$1
prefix=$2
cmake --install "$build" --prefix "$prefix" --strip >"$build/install.log" || { cat "$build/install.log"; exit 1; }
echo "installed $("$prefix/bin/shoal" --version) in $prefix: bin/shoal, include/shoal, and the CMake package Shoal"
case ":$PATH:" in
  *":$prefix/bin:"*) ;;
  *) echo "$prefix/bin is not on your PATH. Add it: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
