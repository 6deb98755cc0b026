#!/bin/bash
# The grid as the truth, then the search and Optuna with a tenth of its steps over five seeds, and the
# ladder from tiny to mini. Two cores, about half an hour.
#
#   bench/search/run.sh build/quintet OUT [python with optuna]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1 out=$2 python=${3:-python3}
mkdir -p "$out"
"$binary" search run "$here/grid.toml" --out "$out/grid"
for seed in 1 2 3 4 5; do
  sed "s/^sampler = .*/&\nseed = $seed/" "$here/search.toml" > "$out/search-$seed.toml"
  "$binary" search run "$out/search-$seed.toml" --out "$out/search-$seed"
done
for ladder in ladder ladder-width; do
  "$binary" search run "$here/$ladder.toml" --out "$out/$ladder"
  "$binary" search report "$out/$ladder"
done
for seed in 1 2 3 4 5; do
  for pruner in median halving; do
    "$python" "$here/optuna_tpe.py" "$binary" "$out/optuna-$pruner-$seed" --seed "$seed" --pruner "$pruner"
  done
done
"$python" "$here/summary.py" "$out"
