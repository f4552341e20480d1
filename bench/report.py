#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a Markdown table of bench/run.sh's measurements, with ratios to PyTorch of the same run.

Usage: report.py LINES [--append JSONL]
--append adds the lines, with date, commit and processor, to a JSON-lines file.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def label(row):
    if row["impl"] == "pytorch":
        return "PyTorch 2.11, SDPA"
    return row["preset"] + (f", blocks of {row['block_tokens']}" if "block_tokens" in row else "")


def milliseconds(row, phase):
    value = row.get(phase + "_step_seconds")
    return f"{value * 1000:.0f}" if value else "–"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=pathlib.Path)
    parser.add_argument("--append", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.lines.read_text().splitlines()]
    base = {row["L"]: row for row in rows if row["impl"] == "pytorch"}
    print("| canvas | attention | dense step, ms | build step, ms | sparse step, ms | density | retained mass "
          "| tokens/s | dense step vs PyTorch | sparse step vs own dense |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    dense = {row["L"]: row for row in rows if row["impl"] == "sparsed" and row["preset"] == "dense"}
    for row in sorted(rows, key=lambda r: (r["L"], r["impl"], r["preset"], -r.get("block_tokens", 0))):
        versus = base[row["L"]]["dense_step_seconds"] / row["dense_step_seconds"]
        sparse = row.get("sparse_step_seconds")
        own = f"{dense[row['L']]['dense_step_seconds'] / sparse:.2f}x" if sparse else "–"
        print(f"| {row['L']} | {label(row)} | {milliseconds(row, 'dense')} | {milliseconds(row, 'build')} "
              f"| {milliseconds(row, 'sparse')} | {row.get('density', 1):.3f} | {row.get('retained_mass', 1):.3f} "
              f"| {row['tokens_per_second']:.2f} | {versus:.2f}x | {own} |")
    if arguments.append:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        stamp = {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": processor(),
                 "cores": os.cpu_count()}
        with arguments.append.open("a") as out:
            for row in rows:
                out.write(json.dumps(row | stamp) + "\n")


if __name__ == "__main__":
    main()
