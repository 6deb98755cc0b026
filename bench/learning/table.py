#!/usr/bin/env python3
"""The table of run.sh: mean loss of the last tenth of the steps, by setting and seed."""
import json, pathlib, statistics, sys

for model in sorted(p for p in pathlib.Path(sys.argv[1]).iterdir() if p.is_dir()):
    ends, spikes = {}, {}
    for run in sorted(model.iterdir()):
        if not (run / "summary.json").exists():
            continue
        setting, seed = run.name.rsplit("-", 1)
        losses = [json.loads(line)["loss"] for line in open(run / "metrics.jsonl")]
        ends.setdefault(setting, {})[seed] = statistics.fmean(losses[-len(losses) // 10:])
        # A spike: a step after the first tenth whose loss is far above those around it.
        window = 50
        spikes[setting] = spikes.get(setting, 0) + sum(
            losses[i] > 1.25 * statistics.median(losses[max(0, i - window):i + window])
            for i in range(len(losses) // 10, len(losses)))
    base = ends.get("bf16", {})
    print(f"{model.name}: {len(losses)} steps, loss over the last {len(losses) // 10}")
    for setting, by_seed in ends.items():
        values = list(by_seed.values())
        off = [100 * (v / base[s] - 1) for s, v in by_seed.items() if s in base]
        spread = 100 * (max(values) / min(values) - 1)
        print(f"  {setting:<10} " + "  ".join(f"{v:.4f}" for v in values) +
              f"   mean {statistics.fmean(values):.4f}" +
              (f"   against bf16 {statistics.fmean(off):+.2f} % ({min(off):+.2f} to {max(off):+.2f})" if off else "") +
              f"   between seeds {spread:.2f} %   spikes {spikes[setting]}")
