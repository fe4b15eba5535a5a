# SPDX-License-Identifier: Apache-2.0
# What the suites share. They are run by busybox' shell and source this. A test is a function
# test_Name; run_tests runs those of the calling script in their order, each in a subshell, and prints
# a line for each as GoogleTest does. After each test it kills what the test started.
suite=Kernel
report=/proc/nvidia-standin

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
skip() {
  echo "$*" >/tmp/skip
  exit 77
}
equal() { # WANT GOT WHAT
  [ "$1" = "$2" ] || fail "$3: want '$1', got '$2'"
}
between() { # LOW HIGH GOT WHAT: whole numbers or decimals
  echo "$1 $2 ${3:-none}" | awk '{ exit !($3 != "none" && $3 >= $1 && $3 <= $2) }' ||
    fail "$4: want $1 to $2, got '$3'"
}
holds() { # COMMAND...: does it succeed? The command may also end in fail()
  ("$@") >/dev/null 2>&1
}
# progress TEXT is shown while a long test runs. figure NAME NUMBER is kept in test.log.
progress() { echo "progress: $*" >/dev/ttyS1; }
figure() { echo "figure: $*" >/dev/ttyS1; }
# wait_for SECONDS COMMAND...: waits until the command succeeds, by the guest's time. SECONDS is ample on a
# quiet machine; a busy one has four times as long. $slow says how much slower than usual this kernel is.
wait_for() {
  local tries=$(($1 * 4 * 10 * ${slow:-1}))
  shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "waited in vain for: $*"
    sleep 0.1
  done
}
# start LOG COMMAND...: starts it in the background, with its output in LOG and its pid in $started.
start() {
  local log=$1
  shift
  : >"$log" # so that what an earlier command wrote is not taken for this one's
  "$@" >"$log" 2>&1 </dev/null &
  started=$!
  echo "$started" >>/tmp/pids
}
is_gone() { # PID
  ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"
}
end() { # PID...
  kill -9 "$@" 2>/dev/null || true
  wait "$@" 2>/dev/null || true
}

