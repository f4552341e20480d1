#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The small operators of sparsed beside what PyTorch has for them, on CUDA: one table of one run.

Sizes are LLaDA-8B's: width 4096, 32 heads x 128, intermediate 12288, vocabulary 126464. Medians of at least 20 runs
by CUDA events with a cold L2 cache (gpu_timer.py). GB/s counts what an operator must read and write, once. Inputs are
random normal.
"""
import argparse
import datetime
import functools
import json
import math
import pathlib
import subprocess
import typing

import torch
import torch.nn.functional as F

from argument_types import positive
from gpu_timer import GpuTimer

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build/cuda/lib/libsparsed_ops.so"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WIDTH, HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY, POSITIONS = 4096, 32, 128, 12288, 126464, 512


class Case(typing.NamedTuple):
    op: str
    shape: str
    bytes: int  # read and written at least
    sparsed: typing.Callable
    aten: typing.Callable


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = functools.partial(parser.add_argument, metavar="N")
    parser.add_argument("--library", default=str(LIBRARY), help="libsparsed_ops.so (default: %(default)s)")
    add("--tokens", type=positive, nargs="+", default=[4096, 65536], help="row lengths (default: 4096 65536)")
    add("--block", type=int, default=128, choices=(32, 64, 128, 256), help="tokens of a block (default: %(default)s)")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES, help="of activations (default: %(default)s)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="append a line per measurement")
    parser.add_argument("--commit", help="for the lines (default: git's)")
    options = parser.parse_args()
    if any(tokens % (4 * options.block) for tokens in options.tokens):
        parser.error(f"--tokens must be multiples of {4 * options.block}: PyTorch's side takes whole blocks only")
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a folder")
    if not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here")
    if not pathlib.Path(options.library).is_file():
        parser.error(f"--library: {options.library} is not a file: run `make cuda` first")
    options.commit = options.commit or git_commit()
    return options


def git_commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True,
                              text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def size_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def per_token_cases(tokens, dtype):
    ops = torch.ops.sparsed
    x, weight = torch.randn(tokens, WIDTH).to(dtype), torch.randn(WIDTH).to(dtype)
    yield Case("rms_norm", f"{tokens} x {WIDTH}", 2 * size_of(x), lambda: ops.rms_norm(x, weight, 1e-5),
               lambda: F.rms_norm(x, (WIDTH,), weight, 1e-5))

    gate_up = torch.randn(tokens, 2 * INTERMEDIATE).to(dtype)
    gate, up = gate_up.chunk(2, 1)
    yield Case("silu_mul", f"{tokens} x {INTERMEDIATE}", size_of(gate_up) * 3 // 2, lambda: ops.silu_mul(gate_up),
               lambda: F.silu(gate) * up)

    q = torch.randn(tokens, HEADS, HEAD_DIM).to(dtype)
    angles = torch.outer(torch.arange(tokens).float(), 1e4 ** -(torch.arange(HEAD_DIM // 2) * 2 / HEAD_DIM))
    cos, sin = angles.cos(), angles.sin()
    wide_cos, wide_sin = (t.repeat(1, 2)[:, None].to(dtype) for t in (cos, sin))

    def aten_rope():
        low, high = q.chunk(2, -1)
        return q * wide_cos + torch.cat((-high, low), -1) * wide_sin

    yield Case("rope", f"{tokens} x {HEADS} x {HEAD_DIM}", 2 * size_of(q), lambda: ops.rope(q, cos, sin, [0, tokens]),
               aten_rope)


def candidate_cases(dtype):
    logits = torch.randn(POSITIONS, VOCABULARY).to(dtype)
    uniforms = torch.rand(POSITIONS, dtype=torch.float64)

    def greedy():
        probability, token = logits.float().softmax(-1).max(-1)
        return token, probability, logits.isfinite().all(-1)

    def drawn():
        wide = logits.float()
        token = torch.multinomial((wide / 0.7).softmax(-1), 1)
        return token, wide.softmax(-1).gather(1, token), logits.isfinite().all(-1)

    shape = f"{POSITIONS} x {VOCABULARY}"
    for name, temperature, aten in (("candidate_statistics", 0.0, greedy), ("candidate_statistics drawn", 0.7, drawn)):
        yield Case(name, shape, size_of(logits),
                   functools.partial(torch.ops.sparsed.candidate_statistics, logits, uniforms, temperature), aten)


def score_cases(tokens, block, dtype):
    ops = torch.ops.sparsed
    x = torch.randn(tokens, HEADS, HEAD_DIM).to(dtype)
    blocks = tokens // block
    shape = f"{tokens} x {HEADS} x {HEAD_DIM}"
    yield Case("block_statistics", shape, size_of(x), lambda: ops.block_statistics(x, block),
               lambda: torch.var_mean(x.view(blocks, block, HEADS, HEAD_DIM).float(), 1, correction=0))

    mean, variance = ops.block_statistics(x, block)
    keys, key_variance = mean.transpose(1, 2), variance.transpose(1, 2)

    def aten_logits():
        covariance = torch.bmm(variance, keys.square() + key_variance) + torch.bmm(mean.square(), key_variance)
        return torch.bmm(mean, keys) / math.sqrt(HEAD_DIM) + covariance / HEAD_DIM

    yield Case("block_logits", f"{HEADS} x {blocks} x {blocks}", 4 * HEADS * blocks * (blocks + 4 * HEAD_DIM),
               lambda: ops.block_logits(mean, variance, mean, variance, tokens, block, True), aten_logits)


def select_cases(tokens, block):
    ops = torch.ops.sparsed
    blocks = math.ceil(tokens / block)
    scores = (2 * torch.randn(HEADS, blocks, blocks)).softmax(-1)
    words = torch.zeros(HEADS * blocks * math.ceil(blocks / 32), dtype=torch.int32)
    share = math.ceil(0.3 * blocks)
    shape, read = f"{HEADS} x {blocks} x {blocks}", size_of(scores, words)

    def best(part, count):
        return torch.zeros_like(part, dtype=torch.bool).scatter_(-1, part.topk(count).indices, True)

    def parts():
        half = blocks // 2
        return torch.cat([best(scores[..., :half], math.ceil(0.3 * half)),
                          best(scores[..., half:], math.ceil(0.3 * (blocks - half)))], -1)

    def mass():
        ordered, order = scores.sort(-1, descending=True)
        keep = ordered.double().cumsum(-1) - ordered < 0.9
        return torch.zeros_like(keep).scatter_(-1, order, keep)

    def case(name, rule, budget, first, floor, aten):
        return Case(name, shape, read, lambda: ops.select_blocks(words, scores, None, rule, budget, first, floor), aten)

    yield case("select_blocks top_k", "top_k", 0.3, 0, 0.0, lambda: best(scores, share))
    yield case("select_blocks top_ratio", "top_ratio", 0.3, blocks // 2, 0.0, parts)
    yield case("select_blocks mass", "mass", 0.9, 0, 0.0, mass)
    yield case("select_blocks top_k, floor", "top_k", 0.1, 0, 0.8, lambda: best(scores, share))

    ops.select_blocks(words, scores, None, "top_k", 0.3, 0, 0.0)
    mask = best(scores, share)
    yield Case("mask_statistics", shape, size_of(words) + size_of(scores) * share // blocks,
               lambda: ops.mask_statistics(words, scores, tokens, block),
               lambda: (mask.sum((1, 2)), (scores * mask).sum(-1, dtype=torch.float64).mean(-1)))
    yield Case("count_kept_blocks", shape, size_of(words), lambda: ops.count_kept_blocks(words, HEADS),
               lambda: mask.sum((1, 2)))


def reorder_cases(tokens, block, dtype):
    ops = torch.ops.sparsed
    x = torch.randn(tokens, HEADS, HEAD_DIM).to(dtype)
    out = torch.empty_like(x)
    window = 4 * block
    shape = f"{tokens} x {HEADS} x {HEAD_DIM}"

    def aten_order():
        norms = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32).t()
        return norms.reshape(HEADS, -1, window).sort(dim=-1, stable=True).indices

    yield Case("norm_order", shape, size_of(x), lambda: ops.norm_order(x, window), aten_order)
    order = ops.norm_order(x, window)
    index = order.long().t()[:, :, None].expand(x.shape)
    yield Case("gather_rows", shape, 2 * size_of(x), lambda: ops.gather_rows(out, x, order),
               lambda: torch.gather(x, 0, index))
    yield Case("scatter_rows", shape, 2 * size_of(x), lambda: ops.scatter_rows(out, x, order),
               lambda: out.scatter_(0, index, x))


def groups_of(options):
    """One generator of cases after the other, so that only one group's inputs are in memory."""
    dtype = DTYPES[options.dtype]
    yield functools.partial(candidate_cases, dtype)
    for tokens in options.tokens:
        yield functools.partial(per_token_cases, tokens, dtype)
        yield functools.partial(score_cases, tokens, options.block, dtype)
        yield functools.partial(select_cases, tokens, options.block)
        yield functools.partial(reorder_cases, tokens, options.block, dtype)


