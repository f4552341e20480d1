#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that need no build: formatting, size, licence lines, include paths; prints the size table of the code.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  -h | --help)
    echo "Usage: tools/check_tree.sh   checks tracked files; exits 1 and names the file at fault"
    exit 0 ;;
esac

failed=0
fail() { echo "check_tree: $*" >&2; failed=1; }

mapfile -t sources < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')

if version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p') && [ "$version" = 14 ]; then
  unformatted=$(clang-format --dry-run "${sources[@]}" 2>&1 | sed -n 's/^\([^:]*\):.*warning.*/\1/p' | sort -u)
  [ -z "$unformatted" ] || fail "not formatted (run \`make format\`): $unformatted"
else
  echo "check_tree: clang-format 14 is not installed, formatting was not checked"
fi

bytes=$(git ls-files -z | xargs -0 stat -c %s | awk '{s += $1} END {print s}')
[ "$bytes" -le $((48 << 20)) ] || fail "tracked files are $((bytes >> 20)) MiB, the limit is 48"
golden=$(git ls-files -z tests/golden | xargs -0 stat -c %s | awk '{s += $1} END {print s}')
[ "$golden" -le $((9 << 20)) ] || fail "tests/golden is $((golden >> 10)) KiB, the limit is 9 MiB"

unlicensed=$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh' '*.rs' '*.py' '*.sh' '*.cmake' '*.proto' '*CMakeLists.txt' Makefile \
  | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
[ -z "$unlicensed" ] || fail "without an SPDX line: $unlicensed"

climbing=$(grep -nE '#include "\.\./' "${sources[@]}" || true)
[ -z "$climbing" ] || fail "includes that climb out of their folder: $climbing"

long=$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 500 {print $2 " (" $1 " lines)"}')
[ -z "$long" ] || fail "files over 500 lines: $long"

awk -v label='code size (lines): ' 'FNR == 1 {files++} {lines++} /^ *\/\// {comments++} /^$/ {blank++}
  END {printf "%s%d files, %d lines, %.0f %% comment\n", label, files, lines, 100 * comments / (lines - blank)}' \
  "${sources[@]}"
echo "tracked files: $((bytes >> 20)) MiB, of which golden data $((golden >> 10)) KiB"
exit $failed
