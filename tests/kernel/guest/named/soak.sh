# SPDX-License-Identifier: Apache-2.0
# gpushare.ko and the driver are loaded and unloaded $rounds times while programs use the driver, with calls
# that sleep in it, and while tenants and settings change. The verdict is the kernel's log, and that
# nothing stays behind.
. /test/lib.sh
rounds=${rounds:-4}

is_unloaded() { rmmod gpushare 2>/dev/null || [ ! -e $tree ]; }
is_driver_unloaded() { rmmod nvidia 2>/dev/null || [ ! -e $report ]; }
# Programs come, work and go; what their start complains of is in /tmp/complaints. Both kinds of load leave
# the processors idle now and then, because calls are to meet a change of the module, not of a task.
come_and_go() {
  while :; do
    rm_client open alloc=1 alloc21=1 dup free interleave=2 end >/dev/null 2>>/tmp/complaints || true
    sleep 0.1
  done
}
no_complaints() { [ ! -s /tmp/complaints ] || fail "a program: $(sort /tmp/complaints | uniq -c)"; }
work=$(i=0; while [ $i -lt 200 ]; do echo churn=20 sleep=10; i=$((i + 1)); done)
# shellcheck disable=SC2086
work_on() { while :; do rm_client open $work >/dev/null 2>>/tmp/complaints || true; done; }
settle() { # a tenant of its own, with all that it can be told
  local name=t$1 file
  echo "$name" >$tree/create
  file=$tree/tenants/$name
  echo 200 >"$file/weight"
  echo "30000 100000" >"$file/max"
  echo 64M >"$file/memory_max"
  echo 1000 >"$file/match_uid"
  echo "$2" >"$file/procs"
}

# The module is drained, so that it can go while the driver is in use. Every fourth time rmmod alone is
# tried, as often as it takes.
test_TheModuleComesAndGoesUnderLoad() {
  local round=0 worker visitor
  load_driver
  : >/tmp/complaints
  work_on &
  worker=$!
  come_and_go &
  visitor=$!
  echo $worker $visitor >>/tmp/pids
  while [ $round -lt "$rounds" ]; do
    insmod /test/gpushare.ko
    settle $round $visitor
    case $((round % 4)) in
      0) equal 0x1b "$(cheat)" "a cheat in round $round" ;;
      1) echo $((round % 20)) >/sys/module/nvidia/parameters/delay_ms ;;
      2) echo t$round >$tree/remove ;;
    esac
    [ $((round % 4)) = 3 ] || echo 1 >$tree/drain
    wait_for 20 is_unloaded
    echo 0 >/sys/module/nvidia/parameters/delay_ms
    round=$((round + 1))
    [ $((round % 20)) != 0 ] || progress "loaded and unloaded $round of $rounds times"
  done
  figure module_rounds $round
  holds kill -0 $worker || fail "the load has ended"
  end $visitor $worker
  killall -q -9 rm_client || true
  no_complaints
}

# The driver goes when no program has it open, and comes back; the module waits for it.
test_TheDriverComesAndGoesUnderLoad() {
  local round=0 most=$(((rounds + 9) / 10)) load
  load_driver
  load_module
  while [ $round -lt $most ]; do
    come_and_go >/dev/null 2>&1 &
    load=$!
    come_and_go >/dev/null 2>&1 &
    echo $load $! >>/tmp/pids
    sleep 0.3
    end $load $!
    wait_for 20 is_driver_unloaded
    equal "waiting for driver" "$(driver_state)" "state in round $round"
    if [ $((round % 2)) = 1 ]; then # this time the driver comes first
      unload_module
      load_driver
      load_module
    else
      load_driver
    fi
    equal hooked "$(driver_state)" "state in round $round"
    equal 0x1b "$(cheat)" "a cheat in round $round"
    round=$((round + 1))
    [ $((round % 10)) != 0 ] || progress "the driver reloaded $round of $most times"
  done
  figure driver_rounds $round
  unload_module
  unload_driver
}

run_tests Soak
