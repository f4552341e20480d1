# SPDX-License-Identifier: Apache-2.0
"""What bench/gpu_attention.py times: sparsed's operators and their peers on the same random inputs and masks."""
import dataclasses
import functools
import math
import typing

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

import block_masks

DEVICE = "cuda"
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
FLEX_BLOCK = 128                # FlexAttention's own
BUILD_RHO = 0.3                 # SparseD's, and the preset `sparsed`'s
REFERENCE_MOST_TOKENS = 65536
MIXED_ROWS = (4096, 16384, 1000)  # dense, sparse, dense


@dataclasses.dataclass
class Case:
    """One measurement. `prepare` makes its masks and gives the call to time; what is made goes with the call."""
    impl: str
    tokens: int
    block: int | None  # None: no blocks in it
    rho: float
    prepare: typing.Callable[[], typing.Callable]
    flops: typing.Callable[[], float] | None = None  # on kept blocks; None: not an attention
    out: typing.Callable | None = None  # result of the call -> [tokens, heads, head_dim]; None: is not compared


class Shape:
    """q, k, v of one length, dtype and head size; peers get them as [1, heads, tokens, head_dim]."""

    def __init__(self, options, dtype, head_dim, tokens):
        self.tokens, self.heads, self.head_dim = tokens, options.heads, head_dim
        self.grouped = options.kv_heads != options.heads
        sizes = [(tokens, heads, head_dim) for heads in (options.heads, options.kv_heads, options.kv_heads)]
        self.q, self.k, self.v = (torch.randn(size, dtype=dtype, device=DEVICE) for size in sizes)
        self.kept_mask = (None, None)

    def flops(self, pairs=None):
        return 4 * self.head_dim * (self.heads * self.tokens**2 if pairs is None else pairs)

    @functools.cached_property
    def by_head(self):
        return [x.transpose(0, 1)[None].contiguous() for x in (self.q, self.k, self.v)]

    @functools.cached_property
    def flex(self):
        torch.compiler.reset()  # else the lengths before this one count against the limit of recompilations
        return torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def mask(self, block, rho):
        """The same one for every implementation; only the last is kept."""
        if self.kept_mask[0] != (block, rho):
            self.kept_mask = (None, None)
            self.kept_mask = ((block, rho), block_masks.random_mask(self.heads, self.tokens, block, rho, DEVICE))
        return self.kept_mask[1]


def token_major(out):
    return out[0].transpose(0, 1)


def first(result):
    return result[0]


def dense_rows(rows, block):
    """Packing of dense rows: offsets, no masks, mask offsets, block sizes."""
    return rows, torch.zeros(0, dtype=torch.int32, device=DEVICE), [-1] * (len(rows) - 1), [block] * (len(rows) - 1)


def attention(shape, packing):
    return torch.ops.sparsed.attention(shape.q, shape.k, shape.v, *packing)


def attention_with_mass(shape, block):
    blocks = math.ceil(shape.tokens / block)
    size = shape.heads * blocks * blocks
    return torch.ops.sparsed.attention_with_mass(
        shape.q, shape.k, shape.v, *dense_rows([0, shape.tokens], block), [0], size)


def mass_by_head(shape, block):
    blocks = math.ceil(shape.tokens / block)
    return attention_with_mass(shape, block)[2].view(shape.heads, blocks, blocks)


def empty_words(mass):
    heads, rows, blocks = mass.shape
    return torch.zeros(heads * rows * math.ceil(blocks / block_masks.WORD_BITS), dtype=torch.int32, device=DEVICE)


def select(words, mass):
    torch.ops.sparsed.select_blocks(words, mass, None, "top_ratio", BUILD_RHO, mass.size(2) - 1)


def build(shape, block):
    """What a build step of the preset `sparsed` does: attention with mass, selection, the mask's statistics."""
    mass = mass_by_head(shape, block)
    words = empty_words(mass)
    select(words, mass)
    return torch.ops.sparsed.mask_statistics(words, mass, shape.tokens, block)


def prepare_sdpa(shape, impl):
    def call():
        with sdpa_kernel(BACKENDS[impl]):
            return F.scaled_dot_product_attention(*shape.by_head, enable_gqa=shape.grouped)
    return call


def prepare_flex(shape, rho):
    mask = block_masks.flex_mask(shape.mask(FLEX_BLOCK, rho), shape.tokens, FLEX_BLOCK)
    return functools.partial(shape.flex, *shape.by_head, block_mask=mask, enable_gqa=shape.grouped)


def prepare_sparse(shape, block, rho):
    words = block_masks.words_of(shape.mask(block, rho))
    return functools.partial(attention, shape, ([0, shape.tokens], words, [0], [block]))