# --- the stand-in driver ------------------------------------------------------------------------
load_driver() {
  [ -e /dev/nvidiactl ] || mknod -m 666 /dev/nvidiactl c 195 255
  [ -e /dev/nvidia0 ] || mknod -m 666 /dev/nvidia0 c 195 0
  [ -e "$report" ] || insmod /test/nvidia.ko "$@"
}
unload_driver() {
  [ ! -e "$report" ] || rmmod nvidia
}
# driver_value KIND PID NAME: the value in the first line of that kind that belongs to the process.
driver_value() {
  awk -v kind="$1" -v pid="pid=$2" -v name="$3=" '$1 == kind && $3 == pid {
    for (i = 2; i <= NF; i++) if (index($i, name) == 1) { print substr($i, length(name) + 1); exit } }' $report
}
slice_of() { driver_value group "$1" slice_us; }
ran_us_of() { driver_value group "$1" ran_us; }
# The largest freeze count among the channels of a process; "" if it has none.
freezes_of() {
  awk -v pid="pid=$1" '$1 == "channel" && $3 == pid { split($7, f, "="); if (!seen++ || f[2] > most) most = f[2] }
    END { if (seen) print most }' $report
}
frozen_total() { awk '$1 == "channel" { split($7, f, "="); sum += f[2] } END { print sum + 0 }' $report; }
video_memory_used() { awk '$1 == "gpu" { split($5, f, "="); print f[2]; exit }' $report; }
has_slice() { [ "$(slice_of "$1")" = "$2" ]; }
has_another_slice() { [ "$(slice_of "$1")" != "$2" ]; }
is_frozen() { [ "$(freezes_of "$1")" -gt 0 ]; }
is_thawed() { [ "$(freezes_of "$1")" = 0 ]; }
holders() { # the processes that have a control file open
  local file
  for file in /proc/[0-9]*/fd/*; do
    [ "$(readlink "$file")" != /dev/nvidiactl ] || echo "$file" | cut -d/ -f3
  done | sort -u
}
# client WORD...: starts rm_client, with its output in /tmp/client.PID.
client() {
  exec 3>/tmp/client.new # opened here and not by the child, because it is renamed at once
  rm_client "$@" >&3 2>&1 </dev/null &
  started=$!
  exec 3>&-
  mv /tmp/client.new "/tmp/client.$started"
  echo "$started" >>/tmp/pids
}
# busy_client [WORD...]: starts a client that has work until it is ended.
busy_client() {
  client open busy "$@" echo=ready wait
  wait_for 10 grep -q ready "/tmp/client.$started"
}
answer_of() { # PID WORD: the status that the client printed for the word
  awk -v word="$2" '$1 == word { print $2; exit }' "/tmp/client.$1"
}

# --- gpushare.ko --------------------------------------------------------------------------------
tree=/sys/kernel/gpushare
load_module() { [ -e $tree ] || insmod /test/gpushare.ko; }
unload_module() { [ ! -e $tree ] || rmmod gpushare; }
attribute() { cat "$tree/tenants/$1/$2"; }
tenant() { # NAME PID...: makes the tenant and attaches the processes
  local name=$1 pid
  echo "$name" >$tree/create
  shift
  for pid in "$@"; do echo "$pid" >"$tree/tenants/$name/procs"; done
}
# client_of TENANT WORD...: starts a client that opens the driver, then is put into the tenant, and then does the
# rest.
client_of() {
  local name=$1 go
  shift
  go=$(mktemp -u /tmp/entered.XXXXXX)
  client open echo=opened "until=$go" "$@"
  wait_for 10 grep -q opened "/tmp/client.$started"
  echo "$started" >"$tree/tenants/$name/procs"
  : >"$go"
}
# run_in TENANT WORD...: runs rm_client as a process of the tenant.
run_in() {
  local name=$1
  shift
  sh -c 'echo $$ >'"$tree/tenants/$name/procs"' && exec rm_client "$@"' sh "$@"
}
# The first words of the attribute `driver`.
driver_state() { grep -oE 'hooked|waiting for driver|observing only' $tree/driver | head -n 1; }
has_driver_state() { [ "$(driver_state)" = "$1" ]; }
# The status that a program gets which asks for a longer slice.
cheat() { rm_client open slice=50000 | awk '/slice/ { print $2 }'; }
# fuzz_for SECONDS: runs kmod_fuzz, half a minute from each seed.
fuzz_for() {
  local left=$1 seed=1 part calls=0
  while [ "$left" -gt 0 ]; do
    part=$((left < 30 ? left : 30))
    kmod_fuzz $part $seed >/tmp/fuzz 2>&1 || fail "kmod_fuzz $part $seed says $?: $(cat /tmp/fuzz)"
    calls=$((calls + $(sed -n 's/^calls //p' /tmp/fuzz)))
    left=$((left - part))
    seed=$((seed + 1))
    progress "$calls calls, $left s are left"
  done
  figure fuzz_calls $calls
}

# --- the agent ----------------------------------------------------------------------------------
agent_log=/tmp/agent.log
# It asks by the socket, because the control plane of an agent that was killed can still be read.
agent_answers() { gpushare thaw default; }
# agent_up ARGUMENT...: starts gpushared unless it runs. It outlives the test. It answers before it has opened a
# GPU, and until then knows neither the GPU nor the module's tenants; where the driver is, that is waited for, too.
agent_up() {
  [ ! -e /tmp/agent.pid ] || return 0
  gpushared "$@" >$agent_log 2>&1 </dev/null &
  echo $! >/tmp/agent.pid
  wait_for 30 agent_answers
  ! grep -q '^nvidia ' /proc/modules || wait_for 30 agent_drives
}
agent_drives() { [ -n "$(agent_value driver_version)" ]; }
# What the agent has said that it does not say of a healthy machine. On a busy one it may take more than two
# seconds to open a GPU; then it says so, goes on, and says when it is done.
agent_complaints() { grep -v -e '^info' -e 'does not answer: it has been opened without an end' $agent_log || true; }
agent_down() { # asks it to stop, and waits
  [ -e /tmp/agent.pid ] || return 0
  kill "$(cat /tmp/agent.pid)" 2>/dev/null
  wait_for 10 is_gone "$(cat /tmp/agent.pid)"
  rm -f /tmp/agent.pid
}
# Members of `gpushare status --json`: of the whole, of one process, of one tenant.
member() { grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2- | tr -d '"'; }
parts() { gpushare status --json | sed 's/{"slot":/\n&/g'; }
agent_value() { parts | head -n 1 | member "$1"; }
process_value() { parts | grep "^{\"slot\":[0-9]*,\"pid\":$1," | member "$2"; }
tenant_value() { parts | grep "^{\"slot\":[0-9]*,\"name\":\"$1\"," | member "$2"; }
agent_pid() { agent_value pid; }
has_another_agent() { [ "$(agent_pid)" -gt 0 ] && [ "$(agent_pid)" != "$1" ]; }
# The next agent freezes it again, because a freeze by hand outlives an agent.
kill_agent_and_expect_a_thaw() { # PID of a client that is being frozen by hand
  local old
  wait_for 5 is_frozen "$1"
  old=$(agent_pid)
  kill -9 "$old"
  wait_for 10 has_another_agent "$old"
  wait_for 10 has_state "$1" frozen-user
  grep -q "process $1 thawed" "$agent_log" || fail "the supervisor did not thaw it"
  gpushare thaw "$1"
  wait_for 5 is_thawed "$1"
}
# expect_the_outlived_is_held TENANT: a busy client of this tenant, whose cap is 30 %, ends, while a child that never calls
# the driver keeps its files: its work is capped and frozen as before, also by the next agents, until the child ends.
expect_the_outlived_is_held() {
  local pid agent
  rm -f /tmp/end
  client open busy echo=ready until=/tmp/end leave-open
  pid=$started
  wait_for 10 grep -q ready "/tmp/client.$pid"
  wait_for 5 gpushare attach "$pid" "$1"
  wait_for 5 is_known "$pid"
  : >/tmp/end
  wait_for 5 has_ended_before_its_child "$pid"
  has_true_share "$pid" 10 45 4
  gpushare freeze "$1"
  wait_for 5 has_state "$pid" frozen-user
  equal 0 "$(true_share "$pid" 0.5)" "the share of a frozen one"
  gpushare thaw "$1"
  has_true_share "$pid" 10 45 4
  agent=$(agent_pid)
  kill -9 "$agent"
  wait_for 10 has_another_agent "$agent"
  wait_for 10 is_known "$pid"
  has_true_share "$pid" 10 45 4
  agent_down
  agent_up
  wait_for 10 is_known "$pid"
  has_true_share "$pid" 10 45 4
  # shellcheck disable=SC2046 # words
  end $(clients_with_files)
  wait_for 5 is_unknown "$pid"
}
clients_with_files() {
  local pid
  for pid in $(holders); do [ "$(cat "/proc/$pid/comm")" != rm_client ] || echo "$pid"; done
}
has_ended_before_its_child() { [ -n "$(clients_with_files)" ] && [ "$(clients_with_files)" != "$1" ]; }
is_known() { [ -n "$(process_value "$1" state)" ]; }
is_unknown() { ! is_known "$1"; }
has_state() { [ "$(process_value "$1" state)" = "$2" ]; }
# The percent of the next SECONDS that a process is on the GPU, by the stand-in's own clock.
ran_and_now() {
  awk -v pid="pid=$1" '$1 == "gpu" { split($6, now, "=") } $1 == "group" && $3 == pid { split($10, ran, "=") }
    END { print ran[2], now[2] }' $report
}
true_share() { # PID SECONDS
  local before
  before=$(ran_and_now "$1")
  sleep "$2"
  echo "$before $(ran_and_now "$1")" | awk '{ print 100 * ($3 - $1) / ($4 - $2) }'
}
# has_true_share PID LOW HIGH [SECONDS]: in one of eight spells of so long (half a second), because the machine may
# stand still in some, and the agent, or the stand-in, is late then.
has_true_share() {
  local share=none _
  for _ in 1 2 3 4 5 6 7 8; do
    share=$(true_share "$1" "${4:-0.5}")
    ! holds between "$2" "$3" "$share" "true share" || return 0
  done
  fail "the true share: want $2 to $3 in one of eight spells, got '$share' in the last"
}

# --- running ------------------------------------------------------------------------------------
now_ms() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }
run_tests() {
  local names name code begin took
  suite=$1
  names=$(sed -n 's/^test_\([A-Za-z0-9]*\)().*/\1/p' "$0" | grep -E "${only:-.}" | grep -vE "${but:-^$}")
  [ -n "$names" ] || echo "[  FAILED  ] $suite.HasTests (0 ms)"
  for name in $names; do
    echo "[ RUN      ] $suite.$name"
    begin=$(now_ms)
    : >/tmp/pids
    rm -f /tmp/skip
    (set -e && "test_$name") >/tmp/out 2>&1
    code=$?
    # shellcheck disable=SC2046
    end $(cat /tmp/pids)
    took=$(($(now_ms) - begin))
    case $code in
      0) echo "[       OK ] $suite.$name ($took ms)" ;;
      77)
        echo "run.sh:1: Skipped"
        cat /tmp/skip
        echo "[  SKIPPED ] $suite.$name ($took ms)"
        ;;
      *)
        cat /tmp/out
        echo "[  FAILED  ] $suite.$name ($took ms)"
        ;;
    esac
  done
}
