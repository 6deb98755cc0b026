#!/usr/bin/env bash
# The engine in miniature: what a step is, what it takes, that it learns, that it is right.
set -euo pipefail
cd "$(dirname "$0")/.."
quintet=build/quintet
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "A training step is a program. The first ops of tiny's:"
$quintet inspect program --model tiny --source 32 | grep -m 8 -E '^  #'

say "So its memory is known before it runs, here or on any machine:"
$quintet plan --model mt5-xl --micro-batch 8 --source 1024 --target 256 --precision bf16 --recompute selective

say "Training on three made-up languages, whose best possible loss is known:"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
$quintet train examples/tiny.toml --set output.folder="$folder"

say "Values agree with the reference implementation:"
$quintet verify tests/goldens/tiny
