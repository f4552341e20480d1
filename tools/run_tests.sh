#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of a build folder, with progress, and says what was skipped.
set -euo pipefail

usage() {
  cat <<END
Usage: tools/run_tests.sh [BUILD_DIR] [CTEST_OPTION…]

Runs the tests in BUILD_DIR (default: build/release). SPARSED_GOLDEN_DIR may point to the whole golden set; without
it the subset in tests/golden is used and the other golden cases report as skipped.
END
}
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
[ $# -gt 0 ] && shift
[ -f "$build/CTestTestfile.cmake" ] || { echo "run_tests: $build has no tests: run \`make build\` first" >&2; exit 2; }

if [ -n "${SPARSED_GOLDEN_DIR:-}" ] && [ ! -d "$SPARSED_GOLDEN_DIR/llada-tiny" ]; then
  echo "run_tests: SPARSED_GOLDEN_DIR=$SPARSED_GOLDEN_DIR is not the golden set: it has no llada-tiny/" >&2
  exit 2
fi
echo "golden data: ${SPARSED_GOLDEN_DIR:-tests/golden (subset)}"
ctest --test-dir "$build" --output-on-failure --no-tests=error "$@"
