#!/usr/bin/env python3
"""One training step of the same model in Hugging Face transformers + torch.compile, for comparison.

    hf_step.py --model mt5-base --micro-batch 64 [--source 1024] [--target 256] [--steps 10] [--eager]
    hf_step.py --model mini --micro-batch 16 --source 128 --target 32 --device cpu [--threads 2]

Prints one JSON object: seconds of the median step, tokens a second, FLOP/s (matrix products of the
model, counted as `quintet bench step` counts them), peak bytes. Weights are random; full batches,
untied head. On a GPU, up to 5 B parameters: float32 weights under autocast bf16, fused AdamW, as
people train such models. Beyond: bf16 weights and Adafactor without a float32 master, the only way to
fit. On a CPU: float32.
"""
import argparse
import json
import resource
import statistics
import time

import torch
from transformers import MT5Config, MT5ForConditionalGeneration
from transformers.optimization import Adafactor

SHAPES = {  # d_model, d_ff, heads, layers of each stack, vocabulary
    "mini": (256, 640, 4, 4, 4096),
    "mt5-small": (512, 1024, 6, 8, 250112),
    "mt5-base": (768, 2048, 12, 12, 250112),
    "mt5-large": (1024, 2816, 16, 24, 250112),
    "mt5-xl": (2048, 5120, 32, 24, 250112),
    "mt5-7b": (3072, 7680, 48, 24, 250112),
    "mt5-xxl": (4096, 10240, 64, 24, 250112),
}


def flops(shape, batch, s, t):
    h, f, heads, layers, vocabulary = shape
    a = heads * 64
    encoder = layers * (2 * s * (4 * h * a + 3 * h * f) + 4 * s * s * a)
    decoder = layers * (2 * t * (4 * h * a + 3 * h * f) + 4 * t * t * a
                        + 4 * t * h * a + 4 * s * h * a + 4 * t * s * a)
    return 3 * batch * (encoder + decoder + 2 * t * h * vocabulary)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--source", type=int, default=1024)
    parser.add_argument("--target", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, help="of a CPU; all cores when not given")
    args = parser.parse_args()
    shape = SHAPES[args.model]
    h, f, heads, layers, vocabulary = shape
    on_gpu = args.device == "cuda"
    if args.threads:
        torch.set_num_threads(args.threads)
    large = args.model in ("mt5-7b", "mt5-xxl")

    torch.manual_seed(1)
    config = MT5Config(vocab_size=vocabulary, d_model=h, d_kv=64, d_ff=f, num_layers=layers,
                       num_decoder_layers=layers, num_heads=heads, dropout_rate=args.dropout,
                       tie_word_embeddings=False, use_cache=False)
    torch.set_default_dtype(torch.bfloat16 if large else torch.float32)
    with torch.device(args.device):
        model = MT5ForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = True
    step_model = model if args.eager else torch.compile(model)
    if large:
        optimizer = Adafactor(model.parameters(), lr=1e-4, relative_step=False, scale_parameter=False)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    batch = args.micro_batch
    source = torch.randint(0, vocabulary, (batch, args.source), device=args.device)
    labels = torch.randint(0, vocabulary, (batch, args.target), device=args.device)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu and not large):
            loss = step_model(input_ids=source, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    if on_gpu:
        torch.cuda.synchronize()
    seconds = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    # (Of a process, in KiB.)
    host_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({
        "model": args.model,
        "system": "HF eager" if args.eager else "HF + torch.compile",
        "micro_batch": batch,
        "seconds": median,
        "fastest": min(seconds),
        "tokens_per_second": batch * (args.source + args.target) / median,
        "flops_per_second": flops(shape, batch, args.source, args.target) / median,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else host_bytes,
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
