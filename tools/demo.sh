#!/usr/bin/env bash
# What `make demo` runs: a language model learns this repository's own text with ZeRO-3 on two ranks, stops half-way, goes
# on with one rank, and writes a few lines.  demo.sh SHOAL [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
shoal=$1
folder=${2:-build/demo}
steps=${DEMO_STEPS:-600}

rm -rf "$folder"
mkdir -p "$folder"
find docs include src tests -name '*.md' -o -name '*.h' -o -name '*.cpp' | LC_ALL=C sort | xargs cat >"$folder/text.txt"

say() { printf '\n== %s\n' "$*"; }
train() {
  "$shoal" train --model llama-tiny --data "text:$folder/text.txt" --config examples/demo.json --sequence 64 \
    --steps "$steps" --eval-every $((steps / 4)) --eval-batches 8 --log-every 50 --out "$folder/run" "$@"
}

say "two ranks, stage 3, the first half"
train --ranks 2 --stop-at $((steps / 2))
say "the second half, on one rank, from the checkpoint of two"
train --resume auto
say "what it has learned"
"$shoal" generate --checkpoint "$folder/run" --prompt "// The " --tokens 240 --temperature 0.6
say "memory of each rank of this run, and at the other stages"
"$shoal" plan --model llama-tiny --config examples/demo.json --world 2 --sequence 64
