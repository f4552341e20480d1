#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The attention operators of sparsed from Python on made-up q, k, v: dense against PyTorch, then a SparseD mask.

Checks the dense output against torch.nn.functional.scaled_dot_product_attention, builds a block mask from
the attention mass of the dense pass, and prints what the mask computes and keeps.
"""
import argparse
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

LIBRARY = pathlib.Path(__file__).resolve().parent.parent / "build/release/lib/libsparsed_ops.so"
DENSE_TOLERANCE = 2e-5  # fp32 sums over a few thousand keys, in another order than PyTorch's


def made_up_inputs(options):
    """q [tokens, heads, head_dim]; k, v [tokens, kv_heads, head_dim], fp32. Put your own here.

    Every 32 tokens share one of eight topics, and queries look for keys of their topic: attention that is
    concentrated on few blocks, as in a trained model. Without topics (--focus 0) no mask could be good.
    """
    torch.manual_seed(options.seed)
    topic = torch.randint(8, (math.ceil(options.tokens / 32),)).repeat_interleave(32)[: options.tokens]
    centres = torch.randn(8, 1, options.head_dim) * options.focus
    kv_shape = (options.tokens, options.kv_heads, options.head_dim)
    q = torch.randn(options.tokens, options.heads, options.head_dim) + centres[topic]
    return q, torch.randn(kv_shape) + centres[topic], torch.randn(kv_shape)


def torch_attention(q, k, v):
    """The same attention by PyTorch, which wants heads first."""
    group = q.size(1) // k.size(1)
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1)


def one_row(tokens, block_tokens, mask_words=None):
    """row_offsets, mask_arena, mask_offsets, block_tokens of a batch of one row; dense without mask words."""
    arena = torch.zeros(0, dtype=torch.int32) if mask_words is None else mask_words
    offset = -1 if mask_words is None else 0
    return [0, tokens], arena, [offset], [block_tokens]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(LIBRARY), help="libsparsed_ops.so (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=1000, help="row length (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=800, help="tokens of the prompt (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=6, help="query heads (default: %(default)s)")
    parser.add_argument("--kv-heads", type=int, default=6, help="divides --heads (default: %(default)s)")
    parser.add_argument("--head-dim", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--block", type=int, default=32, choices=(32, 64, 128), help="(default: %(default)s)")
    parser.add_argument("--ratio", type=float, default=0.3, help="share of key blocks kept (default: %(default)s)")
    parser.add_argument("--focus", type=float, default=1.0, help="how concentrated attention is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args()

    torch.ops.load_library(options.library)
    ops = torch.ops.sparsed
    q, k, v = made_up_inputs(options)
    blocks = math.ceil(options.tokens / options.block)

    # 1. Dense, with the attention mass of every (head, query block, key block) from the same pass.
    dense, _, mass = ops.attention_with_mass(
        q, k, v, *one_row(options.tokens, options.block), [0], options.heads * blocks * blocks)
    mass = mass.view(options.heads, blocks, blocks)
    error = (dense - torch_attention(q, k, v)).abs().max().item()
    print(f"dense: largest difference from PyTorch {error:.1e}")

    # 2. A mask: prompt and generation blocks are ranked apart, ceil(ratio * n) of either are kept.
    first_generation_block = min(math.ceil(options.prompt / options.block), blocks - 1)
    mask = torch.zeros(options.heads * blocks * math.ceil(blocks / 32), dtype=torch.int32)
    ops.select_blocks(mask, mass, None, "top_ratio", options.ratio, first_generation_block)
    kept, retained = ops.mask_statistics(mask, mass, options.tokens, options.block)
    print(f"mask:  {blocks} x {blocks} blocks in {options.heads} heads, {mask.numel() * 4} bytes")
    print(f"       density {kept.sum().item() / mass.numel():.3f}, retained mass {retained.mean().item():.3f}")

    # 3. The same attention over the kept blocks only.
    sparse, _ = ops.attention(q, k, v, *one_row(options.tokens, options.block, mask))
    relative = ((sparse - dense).norm() / dense.norm()).item()
    print(f"sparse: relative difference from dense {relative:.3f}")
    return 0 if error < DENSE_TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
