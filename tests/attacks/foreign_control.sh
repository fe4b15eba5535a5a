#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks on a real GPU, without the kernel module, that a program which another process freezes is thawed
# within 50 ms, that a slice which another changes is put back, and that the culprit is named:
# foreign_control.sh [BUILD]. It needs root, and a GPU 0 that nothing else uses; with GPUSHARE_SIM and the
# stand-in libcuda.so.1 in LD_LIBRARY_PATH it runs on the simulated GPU. It prints one line of JSON for each
# thing that was looked at, and last {"right":N,"wrong":N}. Nothing stays frozen: the attacking program
# undoes what it did when it ends.
set -u
build=$(realpath "${1:-build}")
folder=$(mktemp -d /tmp/gpushare-foreign-XXXXXX)
export GPUSHARE_SOCKET=$folder/agent.sock GPUSHARE_REGION=/${folder##*/}
attack=$build/bin/attacks/foreign_control
right=0 wrong=0

check() { # NAME IS_RIGHT EXPECTED SEEN
  if [ "$2" = 1 ]; then right=$((right + 1)); word=true; else wrong=$((wrong + 1)); word=false; fi
  printf '{"check":"%s","right":%s,"expected":"%s","seen":"%s"}\n' "$1" "$word" "$3" "$(printf %s "$4" | tr -d '"\\' | tr '\n' ' ' | cut -c1-300)"
}
is() { python3 -c "print(1 if $1 else 0)"; }
within() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -ge $end ] && return 1; sleep 0.1; done
}
finish() {
  # shellcheck disable=SC2046 # a list
  kill $(jobs -p) 2>/dev/null
  sleep 1.5
  # shellcheck disable=SC2046
  kill -KILL $(jobs -p) 2>/dev/null
  rm -f "/dev/shm$GPUSHARE_REGION" "/dev/shm$GPUSHARE_REGION.lock"
  [ "$wrong" = 0 ] && rm -rf "$folder" || echo "{\"folder\":\"$folder\"}"
}
trap finish EXIT

# longest FILE FROM_NS UNTIL_NS: the longest time in ms in which the victim's turns stood still.
longest() { python3 - "$@" <<'PYTHON'
import json, sys
longest, since, last = 0, None, -1
for line in open(sys.argv[1]):
    try: one = json.loads(line)
    except ValueError: continue
    if "t_ns" not in one or not int(sys.argv[2]) <= one["t_ns"] <= int(sys.argv[3]): continue
    if one["turns"] != last: since, last = one["t_ns"], one["turns"]
    longest = max(longest, one["t_ns"] - since)
print(round(longest / 1e6, 1))
PYTHON
}
value() { grep -o "\"$2\":[0-9]*" "$1" | "$3" -n1 | cut -d: -f2; }
victim() { # in the background, pid in $victim
  "$build/bin/workloads/endless" --seconds 200 --report-ms 1 >"$folder/$1.out" 2>&1 &
  victim=$!
  within 20 grep -q turns "$folder/$1.out"
}

# First without an agent: what the driver lets everybody do.
victim alone
timeout -s TERM 60 "$attack" --victim $victim --hold-ms 400 >"$folder/alone.attack" 2>&1
gap=$(longest "$folder/alone.out" "$(value "$folder/alone.attack" did_ns head)" "$(value "$folder/alone.attack" undoes_ns tail)")
check "without an agent it stands still" "$(is "$gap > 300")" "more than 300 ms of 400" "$gap ms"
kill $victim
wait $victim 2>/dev/null

: >"$folder/gpushare.toml"
"$build/bin/gpushared" ${GPUSHARE_SIM:+"--sim=$GPUSHARE_SIM"} --device-node "" --config "$folder/gpushare.toml" >"$folder/agent.log" 2>&1 &
within 20 timeout 5 "$build/bin/gpushare" status >/dev/null 2>&1
victim beside
sleep 1
timeout -s TERM 60 "$attack" --victim $victim --rounds 10 --pause-ms 300 --hold-ms 400 >"$folder/freeze.attack" 2>&1 &
attacker=$!
wait $attacker
sleep 0.3
gap=$(longest "$folder/beside.out" "$(value "$folder/freeze.attack" did_ns head)" "$(value "$folder/freeze.attack" undoes_ns tail)")
check "ten freezes by another are undone" "$(is "$gap <= 50")" "no longer than 50 ms" "$gap ms"
named=$(grep -c "(foreign_contro.* froze process $victim" "$folder/agent.log")
check "the log names the culprit" "$(is "$named >= 1")" "a line with its name" "$(grep froze "$folder/agent.log" | head -n1)"
doctor=$(timeout 10 "$build/bin/gpushare" doctor --json 2>&1 | grep -o "froze process $victim" | head -n1)
check "doctor names it" "$([ -n "$doctor" ] && echo 1 || echo 0)" "a finding" "$doctor"

"$build/bin/workloads/endless" --seconds 200 >"$folder/second.out" 2>&1 &
sleep 2
timeout -s TERM 60 "$attack" --victim $victim --slice-us 777777 --hold-ms 300 >"$folder/slice.attack" 2>&1
slice=$(value "$folder/slice.attack" slice_us tail)
check "a slice that another set is put back" "$(is "'$slice' not in ('', '777777')")" "not 777777 us" "$slice us"
doctor=$(timeout 10 "$build/bin/gpushare" doctor --json 2>&1 | grep -o "changed the slice of process $victim" | head -n1)
check "doctor names that" "$([ -n "$doctor" ] && echo 1 || echo 0)" "a finding" "$doctor"
false=$(timeout 10 "$build/bin/gpushare" status --json 2>/dev/null | grep -o '"false_claims":[0-9]*')
check "no program is taken for a forger" "$([ "${false:-}" = '"false_claims":0' ] && echo 1 || echo 0)" "none" "$false"
echo "{\"right\":$right,\"wrong\":$wrong}"
[ "$wrong" = 0 ]
