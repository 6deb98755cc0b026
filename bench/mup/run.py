#!/usr/bin/env python3
"""Trains models of several widths at several learning rates, with and without model.base_width, and draws the losses.

    bench/mup/run.py --csv mup.csv --table mup.md --picture mup.svg

The models are `tiny` in other widths: heads of 16 values, d_ff = 2 d_model, 2 + 2 layers, 512 words. Data is synthetic, the
same for all. Runs that the CSV file has already are not repeated: started again, it goes on where it stopped.
"""
import argparse
import csv
import json
import math
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTHS = [32, 64, 128, 256]
BASE = 32
RATES = {"adamw": [2.0**e for e in range(-11, -3)], "adafactor": [2.0**e for e in range(-9, -1)]}
COLUMNS = ["optimizer", "base_width", "width", "rate", "seed", "steps", "loss"]


def model_folder(scratch, width):
    folder = scratch / f"width-{width}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(
        model_type="mt5", vocab_size=512, d_model=width, d_kv=16, num_heads=width // 16, d_ff=2 * width, num_layers=2,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0)))
    return folder


def train(args, scratch, row):
    """The mean loss of the last tenth of a run; infinite where it diverged."""
    out = scratch / "run"
    settings = {"model.name": model_folder(scratch, row["width"]), "model.base_width": row["base_width"],
                "optimizer.name": row["optimizer"], "schedule.peak": row["rate"], "schedule.kind": "cosine",
                "schedule.warmup_steps": args.steps // 10, "train.steps": args.steps, "train.seed": row["seed"],
                "train.threads": args.threads, "batch.micro_batch": 8, "batch.source": 64,
                "output.folder": out, "output.checkpoints": "false", "output.log_every": args.steps}
    command = [args.quintet, "train"] + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 5:
        return math.inf
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads((out / "summary.json").read_text())["final_loss"]


def rows_of(path):
    if not path.exists():
        return []
    with path.open() as file:
        return [dict(row, base_width=int(row["base_width"]), width=int(row["width"]), rate=float(row["rate"]),
                     seed=int(row["seed"]), steps=int(row["steps"]), loss=float(row["loss"]))
                for row in csv.DictReader(file)]


def measure(args):
    rows = rows_of(args.csv)
    known = {tuple(row[c] for c in COLUMNS[:-1]) for row in rows}
    with tempfile.TemporaryDirectory(prefix="quintet-mup-") as scratch:
        for width in WIDTHS:
            for base in (0, BASE):
                if width == BASE and base == BASE:
                    continue  # to the bit what it is without
                for seed in range(1, args.seeds + 1):
                    for rate in RATES[args.optimizer]:
                        row = dict(zip(COLUMNS, (args.optimizer, base, width, rate, seed, args.steps)))
                        if tuple(row.values()) in known:
                            continue
                        row["loss"] = train(args, pathlib.Path(scratch), row)
                        rows.append(row)
                        print(*(row[c] for c in COLUMNS), flush=True)
                        with args.csv.open("w", newline="") as file:
                            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                            writer.writeheader()
                            writer.writerows(rows)
    return rows


def curves(rows, args, base):
    """By width: [(rate, mean loss over seeds)]."""
    result = {}
    for width in WIDTHS:
        own = 0 if width == BASE else base
        points = []
        for rate in RATES[args.optimizer]:
            losses = [r["loss"] for r in rows if (r["optimizer"], r["base_width"], r["width"], r["rate"], r["steps"]) ==
                      (args.optimizer, own, width, rate, args.steps)]
            if losses:
                points.append((rate, sum(losses) / len(losses)))
        result[width] = points
    return result


def best(points):
    """The rate of lowest loss, by a parabola through the lowest point and its neighbours; and that loss."""
    at = min(range(len(points)), key=lambda i: points[i][1])
    x = math.log2(points[at][0])
    if 0 < at < len(points) - 1:
        left, here, right = (points[i][1] for i in (at - 1, at, at + 1))
        if math.isfinite(left + right) and left + right > 2 * here:
            x += (left - right) / (2 * (left + right - 2 * here))
    return 2.0**x, points[at][1]


