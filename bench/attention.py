#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The attention of sparsed beside torch.nn.functional.scaled_dot_product_attention on the CPU: one table of one run.

Every round times every case once, so that a disturbance of the machine meets all of them; the table shows
medians, and ratios of medians. q, k, v are random normal, masks keep random key blocks of the given density.

`--device cuda` measures on a GPU instead, beside cuDNN, FlashAttention 2 and FlexAttention; its options are its own:
`--device cuda --help` lists them.
"""
import argparse
import functools
import math
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from argument_types import density, positive

LIBRARY = pathlib.Path(__file__).resolve().parent.parent / "build/release/lib/libsparsed_ops.so"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = functools.partial(parser.add_argument, metavar="N")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)")
    parser.add_argument("--library", default=str(LIBRARY), help="libsparsed_ops.so (default: %(default)s)")
    add("--tokens", type=positive, default=4096, help="row length (default: %(default)s)")
    add("--heads", type=positive, default=6, help="query heads (default: %(default)s)")
    add("--kv-heads", type=positive, help="divides --heads (default: as --heads)")
    add("--head-dim", type=positive, default=64, help="(default: %(default)s)")
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 64, 128, 256], choices=(32, 64, 128, 256),
                        help="block sizes (default: all)")
    add("--densities", type=density, nargs="+", default=[0.1, 0.3, 0.5], help="shares of blocks kept (default: .1 .3 .5)")
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=DTYPES, help="(default: both)")
    add("--threads", type=positive, default=torch.get_num_threads(), help="(default: all cores, %(default)s here)")
    add("--rounds", type=positive, default=11, help="(default: %(default)s)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args()
    options.kv_heads = options.kv_heads or options.heads
    if options.heads % options.kv_heads:
        parser.error(f"--kv-heads is {options.kv_heads}, must divide --heads {options.heads}")
    return options


class Inputs:
    """q, k, v of one dtype, for both implementations in the layout that each prefers."""

    def __init__(self, options, dtype):
        shape = (options.tokens, options.heads, options.head_dim)
        kv_shape = (options.tokens, options.kv_heads, options.head_dim)
        self.q, self.k, self.v = (torch.randn(s).to(dtype) for s in (shape, kv_shape, kv_shape))
        self.torch_qkv = [x.transpose(0, 1)[None].contiguous() for x in (self.q, self.k, self.v)]
        self.grouped = options.kv_heads != options.heads

    def sdpa(self):
        return F.scaled_dot_product_attention(*self.torch_qkv, enable_gqa=self.grouped)[0].transpose(0, 1)

    def rows(self, block, mask=None):
        arena = torch.zeros(0, dtype=torch.int32) if mask is None else mask
        return [0, self.q.size(0)], arena, [-1 if mask is None else 0], [block]

    def attention(self, block, mask=None):
        return torch.ops.sparsed.attention(self.q, self.k, self.v, *self.rows(block, mask))[0]

    def attention_with_mass(self, block):
        heads, blocks = self.q.size(1), math.ceil(self.q.size(0) / block)
        size = heads * blocks * blocks
        _, _, mass = torch.ops.sparsed.attention_with_mass(
            self.q, self.k, self.v, *self.rows(block), [0], size)
        return mass.view(heads, blocks, blocks)


def select(scores, rule, ratio, first_generation_block=0):
    heads, blocks, _ = scores.shape
    mask = torch.zeros(heads * blocks * math.ceil(blocks / 32), dtype=torch.int32)
    torch.ops.sparsed.select_blocks(mask, scores, None, rule, ratio, first_generation_block)
    return mask


def build_mask(inputs, block):
    """What a build step of the preset `sparsed` does beside its dense attention: mass, mask and its statistics."""
    mass = inputs.attention_with_mass(block)
    mask = select(mass, "top_ratio", 0.3, mass.size(1) - 1)
    torch.ops.sparsed.mask_statistics(mask, mass, inputs.q.size(0), block)


def cases_of(options, name):
    """(dtype, what, density, call) of one dtype; the first two are SDPA and our dense attention."""
    inputs = Inputs(options, DTYPES[name])
    yield name, "SDPA", 1.0, inputs.sdpa
    yield name, "dense", 1.0, functools.partial(inputs.attention, 128)
    for block in options.blocks:
        what = f"dense with mass, selection, blocks of {block}"
        yield name, what, 1.0, functools.partial(build_mask, inputs, block)
    for share in options.densities:
        for block in options.blocks:
            blocks = math.ceil(options.tokens / block)
            mask = select(torch.rand(options.heads, blocks, blocks), "top_k", share)
            kept = math.ceil(share * blocks) / blocks
            yield name, f"sparse, blocks of {block}", kept, functools.partial(inputs.attention, block, mask)


def measure(cases, rounds):
    """Median seconds of each case."""
    seconds = [[] for _ in cases]
    for turn in range(rounds + 1):
        for samples, (_, _, _, call) in zip(seconds, cases):
            start = time.perf_counter()
            call()
            if turn > 0:  # the first round warms up
                samples.append(time.perf_counter() - start)
        print(f"\rround {turn}/{rounds}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 20 + "\r", end="", file=sys.stderr)
    return [statistics.median(samples) for samples in seconds]


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "unknown processor")


def device_and_rest():
    """The device, and the arguments without it: each device has its own other options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--device")
    options, rest = parser.parse_known_args()
    return options.device, rest


def main():
    device, rest = device_and_rest()
    if device == "cuda":
        import gpu_attention  # not above: needs Triton's and cuDNN's parts of PyTorch
        return gpu_attention.main(rest)
    options = parse_options()
    torch.ops.load_library(options.library)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    cases = [case for name in options.dtypes for case in cases_of(options, name)]
    medians = measure(cases, options.rounds)
    baseline = {(name, what): seconds for (name, what, _, _), seconds in zip(cases, medians)}
    flops = 4 * options.tokens**2 * options.heads * options.head_dim
    print(f"{cpu_name()}, {options.threads} threads, loops {torch.ops.sparsed.cpu_isa()}, PyTorch {torch.__version__}; "
          f"{options.tokens} tokens, {options.heads}/{options.kv_heads} heads x {options.head_dim}, "
          f"medians of {options.rounds} rounds\n")
    print("| dtype | attention | density | ms | GFLOP/s | as fast as SDPA | as fast as dense |\n|---|---|---|---|---|---|---|")
    for (name, what, kept, _), seconds in zip(cases, medians):
        ratios = " | ".join(f"{baseline[name, peer] / seconds:.2f}x" for peer in ("SDPA", "dense"))
        print(f"| {name} | {what} | {kept:.3f} | {seconds * 1e3:.1f} | {kept * flops / seconds / 1e9:.0f} | {ratios} |")


if __name__ == "__main__":
    main()
