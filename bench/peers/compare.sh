#!/usr/bin/env bash
# Quintet and Hugging Face + torch.compile on the same shapes, one after the other on the same GPU, side by side.
#
#   bench/peers/compare.sh [model:micro-batch[:options of quintet] ...]
#
# Default: base, large, XL and XXL, the last also with less memory. A peer is run once for a model and micro-batch.
# QUINTET: the binary (default build/quintet). PYTHON: one with torch and transformers (default python3).
set -euo pipefail
cd "$(dirname "$0")/../.."
quintet=${QUINTET:-build/quintet}
python=${PYTHON:-python3}
cases=("$@")
[ ${#cases[@]} -gt 0 ] ||
  cases=(mt5-base:64 mt5-large:16 "mt5-xl:8:--set optimizer.master=remainder" mt5-xxl:4
    "mt5-xxl:4:--recompute selective --offload 0.36")
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

peers=" "
for case in "${cases[@]}"; do
  IFS=: read -r model batch options <<<"$case"
  read -ra extra <<<"$options"
  case $model in mt5-7b | mt5-xxl) extra+=(--optimizer adafactor --set optimizer.master=remainder) ;; esac
  "$quintet" bench step --device cuda --precision bf16 --model "$model" --micro-batch "$batch" --source 1024 \
    --target 256 "${extra[@]}" --json | "$python" -c '
import json, sys
r = json.load(sys.stdin)
print(json.dumps({"model": r["model"], "system": "quintet '"$options"'".strip(), "micro_batch": '"$batch"',
                  "seconds": r["seconds"], "tokens_per_second": r["tokens_per_second"],
                  "flops_per_second": r["flops_per_second"], "peak_bytes": r["measured_bytes"]}))' >>"$rows"
  [[ $peers != *" $model:$batch "* ]] || continue
  peers+="$model:$batch "
  "$python" bench/peers/hf_step.py --model "$model" --micro-batch "$batch" 2>/dev/null | tail -1 >>"$rows" ||
    echo "the peer failed on $model" >&2
done

"$python" - "$rows" <<'PYTHON'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(f'{"model":<10} {"system":<44} {"batch":>5} {"step ms":>9} {"tok/s":>9} {"TFLOP/s":>8} {"peak GiB":>9} '
      f'{"speed":>6} {"memory":>7}')
peers = {r["model"]: r for r in rows if not r["system"].startswith("quintet")}
for r in rows:
    peer = peers.get(r["model"])
    ratio = f'{r["tokens_per_second"] / peer["tokens_per_second"]:.2f}x' if peer else ""
    saved = f'{100 * (r["peak_bytes"] / peer["peak_bytes"] - 1):+.0f} %' if peer else ""
    print(f'{r["model"]:<10} {r["system"]:<44} {r["micro_batch"]:>5} {r["seconds"] * 1e3:>9.1f} '
          f'{r["tokens_per_second"]:>9.0f} {r["flops_per_second"] / 1e12:>8.1f} {r["peak_bytes"] / 2**30:>9.1f} '
          f'{ratio:>6} {saved:>7}')
PYTHON
