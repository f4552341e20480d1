#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (with Clang's thread-safety analysis) on changed sources.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<END
Usage: tools/tidy.sh [--all | FILE…]

Without arguments: the .cc files changed since the last commit on main or in the working tree. --all: every .cc file
(about an hour on two cores). Other files, .cu too, are passed over; so are kernels/cuda and tests/kernels/cuda where
tools/setup.sh --cuda has not run. Needs clang-tidy 14 and OpenMP's header for clang (apt-get install clang-tidy
libomp-14-dev); warnings are errors.
END
}
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  --all) mapfile -t files < <(git ls-files '*.cc') ;;
  "") mapfile -t files < <({ git diff --name-only --diff-filter=d HEAD -- '*.cc'
                              git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" HEAD -- '*.cc'; } | sort -u) ;;
  *) files=("$@") ;;
esac
command -v clang-tidy >/dev/null || { echo "tidy: clang-tidy is not installed: apt-get install clang-tidy libomp-14-dev" >&2; exit 2; }

cuda=OFF
[ -x .deps/cuda/bin/nvcc ] && cuda=ON
chosen=()
for file in "${files[@]}"; do
  case "$cuda $file" in
    OFF\ *kernels/cuda/*.cc) echo "tidy: $file is passed over: run tools/setup.sh --cuda first" ;;
    *.cc) chosen+=("$file") ;;
    *) echo "tidy: $file is passed over: only .cc files are checked" ;;
  esac
done
files=("${chosen[@]}")
[ ${#files[@]} -gt 0 ] || { echo "tidy: no .cc file to check"; exit 0; }

cmake --preset tidy -DSPARSED_CUDA=$cuda >/dev/null
cmake --build --preset tidy >/dev/null
failed=0
for i in "${!files[@]}"; do
  echo "[$((i + 1))/${#files[@]}] ${files[$i]}"
  clang-tidy -p build/tidy --quiet "${files[$i]}" 2>/dev/null || failed=1
done
exit $failed
