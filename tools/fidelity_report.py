#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns results of the fidelity benchmark into the tables and plots of docs/fidelity.md.

Usage: fidelity_report.py RESULTS.jsonl… [--docs docs] [--curves GLOB…] [--layers GLOB…]

Replaces what stands between the markers `<!-- results:begin -->` and `<!-- results:end -->` of DOCS/fidelity.md,
and writes DOCS/fidelity_density.png, fidelity_time.png and fidelity_layers.png. Needs matplotlib for the plots.
"""
import argparse
import collections
import fnmatch
import json
import math
import pathlib
import statistics
import sys

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
DENSE = "dense"
Z = 1.959964  # 95 %


def load(paths, device=None):
    """{(setting, task, length, row): line} of all files; the same row twice counts once."""
    lines, conditions = {}, {}
    for path in paths:
        for number, text in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
            try:
                line = json.loads(text)
                key = (line["setting"], line["task"], line["length"], line["row"])
            except (json.JSONDecodeError, KeyError, TypeError):
                sys.exit(f"{path}:{number}: is not a result of the fidelity benchmark")
            if device and line["device"] != device:
                continue
            if conditions.setdefault(line["setting"], line["conditions"]) != line["conditions"]:
                sys.exit(f"{path}:{number}: setting {line['setting']} was run under two conditions, which one table "
                         f"must not mix: {conditions[line['setting']]} and {line['conditions']}")
            lines.setdefault(key, line)
    devices = {line["device"] for line in lines.values()}
    if len(devices) > 1:
        sys.exit(f"the files hold results of {' and '.join(sorted(devices))}: choose one with --device")
    if not lines:
        sys.exit("the files hold no result")
    return lines


def wilson(right, n):
    """95 % interval of a share, Wilson (1927)."""
    if n == 0:
        return 0.0, 1.0
    share = right / n
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def paired(lost, gained, n):
    """Difference of two accuracies on the same n rows, its 95 % interval (Agresti and Min, 2005) and the exact
    two-sided McNemar p. lost: right only before, gained: right only after."""
    difference = (gained - lost) / n
    centre = (gained - lost) / (n + 2)
    half = Z * math.sqrt(max(0.0, (gained + lost + 1) / (n + 2) - centre * centre) / (n + 2))
    discordant = lost + gained
    tail = sum(math.comb(discordant, i) for i in range(min(lost, gained) + 1)) / 2**discordant
    return difference, (centre - half, centre + half), min(1.0, 2 * tail)


class Point:
    """One setting at one length."""

    def __init__(self, setting, length, lines, dense):
        self.setting, self.length = setting, length
        self.curve, _, self.label = setting.partition("/")
        self.lines = lines
        self.tasks = collections.defaultdict(list)
        for line in lines:
            self.tasks[line["task"]].append(bool(line["correct"]))
        pairs = [(line, dense[line["task"], line["row"]]) for line in lines if (line["task"], line["row"]) in dense]
        self.pairs = pairs
        self.lost = sum(d["correct"] and not line["correct"] for line, d in pairs)
        self.gained = sum(line["correct"] and not d["correct"] for line, d in pairs)

    def mean(self, field):
        return statistics.fmean(line[field] for line in self.lines)

    def sparse_mean(self, field):
        """Over the rows that had sparse steps: others ended in the dense steps before, and say 1."""
        rows = [line for line in self.lines if line["sparse_step_seconds"] > 0] or self.lines
        return statistics.fmean(line[field] for line in rows)

    def accuracy(self):
        """Mean over the tasks, so that a task with fewer rows weighs as much."""
        return statistics.fmean(statistics.fmean(right) for right in self.tasks.values())

    def interval(self):
        return wilson(self.accuracy() * len(self.lines), len(self.lines))

    def difference(self):
        return paired(self.lost, self.gained, len(self.pairs)) if self.pairs else None

    def time_ratio(self):
        base = sum(d["seconds"] for _, d in self.pairs)
        return sum(line["seconds"] for line, _ in self.pairs) / base if base else None

    def step_ratio(self):
        """Median sparse step against median dense step of the dense setting, on the same rows."""
        steps = [(line["sparse_step_seconds"], d["dense_step_seconds"]) for line, d in self.pairs
                 if line["sparse_step_seconds"] > 0]
        if not steps:
            return None
        return statistics.median(s for s, _ in steps) / statistics.median(d for _, d in steps)

    def layers(self):
        """Mean retained mass of every layer; [] for dense rows."""
        rows = [line["layer_retained_mass"] for line in self.lines if "layer_retained_mass" in line]
        return [statistics.fmean(layer) for layer in zip(*rows)]


def points_of(lines):
    """Points by length, dense first, then in the files' order."""
    by_setting = collections.defaultdict(list)
    for (setting, _, length, _), line in lines.items():
        by_setting[length, setting].append(line)
    points = collections.defaultdict(list)
    for (length, setting), rows in by_setting.items():
        dense = {(line["task"], line["row"]): line for line in by_setting.get((length, DENSE), [])}
        points[length].append(Point(setting, length, rows, dense))
    return {length: sorted(found, key=lambda p: p.setting != DENSE) for length, found in sorted(points.items())}


