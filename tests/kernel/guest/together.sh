# SPDX-License-Identifier: Apache-2.0
# gpushare.ko, gpushared and programs together on the stand-in driver, seen and steered by sysfs.
. /test/lib.sh
load_driver
load_module

attribute_between() { between "$3" "$4" "$(attribute "$1" "$2")" "$2 of $1"; }
slices_between() { # LOW HIGH A B: the ratio of B's slice to A's, in tenths
  between "$1" "$2" "$(echo "$(slice_of "$3") $(slice_of "$4")" | awk '{ print 10 * $2 / $1 }')" ratio
}

test_TheAgentIsRegisteredAndDescribesItsGpu() {
  agent_up
  equal "$(agent_pid)" "$(cat $tree/agent)" agent
  equal fair "$(cat $tree/policy)" policy
  equal "GPU-00000000-0000-4000-8000-000000001b00 132 1073741824" \
    "$(echo $(cd $tree/gpus/0 && cat uuid sm_count memory_bytes))" "the GPU"
  equal "" "$(agent_complaints)" "the agent's complaints"
}

test_TheDoctorFindsNothingWrong() {
  agent_up
  busy_client
  wait_for 5 is_known "$started"
  gpushare doctor >/tmp/doctor || fail "$(cat /tmp/doctor)"
  ! grep -E 'fail|warning' /tmp/doctor || fail "the doctor is not content"
  grep -q 'kernel module.*hooked nvidia' /tmp/doctor || fail "$(cat /tmp/doctor)"
}

test_TenantsMadeInSysfsShareByTheirWeights() {
  local light heavy
  agent_up
  busy_client && light=$started
  busy_client && heavy=$started
  tenant light "$light"
  tenant heavy "$heavy"
  echo 300 >$tree/tenants/heavy/weight
  wait_for 5 holds slices_between 24 36 "$light" "$heavy"
  wait_for 10 holds attribute_between light share_permille 210 290
  wait_for 10 holds attribute_between heavy share_permille 690 790
  between 1000 100000000 "$(attribute heavy gpu_time_us)" gpu_time_us
  equal 300 "$(tenant_value heavy weight)" "weight in gpushare status"
  echo 100 >$tree/tenants/heavy/weight
  wait_for 5 holds slices_between 8 12 "$light" "$heavy"
  echo light >$tree/remove
  echo heavy >$tree/remove
}

# What one above has is divided among those below, its cap binds them together, and its files have what they used.
test_TenantsBelowOthersShareWhatTheseHave() {
  local light heavy beside used
  agent_up
  busy_client && light=$started
  busy_client && heavy=$started
  busy_client && beside=$started
  echo team >$tree/create
  echo light >$tree/tenants/team/create
  echo team/heavy >$tree/create
  echo 300 >$tree/tenants/team/heavy/weight
  echo 200 >$tree/tenants/team/weight
  echo "$light" >$tree/tenants/team/light/procs
  echo "$heavy" >$tree/tenants/team/heavy/procs
  tenant beside "$beside"
  wait_for 5 holds slices_between 24 36 "$light" "$heavy"
  wait_for 10 holds attribute_between team/light share_permille 125 210
  wait_for 10 holds attribute_between team/heavy share_permille 440 560
  wait_for 10 holds attribute_between team share_permille 610 730
  equal 300 "$(tenant_value team/heavy weight)" "weight in gpushare status"
  used=$(($(attribute team/light gpu_time_us) + $(attribute team/heavy gpu_time_us)))
  attribute_between team gpu_time_us $((used - used / 10)) $((used + 500000))
  echo "20000 100000" >$tree/tenants/team/max
  wait_for 10 holds attribute_between team share_permille 150 250
  wait_for 10 holds attribute_between beside share_permille 700 850
  echo max >$tree/tenants/team/max
  echo 1 >$tree/tenants/team/freeze
  wait_for 10 holds attribute_between beside share_permille 950 1000
  ! gpushare thaw team/light 2>/tmp/why || fail "it is frozen with team"
  grep -q "gpushare thaw team" /tmp/why || fail "$(cat /tmp/why)"
  gpushare thaw team
  wait_for 10 holds attribute_between team share_permille 610 730
  # shellcheck disable=SC2046 # words
  end $(cat /tmp/pids)
  for name in team/light team/heavy team beside; do wait_for 5 sh -c "echo $name >$tree/remove"; done
}

