#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/attention.py --device cuda does before and after it times: masks, comparison of outputs, arguments.

Usage: attention_bench_test.py LIBRARY [unittest options]
Exits with 77 where there is no PyTorch of the version that the library was built against.
"""
import math
import pathlib
import subprocess
import sys
import unittest

SKIP = 77
try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} cannot import torch ({error})")
    sys.exit(SKIP)
if not torch.__version__.startswith("2.11."):
    print(f"skipped: {sys.executable} has PyTorch {torch.__version__}, not 2.11")
    sys.exit(SKIP)

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import block_masks  # noqa: E402
import gpu_attention  # noqa: E402
import gpu_cases  # noqa: E402
import gpu_timer  # noqa: E402

TOKENS, HEADS, HEAD_DIM = 1500, 3, 32


def token_mask(mask, block):
    wide = mask.repeat_interleave(block, 1).repeat_interleave(block, 2)
    return wide[:, :TOKENS, :TOKENS]


class BlockMasksTest(unittest.TestCase):
    def masks(self):
        for block, rho in ((32, 0.3), (64, 0.5), (128, 0.1)):
            yield block, rho, block_masks.random_mask(HEADS, TOKENS, block, rho, "cpu")

    def test_every_query_block_keeps_its_share(self):
        for block, rho, mask in self.masks():
            blocks = math.ceil(TOKENS / block)
            self.assertEqual(mask.shape, (HEADS, blocks, blocks))
            self.assertTrue((mask.sum(-1) == math.ceil(rho * blocks)).all())
            self.assertFalse(torch.equal(mask[0], mask[1]))

    def test_words_select_the_same_keys_as_booleans(self):
        q, k, v = (torch.randn(TOKENS, HEADS, HEAD_DIM) for _ in range(3))
        for block, _, mask in self.masks():
            out, _ = torch.ops.sparsed.attention(q, k, v, [0, TOKENS], block_masks.words_of(mask), [0], [block])
            expected = torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(0, 1) for x in (q, k, v)), attn_mask=token_mask(mask, block)).transpose(0, 1)
            self.assertLess(float((out - expected).norm() / expected.norm()), 1e-5)

    def test_pairs_count_the_short_last_block_as_it_is(self):
        for block, _, mask in self.masks():
            self.assertEqual(block_masks.kept_pairs(mask, TOKENS, block), int(token_mask(mask, block).sum()))

    def test_flex_mask_holds_the_same_blocks_in_order(self):
        for block, _, mask in self.masks():
            flex = block_masks.flex_mask(mask, TOKENS, block)
            self.assertTrue(torch.equal(flex.to_dense()[0].bool(), mask))
            self.assertEqual(flex.shape, (1, HEADS, TOKENS, TOKENS))
            kept = flex.full_kv_indices[..., :int(flex.full_kv_num_blocks[0, 0, 0])]
            self.assertTrue((kept.diff(dim=-1) > 0).all())


class ComparisonTest(unittest.TestCase):
    def case(self, impl, block=None, rho=1.0):
        return gpu_cases.Case(impl, TOKENS, block, rho, None, out=lambda x: x)

    def test_equal_outputs_pass_and_others_do_not(self):
        outputs, x = gpu_attention.Outputs(), torch.randn(TOKENS, HEADS, HEAD_DIM)
        outputs.compare(self.case("cudnn"), x)
        outputs.compare(self.case("sparsed"), x.bfloat16())
        outputs.compare(self.case("sparsed", 128, 0.3), -x)
        for wrong in (-x, x.roll(1, 0), x * math.nan):
            with self.assertRaisesRegex(ArithmeticError, "wrong: differs from SDPA, cuDNN"):
                outputs.compare(self.case("sparsed", 64), wrong)

    def test_table_has_ratios_and_failures(self):
        base = {"dtype": "bf16", "head_dim": 128, "L": 4096, "block": 128, "rho": 0.3, "tflops": 400.0}
        rows = [base | {"impl": "cudnn", "ms": 3.0, "block": None, "rho": 1.0}, base | {"impl": "flex", "ms": 2.0},
                base | {"impl": "sparsed", "ms": 1.0}, base | {"impl": "fa2", "failed": "out of memory"}]
        lines = list(gpu_attention.table(rows))
        self.assertIn("| ours | 128 | 0.3 | 1.000 | 400 | 3.00x | 2.00x |", lines[4])
        self.assertIn("| out of memory |", lines[5])


class RunsTest(unittest.TestCase):
    def test_at_least_twenty_runs_unless_they_are_long(self):
        self.assertEqual([gpu_timer.runs_for(x) for x in (0.0, 0.5, 4, 99, 101)], [50, 50, 25, 20, 5])


class CommandLineTest(unittest.TestCase):
    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, BENCH / "attention.py", *arguments], capture_output=True, text=True)

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_says_that_there_is_no_gpu(self):
        result = self.run_bench("--device", "cuda")
        self.assertEqual(result.returncode, 2)
        self.assertIn("PyTorch sees no GPU here", result.stderr)

    def test_unknown_device_and_foreign_options_are_errors(self):
        for arguments in (["--device", "tpu"], ["--device", "cuda", "--densities", "0.3"], ["--rhos", "0.3"]):
            self.assertEqual(self.run_bench(*arguments).returncode, 2, arguments)


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop(1))
    torch.manual_seed(1)
    unittest.main()
