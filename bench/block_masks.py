# SPDX-License-Identifier: Apache-2.0
"""Random block masks of a given density: as booleans, as sparsed's words and as FlexAttention's BlockMask."""
import math

import torch
from torch.nn.attention.flex_attention import BlockMask

WORD_BITS = 32


def random_mask(heads, tokens, block, rho, device):
    """[heads, query_blocks, key_blocks] bool: every query block of every head keeps its own ceil(rho * n) key blocks."""
    blocks = math.ceil(tokens / block)
    kept = math.ceil(rho * blocks)
    best = torch.rand(heads, blocks, blocks, device=device).topk(kept, sorted=False).indices
    return torch.zeros(heads, blocks, blocks, dtype=torch.bool, device=device).scatter_(2, best, True)


def words_of(mask):
    """Bit-packed as kernels/block_mask.h says, in one dimension."""
    heads, rows, blocks = mask.shape
    padded = torch.nn.functional.pad(mask, (0, -blocks % WORD_BITS))
    bits = torch.arange(WORD_BITS, dtype=torch.int32, device=mask.device)
    return (padded.view(heads, rows, -1, WORD_BITS).to(torch.int32) << bits).sum(-1, dtype=torch.int32).flatten()


def kept_pairs(mask, tokens, block):
    """Pairs of a query and a key in the kept blocks, of all heads; the last block ends at the row's length."""
    blocks = mask.size(-1)
    lengths = torch.full((blocks,), float(block), dtype=torch.float64, device=mask.device)
    lengths[-1] = tokens - (blocks - 1) * block
    per_pair_of_blocks = mask.sum(0).to(torch.float64)
    return float(lengths @ per_pair_of_blocks @ lengths)


def flex_mask(mask, tokens, block):
    """All kept blocks are full ones, so that the compiled kernel evaluates no mask function. Indices ascend."""
    counts = mask.sum(-1, dtype=torch.int32)[None]
    indices = mask.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices.to(torch.int32)[None]
    return BlockMask.from_kv_blocks(
        torch.zeros_like(counts), torch.zeros_like(indices), counts.contiguous(), indices.contiguous(),
        BLOCK_SIZE=block, seq_lengths=(tokens, tokens))
