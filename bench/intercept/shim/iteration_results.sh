#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what can be measured of recognising iterations without a GPU, as JSON:
#   iteration_results.sh BUILD > FILE
set -eu
build=$1 file=$2
list() { sed -e '$!s/$/,/'; }
programs=$("$build/bin/bench/iteration_report" | list)
launches=$("$build/bin/bench/launch_cost" | list)
printf '{"programs": [%s], "launch_cost": [%s]}' "$programs" "$launches" |
  "$(dirname "$0")/../../record.py" "$file" "command=bench/intercept/shim/iteration_results.sh BUILD FILE"