test_GpushareSetWritesSysfs() {
  agent_up
  gpushare set --create lab weight=7 max=30% memory_max=64M priority=high
  equal "7 30000 100000 67108864 high" \
    "$(echo $(cd $tree/tenants/lab && cat weight max memory_max priority))" "settings in sysfs"
  gpushare remove lab
  [ ! -e $tree/tenants/lab ] || fail "it is still there"
}

test_WhatATenantUsedAndWaitedForIsShownByGpu() {
  local one other uuid=GPU-00000000-0000-4000-8000-000000001b00
  agent_up
  busy_client alloc=2 && one=$started
  tenant waiter "$one"
  echo "30000 100000" >$tree/tenants/waiter/max
  wait_for 20 holds throttled_at_least waiter 5 # alone: beside another one its slices may do
  busy_client && other=$started
  tenant rival "$other"
  between 5 100000 "$(stat_of waiter nr_periods)" nr_periods
  between 1 1000000000 "$(stat_of waiter usage_usec)" usage_usec
  wait_for 20 holds has_waited waiter
  equal "$uuid 2097152" "$(cat $tree/tenants/waiter/gpu_memory_current)" gpu_memory_current
  grep -q "^$uuid [1-9]" $tree/tenants/waiter/gpu_usage || fail "$(cat $tree/tenants/waiter/gpu_usage)"
  echo "$uuid 3M" >$tree/tenants/waiter/gpu_memory_max
  equal "$uuid 3145728" "$(cat $tree/tenants/waiter/gpu_memory_max)" gpu_memory_max
  echo waiter >$tree/remove
  echo rival >$tree/remove
}
stat_of() { awk -v key="$2" '$1 == key { print $2 }' "$tree/tenants/$1/stat"; }
throttled_at_least() { between "$2" 1000000 "$(stat_of "$1" nr_throttled)" nr_throttled; }
has_waited() {
  grep -qE '^some avg10=[0-9]*[1-9][0-9]*\.' "$tree/tenants/$1/pressure" ||
    fail "$(cat "$tree/tenants/$1/pressure")"
}

test_ACapOfOneGpuByItsUuidHolds() {
  local uuid=GPU-00000000-0000-4000-8000-000000001b00
  agent_up
  busy_client
  tenant narrow "$started"
  wait_for 5 is_known "$started"
  echo "$uuid 30000 100000" >$tree/tenants/narrow/gpu_max
  equal "$uuid 30000 100000" "$(cat $tree/tenants/narrow/gpu_max)" gpu_max
  has_true_share "$started" 10 40
  echo "$uuid max" >$tree/tenants/narrow/gpu_max
  wait_for 5 is_thawed "$started"
  has_true_share "$started" 90 100
  echo narrow >$tree/remove
}

test_ATenantIsFrozenBySysfsAndByCommand() {
  agent_up
  busy_client
  tenant cold "$started"
  wait_for 5 is_known "$started"
  echo 1 >$tree/tenants/cold/freeze
  wait_for 5 is_frozen "$started"
  gpushare thaw cold
  wait_for 5 is_thawed "$started"
  equal 0 "$(attribute cold freeze)" freeze
  gpushare freeze cold
  wait_for 5 is_frozen "$started"
  equal 1 "$(attribute cold freeze)" freeze
  echo 0 >$tree/tenants/cold/freeze
  wait_for 5 is_thawed "$started"
  echo cold >$tree/remove
}

test_AModuleThatWasLoadedAgainIsToldOfTheTenants() {
  agent_up
  busy_client
  gpushare set --create evening weight=250 max=40%
  wait_for 5 gpushare attach "$started" evening
  gpushare freeze evening
  agent_down
  unload_module
  load_module
  [ ! -e $tree/tenants/evening ] || fail "the module knows it by itself"
  agent_up
  equal "250 40000 100000 1" "$(echo $(cd $tree/tenants/evening && cat weight max freeze))" "settings"
  grep -qx "$started" $tree/tenants/evening/procs || fail "its process is elsewhere"
  wait_for 5 is_frozen "$started"
  gpushare thaw evening
  wait_for 5 is_thawed "$started"
  # What an operator removed while no agent was there stays removed, if the module stayed.
  agent_down
  echo evening >$tree/remove
  agent_up
  [ ! -e $tree/tenants/evening ] || fail "it came back"
}

