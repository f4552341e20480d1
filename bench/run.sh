#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Time per step and tokens per second of the embedded model, dense against sparsed, beside the same forward in PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<END
Usage: bench/run.sh [STEPS]

Builds the engine benchmark, installs PyTorch into .deps/bench-venv (about 3 GB, once), runs both one after the other
at canvas 512, 2048 and 4096 with STEPS denoising steps (default 16), prints a table with ratios, and appends
the measurements to docs/benchmarks/generation.jsonl. Takes several minutes; keep the machine idle meanwhile.
END
}
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
esac
steps=${1:-16}
[[ $steps =~ ^[0-9]+$ ]] && [ "$steps" -ge 5 ] && [ "$steps" -le 32 ] || { echo "bench: STEPS is $steps: must be in 5..32" >&2; exit 2; }

cmake --preset bench -DSPARSED_TESTS=OFF >/dev/null
cmake --build build/bench --target step_bench
python=${SPARSED_BENCH_PYTHON:-.deps/bench-venv/bin/python}
if ! "$python" -c 'import torch, safetensors' 2>/dev/null; then
  echo "bench: installing PyTorch into .deps/bench-venv"
  python3 -m venv .deps/bench-venv
  .deps/bench-venv/bin/pip install torch==2.11.0 numpy safetensors
  python=.deps/bench-venv/bin/python
fi

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
build/bench/bin/step_bench --steps "$steps" >> "$lines"
build/bench/bin/step_bench --steps "$steps" --preset sparsed --block-tokens 32 >> "$lines"
build/bench/bin/step_bench --steps "$steps" --preset relevance --block-tokens 32 >> "$lines"
"$python" bench/pytorch_step.py --steps "$steps" >> "$lines"
"$python" bench/report.py "$lines" --append docs/benchmarks/generation.jsonl
