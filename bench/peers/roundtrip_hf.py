#!/usr/bin/env python3
"""An exported model in Hugging Face transformers: its loss, its gradients, what it generates, and the way back.

    roundtrip_hf.py EXPORTED [--golden DIR] [--save DIR] [--text TEXT] [--tokens 20] [--device cpu] [--seed 1]

Loads the folder that `quintet export` wrote, computes loss and gradients of random batches in float32 and generates
greedily; prints one JSON object: the loss, whether transformers tied what must not be tied, what it warned of, missing
and unexpected weights, the sources and the ids generated for them. --golden DIR writes the values as a folder for
`quintet verify`; --save DIR writes the model again as transformers does. All of it:

    quintet train --set train.steps=50 --set output.folder=run
    quintet export run exported
    python3 bench/peers/roundtrip_hf.py exported --golden golden --save saved > hf.json
    quintet verify golden                     # loss, gradients and training curves: ours against transformers'
    quintet generate exported --ids --max-tokens 20 "5 9 17 33 1"   # "generated" in hf.json, without its end
    quintet train --set model.weights=saved --set schedule.peak=0 --set train.steps=1 --set output.folder=again
    quintet export again back
    cmp exported/model.safetensors back/model.safetensors   # every bit came back

Needs torch and transformers (5.17 is what it was written for), no network.
"""
import argparse
import json
import logging
import os
import shutil

import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.optimization import Adafactor

SOURCES = [[5, 9, 17, 33, 1], [40, 41, 42, 43, 44, 45, 1], [7, 7, 7, 1]]
ADAMW = {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0}
ADAFACTOR = {"lr": 0.001, "eps": [1e-30, 0.001], "clip_threshold": 1.0, "decay_rate": -0.8, "beta1": None,
             "weight_decay": 0.0, "scale_parameter": True, "relative_step": False, "warmup_init": False,
             "clip_norm": 1.0}


class Listener(logging.Handler):
    """What transformers has to say while it loads."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def random_batches(vocabulary, count, seed, rows=4, source=24, target=12):
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        ids = torch.randint(3, vocabulary, (rows, source), generator=generator)
        labels = torch.randint(3, vocabulary, (rows, target), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, source - 5:] = 0
        ids[0, source - 5:] = 0
        labels[1, target - 3:] = -100
        batches.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return batches


def loss_of(model, batch, device):
    return model(**{name: value.to(device) for name, value in batch.items()}).loss


def trace(folder, device, batches, make, clip):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).to(device)
    model.eval()  # without dropout
    optimizer = make(model.parameters())
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_golden(args, model, batches, loss):
    from safetensors.torch import save_file

    os.makedirs(args.golden)
    shutil.copy(os.path.join(args.folder, "config.json"), args.golden)
    gradients = {name: p.grad.detach().float().cpu().contiguous() for name, p in model.named_parameters()}
    save_file(gradients, os.path.join(args.golden, "grads.safetensors"))
    weights = {name: p.detach().float().cpu().contiguous() for name, p in model.named_parameters()}
    save_file(weights, os.path.join(args.golden, "model.safetensors"))
    norm = torch.sqrt(sum((g.double() ** 2).sum() for g in gradients.values())).item()
    adamw = dict(ADAMW, losses=trace(args.folder, args.device, batches, lambda parameters: torch.optim.AdamW(
        parameters, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"],
        weight_decay=ADAMW["weight_decay"]), ADAMW["clip_norm"]))
    adafactor = dict(ADAFACTOR, losses=trace(args.folder, args.device, batches, lambda parameters: Adafactor(
        parameters, **{k: v for k, v in ADAFACTOR.items() if k != "clip_norm"}), ADAFACTOR["clip_norm"]))
    with open(os.path.join(args.golden, "batches.json"), "w") as file:
        json.dump([{name: value.tolist() for name, value in batch.items()} for batch in batches], file)
    with open(os.path.join(args.golden, "expected.json"), "w") as file:
        json.dump({"loss": loss, "grad_norm": norm, "adamw": adamw, "adafactor": adafactor}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--golden", help="folder to make for `quintet verify`")
    parser.add_argument("--save", help="folder to which transformers writes the model again")
    parser.add_argument("--text", help="also: this text through the folder's tokenizer, and generated from")
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False

    listener = Listener()
    logging.getLogger("transformers").addHandler(listener)
    model, loading = AutoModelForSeq2SeqLM.from_pretrained(args.folder, dtype=torch.float32, output_loading_info=True)
    logging.getLogger("transformers").removeHandler(listener)
    model.to(args.device).eval()
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    batches = random_batches(model.config.vocab_size, 4, args.seed)
    loss = loss_of(model, batches[0], args.device)
    result = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "model": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tied": head.data_ptr() == embedding.data_ptr(),
        "missing": sorted(map(str, loading.get("missing_keys", []))),
        "unexpected": sorted(map(str, loading.get("unexpected_keys", []))),
        "warnings": listener.lines,
        "loss": loss.item(),
    }

    def generated(ids):
        source = torch.tensor([ids], device=args.device)
        out = model.generate(source, max_new_tokens=args.tokens, do_sample=False, num_beams=1)[0].tolist()[1:]
        return out[:out.index(model.config.eos_token_id)] if model.config.eos_token_id in out else out

    result["sources"] = SOURCES
    result["generated"] = [generated(ids) for ids in SOURCES]
    if args.text:
        tokenizer = AutoTokenizer.from_pretrained(args.folder)
        ids = tokenizer(args.text).input_ids
        result["text"] = {"text": args.text, "ids": ids, "generated": tokenizer.decode(generated(ids))}
    if args.golden:
        loss.backward()
        write_golden(args, model, batches, loss.item())
    if args.save:
        model.save_pretrained(args.save)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
