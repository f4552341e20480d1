#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/attention_report.py on made-up results."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import attention_report  # noqa: E402


def line(impl, ms, block=None, rho=1.0, **fields):
    return {"bench": "attention", "impl": impl, "L": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "block": block,
            "rho": rho, "dtype": "bf16", "ms": ms, "tflops": 500.0, "gpu": "G", "commit": "abc", "date": "2026-12-01"} | fields


ONE_SHAPE = [line("cudnn", 2.0), line("fa2", 3.0), line("sparsed", 2.5), line("sparsed_mass", 3.0, 128),
             line("flex", 1.8, 128, 0.3), line("sparsed", 0.9, 128, 0.3)]
BUILD = [line("sparsed", 2.0), line("sparsed_build", 2.5, 128, 0.3), line("sparsed_select", 0.1, 128, 0.3, tflops=None),
         line("reference_mask", 9.0, 128, 0.3, tflops=None)]


class AttentionReportTest(unittest.TestCase):
    def row(self, text, start):
        return [one for one in text.splitlines() if one.startswith(start)]

    def test_speeds_and_ratios_of_a_shape(self):
        text = attention_report.section(ONE_SHAPE, [])
        self.assertEqual(self.row(text, "| 4096"), [
            "| 4096 | 2.00 (500) | 3.00 (500) | 1.80 (500) | 2.50 (500) | 3.00 (1.20) | – | 0.900 (500) | – | 0.80x | 2.00x |"])
        self.assertIn("- gpu G, commit abc, date 2026-12-01", text)

    def test_the_last_line_about_a_setting_counts(self):
        text = attention_report.section([line("sparsed", 7.0, commit="old"), *ONE_SHAPE], [])
        self.assertIn("| 2.50 (500) |", text)
        self.assertNotIn("old", text)

    def test_settings_do_not_mix(self):
        others = [dict(row, ms=77.0, **change) for row in ONE_SHAPE for change in
                  ({"dtype": "fp16"}, {"head_dim": 64}, {"kv_heads": 8})]
        text = attention_report.section(ONE_SHAPE + others, [])
        self.assertEqual(text.count("### Heads of"), 4)
        self.assertEqual(len([one for one in self.row(text, "| 4096") if "77.00" in one]), 3)

    def test_price_of_a_mask(self):
        text = attention_report.section(BUILD, [])
        self.assertEqual(self.row(text, "| bf16"), [
            "| bf16 | 128 | 4096 | 128 | 2.00 | 2.50 | 0.500 | 0.100 | 9.00 | 18.0x |"])

    def test_a_build_faster_than_dense_gives_no_ratio(self):
        text = attention_report.section([line("sparsed", 3.0), *BUILD[1:]], [])
        self.assertIn("| -0.500 | 0.100 | 9.00 | – |", text)

    def test_one_launch_against_three(self):
        rows = [line("sparsed_mixed", 2.0, 128, 0.3, L=21480), line("sparsed_separate", 3.0, 128, 0.3, L=21480)]
        self.assertIn("| bf16 | 128 | 2.00 (500) | 3.00 (500) | 1.50x |", attention_report.section(rows, []))

    def test_small_operators(self):
        rows = [{"bench": "small", "op": "rope", "impl": impl, "ms": ms, "shape": [4096, 32]}
                for impl, ms in (("aten", 0.3), ("sparsed", 9.0), ("sparsed", 0.1))]
        self.assertIn("| `rope` | shape [4096, 32] | 0.100 | 0.300 | 3.00x |", attention_report.section([], rows))

    def test_only_the_part_between_the_markers_changes(self):
        page = f"before\n{attention_report.BEGIN}\nold\n{attention_report.END}\nafter"
        self.assertEqual(attention_report.splice(page, "new"),
                         f"before\n{attention_report.BEGIN}\n\nnew\n\n{attention_report.END}\nafter")
        self.assertRaisesRegex(SystemExit, "lacks the markers", attention_report.splice, "page", "new")

    def test_bad_lines_are_named(self):
        for text, why in (("{", "not a JSON object"), (json.dumps({"bench": "attention"}), "lacks impl"),
                          (json.dumps(line("flex", 1.0, bench="other")), "not a line of the benchmark 'attention'")):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write(json.dumps(ONE_SHAPE[0]) + "\n" + text + "\n")
                file.flush()
                with self.assertRaisesRegex(SystemExit, f":2: .*{why}"):
                    attention_report.load(pathlib.Path(file.name), "attention", (*attention_report.KEY, "ms", "tflops"))


if __name__ == "__main__":
    unittest.main()
