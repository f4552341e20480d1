#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws "Attention on an H200" of docs/benchmarks.md from the lines that `bench/attention.py --device cuda --json` appends.

Usage: attention_report.py [--docs docs]

Reads DOCS/benchmarks/attention.jsonl and, if it is there, small.jsonl; of lines about the same thing the last one
counts. Replaces what stands between the markers `<!-- attention:begin -->` and `<!-- attention:end -->`.
"""
import argparse
import json
import pathlib
import sys

BEGIN, END = "<!-- attention:begin -->", "<!-- attention:end -->"
KEY = ("impl", "dtype", "heads", "kv_heads", "head_dim", "L", "block", "rho")
STAMPS = ("gpu", "commit", "date", "torch")  # of a line, not of what is measured
NO_SETTING = ("bench", "op", "impl", "ms", *STAMPS)
PEER_BLOCK = 128  # FlexAttention's
BUILD_RHO = 0.3
NONE = "–"


def load(path, bench, needed):
    """Lines of one benchmark, in the file's order."""
    if not path.exists():
        return []
    rows = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(text)
            missing = [name for name in needed if name not in row]
        except (json.JSONDecodeError, TypeError):
            sys.exit(f"{path}:{number}: is not a JSON object")
        if missing or row.get("bench") != bench:
            sys.exit(f"{path}:{number}: is not a line of the benchmark '{bench}': lacks {', '.join(missing) or 'its name'}")
        rows.append(row)
    return rows


class Measurements:
    """The last line of every key; `get` of one setting's."""

    def __init__(self, rows):
        self.by_key = {tuple(row[name] for name in KEY): row for row in rows}

    def settings(self, *names, impls):
        """Distinct values of the given fields, of these implementations, sorted; without those that have no blocks."""
        found = {tuple(row[name] for name in names) for row in self.by_key.values() if row["impl"] in impls}
        return sorted(setting for setting in found if None not in setting)

    def get(self, impl, setting, tokens, block, rho):
        return self.by_key.get((impl, *setting, tokens, block, rho))


