#!/usr/bin/env python3
"""What bench/search/run.sh left in a folder, as a table and as one CSV: OUT/search.csv."""
import csv, json, pathlib, sqlite3, sys

KEYS = ["schedule.peak", "schedule.warmup_steps", "optimizer.beta1", "optimizer.beta2"]
END = 120


def journal(folder):
    """(trial, level, steps, status, value, settings) of every job, in the order of decisions."""
    with sqlite3.connect(folder / "search.sqlite") as db:
        for trial, level, steps, status, value, settings in db.execute(
                "SELECT jobs.trial, level, steps, status, value, settings FROM jobs JOIN trials ON trials.id = "
                "jobs.trial ORDER BY jobs.id"):
            yield trial, level, steps, status, value, [json.loads(settings)[key] for key in KEYS]


def steps_of(rows):
    last = {}
    for trial, steps in rows:
        last[trial] = max(last.get(trial, 0), steps)
    return sum(last.values())


def main():
    out = pathlib.Path(sys.argv[1])
    table = []  # who, seed, trials, steps, best
    with open(out / "search.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "seed", "trial", "model", "steps", "status", "value", *KEYS])
        for who in ["grid"] + [f"search-{seed}" for seed in range(1, 6)] + ["ladder"]:
            if not (out / who / "search.sqlite").exists():
                continue
            rows = list(journal(out / who))
            name, _, seed = who.partition("-")
            for trial, level, steps, status, value, settings in rows:
                writer.writerow([name, seed, trial, ["tiny", "mini"][level], steps, status,
                                 "" if value is None else f"{value:.6f}", *settings])
            if name != "ladder":
                ends = [value for _, _, steps, _, value, _ in rows if steps == END and value is not None]
                table.append([name, seed, len({row[0] for row in rows}),
                              steps_of((row[0], row[2]) for row in rows), min(ends)])
        for pruner in ["median", "halving"]:
            for seed in range(1, 6):
                path = out / f"optuna-{pruner}-{seed}" / "trials.csv"
                if not path.exists():
                    continue
                rows = list(csv.DictReader(open(path)))
                for row in rows:
                    writer.writerow([f"optuna-{pruner}", seed, row["trial"], "tiny", row["steps"],
                                     "done" if row["value"] != "nan" else "failed", row["value"], row["peak"],
                                     row["warmup"], row["beta1"], row["beta2"]])
                ends = [float(row["value"]) for row in rows if int(row["steps"]) == END and row["value"] != "nan"]
                table.append([f"optuna-{pruner}", seed, len({row["trial"] for row in rows}),
                              steps_of((row["trial"], int(row["steps"])) for row in rows), min(ends)])
    truth = table[0][4]
    print("| who | seed | trials | steps | best loss | over the grid's best |\n|---|---|---|---|---|---|")
    for name, seed, trials, steps, best in table:
        print(f"| {name} | {seed} | {trials} | {steps} | {best:.4f} | {100 * (best / truth - 1):+.2f} % |")
    for name in sorted({row[0] for row in table} - {"grid"}):
        over = [100 * (row[4] / truth - 1) for row in table if row[0] == name]
        print(f"{name}: mean {sum(over) / len(over):+.2f} %, worst {max(over):+.2f} %")
    if (out / "ladder" / "search.sqlite").exists():
        ladder(out / "ladder")


def ladder(folder):
    with sqlite3.connect(folder / "search.sqlite") as db:
        pairs = db.execute(
            "SELECT below.value, above.value FROM jobs below JOIN trials t ON t.parent = below.trial JOIN jobs above "
            "ON above.trial = t.id WHERE t.level = 1 AND below.value NOT NULL AND above.value NOT NULL").fetchall()
    pairs.sort()
    best = min(range(len(pairs)), key=lambda i: pairs[i][1])
    quarter = min(value for _, value in pairs[:(len(pairs) + 3) // 4])
    print(f"ladder: {len(pairs)} trials on both; mini's best was number {best + 1} on tiny; the best of tiny's top "
          f"quarter is {100 * (quarter / pairs[best][1] - 1):.2f} % over mini's best; tiny's best "
          f"{100 * (pairs[0][1] / pairs[best][1] - 1):.2f} %")


main()
