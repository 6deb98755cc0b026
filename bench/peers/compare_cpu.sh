#!/usr/bin/env bash
# Quintet and Hugging Face, plain and with torch.compile, on this machine's CPU: the same model, batch and threads, float32,
# source 128 and target 32 tokens. They take turns, ROUNDS times; medians of the rounds are printed.
#
#   bench/peers/compare_cpu.sh [model:micro-batch[:dropout] ...]
#
# QUINTET: the binary (default build/quintet). PYTHON: one with torch and transformers (default python3). THREADS: default 2.
set -euo pipefail
cd "$(dirname "$0")/../.."
quintet=${QUINTET:-build/quintet}
python=${PYTHON:-python3}
threads=${THREADS:-2}
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(mini:16 mini:16:0.1 mt5-small:4)
rows=$(mktemp)
errors=$(mktemp)
trap 'rm -f "$rows" "$errors"' EXIT
export OMP_NUM_THREADS=$threads

# one CASE COMMAND...: a row of the case and the JSON that the command prints.
one() {
  local json
  json=$("${@:2}" 2>"$errors") || { cat "$errors" >&2 && echo "compare_cpu: failed: ${*:2}" >&2 && exit 1; }
  printf '%s\t%s\n' "$1" "${json//$'\n'/ }" >>"$rows"
}
for case in "${cases[@]}"; do
  IFS=: read -r model batch dropout <<<"$case"
  shape=(--model "$model" --micro-batch "$batch" --source 128 --target 32)
  peer=("$python" bench/peers/hf_step.py "${shape[@]}" --dropout "${dropout:-0}" --device cpu --threads "$threads" --steps 5)
  for _ in $(seq "${ROUNDS:-3}"); do
    one "$case" "$quintet" bench step "${shape[@]}" --set model.dropout="${dropout:-0}" --json
    one "$case" "${peer[@]}" --eager
    one "$case" "${peer[@]}"
  done
done

"$python" - "$rows" <<'PYTHON'
import json, statistics, sys
times = {}
for line in open(sys.argv[1]):
    case, row = line.split("\t")
    row = json.loads(row)
    times.setdefault(case, {}).setdefault(row.get("system", "quintet"), []).append(row["seconds"])
print(f'{"model:batch[:dropout]":<22} {"system":<20} {"step ms":>9} {"rounds":<28} {"Quintet is":>10}')
for case, systems in times.items():
    ours = statistics.median(systems["quintet"])
    for system, seconds in systems.items():
        median = statistics.median(seconds)
        each = " ".join(f"{s * 1e3:.0f}" for s in seconds)
        ratio = "" if system == "quintet" else f"{median / ours:.2f}x"
        print(f"{case:<22} {system:<20} {median * 1e3:>9.0f} {each:<28} {ratio:>10}")
PYTHON
