#!/usr/bin/env bash
# The project in miniature: what a step is and takes, that it is right, that it learns, from text to model, and what
# each way of spreading it over ranks costs.
set -euo pipefail
cd "$(dirname "$0")/.."
quintet() { "${BUILD:-build}/quintet" "$@"; }
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "A training step is a program. The first ops of tiny's:"
quintet inspect program --model tiny --source 32 | awk '/^  #/ && ++n <= 8'

say "So its memory is known before it runs, here or on any machine:"
quintet plan --model mt5-xl --micro-batch 8 --source 1024 --target 256 --precision bf16 --recompute selective

say "On a cluster, too: 2048 ranks, proved free of deadlock and counted without starting one:"
quintet plan --model mt5-xxl --ranks 2048 --tp 8 --pp 4 --zero 3 --micro-batch 1 --accumulate 8 \
  --source 1024 --target 256 --precision bf16 | awk 'NR <= 8'

say "Values agree with the reference implementation, on one rank and on four:"
quintet verify tests/goldens/grid
quintet launch -n 4 --threads 1 -- verify tests/goldens/grid --tp 2 --pp 2 --accumulate 2

say "Training on three made-up languages, whose best possible loss is known:"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
quintet train examples/tiny.toml --set output.folder="$folder" --set train.steps=1500

say "From raw text to training: made-up text, a tokenizer for it, a corpus of token shards, a model:"
quintet data generate "$folder/text" --languages en,de,ru,ar --kilobytes 300
quintet tokenizer train --out "$folder/demo.model" --vocabulary 4096 --coverage 0.9995 "$folder"/text/*/text.txt
quintet data build --tokenizer "$folder/demo.model" --out "$folder/corpus" --language-by directory "$folder/text"
quintet data inspect "$folder/corpus" --sample 3 --source 48 | tail -2
quintet train --model mini --source 64 --micro-batch 8 --set data.kind=corpus --set data.folder="$folder/corpus" \
  --set train.steps=60 --set output.log_every=20

say "The same training under 14 layouts: what each costs, and that all learn the same:"
quintet sweep -n 4 examples/layouts.toml

# Two nodes with a network of their own where that is allowed (root, iproute2), else two ranks of this machine.
study=studies/demo.toml
if quintet cluster up --name demo --nodes 1 --bandwidth none >/dev/null 2>&1; then
  quintet cluster down --name demo >/dev/null
  say "A study on two emulated nodes: what ZeRO 3 costs on a fast and on a slow network, measured in random order:"
else
  study=studies/demo-local.toml
  say "A study on two ranks (emulated nodes need root and iproute2): every combination, three times, in random order:"
fi
study_folder="${BUILD:-build}/demo"
rm -rf "$study_folder"
quintet study run "$study" --out "$study_folder"
say "Its report, one page for a browser: $(quintet study report "$study_folder")"
