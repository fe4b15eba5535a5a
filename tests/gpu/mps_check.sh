#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the agent's own MPS on a real GPU: mps_check.sh [BUILD]. It needs root, and a GPU 0 that nothing
# else uses. It prints one line of JSON for each thing that was looked at, with what was expected beside
# what was seen, and last {"right":N,"wrong":N}. All that it makes is in a folder of its own and ends with it.
set -u
build=$(realpath "${1:-build}")
folder=$(mktemp -d /tmp/gpushare-mps-check-XXXXXX)
export GPUSHARE_SOCKET=$folder/agent.sock GPUSHARE_REGION=/${folder##*/}
pipe=$folder/mps
cli="timeout 10 $build/bin/gpushare"
spin=$build/bin/workloads/spin
right=0 wrong=0
agent=

check() { # NAME IS_RIGHT EXPECTED SEEN
  if [ "$2" = 1 ]; then right=$((right + 1)); word=true; else wrong=$((wrong + 1)); word=false; fi
  printf '{"check":"%s","right":%s,"expected":"%s","seen":"%s"}\n' "$1" "$word" "$3" "$(printf %s "$4" | tr -d '"\\' | tr '\n' ' ' | cut -c1-300)"
}
control() { printf '%s\n' "$@" | CUDA_MPS_PIPE_DIRECTORY=$pipe timeout 10 nvidia-cuda-mps-control 2>/dev/null; }
clients() { # pids, one a line
  local server
  for server in $(control get_server_list | grep -E '^[0-9 ]+$'); do control "get_client_list $server" | grep -E '^[0-9 ]+$' | tr ' ' '\n' | grep .; done
}
daemon() { cat "$pipe/nvidia-cuda-mps-control.pid" 2>/dev/null; }
within() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -ge $end ] && return 1; sleep 0.1; done
}
is_client() { clients | grep -qx "$1"; }
has_logged() { grep -q "$1" "$folder/agent.log"; }
# rate FILE SECONDS: the work per ms of a program in the last so many seconds of its reports.
rate() { python3 - "$1" "$2" <<'PYTHON'
import json, sys
points = []
for line in open(sys.argv[1]):
    try: one = json.loads(line)
    except ValueError: continue
    if "t_ns" in one and "units" in one: points.append((one["t_ns"], one["units"]))
last = points[-1][0] if points else 0
points = [p for p in points if p[0] >= last - float(sys.argv[2]) * 1e9]
span = (points[-1][0] - points[0][0]) / 1e6 if len(points) > 1 else 0
print(round((points[-1][1] - points[0][1]) / span, 1) if span else 0)
PYTHON
}
# rate_now FILE SECONDS: the same of what is written from now on, so that a program that has stopped has 0.
rate_now() {
  local before
  before=$(wc -l <"$1")
  sleep "$2"
  tail -n +$((before + 1)) "$1" >"$1.now"
  rate "$1.now" "$2"
}
run() { # NAME TENANT ARGUMENT...: in the background, pid in $started
  local name=$1 tenant=$2
  shift 2
  GPUSHARE_SHIM_SOCKET=$folder/shim.sock "$build/bin/gpushare" run --shim --tenant "$tenant" -- "$spin" --report-ms 20 --ns-per-unit "${unit:-0}" "$@" >"$folder/$name.out" 2>&1 &
  started=$!
}
ratio() { python3 -c "print(round($1 / max($2, 1e-9), 3))"; }
is() { python3 -c "print(1 if $1 else 0)"; }

finish() {
  # shellcheck disable=SC2046 # a list
  kill $(jobs -p) 2>/dev/null
  sleep 0.5
  [ -n "$agent" ] && kill -TERM "$agent" 2>/dev/null
  sleep 1
  control "quit -t 2" >/dev/null
  # shellcheck disable=SC2046 # a list
  kill -KILL $(jobs -p) 2>/dev/null
  rm -f "/dev/shm$GPUSHARE_REGION" "/dev/shm$GPUSHARE_REGION.lock"
  [ "$wrong" = 0 ] && rm -rf "$folder" || echo "{\"folder\":\"$folder\"}"
}
trap finish EXIT