def percent(share):
    return f"{100 * share:.1f}"


def with_interval(share, low, high):
    return f"{percent(share)} ({percent(low)}–{percent(high)})"


def ratio(value):
    return f"{value:.2f}" if value is not None else "–"


def p_value(p):
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0") if p < 1 else "1"


def setting_row(point, tasks):
    cells = [point.setting, f"{point.sparse_mean('density'):.3f}", f"{point.mean('mean_density'):.3f}",
             f"{point.sparse_mean('retained_mass'):.3f}"]
    for task in tasks:
        right = point.tasks.get(task, [])
        cells.append(with_interval(sum(right) / len(right), *wilson(sum(right), len(right))) if right else "–")
    cells.append(with_interval(point.accuracy(), *point.interval()))
    difference = None if point.setting == DENSE else point.difference()
    if difference:
        value, (low, high), p = difference
        cells += [f"{100 * value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})", p_value(p)]
    else:
        cells += ["–", "–"]
    cells += [ratio(point.time_ratio()), ratio(point.step_ratio()), str(len(point.lines))]
    return "| " + " | ".join(cells) + " |"


def setting_table(points):
    tasks = sorted({task for point in points for task in point.tasks})
    head = ["setting", "density", "mean density", "retained mass", *tasks, "all tasks", "against dense, points", "p",
            "time", "step time", "n"]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(setting_row(point, tasks) for point in points)]


def curves_of(points):
    """Settings that share a curve, by falling density."""
    curves = collections.defaultdict(list)
    for point in points:
        if point.label:
            curves[point.curve].append(point)
    return {name: sorted(found, key=lambda p: -p.sparse_mean("density")) for name, found in curves.items()}


def loses(point):
    difference = point.difference()
    return difference is not None and difference[0] < 0 and difference[2] < 0.05


def knee(curve):
    """The last point, by falling density, before the first one that loses to dense; and that one."""
    last = None
    for point in curve:
        if loses(point):
            return last, point
        last = point
    return last, None


def knee_table(points):
    rows = ["| rule | lowest density without a loss | setting | retained mass | time | first loss: density "
            "| retained mass | points |", "|---|---|---|---|---|---|---|---|"]
    found = [(name, *knee(curve)) for name, curve in curves_of(points).items()]
    found.sort(key=lambda row: row[1].sparse_mean("density") if row[1] else math.inf)
    for name, last, loss in found:
        kept = [f"{last.sparse_mean('density'):.3f}", last.label, f"{last.sparse_mean('retained_mass'):.3f}",
                ratio(last.time_ratio())] if last else ["none"] + ["–"] * 3
        lost = [f"{loss.sparse_mean('density'):.3f}", f"{loss.sparse_mean('retained_mass'):.3f}",
                f"{100 * loss.difference()[0]:+.1f}"] if loss else ["none"] + ["–"] * 2
        rows.append(f"| {' | '.join([name, *kept, *lost])} |")
    return rows


def worst_heads(point, count=4):
    rows = [line["head_retained_mass"] for line in point.lines if "head_retained_mass" in line]
    if not rows:
        return "–"
    heads = [statistics.fmean(head) for head in zip(*rows)]
    per_layer = len(heads) // len(point.layers())
    lowest = sorted(range(len(heads)), key=heads.__getitem__)[:count]
    return ", ".join(f"{i // per_layer}.{i % per_layer} ({heads[i]:.2f})" for i in lowest)


def lost_mass(point):
    """Retained mass, lost rows minus the others that dense gets right, by layer; None without lost rows."""
    lost, kept = [], []
    for line, dense in point.pairs:
        if dense["correct"] and "layer_retained_mass" in line:
            (kept if line["correct"] else lost).append(line["layer_retained_mass"])
    if not lost or not kept:
        return None
    return [statistics.fmean(a) - statistics.fmean(b) for a, b in zip(zip(*lost), zip(*kept))]


def layer_table(points):
    count = len(points[0].layers())
    layers = " | ".join(f"layer {i}" for i in range(count))
    rows = [f"| setting | {layers} | lost rows | lowest heads (layer.head) |", "|" + "---|" * (count + 3)]
    for point in points:
        masses = " | ".join(f"{mass:.3f}" for mass in point.layers())
        rows.append(f"| {point.setting} | {masses} | {point.lost} | {worst_heads(point)} |")
        if (difference := lost_mass(point)) is not None:
            masses = " | ".join(f"{mass:+.3f}" for mass in difference)
            rows.append(f"| – lost minus kept rows | {masses} | | |")
    return rows


def chosen(points, patterns):
    return [p for p in points if p.layers() and any(fnmatch.fnmatch(p.setting, pattern) for pattern in patterns)]


