#!/usr/bin/env python3
"""Optuna's TPE with a pruner, driving the same binary on the same box with the same number of steps.

  python3 -m venv venv && venv/bin/pip install optuna
  venv/bin/python bench/search/optuna_tpe.py build/quintet OUT --seed 1 --pruner median

Trials stop where the pruner says so, after 60 of 120 steps, and go on from their checkpoints
otherwise. Two at a time, a thread each, as `quintet search` has it. Writes OUT/trials.csv.
"""
import argparse, csv, json, pathlib, subprocess, threading

import optuna

RUNGS = [60, 120]
TOTAL = 3072
SETTINGS = {"model.name": "tiny", "batch.micro_batch": 8, "batch.source": 32, "schedule.kind": "wsd", "schedule.decay_steps": 40,
            "train.threads": 1, "train.steps": 120, "validate.every": 120, "validate.sequences": 256,
            "output.resume": "true", "output.keep": 1, "output.summary_skip": 0, "output.log_every": 120}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pruner", choices=["median", "halving"], default="median")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = (optuna.pruners.MedianPruner() if arguments.pruner == "median" else
              optuna.pruners.SuccessiveHalvingPruner(min_resource=60, reduction_factor=2))
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=arguments.seed), pruner=pruner)
    lock, spent, rows = threading.Lock(), [0], []

    def reserve(steps):
        with lock:
            if spent[0] + steps > TOTAL:
                return False
            spent[0] += steps
            return True

    def objective(trial):
        settings = {"schedule.peak": trial.suggest_float("peak", 0.001, 0.064, log=True),
                    "schedule.warmup_steps": trial.suggest_int("warmup", 1, 27, log=True),
                    "optimizer.beta1": trial.suggest_float("beta1", 0.5, 0.95),
                    "optimizer.beta2": trial.suggest_float("beta2", 0.9, 0.999)}
        folder = arguments.out / f"trial-{trial.number:04}"
        before = 0
        for rung in RUNGS:
            if not reserve(rung - before):
                study.stop()
                raise optuna.TrialPruned()
            values = {**SETTINGS, **settings, "train.stop_after": rung, "output.folder": folder}
            command = [arguments.binary, "train"]
            for key, value in values.items():
                command += ["--set", f"{key}={value}"]
            run = subprocess.run(command, capture_output=True)
            value = float("nan")
            if run.returncode == 0:
                lines = [json.loads(line) for line in open(folder / "metrics.jsonl")]
                value = lines[-1]["validation"]["loss"]
            rows.append([trial.number, rung, value, *settings.values()])
            if run.returncode != 0:
                raise optuna.TrialPruned()
            before = rung
            trial.report(value, rung)
            if rung < RUNGS[-1] and trial.should_prune():
                raise optuna.TrialPruned()
        return value

    study.optimize(objective, n_trials=1000, n_jobs=2)
    with open(arguments.out / "trials.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "steps", "value", "peak", "warmup", "beta1", "beta2"])
        writer.writerows(rows)
    finished = [row for row in rows if row[1] == RUNGS[-1] and row[2] == row[2]]
    print(arguments.seed, arguments.pruner, spent[0], len({row[0] for row in rows}), min(row[2] for row in finished))


main()
