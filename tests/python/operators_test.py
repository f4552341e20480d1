#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators as PyTorch sees them: schemas, shapes without data, torch.compile.

Usage: operators_test.py LIBRARY [unittest options]
Exits with 77 where there is no PyTorch of the version that the library was built against.
"""
import math
import sys
import unittest

TORCH_VERSION = "2.11"
SKIP = 77  # what ctest takes for "skipped"

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} cannot import torch ({error})")
    sys.exit(SKIP)
if not torch.__version__.startswith(TORCH_VERSION + "."):
    print(f"skipped: {sys.executable} has PyTorch {torch.__version__}, not {TORCH_VERSION}")
    sys.exit(SKIP)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402

TOKENS, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 300, 4, 2, 32, 64
BLOCKS = math.ceil(TOKENS / BLOCK)
MASS_SIZE = HEADS * BLOCKS * BLOCKS


def qkv(dtype=torch.float32):
    return [torch.randn(TOKENS, heads, HEAD_DIM, dtype=dtype) for heads in (HEADS, KV_HEADS, KV_HEADS)]


def mask_words():
    return torch.randint(1, 2**BLOCKS, (HEADS * BLOCKS,), dtype=torch.int32)


def no_masks():
    return torch.zeros(0, dtype=torch.int32)


def scores(columns=BLOCKS):
    return torch.rand(HEADS, BLOCKS, columns).softmax(-1)


def statistics(heads):
    return [torch.rand(heads, BLOCKS, HEAD_DIM) for _ in range(2)]


def orders():
    return torch.argsort(torch.rand(HEADS, TOKENS), 1).to(torch.int32)


def angles():
    return [torch.rand(TOKENS, HEAD_DIM // 2) for _ in range(2)]


# Operator and case -> what it is called with.
CASES = {
    "attention": {
        "dense": lambda: (*qkv(), [0, TOKENS], no_masks(), [-1], [BLOCK]),
        "bf16": lambda: (*qkv(torch.bfloat16), [0, TOKENS], no_masks(), [-1], [BLOCK]),
        "mixed": lambda: (*qkv(), [0, 200, TOKENS], mask_words(), [0, -1], [BLOCK, 128]),
    },
    "attention_with_mass": {
        "one_row": lambda: (*qkv(), [0, TOKENS], no_masks(), [-1], [BLOCK], [0], MASS_SIZE),
        "bf16": lambda: (*qkv(torch.bfloat16), [0, TOKENS], no_masks(), [-1], [BLOCK], [0], MASS_SIZE),
    },
    "pooled_mass": {
        "all": lambda: (*qkv()[:2], BLOCK, 0.2, 0),
        "last_keys": lambda: (*qkv(torch.bfloat16)[:2], BLOCK, 0.2, BLOCKS - 1),
    },
    "select_blocks": {
        "top_ratio": lambda: (mask_words(), scores(), None, "top_ratio", 0.5, 3),
        "compat": lambda: (mask_words(), scores(), scores(BLOCKS - 3), "top_ratio_compat", 0.3, 3),
        "guarded": lambda: (mask_words(), scores(), None, "top_k", 0.3, 0, 0.9),
    },
    "mask_statistics": {"one_row": lambda: (mask_words(), scores(), TOKENS, BLOCK)},
    "count_kept_blocks": {"one_row": lambda: (mask_words(), HEADS)},
    "sample_retained_mass": {
        "three_queries": lambda: (*qkv()[:2], mask_words(), torch.tensor([0, 63, 299]), BLOCK),
    },
    "block_statistics": {
        "fp32": lambda: (qkv()[0], BLOCK),
        "bf16": lambda: (qkv(torch.bfloat16)[0], BLOCK),
    },
    "block_logits": {
        "covariance": lambda: (*statistics(HEADS), *statistics(KV_HEADS), TOKENS, BLOCK, True),
    },
    "norm_order": {"windows": lambda: (qkv()[0], 128)},
    "gather_rows": {"fp32": lambda: (torch.zeros(TOKENS, HEADS, HEAD_DIM), qkv()[0], orders())},
    "scatter_rows": {"fp32": lambda: (torch.zeros(TOKENS, HEADS, HEAD_DIM), qkv()[0], orders())},
    "rms_norm": {"fp32": lambda: (torch.randn(TOKENS, 48), torch.randn(48), 1e-5)},
    "rope": {"two_rows": lambda: (qkv()[0], *angles(), [0, 100, TOKENS])},
    "silu_mul": {"fp32": lambda: (torch.randn(TOKENS, 96),)},
    "candidate_statistics": {
        "sampled": lambda: (torch.randn(9, 50), torch.rand(9, dtype=torch.float64), 0.7),
    },
}
# Take no tensors and give values, not shapes: called before compiled code, not in it.
HOST_CODE = {"cpu_isa", "fractal_order", "sink_window_mask", "sta_mask"}


def all_cases():
    for name, cases in CASES.items():
        for case, arguments in cases.items():
            torch.manual_seed(1)
            yield f"{name}.{case}", getattr(torch.ops.sparsed, name).default, arguments()


def facts(results):
    """Shape, strides and dtype of every result, not its device."""
    if results is None:
        return []
    tensors = results if isinstance(results, (tuple, list)) else (results,)
    return [(tuple(x.shape), x.stride(), x.dtype) for x in tensors]


def devices(results):
    tensors = results if isinstance(results, (tuple, list)) else (results,)
    return {x.device.type for x in tensors}


def on_device(arguments, device):
    return tree_map_only(torch.Tensor, lambda x: torch.empty_strided(
        x.size(), x.stride(), dtype=x.dtype, device=device), arguments)


class OperatorsTest(unittest.TestCase):
    def test_every_operator_has_a_case(self):
        registered = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names()
                      if name.startswith("sparsed::")}
        self.assertEqual(registered - HOST_CODE, set(CASES))

    def test_opcheck(self):
        for name, operator, arguments in all_cases():
            with self.subTest(name):
                torch.library.opcheck(operator, arguments)

    def test_meta_results_look_like_real_ones(self):
        for name, operator, arguments in all_cases():
            with self.subTest(name):
                shapes = facts(operator(*on_device(arguments, "meta")))
                self.assertEqual(shapes, facts(operator(*arguments)))

    def test_cuda_without_data(self):
        for name, operator, arguments in all_cases():
            with self.subTest(name), FakeTensorMode():
                results = operator(*on_device(arguments, "cuda"))
                if results is not None:
                    self.assertEqual(devices(results), {"cuda"})

    def test_bad_block_size_is_refused_without_data(self):
        q, k, _ = (x.to("meta") for x in qkv())
        for block in (0, 48):
            with self.assertRaisesRegex(ValueError, f"block_tokens is {block}"):
                torch.ops.sparsed.pooled_mass(q, k, block, 1.0, 0)

    def test_bad_packing_is_refused(self):
        q, k, v = qkv()
        for rows, masks, blocks, message in (
                ([], [], [], "row_offsets must have one element more"),
                ([0, -1, TOKENS], [-1, -1], [64, 64], "row_offsets must start at 0"),
                ([0, TOKENS], [-1, -1], [64], "mask_offsets has 2 elements, must have 1"),
                ([0, TOKENS], [-1], [], "block_tokens has 0 elements, must have 1"),
                ([0, TOKENS], [-1], [48], "block_tokens is 48"),
                ([0, TOKENS], [0], [64], "ends beyond the arena")):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                torch.ops.sparsed.attention(q, k, v, rows, no_masks(), masks, blocks)


def attend(x, weight, k, v, mask):
    """A layer's worth: norm, sparse attention, norm of what came out."""
    ops, tokens = torch.ops.sparsed, x.shape[0]
    q = ops.rms_norm(x, weight, 1e-5).view(tokens, -1, k.shape[2]).to(k.dtype)
    out, lse = ops.attention(q, k, v, [0, tokens], mask, [0], [BLOCK])
    return ops.rms_norm(out.float().flatten(1), weight, 1e-5), lse