def results_text(points, layer_patterns):
    some = next(iter(points.values()))[0].lines[0]
    conditions = some["conditions"]
    text = [f"Model {some['model']}, {some['dtype']} on {some['device']}; gen_length {conditions['gen_length']}, "
            f"{conditions['steps']} steps, "
            f"{'stopped at' if conditions['stop_on_end'] else 'not stopped at'} the answer's end.", ""]
    for length, found in points.items():
        text += [f"### Knees at {length} tokens", "", *knee_table(found), ""]
    for length, found in points.items():
        text += [f"### All settings at {length} tokens", "", *setting_table(found), ""]
    for length, found in points.items():
        if layered := chosen(found, layer_patterns):
            text += [f"### Retained mass by layer at {length} tokens", "", *layer_table(layered), ""]
    return "\n".join(text)


def replace_results(document, results):
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"fidelity.md lacks the markers {BEGIN} and {END}")
    return f"{before}{begin}\n\n{results}\n{end}{after}"


def draw_curves(plt, points, patterns, x_of, x_label, log, path):
    figure, axes = plt.subplots(1, len(points), figsize=(1 + 5.5 * len(points), 5.5), sharey=True, squeeze=False)
    names = list(dict.fromkeys(name for found in points.values() for name in curves_of(found)))
    names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    markers = "osD^v<>PX*"
    for axis, (length, found) in zip(axes[0], points.items()):
        curves = curves_of(found)
        for i, name in enumerate(names):
            curve = [point for point in curves.get(name, []) if x_of(point) is not None]
            if not curve:
                continue
            accuracy = [100 * point.accuracy() for point in curve]
            low, high = zip(*(point.interval() for point in curve))
            error = [[a - 100 * b for a, b in zip(accuracy, low)], [100 * b - a for a, b in zip(accuracy, high)]]
            axis.errorbar([x_of(p) for p in curve], accuracy, yerr=error, label=name, color=plt.cm.tab20(i % 20),
                          marker=markers[i // 2 % len(markers)], markersize=5, linewidth=1.4, elinewidth=0.5, capsize=2)
        for point in found:
            if point.setting == DENSE:
                axis.axhline(100 * point.accuracy(), color="black", linewidth=1, label="dense")
                axis.axhspan(*(100 * bound for bound in point.interval()), color="black", alpha=0.07)
        axis.set_title(f"{length} tokens")
        axis.set_xlabel(x_label)
        axis.grid(alpha=0.3)
        if log:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(plt.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(plt.matplotlib.ticker.FuncFormatter(lambda x, _: f"{100 * x:g} %"))
            axis.xaxis.set_minor_formatter(plt.matplotlib.ticker.NullFormatter())
    axes[0][0].set_ylabel("right answers, %, mean over tasks")
    handles = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.tight_layout()
    figure.legend(handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=6, fontsize=8)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def draw_layers(plt, points, path):
    masses = [point.layers() for point in points]
    figure, axis = plt.subplots(figsize=(2 + 0.7 * len(masses[0]), 1.5 + 0.32 * len(masses)))
    image = axis.imshow(masses, aspect="auto", vmin=0, vmax=1, cmap="viridis")
    axis.set_yticks(range(len(points)), [point.setting for point in points], fontsize=8)
    axis.set_xticks(range(len(masses[0])))
    axis.set_xlabel("layer")
    axis.set_title(f"Retained mass, {points[0].length} tokens", fontsize=10)
    for y, row in enumerate(masses):
        for x, mass in enumerate(row):
            axis.text(x, y, f"{mass:.2f}", ha="center", va="center", fontsize=7, color="black" if mass > 0.6 else "white")
    figure.colorbar(image)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def draw(points, curves, layers, docs):
    try:
        import matplotlib
    except ImportError:
        sys.exit("matplotlib is missing: pip install matplotlib, or pass --no-plots")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    draw_curves(plt, points, curves, lambda p: p.sparse_mean("density"), "density of sparse steps", True,
                docs / "fidelity_density.png")
    draw_curves(plt, points, curves, Point.time_ratio, "time of a generation, dense = 1", False,
                docs / "fidelity_time.png")
    if layered := chosen(points[max(points)], layers):
        draw_layers(plt, layered, docs / "fidelity_layers.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="files that `fidelity --out` wrote")
    parser.add_argument("--docs", type=pathlib.Path, default=pathlib.Path("docs"), help="folder of fidelity.md")
    parser.add_argument("--device", help="only results of this device (cpu, cuda)")
    parser.add_argument("--curves", nargs="+", default=["*"], metavar="GLOB", help="curves in the plots (default: all)")
    parser.add_argument("--layers", nargs="+", default=["sparsed_b32_skip0/*"], metavar="GLOB",
                        help="settings whose layers are shown (default: %(default)s)")
    parser.add_argument("--no-plots", action="store_true", help="only the tables")
    arguments = parser.parse_args()
    points = points_of(load(arguments.results, arguments.device))
    page = arguments.docs / "fidelity.md"
    if not page.exists():
        sys.exit(f"{page} does not exist: --docs names the folder that holds it")
    page.write_text(replace_results(page.read_text(), results_text(points, arguments.layers)))
    if not arguments.no_plots:
        draw(points, arguments.curves, arguments.layers, arguments.docs)
    print(f"wrote {page}: {sum(len(found) for found in points.values())} points")


if __name__ == "__main__":
    main()