command -v nvidia-cuda-mps-control >/dev/null || { echo '{"skipped":"there is no nvidia-cuda-mps-control"}'; exit 1; }
cat >"$folder/gpushare.toml" <<'TOML'
[agent]
log_level = "debug"
[gpu.0]
sharing = "spatial"
[tenant.a]
sm_percent = 50
[tenant.b]
sm_percent = 50
TOML
"$build/bin/gpushared" --config "$folder/gpushare.toml" --socket "$GPUSHARE_SOCKET" --region "$GPUSHARE_REGION" >"$folder/agent.log" 2>&1 &
agent=$!
within 10 has_logged "MPS: control daemon started"
check "the agent starts the control daemon" "$([ -n "$(daemon)" ] && echo 1 || echo 0)" "a pid" "$(grep MPS "$folder/agent.log" | tail -2)"
gpus=$(ls /dev/nvidia[0-9]* 2>/dev/null | wc -l)
# Where other GPUs are shared by time, a program becomes a client when it names the GPU shared spatially.
[ "$gpus" -gt 1 ] && CUDA_VISIBLE_DEVICES=$($cli status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["gpus"][0]["uuid"])') && export CUDA_VISIBLE_DEVICES

# How long a unit of work takes, and how much tenant a's program does alone.
timeout 60 "$spin" --seconds 1 >"$folder/unit.out" 2>&1
unit=$(tail -1 "$folder/unit.out" | python3 -c 'import json,sys; print(json.loads(sys.stdin.read())["ns_per_unit"])' 2>/dev/null || echo 0)
common="--seconds 100 --kernel-us 200"
run a a $common; a=$started
within 20 is_client $a
check "tenant a's program is a client" "$(is_client $a && echo 1 || echo 0)" "$a" "$(clients | tr '\n' ' ')"
sleep 2
alone_all=$(rate_now "$folder/a.out" 2)
run b b $common; b=$started
within 20 is_client $b
check "tenant b's program is a client, too" "$(is_client $b && echo 1 || echo 0)" "$a $b" "$(clients | tr '\n' ' ')"
sleep 2
status=$($cli status --json | python3 -c 'import json,sys; a=json.load(sys.stdin)["agent"]; print(a["mps_state"], a["mps_pid"], a["mps_clients"])')
check "status tells of it" "$([ "$status" = "running $(daemon) 2" ] && echo 1 || echo 0)" "running $(daemon) 2" "$status"
both_a=$(rate_now "$folder/a.out" 2) both_b=$(rate "$folder/b.out" 2)
parts=$($cli status --json | python3 -c 'import json,sys
for t in json.load(sys.stdin)["tenants"]:
    for g in t.get("gpus", []):
        if g.get("sms_in_use"): print(t["name"], g["sms_entitled"], g["sms_in_use"], end="; ")')
check "both at once: the sum is what one does alone" "$(is "($both_a + $both_b) >= 0.93 * $alone_all")" ">= 93 % of $alone_all" "$both_a + $both_b; $parts"
check "each has its half" "$(is "0.43 < $both_a / ($both_a + $both_b) < 0.57")" "50 %" "$(ratio "$both_a" "($both_a + $both_b)")"

$cli set a max=50% >/dev/null
sleep 2
capped_a=$(rate_now "$folder/a.out" 4) beside_b=$(rate "$folder/b.out" 4)
check "max 50 % on a" "$(is "0.40 < $capped_a / $both_a < 0.60")" "50 % of $both_a" "$capped_a ($(ratio "$capped_a" "$both_a"))"
check "b does not suffer" "$(is "$beside_b >= 0.95 * $both_b")" ">= 95 % of $both_b" "$beside_b"
check "a is not stopped for its cap" "$([ "$(ps -o state= -p $a | tr -d ' ')" != T ] && echo 1 || echo 0)" "not T" "$(ps -o state= -p $a)"
# A program that queues work far ahead is held only once its queue has run empty: this shows how late that is.
for depth in 1 64 512; do
  run deep a --seconds 8 --kernel-us 200 --depth $depth; deep=$started
  sleep 4
  deep_rate=$(rate_now "$folder/deep.out" 3)
  kill $deep 2>/dev/null
  wait $deep 2>/dev/null
  printf '{"measured":"beside a under its cap, kernels of 200 us, %s queued","units_per_ms":%s,"a_units_per_ms":%s}\n' $depth "$deep_rate" "$(rate "$folder/a.out" 3)"
done
$cli set a max=max >/dev/null
sleep 2
free_a=$(rate_now "$folder/a.out" 2)
check "without the cap a is back" "$(is "$free_a >= 0.93 * $both_a")" ">= 93 % of $both_a" "$free_a"

$cli freeze $a >/dev/null
sleep 0.5
frozen_a=$(rate_now "$folder/a.out" 2) beside_b=$(rate "$folder/b.out" 2)
check "a is frozen" "$(is "$frozen_a == 0")" "0" "$frozen_a"
check "b runs on" "$(is "$beside_b >= 0.95 * $both_b")" ">= 95 % of $both_b" "$beside_b"
$cli thaw $a >/dev/null
sleep 1
check "a is thawed" "$(is "$(rate_now "$folder/a.out" 1) > 0.9 * $both_a")" ">= 90 % of $both_a" "$(rate "$folder/a.out" 1)"

mps_before=$(daemon)
first=$($cli status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["agent"]["pid"])')
kill -KILL "$first"
within 20 has_logged "MPS: control daemon taken up"
check "the next agent takes MPS up" "$([ "$(daemon)" = "$mps_before" ] && has_logged 'taken up' && echo 1 || echo 0)" "$mps_before" "$(daemon)"
sleep 2
check "programs run on meanwhile" "$(is "$(rate_now "$folder/a.out" 2) > 0.9 * $both_a")" ">= 90 % of $both_a" "$(rate "$folder/a.out" 2)"
check "they are its clients again" "$(within 10 grep -q . <(clients) && is_client $a && is_client $b && echo 1 || echo 0)" "$a $b" "$(clients | tr '\n' ' ')"

# A client is killed in the middle of a kernel.
run long a --seconds 60 --kernel-us 200000 --depth 4; long=$started
within 20 is_client $long
sleep 2
faults=$(grep -c "MPS: over" "$folder/agent.log")
kill -KILL $long
sleep 8
printf '{"measured":"after SIGKILL in mid-kernel","a_runs":%s,"b_runs":%s,"server":"%s","told":"%s"}\n' \
  "$(kill -0 $a 2>/dev/null && echo true || echo false)" "$(kill -0 $b 2>/dev/null && echo true || echo false)" \
  "$(for s in $(control get_server_list); do control "get_server_status $s"; done | tr '\n' ' ')" "$(grep 'MPS: ' "$folder/agent.log" | tail -3 | tr -d '"\\' | tr '\n' ' ')"
if kill -0 $a 2>/dev/null && kill -0 $b 2>/dev/null; then
  check "nobody else died, and nobody is said to" "$([ "$(grep -c 'MPS: over' "$folder/agent.log")" = "$faults" ] && echo 1 || echo 0)" "no incident" "$(grep -c 'MPS: over' "$folder/agent.log")"
else
  check "it is said who died" "$(has_logged 'MPS: over: .*tenant' && echo 1 || echo 0)" "tenant a: spin ..." "$(grep 'MPS: over' "$folder/agent.log" | tail -1)"
fi

# The server itself is killed, which surely ends all its clients. Clients that have ended with the client
# above are started anew first.
kill -0 $a 2>/dev/null || { run a a $common; a=$started; }
kill -0 $b 2>/dev/null || { run b b $common; b=$started; }
within 40 is_client $a
within 20 is_client $b
server=$(control get_server_list | head -1)
kill -KILL "$server"
within 30 has_logged "MPS: over: the server has ended"
check "the server's end names who ended with it" "$(grep 'MPS: over: the server has ended' "$folder/agent.log" | grep -q "tenant b: spin (pid $b)" && echo 1 || echo 0)" "tenant a and b" "$(grep 'MPS: over' "$folder/agent.log" | tail -1)"
kill -KILL $a $b 2>/dev/null
sleep 2
run again b --seconds 3 --kernel-us 200; again=$started
within 10 is_client $again
check "the next program is a client of a new server" "$(is_client $again && echo 1 || echo 0)" "$again" "$(clients | tr '\n' ' ')"
wait $again
check "and ends well" "$([ $? = 0 ] && echo 1 || echo 0)" "0" "$(tail -1 "$folder/again.out" | cut -c1-200)"

control_pid=$(daemon)
kill -KILL "$control_pid"
within 20 eval '[ -n "$(daemon)" ] && [ "$(daemon)" != "$control_pid" ]'
check "a control daemon that dies is started again" "$([ "$(daemon)" != "$control_pid" ] && echo 1 || echo 0)" "not $control_pid" "$(daemon)"
check "doctor says so" "$($cli doctor | grep -q 'spatial MPS' && echo 1 || echo 0)" "a line" "$($cli doctor | grep 'spatial MPS')"
echo "{\"right\":$right,\"wrong\":$wrong}"
[ "$wrong" = 0 ]
