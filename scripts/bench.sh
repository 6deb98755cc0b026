#!/usr/bin/env bash
# Runs the benchmarks of this machine's CPU. Each prints its figures against a ceiling or a peer measured in the
# same run; machines are noisy, ratios less so.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${BUILD:-build}
# shellcheck disable=SC2086  # several options
scripts/configure.sh release "$folder" ${CMAKE_ARGS:-}
cmake --build "$folder" -j "${JOBS:-$(scripts/jobs.sh)}" --target quintet gemm_bench | tail -1

echo
echo "== matrix products (for oneDNN beside them, install libdnnl-dev)"
"$folder"/bench/gemm_bench
echo
echo "== one training step of mini"
"$folder"/quintet bench step --model mini --micro-batch 16 --source 128 --target 32
echo
echo "== two ranks of one thread against one rank of two"
"$folder"/quintet sweep -n 2 bench/two_ranks.toml --layout ranks=1,train.threads=2 --layout zero=0 --layout zero=1 \
  --layout zero=2 --layout zero=3 --layout tp=2 --layout pp=2,batch.micro_batch=4
