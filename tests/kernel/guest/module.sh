# SPDX-License-Identifier: Apache-2.0
# gpushare.ko is loaded and unloaded in every order with the driver.
. /test/lib.sh

# Sets how long the driver takes for each call from now on.
driver_takes_ms() { echo "$1" >/sys/module/nvidia/parameters/delay_ms; }
# slow_start MS SECONDS: a client starts while a call takes the driver MS; returns SECONDS later.
slow_start() {
  load_driver
  load_module
  driver_takes_ms "$1"
  rm_client open >/dev/null &
  started=$!
  echo $started >>/tmp/pids
  sleep "$2"
}

# Without the mitigations the returns and indirect jumps of the diversions are not those of a real machine. Against
# SRSO a processor wants microcode as well, which QEMU's has none of.
test_TheKernelsMitigationsAreOn() {
  grep -q "QEMU TCG" /proc/cpuinfo || skip "it is the machine's own processor, and its own business"
  grep -q retpoline=Y /test/gpushare.ko || skip "this kernel was built without mitigations"
  ! grep Vulnerable /sys/devices/system/cpu/vulnerabilities/* | grep -vi ':\(Vulnerable\|Mitigation\): safe RET, no microcode$' ||
    fail "the processor is vulnerable"
  grep -q "Mitigation: untrained return thunk" /sys/devices/system/cpu/vulnerabilities/retbleed || fail "returns are not made safe"
  grep -q "Mitigation: Retpolines" /sys/devices/system/cpu/vulnerabilities/spectre_v2 || fail "there are no retpolines"
}

test_WaitsForTheDriverAndHooksIt() {
  unload_driver
  load_module
  equal "waiting for driver" "$(driver_state)" state
  load_driver
  wait_for 5 has_driver_state hooked
  grep -q nvidia_unlocked_ioctl $tree/driver || fail "$(cat $tree/driver)"
  rm_client open alloc=1
  unload_module
}

test_HooksADriverThatIsThere() {
  load_driver
  load_module
  equal hooked "$(driver_state)" state
  unload_module
}

# GCC drops volatile from reads of a bool then, and with it reads that a probe's handler answers.
test_HooksADriverWhereEachBoolIsChecked() {
  [ -e /test/gpushare-checked.ko ] || skip "it is built for the machine's own kernel alone"
  load_driver
  unload_module
  insmod /test/gpushare-checked.ko
  equal hooked "$(driver_state)" state
  equal 0x1b "$(cheat)" "a cheat"
  unload_module
}

test_FollowsTheDriversReload() {
  local round
  load_driver
  load_module
  for round in 1 2 3; do
    rm_client open alloc=1 >/dev/null
    unload_driver
    equal "waiting for driver" "$(driver_state)" "state in round $round"
    load_driver
    equal hooked "$(driver_state)" "state in round $round"
  done
  equal 0x1b "$(cheat)" "a cheat after the reloads"
  unload_module
}

test_HooksTheOlderNameOfTheDriversFunction() {
  unload_driver
  load_module
  insmod /test/nvidia-535.ko
  equal hooked "$(driver_state)" state
  grep -q nvidia_frontend_unlocked_ioctl $tree/driver || fail "$(cat $tree/driver)"
  equal 0x1b "$(cheat)" "a cheat"
  equal 0x1b "$(rm_client compat open slice=50000 | awk '/slice/ { print $2 }')" \
    "a 32-bit program's, for which this driver has a function of its own"
  unload_driver
  unload_module
}

test_ADriverThatItDoesNotKnowIsLeftAlone() {
  unload_driver
  load_module
  insmod /test/nvidia-unknown.ko
  equal "observing only" "$(driver_state)" state
  equal 0x0 "$(cheat)" "a control that nobody refuses"
  echo probe >$tree/create
  equal 100 "$(cat $tree/tenants/probe/weight)" "a tenant's weight"
  unload_driver
  unload_module
}

test_AUnloadedModuleRefusesNothing() {
  load_driver
  load_module
  equal 0x1b "$(cheat)" "with the module"
  unload_module
  equal 0x0 "$(cheat)" "without"
  [ ! -e $tree ] || fail "its tree is still there"
}

# When the module comes, the program's group is made and not yet scheduled. A call that takes longer than
# 100 ms on its way into RM would be refused then: see kmod/driver/pin.c.
test_AProgramThatIsStartingIsServed() {
  load_driver
  driver_takes_ms 80
  rm_client open >/tmp/starting 2>&1 &
  sleep 0.9
  load_module
  ! grep open /tmp/starting || skip "it had started before the module came: the machine is busy"
  if ! wait $!; then
    # The delay, with what a busy machine adds, may be longer than GS_GRACE of pin.c.
    ! grep -q 'errno 22' /tmp/starting || skip "a call took longer to RM than the grace: the machine is busy"
    fail "$(cat /tmp/starting)"
  fi
  driver_takes_ms 0
  unload_module
}

is_unloaded() { rmmod gpushare 2>/dev/null || [ ! -e $tree ]; }
# A call may sleep in the driver for long, and its way back leads through the module.
test_GoesAfterThoseThatSleepInTheDriver() {
  slow_start 1000 0.3
  ! holds rmmod gpushare || echo "it went while a call slept"
  driver_takes_ms 0
  wait_for 5 is_unloaded
  wait $started || fail "the sleeper's calls failed"
  rm_client open alloc=1
}

test_DrainWakesAllAndLetsItGo() {
  slow_start 500 0.2
  echo 1 >$tree/drain
  driver_takes_ms 0
  wait_for 5 is_unloaded
  wait $started
}

# The drain comes while the driver makes a client, of which nothing may be kept.
test_ACallThatEndsAfterTheDrainLeavesNothing() {
  slow_start 400 0.6
  echo 1 >$tree/drain
  driver_takes_ms 0
  wait $started
  wait_for 5 is_unloaded
  ! dmesg | grep WARNING | grep -v 'Speculative Return' || fail "the kernel has complained"
}

# A round takes one to three seconds, because ftrace waits until every task has passed a safe point.
test_LoadsAndUnloadsUnderLoad() {
  local round=0 load
  load_driver
  rm_client open churn=100000000 >/dev/null &
  load=$!
  rm_client open churn=100000000 >/dev/null &
  echo $load $! >>/tmp/pids
  while [ $round -lt "${rounds:-2}" ]; do
    insmod /test/gpushare.ko
    echo 1 >$tree/drain # otherwise a call is always inside
    wait_for 10 is_unloaded
    round=$((round + 1))
  done
  holds kill -0 $load || fail "the load has ended"
  end $load
}

test_EveryLoadHasANumberOfItsOwn() {
  local before
  unload_module
  load_module
  before=$(cat $tree/instance)
  [ "$before" -gt 0 ] || fail "it is $before"
  unload_module
  load_module
  [ "$(cat $tree/instance)" != "$before" ] || fail "it is $before again"
}

# Live patches and direct calls do not share a function: who comes second is refused, and says so.
test_ALivePatchAndTheModuleKeepOutOfEachOthersWay() {
  [ -d /sys/kernel/livepatch ] || skip "this kernel has no live patching"
  unload_module
  unload_driver
  load_driver
  load_module
  equal hooked "$(driver_state)" driver
  ! insmod /test/standin-livepatch.ko 2>/tmp/why || fail "the live patch took a function that is taken"
  grep -q "busy" /tmp/why || fail "it was refused by $(cat /tmp/why)"
  equal 0x1b "$(cheat)" "a slice of one's own, while the module has the function"
  unload_module
  insmod /test/standin-livepatch.ko
  wait_for 10 is_patched
  ! rm_client open 2>/dev/null || fail "the live patch does nothing"
  load_module
  has_driver_state "observing only" || fail "$(cat $tree/driver)"
  grep -q "another module or BPF program diverts" $tree/driver || fail "$(cat $tree/driver)"
  echo 0 >/sys/kernel/livepatch/standin_livepatch/enabled
  wait_for 10 is_unpatched
  rmmod standin_livepatch
  echo 1 >$tree/drain
  echo 0 >$tree/drain
  equal hooked "$(driver_state)" "driver, once the live patch is gone"
  equal 0x1b "$(cheat)" "a slice of one's own"
}

# What a BPF program of type fentry does: ftrace calls it directly at the beginning of the function.
saw_calls() { cat /sys/module/direct/parameters/calls; }
test_ADirectCallerThatComesSecondIsRefused() {
  local shares
  unload_module
  load_driver
  load_module
  for shares in 0 1; do
    equal hooked "$(driver_state)" driver
    ! insmod /test/direct.ko shares=$shares 2>/tmp/why || fail "it took a function that is taken (shares=$shares)"
    grep -q "busy" /tmp/why || fail "it was refused by $(cat /tmp/why)"
    equal 0x1b "$(cheat)" "a slice of one's own, while the module has the function"
  done
}
test_BesideADirectCallerTheModuleOnlyObserves() {
  local shares before
  unload_module
  load_driver
  for shares in 0 1; do
    insmod /test/direct.ko shares=$shares
    load_module
    has_driver_state "observing only" || fail "$(cat $tree/driver)"
    grep -q "another module or BPF program diverts" $tree/driver || fail "$(cat $tree/driver)"
    before=$(saw_calls)
    equal 0x0 "$(cheat)" "a slice of one's own, while the other one has the function"
    between 1 1000 "$(($(saw_calls) - before))" "calls that the other one saw (shares=$shares)"
    rmmod direct
    echo 1 >$tree/drain
    echo 0 >$tree/drain
    equal hooked "$(driver_state)" "driver, once the other one is gone"
    equal 0x1b "$(cheat)" "a slice of one's own"
    unload_module
  done
}

is_patched() { [ "$(cat /sys/kernel/livepatch/standin_livepatch/transition)" = 0 ]; }
is_unpatched() { [ ! -d /sys/kernel/livepatch/standin_livepatch ]; }

run_tests Module
