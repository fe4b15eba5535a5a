#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hooks.def as a page for people: hooks_doc.sh hooks.def > hooks.md
set -eu
cat <<'EOF'
# Functions of the driver that libgpushare.so can stand in for

Made from intercept/shim/driver/hooks.def. A function is hooked in a process only if the agent wants a
feature of that process that needs it. All other functions, and all functions in every other process,
are the driver's own.

| kind | hooked for |
| --- | --- |
| Launch, OnGpu | gate, partitions, iterations |
| Copy, Wait, Event, Capture, Finish | partitions, iterations |
| Context | partitions, iterations |
| Order, Release, Captured, Stream, Graph | partitions |
| Shown | shown |
| Lookup | any |
| Init | none: the agent is asked before it runs |

| kind | function | symbol | API since | own variant |
| --- | --- | --- | --- | --- |
EOF
sed -n 's/^GS_HOOK\(_PT[A-Z]*\)\{0,1\}(\([A-Za-z]*\), \([A-Za-z0-9_]*\), \([A-Za-z0-9_]*\), \([0-9]*\), .*/\2 \3 \4 \5 \1/p' "$1" |
  while read -r kind base symbol since variant; do
    case $variant in
    _PTSZ) variant=${symbol}_ptsz ;;
    _PTDS) variant=${symbol}_ptds ;;
    esac
    echo "| $kind | \`$base\` | \`$symbol\` | $since | ${variant:+\`$variant\`} |"
  done
