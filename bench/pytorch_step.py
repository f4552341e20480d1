#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same LLaDA forward and decode loop in plain PyTorch, as the public batch-1 code runs it.

Logits of every position, softmax and argmax over them, low-confidence commit; attention is
torch.nn.functional.scaled_dot_product_attention in fp32. One JSON line per canvas length on stdout.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    weights = {}
    for shard in sorted(folder.glob("*.safetensors")):
        weights.update(load_file(shard))
    return config, {name.removeprefix("model.transformer."): w.float() for name, w in weights.items()}


def rms_norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def forward(config, weights, ids):
    heads, width, eps = config["n_heads"], config["d_model"], config["rms_norm_eps"]
    length = ids.numel()
    half = width // heads // 2
    frequency = 1.0 / config["rope_theta"] ** (torch.arange(half) / half)
    angle = torch.outer(torch.arange(length).float(), frequency)
    cos, sin = angle.cos(), angle.sin()
    x = weights["wte.weight"][ids]
    for layer in range(config["n_layers"]):
        block = {k: weights[f"blocks.{layer}.{k}.weight"] for k in
                 ("attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out")}
        h = rms_norm(x, block["attn_norm"], eps)
        q, k, v = (F.linear(h, block[name]).view(length, heads, -1).transpose(0, 1)
                   for name in ("q_proj", "k_proj", "v_proj"))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = x + F.linear(out.transpose(0, 1).reshape(length, width), block["attn_out"])
        h = rms_norm(x, block["ff_norm"], eps)
        x = x + F.linear(F.silu(F.linear(h, block["ff_proj"])) * F.linear(h, block["up_proj"]), block["ff_out"])
    return F.linear(rms_norm(x, weights["ln_f.weight"], eps), weights["ff_out.weight"])


def generate(config, weights, prompt, gen_length, steps):
    mask = config["mask_token_id"]
    ids = torch.cat((prompt, torch.full((gen_length,), mask)))
    seconds = []
    for step in range(steps):
        begin = time.perf_counter()
        logits = forward(config, weights, ids)
        best = logits.argmax(-1)
        confidence = logits.softmax(-1).gather(1, best[:, None])[:, 0]
        confidence[ids != mask] = -torch.inf
        count = gen_length // steps + (step < gen_length % steps)
        chosen = confidence.topk(count).indices
        ids[chosen] = best[chosen]
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/demo-llada-17m"))
    parser.add_argument("--length", type=int, nargs="+", default=[512, 2048, 4096])
    parser.add_argument("--gen-length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    config, weights = load(arguments.model)
    torch.manual_seed(arguments.seed)
    with torch.inference_mode():
        for length in arguments.length:
            print(f"pytorch, canvas {length} ...", file=sys.stderr)
            prompt = torch.randint(6, config["vocab_size"], (length - arguments.gen_length,))
            generate(config, weights, prompt, arguments.gen_length, 1)  # warm up
            seconds = generate(config, weights, prompt, arguments.gen_length, arguments.steps)
            print(json.dumps({"bench": "generation", "impl": "pytorch", "preset": "dense", "L": length,
                              "T": arguments.steps, "gen_length": arguments.gen_length,
                              "seconds": sum(seconds), "tokens_per_second": arguments.gen_length / sum(seconds),
                              "dense_step_seconds": statistics.median(seconds)}), flush=True)


if __name__ == "__main__":
    main()
