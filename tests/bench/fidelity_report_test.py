#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/fidelity_report.py on made-up results."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fidelity_report  # noqa: E402


def line(setting, row, correct, **fields):
    sparse = setting != "dense"
    return {"setting": setting, "task": "niah", "length": 1024, "row": row, "correct": correct, "seconds": 1.0,
            "density": 0.1 if sparse else 1.0, "mean_density": 0.2 if sparse else 1.0, "retained_mass": 0.9,
            "dense_step_seconds": 0.1, "sparse_step_seconds": 0.04 if sparse else 0.0, "model": "tiny",
            "device": "cpu", "dtype": "float32",
            "conditions": {"plan": {"preset": setting}, "steps": 32, "gen_length": 32, "stop_on_end": True}} | fields


class FidelityReportTest(unittest.TestCase):
    def points(self, *lines):
        return fidelity_report.points_of(self.load(*lines))

    def load(self, *lines):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(one) + "\n" for one in lines))
            file.flush()
            return fidelity_report.load([file.name])

    def test_wilson_interval_matches_published_values(self):
        low, high = fidelity_report.wilson(81, 263)  # Newcombe 1998, table I: 0.2553 to 0.3662
        self.assertAlmostEqual(low, 0.2553, places=4)
        self.assertAlmostEqual(high, 0.3662, places=4)
        self.assertEqual(fidelity_report.wilson(100, 100)[1], 1.0)

    def test_paired_difference_counts_only_discordant_rows(self):
        difference, (low, high), p = fidelity_report.paired(10, 0, 100)
        self.assertAlmostEqual(difference, -0.10)
        self.assertAlmostEqual(p, 2 / 2**10)
        self.assertLess(low, -0.10)
        self.assertLess(high, 0)
        self.assertEqual(fidelity_report.paired(0, 0, 50)[2], 1)

    def test_pairs_are_rows_both_settings_answered(self):
        point = self.points(line("dense", 0, True), line("dense", 1, False), line("s/1", 0, False),
                            line("s/1", 1, True), line("s/1", 2, True, seconds=9.0))[1024][1]
        self.assertEqual((point.lost, point.gained, len(point.pairs)), (1, 1, 2))
        self.assertAlmostEqual(point.time_ratio(), 1.0)
        self.assertAlmostEqual(point.step_ratio(), 0.4)
        self.assertAlmostEqual(point.accuracy(), 2 / 3)

    def test_tasks_weigh_the_same(self):
        point = self.points(line("s/1", 0, True), line("s/1", 1, True), line("s/1", 2, True),
                            line("s/1", 0, False, task="follow"))[1024][0]
        self.assertAlmostEqual(point.accuracy(), 0.5)

    def test_density_is_that_of_rows_with_sparse_steps(self):
        point = self.points(line("s/1", 0, True, density=0.1), line("s/1", 1, True, density=0.3),
                            line("s/1", 2, True, density=1.0, sparse_step_seconds=0.0))[1024][0]
        self.assertAlmostEqual(point.sparse_mean("density"), 0.2)
        dense = self.points(line("dense", 0, True))[1024][0]
        self.assertEqual(dense.sparse_mean("density"), 1.0)

    def test_knee_is_the_last_point_before_the_first_loss(self):
        rows = range(20)
        found = self.points(*(line("dense", row, True) for row in rows),
                            *(line("s/1", row, True, density=0.3) for row in rows),
                            *(line("s/2", row, row > 0, density=0.1) for row in rows),
                            *(line("s/3", row, row > 9, density=0.05) for row in rows),
                            *(line("s/4", row, True, density=0.01) for row in rows))[1024]
        last, loss = fidelity_report.knee(fidelity_report.curves_of(found)["s"])
        self.assertEqual((last.label, loss.label), ("2", "3"))

    def test_lost_rows_are_compared_with_kept_ones_by_layer(self):
        point = self.points(line("dense", 0, True), line("dense", 1, True), line("dense", 2, False),
                            line("s/1", 0, False, layer_retained_mass=[0.5, 0.9]),
                            line("s/1", 1, True, layer_retained_mass=[0.8, 0.9]),
                            line("s/1", 2, False, layer_retained_mass=[0.0, 0.0]))[1024][1]
        difference = fidelity_report.lost_mass(point)
        self.assertAlmostEqual(difference[0], -0.3)
        self.assertAlmostEqual(difference[1], 0.0)

    def test_one_setting_under_two_conditions_is_refused(self):
        other = line("dense", 1, True)
        other["conditions"] = other["conditions"] | {"steps": 16}
        with self.assertRaisesRegex(SystemExit, "two conditions"):
            self.load(line("dense", 0, True), other)

    def test_two_devices_are_refused_and_the_same_row_counts_once(self):
        with self.assertRaisesRegex(SystemExit, "--device"):
            self.load(line("dense", 0, True), line("dense", 1, True, device="cuda"))
        self.assertEqual(len(self.load(line("dense", 0, True), line("dense", 0, True))), 1)

    def test_prose_around_the_results_survives(self):
        page = f"before\n{fidelity_report.BEGIN}\nold\n{fidelity_report.END}\nafter\n"
        points = self.points(line("dense", 0, True), line("s/1", 0, True, layer_retained_mass=[0.5, 0.9]))
        once = fidelity_report.replace_results(page, fidelity_report.results_text(points, ["s/*"]))
        self.assertTrue(once.startswith("before\n"))
        self.assertTrue(once.endswith("after\n"))
        self.assertNotIn("old", once)
        self.assertIn("| s/1 | 0.100 | 0.200 | 0.900 |", once)
        self.assertIn("| s/1 | 0.500 | 0.900 |", once)
        self.assertEqual(fidelity_report.replace_results(once, fidelity_report.results_text(points, ["s/*"])), once)


if __name__ == "__main__":
    unittest.main()
