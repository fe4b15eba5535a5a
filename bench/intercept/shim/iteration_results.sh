#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is known of recognising iterations without a GPU, as JSON: iteration_results.sh BUILD > FILE
set -eu
build=$1
list() { sed -e '$!s/$/,/' -e 's/^/  /'; }
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
cat <<EOF
{
 "date": "$(date +%F)",
 "cpu": "$cpu",
 "kernel": "$(uname -sr)",
 "commit": "$(git -C "$(dirname "$0")" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)",
 "command": "bench/intercept/shim/iteration_results.sh BUILD",
 "programs": [
$("$build/bin/bench/iteration_report" | list)
 ],
 "launch_cost": [
$("$build/bin/bench/launch_cost" | list)
 ]
}
EOF
