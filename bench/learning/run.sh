#!/usr/bin/env bash
# Do fp8 and small moments learn as much as bf16? The same training under each, from the same three seeds, on the text of
# corpus.sh; the mean loss of the last tenth of the steps, and the spread between seeds beside it.
#
#   bench/learning/run.sh CORPUS OUT [MODEL:STEPS:SEQUENCES ...]      default: mt5-small:2000:32 mt5-base:300:32
#
# SETTINGS: which to compare (default "bf16 fp8 8bit"; fp8+8bit is both). QUINTET: the binary (default build/quintet).
# PEAK: of the learning rate (3e-4: at 1e-3 three seeds of mt5-small are 3 % apart after 2,000 steps). DEVICE: cuda, or cpu. SEEDS: default "1 2 3". Runs that have ended are not run again.
set -euo pipefail
quintet=$(realpath "${QUINTET:-$(dirname "$0")/../../build/quintet}")
corpus=${1:?the corpus} out=${2:?a folder for the runs}
shift 2
[ $# -gt 0 ] || set -- mt5-small:2000:32 mt5-base:300:32
for case in "$@"; do
  IFS=: read -r model steps sequences <<<"$case"
  for seed in ${SEEDS:-1 2 3}; do
    for setting in ${SETTINGS:-bf16 fp8 8bit}; do
      run=$out/$model/$setting-$seed
      [ ! -e "$run/summary.json" ] || continue
      mkdir -p "$out/$model"
      precision=bf16 moments=fp32
      case $setting in *fp8*) precision=fp8 ;; esac
      case $setting in *8bit*) moments=8bit ;; esac
      "$quintet" train --model "$model" --device "${DEVICE:-cuda}" --precision $precision --set train.steps="$steps" \
        --set model.vocabulary=0 --set data.kind=corpus --set data.folder="$corpus" --set data.pack=true \
        --set batch.micro_batch="$sequences" --set batch.source=512 --set train.seed="$seed" \
        --set optimizer.moments=$moments --set schedule.kind=cosine --set schedule.peak="${PEAK:-3e-4}" \
        --set schedule.warmup_steps=$((steps / 10)) --set output.folder="$run" --set output.checkpoints=false \
        --set output.log_every="$steps" >"$run.log" 2>&1 || { cat "$run.log"; exit 1; }
    done
  done
done
python3 "$(dirname "$0")/table.py" "$out"
