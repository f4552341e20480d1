#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (with Clang's thread-safety analysis) on changed sources.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<END
Usage: tools/tidy.sh [--all | FILE…]

Without arguments: the .cc files changed since the last commit on main or in the working tree. --all: every .cc file
(about an hour on two cores). Needs clang-tidy 14 and OpenMP's header for clang (apt-get install clang-tidy
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
[ ${#files[@]} -gt 0 ] || { echo "tidy: no changed .cc file"; exit 0; }

cmake --workflow --preset tidy >/dev/null
failed=0
for i in "${!files[@]}"; do
  echo "[$((i + 1))/${#files[@]}] ${files[$i]}"
  clang-tidy -p build/tidy --quiet "${files[$i]}" 2>/dev/null || failed=1
done
exit $failed