test_SettingsSurviveTheAgent() {
  agent_up
  echo stays >$tree/create
  echo 42 >$tree/tenants/stays/weight
  agent_down
  equal none "$(cat $tree/agent)" agent
  agent_up
  equal 42 "$(tenant_value stays weight)" "weight in gpushare status"
  echo stays >$tree/remove
}

test_ACapWrittenToSysfsHolds() {
  agent_up
  busy_client
  tenant capped "$started"
  echo "30000 100000" >$tree/tenants/capped/max
  # On a busy machine the agent thaws late, and freezes late what it then charges: without a cap it would be 100.
  has_true_share "$started" 10 40 4
  wait_for 5 holds attribute_between capped throttled_us 100000 100000000
  wait_for 5 holds attribute_between capped freezes 3 100000
  echo capped >$tree/remove
  wait_for 5 is_thawed "$started"
}

# Who is in no tenant by name or rule is in default, which can be closed as any other.
test_WorkThatOutlivesItsProgramIsHeld() {
  agent_up
  echo outlived >$tree/create
  echo "30000 100000" >$tree/tenants/outlived/max
  expect_the_outlived_is_held outlived
  wait_for 5 sh -c "echo outlived >$tree/remove"
}

test_ACapOfTheDefaultTenantHolds() {
  agent_up
  busy_client
  echo "20000 100000" >$tree/tenants/default/max
  has_true_share "$started" 5 24 4
  echo max >$tree/tenants/default/max
  wait_for 5 is_thawed "$started"
}

test_TheAgentMayWhatATenantMayNot() {
  local victim
  agent_up
  busy_client && victim=$started
  tenant cheats
  sh -c "echo \$\$ >$tree/tenants/cheats/procs; exec rm_client open slice=90000 freeze=$victim" |
    grep -c 0x1b | grep -qx 2 || fail "a cheat was let through"
  wait_for 5 holds attribute_between cheats controls_refused 2 2
  wait_for 5 gpushare freeze "$victim"
  wait_for 5 is_frozen "$victim"
  gpushare thaw "$victim"
  wait_for 5 is_thawed "$victim"
  echo cheats >$tree/remove
}

test_MemoryOverTheLimitIsRefusedAndComesBack() {
  agent_up
  tenant small
  gpushare set small memory_max=64M
  equal 0x51 "$(sh -c "echo \$\$ >$tree/tenants/small/procs; exec rm_client open alloc=65" |
    awk '/alloc/ { print $2 }')" status
  equal "1 0" "$(attribute small memory_refused) $(attribute small memory_current)" \
    "memory_refused and memory_current"
  echo small >$tree/remove
}

test_AKilledAgentsTenantsAreThawed() {
  agent_up
  busy_client
  wait_for 5 gpushare freeze "$started"
  kill_agent_and_expect_a_thaw "$started"
  wait_for 5 has_state "$started" running
  equal "$(agent_pid)" "$(cat $tree/agent)" "agent in sysfs"
}

test_RecoverIsAllowedWhenBothWereKilled() {
  local both
  agent_up
  busy_client
  wait_for 5 gpushare freeze "$started"
  wait_for 5 is_frozen "$started"
  both="$(cat /tmp/agent.pid) $(agent_pid)"
  # They are stopped first, because the one that outlives the other for a moment would thaw.
  # shellcheck disable=SC2086
  kill -STOP $both && kill -9 $both
  rm /tmp/agent.pid
  wait_for 5 grep -q none $tree/agent
  is_frozen "$started" || fail "somebody thawed: this test shows nothing"
  equal 0x1b "$(cheat)" "a tenant's control while there is no agent"
  gpushared --recover
  equal 0 "$(frozen_total)" "frozen channels"
}

