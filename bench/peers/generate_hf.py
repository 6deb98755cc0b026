#!/usr/bin/env python3
"""Words per second of greedy generation: Quintet and Hugging Face's `generate` with its cache, same model, same GPU.

    generate_hf.py QUINTET FOLDER [--model mt5-base] [--batches 1,64] [--source 128] [--tokens 128] [--precision bf16]

Makes a random model of that name in FOLDER (if it is not there yet), draws sources, and lets both generate for each
batch size in turn, twice: one line per measurement, then how many ids agree. The peer is warmed up by a batch of its
own; Quintet's figure is what `quintet generate` prints, its first batch included. Needs torch and transformers.
"""
import argparse
import json
import os
import re
import subprocess
import time

import torch
from transformers import AutoModelForSeq2SeqLM


def make(args):
    """By Quintet: transformers 5 cannot make an mT5 with a head of its own."""
    run = args.folder + "-run"
    subprocess.run([args.quintet, "train", "--model", args.model, "--device", args.device, "--micro-batch", "1",
                    "--set", "train.steps=1", "--set", "output.folder=" + run], check=True, capture_output=True)
    subprocess.run([args.quintet, "export", run, args.folder], check=True, capture_output=True)


def ours(args, batch, sources):
    path = os.path.join(args.folder, f"sources-{batch}")
    with open(path, "w") as file:
        file.writelines(" ".join(map(str, row)) + "\n" for row in sources)
    done = subprocess.run([args.quintet, "generate", args.folder, "--ids", "--file", path, "--batch", str(batch),
                           "--max-tokens", str(args.tokens), "--device", args.device, "--precision", args.precision,
                           "--json"], capture_output=True, text=True, check=True)
    rate = float(re.search(r"\((\d+) tokens/s\)", done.stderr).group(1))
    return rate, [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def theirs(args, model, batch, sources):
    words, results = 0, []
    model.generate(torch.tensor(sources[:batch], device=args.device), max_new_tokens=args.tokens, do_sample=False)
    began = time.monotonic()
    for first in range(0, len(sources), batch):
        ids = torch.tensor(sources[first:first + batch], device=args.device)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.tokens, do_sample=False)
        for row in out.tolist():
            row = row[1:]
            if 1 in row:
                row = row[:row.index(1)]
            words += len(row)
            results.append(row)
    return words / (time.monotonic() - began), results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quintet")
    parser.add_argument("folder")
    parser.add_argument("--model", default="mt5-base")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--source", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.folder, "config.json")):
        make(args)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    model = AutoModelForSeq2SeqLM.from_pretrained(args.folder, dtype=dtype).to(args.device).eval()
    generator = torch.Generator().manual_seed(2)
    for batch in map(int, args.batches.split(",")):
        rounds = 4 if batch == 1 else 3
        sources = torch.randint(3, 250000, (batch * rounds, args.source), generator=generator).tolist()
        for _ in range(2):
            (our_rate, our_ids), (their_rate, their_ids) = ours(args, batch, sources), theirs(args, model, batch, sources)
            same = sum(a == b for x, y in zip(our_ids, their_ids) for a, b in zip(x, y))
            total = sum(map(len, their_ids))
            print(f"{args.model} {args.precision} batch {batch}: quintet {our_rate:.0f} tokens/s, transformers "
                  f"{their_rate:.0f}, {our_rate / their_rate:.2f}x; {same} of {total} ids the same", flush=True)


if __name__ == "__main__":
    main()
