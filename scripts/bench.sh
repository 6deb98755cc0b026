#!/usr/bin/env bash
# Runs the benchmarks of this machine's CPU. Each prints its figures against a ceiling or a peer measured in the
# same run; machines are noisy, ratios less so.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target quintet gemm_bench | tail -1

echo
echo "== matrix products (for oneDNN beside them, install libdnnl-dev)"
build/bench/gemm_bench
echo
echo "== one training step of mini"
build/quintet bench step --model mini --micro-batch 16 --source 128 --target 32
echo
echo "== two ranks of one thread against one rank of two"
build/quintet sweep -n 2 bench/two_ranks.toml --layout ranks=1,train.threads=2 --layout zero=0 --layout zero=1 \
  --layout zero=2 --layout zero=3 --layout tp=2 --layout pp=2,batch.micro_batch=4