def prepare_select(shape, block):
    mass = mass_by_head(shape, block)
    return functools.partial(select, empty_words(mass), mass)


def prepare_reference_mask(shape, block):
    """The mask as SparseD's published code makes it: per query block the whole softmax in the model's dtype, its
    means over blocks, the best blocks; then the same over the generation's keys, here the last block."""
    q, k = shape.by_head[0][0], shape.by_head[1][0]
    k = k.repeat_interleave(shape.heads // k.size(0), 0)
    last = math.ceil(shape.tokens / block) - 1

    def best(query, keys):
        logits = query @ keys.transpose(1, 2) * shape.head_dim**-0.5
        weights = logits.softmax(-1, dtype=torch.float32).to(query.dtype)
        if keys.size(1) % block or query.size(1) < block:
            weights = F.pad(weights, (0, -keys.size(1) % block, 0, block - query.size(1)))
        means = weights.view(shape.heads, block, -1, block).mean((1, 3))
        blocks = means.size(1)
        return means.topk(min(int(blocks * BUILD_RHO) + 1, blocks)).indices

    def call():
        mask = torch.zeros(shape.heads, last + 1, last + 1, dtype=torch.bool, device=DEVICE)
        for i in range(last + 1):
            query = q[:, i * block:(i + 1) * block]
            mask[:, i].scatter_(1, best(query, k), True)
            mask[:, i, last:] = False
            mask[:, i, last:].scatter_(1, best(query, k[:, last * block:]), True)
        return mask
    return call


def prepare_dense(shape):
    return functools.partial(attention, shape, dense_rows([0, shape.tokens], FLEX_BLOCK))


def dense_cases(shape, blocks):
    def case(impl, block, prepare, out):
        return Case(impl, shape.tokens, block, 1.0, prepare, shape.flops, out)
    for impl in BACKENDS:
        yield case(impl, None, functools.partial(prepare_sdpa, shape, impl), token_major)
    yield case("sparsed", None, functools.partial(prepare_dense, shape), first)
    for block in blocks:
        yield case("sparsed_mass", block, functools.partial(functools.partial, attention_with_mass, shape, block), first)


def sparse_cases(shape, blocks, rhos):
    def flops(block, rho):
        return shape.flops(block_masks.kept_pairs(shape.mask(block, rho), shape.tokens, block))

    def case(impl, block, rho, prepare, out):
        return Case(impl, shape.tokens, block, rho, prepare, functools.partial(flops, block, rho), out)
    for block in blocks:
        for rho in rhos:
            if block == FLEX_BLOCK:
                yield case("flex", block, rho, functools.partial(prepare_flex, shape, rho), token_major)
            yield case("sparsed", block, rho, functools.partial(prepare_sparse, shape, block, rho), first)


def build_cases(shape, blocks):
    def case(impl, block, prepare, flops=None):
        return Case(impl, shape.tokens, block, BUILD_RHO, prepare, flops)
    for block in blocks:
        yield case("sparsed_select", block, functools.partial(prepare_select, shape, block))
        yield case("sparsed_build", block, functools.partial(functools.partial, build, shape, block), shape.flops)
        if shape.tokens <= REFERENCE_MOST_TOKENS:
            yield case("reference_mask", block, functools.partial(prepare_reference_mask, shape, block))


def mixed_cases(options, dtype, head_dim, block):
    """A dense, a sparse and a dense row in one launch, and in one launch each."""
    shape = Shape(options, dtype, head_dim, sum(MIXED_ROWS))
    mask = block_masks.random_mask(options.heads, MIXED_ROWS[1], block, BUILD_RHO, DEVICE)
    words = block_masks.words_of(mask)
    ends = [sum(MIXED_ROWS[:i]) for i in range(4)]
    pairs = block_masks.kept_pairs(mask, MIXED_ROWS[1], block) + options.heads * (MIXED_ROWS[0]**2 + MIXED_ROWS[2]**2)
    together = ends, words, [-1, 0, -1], [block] * 3

    def separate():
        for i, tokens in enumerate(MIXED_ROWS):
            row = [x[ends[i]:ends[i + 1]] for x in (shape.q, shape.k, shape.v)]
            torch.ops.sparsed.attention(*row, [0, tokens], words, [0 if i == 1 else -1], [block])

    def case(impl, call):
        return Case(impl, shape.tokens, block, BUILD_RHO, lambda: call, functools.partial(shape.flops, pairs))
    yield case("sparsed_mixed", functools.partial(attention, shape, together))
    yield case("sparsed_separate", separate)


def cases_of(shape, blocks, rhos):
    yield from dense_cases(shape, blocks)
    yield from sparse_cases(shape, blocks, rhos)
    yield from build_cases(shape, blocks)