def measured(case, timer, fixed):
    """The two JSON lines of a case."""
    for impl, call in (("sparsed", case.sparsed), ("aten", case.aten)):
        call()
        ms = timer.milliseconds(call)
        yield {"bench": "small", "op": case.op, "impl": impl, "size": case.shape, "ms": round(ms, 5), **fixed}


def main():
    options = parse_options()
    torch.ops.load_library(options.library)
    torch.set_default_device("cuda")
    torch.manual_seed(options.seed)
    fixed = {"dtype": options.dtype, "block": options.block, "gpu": torch.cuda.get_device_name(),
             "commit": options.commit, "date": datetime.date.today().isoformat(), "torch": torch.__version__}
    timer = GpuTimer()
    print(f"{fixed['gpu']}, PyTorch {torch.__version__}, commit {options.commit}; activations {options.dtype}, "
          f"blocks of {options.block}\n")
    print("| operator | size | ms | GB/s | ATen ms | as fast as ATen |\n|---|---|---|---|---|---|")
    for group in groups_of(options):
        for case in group():
            ours, aten = measured(case, timer, fixed)
            print(f"| `{case.op}` | {case.shape} | {ours['ms']:.4f} | {case.bytes / ours['ms'] / 1e6:.0f} | {aten['ms']:.4f} | "
                  f"{aten['ms'] / ours['ms']:.2f}x |", flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in (ours, aten))


if __name__ == "__main__":
    main()
