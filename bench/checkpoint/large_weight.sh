#!/usr/bin/env bash
# large_weight.sh [RANKS] [FOLDER] [LAYOUT...]: a model with one weight of 2.5 GiB (more than a 32-bit count of bytes) is
# trained for a step, saved, loaded again and trained for another, on several ranks. Prints each rank's highest memory
# against what `quintet plan` says, and what a rank without any model takes.
set -euo pipefail
ranks=${1:-8} folder=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
layout=("$@")
[ ${#layout[@]} -gt 0 ] || layout=(--tp "$ranks")
quintet=$(cd "$(dirname "$0")/../.." && pwd)/build/quintet
mkdir -p "$folder"
cat > "$folder/config.json" <<'JSON'
{"model_type": "mt5", "vocab_size": 1310720, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_heads": 8,
 "num_layers": 1, "num_decoder_layers": 1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": true}
JSON
options=(--model "$folder/config.json" --micro-batch 1 --source 16 "${layout[@]}" --set optimizer.name=adafactor)

# Runs a command on all ranks and prints the most memory that one of them had, in MiB.
highest() {
  "$quintet" launch -n "$ranks" --threads 1 -- "$@" > "$folder/log" 2>&1 &
  local launched=$! most=0 pid kib
  while kill -0 $launched 2> /dev/null; do
    for pid in $(pgrep -x quintet); do
      grep -qzF -- "$folder" "/proc/$pid/cmdline" 2> /dev/null || continue
      kib=$(sed -n 's/^VmHWM:\s*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2> /dev/null) || continue
      [ "${kib:-0}" -gt "$most" ] && most=$kib
    done
    sleep 0.3
  done
  wait $launched || { tail -20 "$folder/log" >&2; exit 1; }
  echo $((most / 1024))
}

number() { sed -n "s/^  \"$1\": \([0-9]*\),\?$/\1/p" "$folder/plan.json" | head -1; }
"$quintet" plan "${options[@]}" --ranks "$ranks" --json > "$folder/plan.json"
planned=$((($(number total_bytes) + $(number host_bytes) + $(number saving_bytes)) / 1048576))
bare=$(highest train --model tiny --source 16 --micro-batch "$ranks" --set train.steps=2 --set output.folder="$folder/bare")
run=(train "${options[@]}" --set output.folder="$folder/run" --set output.resume=true --set output.log_every=1)
saved=$(highest "${run[@]}" --set train.steps=1)
resumed=$(highest "${run[@]}" --set train.steps=2)
"$quintet" checkpoint verify "$folder/run"
echo "layout ${layout[*]} on $ranks ranks; MiB of the rank that takes most"
echo "planned (step $(($(number total_bytes) / 1048576)), saving at most $(($(number saving_bytes) / 1048576))): $planned"
echo "without a model (program, libraries, MPI's buffers): $bare"
for what in saved resumed; do
  echo "$what: ${!what}, without the bare rank's $((${!what} - bare)): $((100 * (${!what} - bare) / planned)) % of the plan"
done