def markdown(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"
    yield ""


def digits(milliseconds):
    return f"{milliseconds:.{3 if milliseconds < 1 else 2 if milliseconds < 100 else 1}f}"


def ms(row):
    return digits(row["ms"]) if row else NONE


def cell(row):
    """`1.234 (567)`: ms and TFLOP/s."""
    return f"{ms(row)} ({row['tflops']:.0f})" if row and row["tflops"] else ms(row)


def ratio(slow, fast):
    return f"{slow['ms'] / fast['ms']:.2f}x" if slow and fast else NONE


def speed_line(found, setting, tokens, block):
    def get(impl, block=None, rho=1.0):
        return found.get(impl, setting, tokens, block, rho)
    cudnn, dense, mass = get("cudnn"), get("sparsed"), get("sparsed_mass", block)
    flex, sparse = get("flex", PEER_BLOCK, 0.3), {rho: get("sparsed", block, rho) for rho in (0.5, 0.3, 0.1)}
    with_mass = f"{ms(mass)} ({mass['ms'] / dense['ms']:.2f})" if mass and dense else ms(mass)
    return [str(tokens), cell(cudnn), cell(get("fa2")), cell(flex), cell(dense), with_mass,
            *(cell(row) for row in sparse.values()), ratio(cudnn, dense), ratio(flex, sparse[0.3])]


def speed_order(key):
    """bf16, heads of 128 and blocks of 128 first."""
    dtype, heads, kv_heads, head_dim, block = key
    return dtype != "bf16", block != PEER_BLOCK, -head_dim, -block, heads, kv_heads


def speed_tables(found):
    head = ["tokens", "cuDNN", "FA2", "Flex, .3", "ours, dense", "with mass (of dense)", "ours, .5", "ours, .3", "ours, .1",
            "dense: as fast as cuDNN", ".3: as fast as Flex"]
    keys = found.settings(*KEY[1:5], "block", impls=("sparsed", "sparsed_mass"))
    for *setting, block in sorted(keys, key=speed_order):
        dtype, heads, kv_heads, head_dim = setting
        tokens = {row["L"] for row in found.by_key.values() if row["impl"] in ("sparsed", "sparsed_mass")
                  and [row[name] for name in KEY[1:5]] == setting and row["block"] == block}
        yield f"### Heads of {head_dim}, {dtype}, blocks of {block}, {heads}/{kv_heads} heads\n"
        yield from markdown(head, [speed_line(found, setting, n, block) for n in sorted(tokens)])


def build_line(found, key):
    *setting, tokens, block = key
    dense = found.get("sparsed", setting, tokens, None, 1.0)
    build, choice, reference = (found.get(impl, setting, tokens, block, BUILD_RHO)
                                for impl in ("sparsed_build", "sparsed_select", "reference_mask"))
    more = build["ms"] - dense["ms"] if build and dense else None
    return [setting[0], str(setting[3]), str(tokens), str(block), ms(dense), ms(build),
            NONE if more is None else digits(more) if more > 0 else f"-{digits(-more)}", ms(choice), ms(reference),
            f"{reference['ms'] / more:.1f}x" if reference and more and more > 0 else NONE]


def build_table(found):
    keys = found.settings(*KEY[1:6], "block", impls=("sparsed_build",))
    if not keys:
        return
    yield "### Making a mask\n"
    yield ("A build step is a dense attention that also yields the blocks' mass, the selection and the mask's statistics; what it "
           "takes beyond a dense attention is the mask's price. SparseD's published way computes all weights once more.\n")
    head = ["dtype", "head size", "tokens", "blocks", "dense, ms", "build step, ms", "more than dense, ms",
            "selection alone, ms", "SparseD's way, ms", "SparseD's way / ours"]
    yield from markdown(head, [build_line(found, key) for key in sorted(keys, key=lambda k: (k[0], -k[3], k[4], -k[5]))])


def mixed_table(found):
    keys = found.settings(*KEY[1:], impls=("sparsed_mixed",))
    if not keys:
        return
    yield "### Rows of different kinds in one launch\n"
    yield "4096 tokens dense, 16384 sparse (.3) and 1000 dense.\n"
    lines = []
    for *setting, tokens, block, rho in sorted(keys, key=lambda k: (k[0], -k[3])):
        together, separate = (found.get(impl, setting, tokens, block, rho) for impl in ("sparsed_mixed", "sparsed_separate"))
        lines.append([setting[0], str(setting[3]), cell(together), cell(separate), ratio(separate, together)])
    yield from markdown(["dtype", "head size", "one launch, ms (TFLOP/s)", "three launches", "one: as fast as three"], lines)


def small_table(rows):
    """Other operators: any further field of a line is part of its setting."""
    last = {}
    for row in rows:
        setting = tuple(f"{name} {value}" for name, value in row.items() if name not in NO_SETTING)
        last.setdefault((row["op"], setting), {})[row["impl"]] = row
    if not last:
        return
    yield "### Other operators\n"
    lines = []
    for (op, setting), by_impl in last.items():
        ours, aten = by_impl.get("sparsed"), by_impl.get("aten")
        lines.append([f"`{op}`", ", ".join(setting) or NONE, ms(ours), ms(aten),
                      ratio(aten, ours)])
    yield from markdown(["operator", "size", "ours, ms", "ATen, ms", "as fast as ATen"], lines)


def runs(rows):
    """Where and of which code, once each, as far as the lines say."""
    said = {", ".join(f"{name} {row[name]}" for name in STAMPS if name in row) for row in rows}
    return [f"- {run}" for run in sorted(said) if run]


def section(rows, small):
    if not rows and not small:
        return "Not measured yet."
    found = Measurements(rows)
    lines = [*runs(list(found.by_key.values()) + small), ""]
    if rows:
        lines.append("ms, and in brackets TFLOP/s on the kept blocks; *.3* keeps 30 % of the key blocks, *with mass (of dense)* is the "
                     "time as a multiple of our dense attention's. FlexAttention's blocks have 128 tokens in every table.\n")
        for part in (speed_tables, build_table, mixed_table):
            lines.extend(part(found))
    lines.extend(small_table(small))
    return "\n".join(lines).rstrip()


def splice(page, results):
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"benchmarks.md lacks the markers {BEGIN} and {END}")
    return f"{before}{begin}\n\n{results}\n\n{end}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=pathlib.Path, default=pathlib.Path("docs"), help="folder of benchmarks.md")
    docs = parser.parse_args().docs
    page = docs / "benchmarks.md"
    if not page.exists():
        sys.exit(f"{page} does not exist: --docs must name the folder of benchmarks.md")
    rows = load(docs / "benchmarks/attention.jsonl", "attention", (*KEY, "ms", "tflops"))
    small = load(docs / "benchmarks/small.jsonl", "small", ("op", "impl", "ms"))
    page.write_text(splice(page.read_text(), section(rows, small)))


if __name__ == "__main__":
    main()
