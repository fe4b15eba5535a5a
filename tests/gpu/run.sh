#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a real GPU: run.sh [BUILD]. It ends with "N passed, N failed, N skipped"; when every
# test was skipped, nothing was tested, and that is a failure. A dist holds it in share/, where BUILD is
# the folder above by default.
set -u
build=${1:-$(cd "$(dirname "$0")/.." && pwd)}
passed=0 failed=0 skipped=0
for program in "$build"/bin/gpu-tests/*; do
  log=$(mktemp)
  timeout 300 "$program" >"$log" 2>&1
  code=$?
  cat "$log"
  passed=$((passed + $(grep -cE '^\[       OK \]' "$log")))
  skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] [^ ]+ \(' "$log")))
  bad=$(grep -cE '^\[  FAILED  \] [^ ]+ \(' "$log")
  [ "$code" = 0 ] || [ "$bad" != 0 ] || bad=1
  failed=$((failed + bad))
  rm -f "$log"
done
[ "$passed" != 0 ] || { echo "nothing was tested: no GPU, or not root"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
