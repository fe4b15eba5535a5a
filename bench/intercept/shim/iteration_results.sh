#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures without a GPU how well iterations are recognised and how much that costs a launch, and adds
# the run to FILE as one line of JSON: iteration_results.sh BUILD FILE
set -eu
build=$1 file=$2
list() { sed -e '$!s/$/,/'; }
programs=$("$build/bin/bench/iteration_report" | list)
launches=$("$build/bin/bench/launch_cost" | list)
printf '{"programs": [%s], "launch_cost": [%s]}' "$programs" "$launches" |
  "$(dirname "$0")/../../record.py" "$file" "command=bench/intercept/shim/iteration_results.sh BUILD FILE"