def table(rows, args):
    lines = ["| width | best rate without | its loss | best rate with | its loss | loss at the rate best at width "
             f"{WIDTHS[0]}, without | with |", "|---|---|---|---|---|---|---|"]
    without, with_base = curves(rows, args, 0), curves(rows, args, BASE)
    chosen = min(without[WIDTHS[0]], key=lambda p: p[1])[0]
    for width in WIDTHS:
        cells = [str(width)]
        for points in (without[width], with_base[width]):
            rate, loss = best(points)
            cells += [f"2^{math.log2(rate):.1f}", f"{loss:.3f}"]
        cells += [f"{dict(points)[chosen]:.3f}" for points in (without[width], with_base[width])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def picture(rows, args):
    """Two panels, loss by learning rate, a line for each width."""
    colours = ["#a6c8e8", "#5b9bd5", "#2568a8", "#0b2e59"]
    panels = [("without", curves(rows, args, 0)), (f"with model.base_width = {BASE}", curves(rows, args, BASE))]
    losses = sorted(p[1] for _, c in panels for points in c.values() for p in points if math.isfinite(p[1]))
    low, high = losses[0] - 0.1, min(losses[-1], 7.0) + 0.1
    wide, tall, left, top, gap = 320, 260, 56, 40, 40

    def x_of(panel, rate):
        first, last = math.log2(RATES[args.optimizer][0]), math.log2(RATES[args.optimizer][-1])
        return left + panel * (wide + gap) + wide * (math.log2(rate) - first + 0.5) / (last - first + 1)

    def y_of(loss):
        return top + tall * (1 - (min(loss, high) - low) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + 2 * wide + gap + 16} {top + tall + 70}" '
           'font-family="sans-serif" font-size="12" role="img">',
           '<title>Loss by learning rate, for four widths, with and without model.base_width</title>',
           '<rect width="100%" height="100%" fill="#ffffff"/>']
    for panel, (name, by_width) in enumerate(panels):
        x0 = left + panel * (wide + gap)
        out.append(f'<text x="{x0 + wide / 2}" y="{top - 14}" text-anchor="middle" font-size="13">{name}</text>')
        out.append(f'<rect x="{x0}" y="{top}" width="{wide}" height="{tall}" fill="none" stroke="#999999"/>')
        for rate in RATES[args.optimizer]:
            x = x_of(panel, rate)
            out.append(f'<line x1="{x:.1f}" y1="{top + tall}" x2="{x:.1f}" y2="{top + tall + 4}" stroke="#999999"/>')
            out.append(f'<text x="{x:.1f}" y="{top + tall + 18}" text-anchor="middle">2<tspan dy="-4" font-size="9">'
                       f'{round(math.log2(rate))}</tspan></text>')
        out.append(f'<text x="{x0 + wide / 2}" y="{top + tall + 38}" text-anchor="middle">learning rate</text>')
        for tick in range(math.ceil(2 * low), math.floor(2 * high) + 1):
            y = y_of(tick / 2)
            out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + wide}" y2="{y:.1f}" stroke="#eeeeee"/>')
            if panel == 0:
                out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{tick / 2:g}</text>')
        for colour, (width, points) in zip(colours, by_width.items()):
            path = " ".join(f"{x_of(panel, r):.1f},{y_of(l):.1f}" for r, l in points if math.isfinite(l))
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            rate, loss = min(points, key=lambda p: p[1])
            out.append(f'<circle cx="{x_of(panel, rate):.1f}" cy="{y_of(loss):.1f}" r="4" fill="{colour}"/>')
    for i, (colour, width) in enumerate(zip(colours, WIDTHS)):
        x, y = left + i * 110, top + tall + 58
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{x + 26}" y="{y}">d_model {width}</text>')
    out.append(f'<text x="14" y="{top + tall / 2}" text-anchor="middle" transform="rotate(-90 14 {top + tall / 2})">'
               'loss at the end</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=str(ROOT / "build/quintet"))
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    parser.add_argument("--table", type=pathlib.Path, help="Markdown")
    parser.add_argument("--picture", type=pathlib.Path, help="SVG")
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "adafactor"])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    rows = measure(args)
    if args.table:
        args.table.write_text(table(rows, args))
    if args.picture:
        args.picture.write_text(picture(rows, args))
    print(table(rows, args))


if __name__ == "__main__":
    main()
