#!/usr/bin/env python3
"""Measured step times beside predicted ones.

    compare.py MEASURED.csv MACHINE.toml [--quintet build/quintet] [--csv OUT.csv] [-- common options of quintet plan]

MEASURED.csv is what `quintet bench foresight` wrote: configuration keys, then fits, seconds, fastest, slowest and
device_bytes. For each line `quintet plan --machine MACHINE.toml --json` predicts the same step. Needs no GPU.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

RESULTS = ["fits", "seconds", "fastest", "slowest", "device_bytes"]


def arguments():
    own, common = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, common = own[:at], own[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured")
    parser.add_argument("machine")
    parser.add_argument("--quintet", default=os.path.join(os.path.dirname(__file__), "../../build/quintet"))
    parser.add_argument("--csv", help="write the table as CSV, too")
    options = parser.parse_args(own)
    options.common = common
    return options


def predict(options, settings):
    line = [options.quintet, "plan", "--machine", options.machine, "--json", *options.common]
    for key, value in settings.items():
        line += ["--set", f"{key}={value}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    return json.loads(done.stdout)


def memory_of(machine):
    """GiB of the device, as the machine file has it."""
    with open(machine, encoding="utf-8") as file:
        for text in file:
            if text.split("=")[0].strip() == "memory_gib":
                return float(text.split("=")[1].split("#")[0])
    raise RuntimeError(f"{machine}: no memory_gib")


def main():
    options = arguments()
    memory = memory_of(options.machine) * 2**30
    rows, errors, wrong = [], [], 0
    print(f"{'case':<52} {'measured':>10} {'predicted':>10} {'error':>8} {'spread':>7}  fits: measured, predicted")
    with open(options.measured, encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            settings = {k: v for k, v in record.items() if k not in RESULTS}
            name = " ".join(settings.values())
            try:
                plan = predict(options, settings)
            except (RuntimeError, json.JSONDecodeError) as error:
                print(f"{name:<52} not predicted: {error}")
                rows.append({**record, "predicted": "", "error": "", "predicted_fits": "failed"})
                continue
            needed = plan.get("device_bytes", plan.get("total_bytes", 0))
            fits = "yes" if needed <= memory else "no"
            predicted = plan["step_seconds"]
            known = record["fits"] in ("yes", "no")
            wrong += known and fits != record["fits"]
            error, spread = "", ""
            if record["seconds"]:
                measured = float(record["seconds"])
                error = predicted / measured - 1
                spread = (float(record["slowest"]) - float(record["fastest"])) / measured
                errors.append((abs(error), name))
                print(f"{name:<52} {measured * 1e3:>8.1f}ms {predicted * 1e3:>8.1f}ms {error:>+7.2%} {spread:>6.2%}   "
                      f"{record['fits']}, {fits}")
            else:
                print(f"{name:<52} {'-':>10} {predicted * 1e3:>8.1f}ms {'-':>8} {'-':>7}   {record['fits']}, {fits}")
            rows.append({**record, "predicted": f"{predicted:.6f}", "error": f"{error:.5f}" if error != "" else "",
                         "predicted_fits": fits})
            sys.stdout.flush()
    if errors:
        errors.sort()
        print(f"\n{len(errors)} cases timed: mean error {sum(e for e, _ in errors) / len(errors):.2%}, median "
              f"{errors[len(errors) // 2][0]:.2%}, worst {errors[-1][0]:.2%} ({errors[-1][1]})")
    print(f"fits or not: {wrong} of {len(rows)} wrong")
    if options.csv and rows:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