def build(q, k, v):
    """Mask construction: an operator that writes into its argument among others."""
    ops, tokens, heads = torch.ops.sparsed, q.shape[0], q.shape[1]
    blocks = (tokens + BLOCK - 1) // BLOCK
    size = heads * blocks * blocks
    _, _, mass = ops.attention_with_mass(
        q, k, v, [0, tokens], q.new_zeros(0, dtype=torch.int32), [-1], [BLOCK], [0], size)
    mask = q.new_zeros(heads * blocks * ((blocks + 31) // 32), dtype=torch.int32)
    ops.select_blocks(mask, mass.view(heads, blocks, blocks), None, "top_ratio", 0.3, blocks - 1)
    return mask, *ops.mask_statistics(mask, mass.view(heads, blocks, blocks), tokens, BLOCK)


def attend_inputs(tokens, device="cpu", dtype=torch.float32):
    torch.manual_seed(2)
    blocks = math.ceil(tokens / BLOCK)
    mask = torch.randint(1, 2**blocks, (HEADS * blocks,), dtype=torch.int32)
    k, v = (torch.randn(tokens, KV_HEADS, HEAD_DIM, dtype=dtype) for _ in range(2))
    tensors = torch.randn(tokens, HEADS * HEAD_DIM), torch.randn(HEADS * HEAD_DIM), k, v, mask
    return [x.to(device) for x in tensors]


def build_inputs(tokens, device="cpu", dtype=torch.float32):
    torch.manual_seed(3)
    return [torch.randn(tokens, heads, HEAD_DIM, dtype=dtype).to(device) for heads in (HEADS, KV_HEADS, KV_HEADS)]


class CompileTest(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        torch._dynamo.reset()

    def expect_same(self, function, inputs, lengths, dtype=torch.float32, **options):
        compiled = torch.compile(function, fullgraph=True, **options)
        for tokens in lengths:
            arguments = inputs(tokens, self.device, dtype)
            for got, want in zip(compiled(*arguments), function(*arguments), strict=True):
                torch.testing.assert_close(got, want)

    def test_attention_between_norms(self):
        self.expect_same(attend, attend_inputs, [300])

    def test_mask_construction(self):
        self.expect_same(build, build_inputs, [300])

    def test_one_graph_for_all_lengths(self):
        for function, inputs in ((attend, attend_inputs), (build, build_inputs)):
            with self.subTest(function.__name__):
                with torch._dynamo.config.patch(error_on_recompile=True):
                    self.expect_same(function, inputs, [300, 1000, 129], dynamic=True)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class CudaCompileTest(CompileTest):
    device = "cuda"

    def test_bf16(self):
        self.expect_same(attend, attend_inputs, [300], dtype=torch.bfloat16)

    def test_results_are_those_of_the_cpu(self):
        for function, inputs in ((attend, attend_inputs), (build, build_inputs)):
            on_cpu, on_gpu = (function(*inputs(300, device)) for device in ("cpu", "cuda"))
            for got, want in zip(on_gpu, on_cpu, strict=True):
                torch.testing.assert_close(got.cpu(), want, atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.ops.load_library(sys.argv.pop(1))
    unittest.main(verbosity=2)
