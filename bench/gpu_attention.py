# SPDX-License-Identifier: Apache-2.0
"""The attention of sparsed beside cuDNN, FlashAttention 2 and FlexAttention on a GPU: one table of one run.

q, k, v are random normal; every query block of every head keeps its own random key blocks. Times are medians of
CUDA events with a cold L2 cache. All implementations of a shape run one after the other. TFLOP/s count the kept
blocks: 4 * head_dim operations for each pair of a query and a key. Outputs are compared with a peer's; one
that differs counts as failed, and so does whatever runs out of memory or is not supported.
"""
import argparse
import datetime
import functools
import gc
import json
import pathlib
import subprocess
import sys
import time

import torch

import gpu_cases
from argument_types import density, positive
from gpu_timer import GpuTimer

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
IMPLS = {
    "cudnn": "SDPA, cuDNN", "fa2": "SDPA, FlashAttention 2", "flex": "FlexAttention", "sparsed": "ours",
    "sparsed_mass": "ours, with mass", "sparsed_select": "ours, selection alone",
    "sparsed_build": "ours, with mass, selection, statistics", "sparsed_mixed": "ours, three rows in one launch",
    "sparsed_separate": "ours, three launches", "reference_mask": "mask as SparseD's code makes it",
}
MOST_DIFFERENCE = 0.02  # of the norm; rounding to 16 bits makes .002 to .006
COMPARED_TOKENS = 2048


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="attention.py --device cuda", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = functools.partial(parser.add_argument, metavar="N")
    many = functools.partial(add, nargs="+")
    parser.add_argument("--library", default=str(ROOT / "build/cuda/lib/libsparsed_ops.so"),
                        help="libsparsed_ops.so (default: %(default)s)")
    many("--tokens", type=positive, default=[4096, 16384, 32768, 65536, 131072], help="(default: 4096 … 131072)")
    add("--heads", type=positive, default=32, help="query heads (default: %(default)s)")
    add("--kv-heads", type=positive, help="divides --heads (default: as --heads)")
    many("--head-dims", type=positive, default=[128], help="(default: 128)")
    many("--rhos", type=density, default=[0.1, 0.3, 0.5, 1.0], help="shares of blocks kept (default: .1 .3 .5 1)")
    parser.add_argument("--blocks", type=int, nargs="+", default=[128, 64], choices=(32, 64, 128, 256),
                        help="block sizes (default: 128 64); FlexAttention runs at 128 only")
    parser.add_argument("--dtypes", nargs="+", default=["bf16"], choices=DTYPES, help="(default: bf16)")
    parser.add_argument("--impls", nargs="+", default=list(IMPLS), choices=IMPLS, metavar="IMPL",
                        help="some of: %(choices)s (default: all)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="append a line per measurement")
    parser.add_argument("--commit", help="for the lines (default: git's)")
    add("--seconds", type=positive, help="start no measurement after this time (default: no limit)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU here")
    options.kv_heads = options.kv_heads or options.heads
    if options.heads % options.kv_heads:
        parser.error(f"--kv-heads is {options.kv_heads}, must divide --heads {options.heads}")
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a folder")
    if not pathlib.Path(options.library).is_file():
        parser.error(f"--library: {options.library} is not a file: run `make cuda` first")
    options.commit = options.commit or git_commit()
    return options


def git_commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True,
                              text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class GpuLost(RuntimeError):
    """Nothing can run on the GPU any more in this process."""


class Outputs:
    """The first output of each attention of a shape, which the later ones are compared with."""

    def __init__(self):
        self.rows = {}
        self.broken = {}  # FlexAttention's failure: it would compile again for every rho

    def compare(self, case, result):
        if case.out is None:
            return
        out = case.out(result)
        rows = out[::max(1, out.size(0) // COMPARED_TOKENS)].float()
        what = (None, 1.0) if case.rho == 1 else (case.block, case.rho)
        impl, first = self.rows.setdefault(what, (case.impl, rows))
        difference = float((rows - first).norm() / first.norm())
        if not difference <= MOST_DIFFERENCE:  # NaN too
            raise ArithmeticError(f"wrong: differs from {IMPLS[impl]} by {difference:.3g} of the norm")


class Run:
    """Measures cases, keeps the rows, appends them to the JSON lines as they come."""

    def __init__(self, options):
        self.options, self.timer, self.rows, self.left_out = options, GpuTimer(), [], 0
        self.start = time.monotonic()
        self.fixed = {"gpu": torch.cuda.get_device_name(), "commit": options.commit,
                      "date": datetime.date.today().isoformat(), "torch": torch.__version__}

    def late(self):
        limit = self.options.seconds
        return limit is not None and time.monotonic() - self.start > limit

    def add(self, case, dtype, head_dim, outputs):
        if case.impl not in self.options.impls:
            return
        if self.late():
            self.left_out += 1
            return
        row = {"bench": "attention", "impl": case.impl, "L": case.tokens, "heads": self.options.heads,
               "kv_heads": self.options.kv_heads, "head_dim": head_dim, "block": case.block, "rho": case.rho,
               "dtype": dtype, **self.measure(case, outputs), **self.fixed}
        self.rows.append(row)
        self.progress(row)
        if self.options.json and "failed" not in row:
            with self.options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if "failed" in row:
            self.require_gpu()

    def measure(self, case, outputs):
        if case.impl in outputs.broken:
            return {"failed": outputs.broken[case.impl]}
        try:
            call = case.prepare()
            outputs.compare(case, call())
            milliseconds = self.timer.milliseconds(call)
            flops = case.flops and case.flops()
        except Exception as error:  # a peer that fails is a row of the table
            if case.impl == "flex":
                outputs.broken[case.impl] = reason(error)
            return {"failed": reason(error)}
        return {"ms": round(milliseconds, 5), "tflops": flops and round(flops / milliseconds / 1e9, 2)}

    def require_gpu(self):
        """After an illegal access every further call fails; the rest would be rows of nonsense."""
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception as error:
            raise GpuLost(reason(error)) from error

    def progress(self, row):
        what = f"{row['ms']:.3f} ms" if "ms" in row else row["failed"]
        print(f"[{time.monotonic() - self.start:.0f} s] {row['dtype']} {row['head_dim']} x {row['L']} {row['impl']} "
              f"block {row['block']} rho {row['rho']}: {what}", file=sys.stderr, flush=True)

    def shape(self, dtype, head_dim, tokens):
        """All cases of one shape."""
        try:
            shape = gpu_cases.Shape(self.options, DTYPES[dtype], head_dim, tokens)
        except torch.cuda.OutOfMemoryError as error:
            return self.skip(f"{dtype} {head_dim} x {tokens}: {reason(error)}")
        outputs = Outputs()
        for case in gpu_cases.cases_of(shape, self.options.blocks, self.options.rhos):
            self.add(case, dtype, head_dim, outputs)

    def mixed(self, dtype, head_dim):
        if not {"sparsed_mixed", "sparsed_separate"} & set(self.options.impls):
            return
        for case in gpu_cases.mixed_cases(self.options, DTYPES[dtype], head_dim, gpu_cases.FLEX_BLOCK):
            self.add(case, dtype, head_dim, Outputs())

    def skip(self, why):
        print(why, file=sys.stderr, flush=True)
        self.left_out += 1

    def all(self):
        for dtype in self.options.dtypes:
            for head_dim in self.options.head_dims:
                for tokens in self.options.tokens:
                    self.shape(dtype, head_dim, tokens)
                    gc.collect()
                    torch.cuda.empty_cache()
                self.mixed(dtype, head_dim)


def reason(error):
    """One line: the compiler's and cuDNN's messages have dozens."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:160]


def ratio(peer, row):
    return f"{peer['ms'] / row['ms']:.2f}x" if peer and row["tflops"] else "–"


def rho_of_attention(row):
    return 1.0 if row["impl"] == "sparsed_build" else row["rho"]  # its rho is that of the mask it makes


def table(rows):
    """Markdown; ratios to cuDNN's dense attention and to FlexAttention at the same rho, of the same shape."""
    def key(row, *more):
        return (row["dtype"], row["head_dim"], row["L"], *more)
    cudnn = {key(row): row for row in rows if row["impl"] == "cudnn" and "ms" in row}
    flex = {key(row, row["rho"]): row for row in rows if row["impl"] == "flex" and "ms" in row}
    yield "| dtype | head size | tokens | attention | blocks | rho | ms | TFLOP/s | as fast as cuDNN dense | as fast as Flex |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        what = f"| {row['dtype']} | {row['head_dim']} | {row['L']} | {IMPLS[row['impl']]} | {row['block'] or '–'} | {row['rho']:g} "
        if "failed" in row:
            yield what + f"| {row['failed'].replace('|', '/')} | – | – | – |"
        else:
            tflops = f"{row['tflops']:.0f}" if row["tflops"] else "–"
            yield what + (f"| {row['ms']:.3f} | {tflops} | {ratio(cudnn.get(key(row)), row)} "
                          f"| {ratio(flex.get(key(row, rho_of_attention(row))), row)} |")


def main(arguments):
    options = parse_options(arguments)
    torch.ops.load_library(options.library)
    torch.manual_seed(options.seed)
    run = Run(options)
    lost = None
    with torch.no_grad():
        try:
            run.all()
        except (GpuLost, KeyboardInterrupt) as error:
            lost = error
    print(f"{run.fixed['gpu']}, PyTorch {torch.__version__}, commit {options.commit}; "
          f"{options.heads}/{options.kv_heads} heads, medians\n")
    print("\n".join(table(run.rows)))
    if run.left_out:
        print(f"\n{run.left_out} measurements were left out (--seconds {options.seconds}, or no memory)")
    if lost is not None:
        sys.exit(f"stopped: {str(lost) or 'interrupted'}")
