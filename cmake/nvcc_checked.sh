#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CMake's launcher for nvcc: runs the compiler (through ccache if there is one) and fails where ptxas only warns that it
# gave up on speed: C7508 (setmaxnreg ignored) and C7510 ("Potential Performance Loss": every wgmma serialised).
set -uo pipefail
if command -v ccache >/dev/null; then set -- ccache "$@"; fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2> >(tee "$log" >&2)
status=$?
wait
if grep -qE 'C7508|C7510|Potential Performance Loss' "$log"; then
  echo "nvcc_checked: the warning above means a kernel at a fraction of its speed, so it is an error here" >&2
  exit 1
fi
exit $status
