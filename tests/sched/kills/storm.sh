#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills agents and supervisors on simulated GPUs in real time, on many at once: each has its own
# agent, programs, sockets and region (real_storm_test.cc).
set -u

usage() {
  cat <<END
usage: storm.sh BUILD [--kills N] [--at-once N] [--seconds S] [--seed N] [--logs FOLDER]
  BUILD           the folder that make or make dist has filled
  --kills N       how often in all (10000)
  --at-once N     how many simulated GPUs, each with an agent (two for each processor, 64 at most)
  --seconds S     no kill begins later than this, so that there may be fewer (0: no limit)
  --seed N        of the first one's random numbers; the others count on from it (the time)
  --logs FOLDER   where each one's output is kept (a new one in \$TMPDIR)
Prints a line of JSON for each, and the sums. The exit status is 1 when something was lost or stayed
frozen, and 2 when the command line is wrong. A kill takes about 0.8 s, and 0.2 s of a processor.
END
}
wrong() { # WHAT ALLOWED
  echo "storm.sh: $1 ($2); see --help" >&2
  exit 2
}
is_number() { [[ $1 =~ ^[0-9]{1,9}$ ]]; }

kills=10000 at_once=$(($(nproc) * 2)) seconds=0 seed=$(($(date +%s) % 1000000)) logs=
[ "$at_once" -le 64 ] || at_once=64
build=
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) usage && exit ;;
  --kills | --at-once | --seconds | --seed)
    [ $# -gt 1 ] && is_number "$2" || wrong "$1 '${2-}'" "a number from 0 to 999999999"
    case $1 in
    --kills) kills=$2 ;;
    --at-once) at_once=$2 ;;
    --seconds) seconds=$2 ;;
    --seed) seed=$2 ;;
    esac
    shift 2
    ;;
  --logs)
    [ -n "${2-}" ] || wrong "--logs ''" "a folder"
    logs=$2
    shift 2
    ;;
  -*) wrong "unknown option $1" "--kills, --at-once, --seconds, --seed, --logs" ;;
  *)
    [ -z "$build" ] || wrong "a second folder, $1" "one BUILD"
    build=$1
    shift
    ;;
  esac
done
storm=$build/bin/tests/kill_storm_test
[ -x "$storm" ] || wrong "BUILD '$build'" "a folder with bin/tests/kill_storm_test in it"
{ [ "$at_once" -ge 1 ] && [ "$at_once" -le 999 ]; } || wrong "--at-once $at_once" "1 to 999"
[ "$kills" -ge "$at_once" ] || wrong "--kills $kills" "at least one for each of $at_once"
[ -n "$logs" ] || logs=$(mktemp -d "${TMPDIR:-/tmp}/gpushare-storm-XXXXXX") || exit 1
mkdir -p "$logs" || exit 1

pids=()
# Each ends what it has started when it ends, however it does.
trap 'kill -TERM "${pids[@]:-}" 2>/dev/null; exit 130' INT TERM
SECONDS=0
echo "$kills kills, $at_once at once, seeds from $seed, logs in $logs"
for ((i = 0; i < at_once; ++i)); do
  GPUSHARE_TEST_REAL_KILLS=$((kills / at_once + (i < kills % at_once))) \
    GPUSHARE_TEST_SEED=$((seed + i)) GPUSHARE_TEST_SECONDS=$seconds \
    "$storm" --gtest_filter='RealTimeStorm.*' >"$logs/$i.log" 2>&1 &
  pids+=($!)
done

# of WHAT: the number before these words in the last line of that log that has them.
of() { # LOG WHAT
  local number
  number=$(grep -oE "[0-9]+ $2" "$1" | tail -n 1)
  echo $((${number%% *} + 0))
}
sum=0 answered=0 lost=0 frozen=0 failed=()
for ((i = 0; i < at_once; ++i)); do
  wait "${pids[i]}"
  status=$? log=$logs/$i.log
  done_here=$(of "$log" "(of [0-9]+ )?kills") answers=$(of "$log" "requests answered")
  losses=$(of "$log" "times something lost") stuck=$(of "$log" "times something left frozen")
  printf '{"seed": %d, "kills": %d, "answered": %d, "lost": %d, "left_frozen": %d, "status": %d}\n' \
    $((seed + i)) "$done_here" "$answers" "$losses" "$stuck" "$status"
  ((sum += done_here, answered += answers, lost += losses, frozen += stuck))
  [ "$status" = 0 ] || failed+=("$i")
done
for i in "${failed[@]:+${failed[@]}}"; do
  echo "FAILED: seed $((seed + i)), see $logs/$i.log"
  grep -vE '^\[ (RUN|  *OK)' "$logs/$i.log" | tail -n 30
done
echo "$sum kills on $at_once at once in $SECONDS s: $answered requests answered, $lost times something" \
  "lost, $frozen times something left frozen, ${#failed[@]} failed"
[ "${#failed[@]}" = 0 ]