# Starts some programs and writes what the agent knows of them into a file.
# Not the command line: it is read from /proc either way, and left out when that takes longer than 20 ms,
# which it may on a busy machine.
seen() { # PID...: of each, what the agent says of it; all by one question
  local pid
  parts >/tmp/parts
  for pid in "$@"; do
    grep "^{\"slot\":[0-9]*,\"pid\":$pid," /tmp/parts |
      grep -oE '"(uid|gpu|command|note|memory_bytes|is_late_attach)":[^,]*' ||
      echo "not listed"
  done
}
saw_as_before() { # PID...: and all but the one that has nothing on the GPU any more
  mv /tmp/seen /tmp/seen.before 2>/dev/null || true
  seen "$@" >/tmp/seen
  [ "$(grep -c "not listed" /tmp/seen)" = 1 ] && cmp -s /tmp/seen /tmp/seen.before
}
# They rest once they have memory and a group to be seen by: on a slow machine an agent with nothing to
# share out leaves the time to the others.
scene() { # FILE
  local pids=
  busy_client alloc=16 alloc21=8 heap=2 range=1 xfer=3 dup free idle && pids=$started
  busy_client idle alloc=5 free && pids="$pids $started"
  busy_client alloc=7 end && pids="$pids $started"
  rm -f /tmp/alices  # from the part before
  : >/tmp/alice && chmod 666 /tmp/alice
  su alice -c 'echo $$ >/tmp/alice; exec rm_client open busy alloc=9 idle echo=ready wait' >/tmp/alices 2>&1 &
  wait_for 10 grep -q ready /tmp/alices
  pids="$pids $(cat /tmp/alice)"
  rm -f /tmp/seen /tmp/seen.before
  # shellcheck disable=SC2086
  (wait_for 10 saw_as_before $pids) || fail "it sees, twice: $(cat /tmp/seen.before /tmp/seen)"
  mv /tmp/seen "$1"
  # shellcheck disable=SC2086
  end $pids
}
test_TheModuleTellsTheAgentWhatTheProbeTells() {
  agent_down
  agent_up
  scene /tmp/by-module
  agent_down
  unload_module
  agent_up
  scene /tmp/by-probe
  agent_down
  load_module
  grep -q 'memory_bytes":' /tmp/by-module || fail "nothing was seen"
  diff /tmp/by-module /tmp/by-probe
}

is_in() { grep -qx "$1" "$tree/tenants/$2/procs"; } # PID TENANT
test_AModuleThatComesLaterTakesOverTenantsAndPrograms() {
  local old
  agent_down
  unload_module
  agent_up
  gpushare set --create late weight=70
  busy_client
  wait_for 5 gpushare attach "$started" late
  gpushare freeze late
  wait_for 5 is_frozen "$started"
  old=$(agent_pid)
  load_module
  wait_for 10 has_another_agent "$old"
  wait_for 5 grep -qx "$(agent_pid)" $tree/agent
  wait_for 5 is_in "$started" late
  equal 70 "$(attribute late weight)" "weight in sysfs"
  wait_for 5 is_frozen "$started"
  gpushare thaw late
  wait_for 5 is_thawed "$started"
  gpushare doctor >/tmp/doctor || fail "$(cat /tmp/doctor)"
  grep -q 'kernel module.*hooked nvidia' /tmp/doctor || fail "$(cat /tmp/doctor)"
  # Sysfs decides from now on: what is removed from it does not come back.
  agent_down
  echo late >$tree/remove
  agent_up
  [ ! -e $tree/tenants/late ] || fail "a removed tenant came back"
}

test_ADrainedModuleLeavesTheProbe() {
  agent_up
  echo 1 >$tree/drain
  busy_client
  wait_for 10 has_state "$started" running
  echo 0 >$tree/drain
  wait_for 5 has_driver_state hooked
  busy_client
  wait_for 10 has_state "$started" running
  equal 0x1b "$(cheat)" "a cheat after the drain"
}

test_TheModuleGoesWhenTheAgentHasGone() {
  agent_up
  ! rmmod gpushare 2>/dev/null || fail "it went under the agent"
  agent_down
  unload_module
  agent_up
  busy_client
  wait_for 5 has_state "$started" running
  agent_down
}

run_tests Together
