#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts tests/golden (at most 9 MiB) out of the whole golden set.

Usage: tools/golden_subset.py GOLDEN_DIR [OUT_DIR]

Keeps every kind of case: all decode traces of the three tiny LLaDA checkpoints with their weights, one
stand-alone SparseD file, SparseD decodes of both variants, one BA-Att and one NABLA file with some of their masks,
the other families' configs, and the tokenizer cases. Tests run on either set; what is not here they report as skipped.
"""
import json
import pathlib
import shutil
import struct
import sys

LIMIT_BYTES = 9 << 20


def read(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def cut(source, target, wanted):
    """Writes the tensors of `source` whose name `wanted` accepts."""
    header, body = read(source)
    kept, parts, offset = {}, [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            kept[name] = entry
        elif wanted(name):
            begin, end = entry["data_offsets"]
            kept[name] = dict(entry, data_offsets=[offset, offset + end - begin])
            parts.append(body[begin:end])
            offset += end - begin
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def copy(golden, out, name):
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(golden / name, out / name)


def attention_case(name, cells, masks):
    """What attention reads, everything of the `cells` that is not of one mask, and the `masks` with their outputs."""
    if name.rsplit("/", 1)[0] in masks:
        return True
    if "/" not in name:  # q, k, v, rows and what every mask shares
        return True
    return name.rsplit("/", 1)[0] in cells


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if "-h" in sys.argv or "--help" in sys.argv else 2
    golden = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else "tests/golden")
    if not (golden / "llada-tiny").is_dir():
        sys.exit(f"{golden} is not the golden set: it has no llada-tiny/")
    for path in out.iterdir() if out.is_dir() else ():  # the README is written by hand
        if path.is_dir():
            shutil.rmtree(path)
    for checkpoint, lengths in (("llada-tiny", "1 37 128"), ("llada-tiny-gqa", "1 37"),
                                ("llada-tiny-mqa-tied", "1 37")):
        for name in ("config.json", "model.safetensors", "traces.json"):
            copy(golden, out, f"{checkpoint}/{name}")
        wanted = {f"{kind}_{n}" for kind in ("ids", "logits") for n in lengths.split()}
        cut(golden / checkpoint / "logits.safetensors", out / checkpoint / "logits.safetensors",
            wanted.__contains__)
        cut(golden / checkpoint / "traces.safetensors", out / checkpoint / "traces.safetensors",
            lambda name: name.endswith("/canvas"))
    for family in ("dream-tiny", "wan-tiny"):
        copy(golden, out, f"{family}/config.json")

    copy(golden, out, "sparsed/sparsed.json")
    copy(golden, out, "sparsed/traces.json")
    cut(golden / "sparsed/short_prompt.safetensors", out / "sparsed/short_prompt.safetensors",
        lambda name: not name.startswith(("bs64", "bs128")))
    cases = ("llada-tiny/select_0_3/compat/", "llada-tiny/short_prompt_skip_0/paper/",
             "llada-tiny-gqa/select_0_3/paper/")
    leaves = ("canvas", "masks", "sparse_step_logits", "sparse_step_rows")
    cut(golden / "sparsed/traces.safetensors", out / "sparsed/traces.safetensors",
        lambda name: name.startswith(cases) and name.rsplit("/", 1)[1] in leaves)

    copy(golden, out, "baatt/baatt.json")
    cells = {f"b128/sort_{sort}" for sort in ("none", "qk_global")}
    masks = {f"{cell}/sparsity{s}/mean_cov" for cell in cells for s in ("0.5", "0.8")}
    cut(golden / "baatt/norm_driven_L777.safetensors", out / "baatt/norm_driven_L777.safetensors",
        lambda name: attention_case(name, cells, masks))
    copy(golden, out, "nabla/nabla.json")
    cut(golden / "nabla/t7_h16_w8.safetensors", out / "nabla/t7_h16_w8.safetensors",
        lambda name: attention_case(name, {"dense"}, {"thr0.5", "thr0.9", "sta-3-1-3", "thr0.7_sta-3-3-3"}))

    shutil.copytree(golden / "tokenizer", out / "tokenizer")
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    for path in out.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    print(f"{out}: {total / 2**20:.2f} MiB")
    if total > LIMIT_BYTES:
        sys.exit(f"more than {LIMIT_BYTES >> 20} MiB: cut deeper")
    return 0


if __name__ == "__main__":
    sys.exit(main())
