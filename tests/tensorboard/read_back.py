#!/usr/bin/env python3
"""read_back.py QUINTET: TensorBoard's own reader finds in a run's event files what metrics.jsonl has.

Trains a small model, stops it, goes on from an earlier checkpoint, and compares every scalar. Exits with 77
(skipped) where the tensorboard package is not installed.
"""

import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: the tensorboard package is not installed")
    sys.exit(77)


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def train(binary, folder, steps, *more):
    arguments = ["train", "--model", "tiny", "--micro-batch", "4", "--source", "24", "--threads", "1"]
    settings = [f"train.steps={steps}", f"output.folder={folder}", "output.tensorboard=true", "output.save_every=4",
                "output.keep=0", "validate.every=2", "validate.batches=1", "output.log_every=1000", *more]
    for setting in settings:
        arguments += ["--set", setting]
    subprocess.run([binary, *arguments], check=True, capture_output=True)


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        train(binary, folder, 6)
        shutil.rmtree(Path(folder) / "checkpoints" / "step-00000006")  # goes on after step 4: 5 and 6 come again
        train(binary, folder, 9, "output.resume=true")
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        events = EventAccumulator(folder).Reload()
        expected = {
            "train/loss": [(m["step"], m["loss"]) for m in lines],
            "train/lr": [(m["step"], m["lr"]) for m in lines],
            "train/grad_norm": [(m["step"], m["grad_norm"]) for m in lines],
            "throughput/tokens_per_second": [(m["step"], m["tokens_per_second"]) for m in lines],
            "validate/loss": [(m["step"], m["validation"]["loss"]) for m in lines if "validation" in m],
        }
        assert [m["step"] for m in lines] == list(range(1, 10)), lines
        for tag, values in expected.items():
            found = [(e.step, e.value) for e in events.Scalars(tag)]
            wanted = [(step, as_float32(value)) for step, value in values]
            assert found == wanted, f"{tag}: {found} instead of {wanted}"
            times = [(e.step, e.wall_time) for e in events.Scalars(tag)]
            assert all(abs(t - lines[s - 1]["time"]) < 1e-3 for s, t in times), tag
        print(f"{len(expected)} tags of {len(lines)} steps agree; all tags: {sorted(events.Tags()['scalars'])}")


main()
