# SPDX-License-Identifier: Apache-2.0
# /sys/kernel/gpushare without a driver: every attribute's values and refusals, tenants, processes.
. /test/lib.sh
load_module
cd $tree

# refuses FILE REASON VALUE...: no value is taken, and the file shows what it showed.
refuses() {
  local file=$1 reason=$2 before value
  shift 2
  before=$(cat "$file")
  for value in "$@"; do
    ! echo "$value" >"$file" 2>/tmp/why || fail "$file took '$value'"
    grep -q "$reason" /tmp/why || fail "$file refused '$value' by $(cat /tmp/why), want $reason"
    equal "$before" "$(cat "$file")" "$file after '$value'"
  done
}
# takes FILE VALUE [SHOWN]: the value is taken, and the file shows it, or SHOWN.
takes() {
  echo "$2" >"$1" || fail "$1 refused '$2'"
  equal "${3-$2}" "$(cat "$1")" "$1 after '$2'"
}
# The error messages of the C library.
invalid="Invalid argument"
outside="Numerical result out of range"

test_TheDefaultTenantHasTheDefaults() {
  cd tenants/default
  equal "100 max 100000 normal max max 0 0 0 auto auto 0 false" \
    "$(echo $(cat weight max priority memory_max sm_percent slo_us length_us iterations phase gang \
      sm_min sm_shown))" \
    settings
  equal "0 0 0 0 0 0 0 0" "$(echo $(cat gpu_time_us throttled_us freezes turns held_us memory_current \
    memory_refused controls_refused))" counters
  equal "" "$(cat procs match_cgroup match_uid)" "processes and rules"
}

test_WeightIsANumberFrom1To10000() {
  takes tenants/default/weight 1
  takes tenants/default/weight 10000
  refuses tenants/default/weight "$outside" 0 10001 18446744073709551616
  refuses tenants/default/weight "$invalid" "" x 1x -1 "1 2" +1 0x10
  takes tenants/default/weight 100
}

test_MaxIsQuotaAndPeriod() {
  takes tenants/default/max "30000 100000"
  takes tenants/default/max "1000 1000"
  takes tenants/default/max "1000000 1000000"
  refuses tenants/default/max "$outside" "999 1000" "100001 100000" "1000 999" "1000 1000001"
  refuses tenants/default/max "$invalid" "" "30%" "1000 1000 1000" "maximum" "1000 x" " 1000 2000"
  takes tenants/default/max "max 100000"
  takes tenants/default/max max "max 100000"
}

test_PriorityIsOneOfThreeWords() {
  takes tenants/default/priority idle
  takes tenants/default/priority high
  takes tenants/default/priority normal
  refuses tenants/default/priority "$invalid" "" Idle low 1 "idle high"
}

test_MemoryMaxIsBytesWithASuffix() {
  takes tenants/default/memory_max 1
  takes tenants/default/memory_max 8G 8589934592
  takes tenants/default/memory_max 512m 536870912
  refuses tenants/default/memory_max "$outside" 0 0G 18446744073709551616 16777216T
  refuses tenants/default/memory_max "$invalid" "" G 8GB -1 "8 G" 1.5G
  takes tenants/default/memory_max max
}

test_SmPercentAndSloHaveTheirRanges() {
  takes tenants/default/sm_percent 1
  takes tenants/default/sm_percent 100
  refuses tenants/default/sm_percent "$outside" 0 101
  refuses tenants/default/sm_percent "$invalid" "" 50%
  takes tenants/default/sm_percent max
  takes tenants/default/slo_us 1000000000
  refuses tenants/default/slo_us "$outside" 1000000001
  refuses tenants/default/slo_us "$invalid" "" -1 2ms
  takes tenants/default/slo_us 0
}

test_LengthAndIterationsHaveTheirRanges() {
  local file
  for file in length_us iterations; do
    takes "tenants/default/$file" 1000000000000
    refuses "tenants/default/$file" "$outside" 1000000000001 18446744073709551616
    refuses "tenants/default/$file" "$invalid" "" -1 10m
    takes "tenants/default/$file" 0
  done
}

test_PhaseIsOneOfItsNames() {
  local phase
  for phase in prefill decode none auto; do
    takes tenants/default/phase "$phase"
  done
  refuses tenants/default/phase "$invalid" "" Decode dec 1 "prefill decode"
}

test_GangIsOneOfItsNames() {
  local gang
  for gang in true false auto; do
    takes tenants/default/gang "$gang"
  done
  refuses tenants/default/gang "$invalid" "" True yes 1 "true false"
}

test_SmMinAndSmShownAreTakenInTheirRanges() {
  takes tenants/default/sm_min 100
  refuses tenants/default/sm_min "$outside" 101
  refuses tenants/default/sm_min "$invalid" "" 50% max
  takes tenants/default/sm_min 0
  takes tenants/default/sm_shown true
  refuses tenants/default/sm_shown "$invalid" "" True yes 1
  takes tenants/default/sm_shown false
}

test_ContextsMaxLimitsWhatIsMadeFromThenOn() {
  load_driver
  takes tenants/default/contexts_max 1000000
  takes tenants/default/contexts_max 0
  refuses tenants/default/contexts_max "$outside" 1000001
  refuses tenants/default/contexts_max "$invalid" "" -1 two
  takes tenants/default/contexts_max max
  client open echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal 1 "$(cat tenants/default/contexts_current)" contexts_current
  echo 1 >tenants/default/contexts_max
  ! rm_client open 2>/tmp/why || fail "a second context was made"
  grep -q "group: status 81" /tmp/why || fail "$(cat /tmp/why)"
  echo other >create # a process takes its context along
  echo "$started" >tenants/other/procs
  equal "0 1" "$(echo $(cat tenants/default/contexts_current tenants/other/contexts_current))" "contexts of both"
  rm_client open
  end "$started"
  wait_for 5 grep -qx 0 tenants/other/contexts_current
  echo other >remove
  grep -qx "contexts_max 1" tenants/default/events || fail "$(cat tenants/default/events)"
  echo max >tenants/default/contexts_max
}

test_FreezeIsASwitch() {
  takes tenants/default/freeze 1
  refuses tenants/default/freeze "$outside" 2
  refuses tenants/default/freeze "$invalid" "" yes -1
  takes tenants/default/freeze 0
}

test_TimeOfSingleGpusIsLimitedByTheirNames() {
  load_driver
  echo fleet >create
  equal "" "$(cat tenants/fleet/gpu_max)" "what is limited at first"
  takes tenants/fleet/gpu_max "gpu3 30000 100000"
  takes tenants/fleet/gpu_max "gpu0 5000" "gpu0 5000 100000
gpu3 30000 100000"
  takes tenants/fleet/gpu_max "gpu3 20000 200000" "gpu0 5000 100000
gpu3 20000 200000"
  takes tenants/fleet/gpu_max "gpu3 40000" "gpu0 5000 100000
gpu3 40000 200000"
  takes tenants/fleet/gpu_max "gpu3 max" "gpu0 5000 100000"
  refuses tenants/fleet/gpu_max "$invalid" "" gpu0 "gpu0 much" "30000 gpu0" "gpu0  5000" "gpu0 5000 100000 1"
  refuses tenants/fleet/gpu_max "$outside" "gpu0 999" "gpu0 200000 100000" "gpu0 5000 999"
  refuses tenants/fleet/gpu_max "No such device" "gpu32 max" "GPU-1 5000"
  equal "max 100000" "$(cat tenants/fleet/max)" "the limit of every GPU"
  echo fleet >remove
}

test_MemoryOfSingleGpusIsLimitedByTheirNames() {
  load_driver
  echo fleet >create
  cd tenants/fleet
  equal "" "$(cat gpu_memory_max gpu_memory_current gpu_usage)" "what there is of no GPU"
  takes gpu_memory_max "gpu3 1G" "gpu3 1073741824"
  takes gpu_memory_max "gpu0 2M" "gpu0 2097152
gpu3 1073741824"
  refuses gpu_memory_max "$invalid" "" gpu0 "gpu0 much" "1M gpu0" "gpu0  1M"
  refuses gpu_memory_max "$outside" "gpu0 0"
  refuses gpu_memory_max "No such device" "gpu32 1M" "GPU-1 1M"
  echo "gpu3 max" >gpu_memory_max
  sh -c "echo \$\$ >procs; exec rm_client open alloc=1 alloc=2 wait" >/tmp/held &
  wait_for 5 grep -q alloc=2 /tmp/held
  grep -qx 'alloc=1 0x0' /tmp/held || fail "$(cat /tmp/held)"
  grep -qx 'alloc=2 0x51' /tmp/held || fail "it may hold more than its limit there: $(cat /tmp/held)"
  equal "gpu0 1048576" "$(cat gpu_memory_current)" gpu_memory_current
  kill $!
  echo fleet >$tree/remove
}

test_EventsAndThePeakTellWhatWas() {
  load_driver
  echo fresh >create
  equal "memory_max 0 contexts_max 0 controls 0 freezes 0" "$(echo $(cat tenants/fresh/events))" events
  echo 64M >tenants/fresh/memory_max
  sh -c 'echo $$ >tenants/fresh/procs; exec rm_client open alloc=48 free alloc=16 alloc=64 realtime' >/dev/null
  equal "memory_max 1 contexts_max 0 controls 1 freezes 0" "$(echo $(cat tenants/fresh/events))" events
  equal $((48 << 20)) "$(cat tenants/fresh/memory_peak)" memory_peak
  equal 0 "$(cat tenants/fresh/memory_current)" memory_current
  echo fresh >remove
}

test_RulesCanBeSetAndTakenAway() {
  takes tenants/default/match_cgroup "/user.slice/*"
  refuses tenants/default/match_cgroup "$invalid" "user.slice"
  takes tenants/default/match_cgroup ""
  takes tenants/default/match_uid 1000
  refuses tenants/default/match_uid "$outside" 4294967295
  refuses tenants/default/match_uid "$invalid" alice -1
  takes tenants/default/match_uid ""
}

test_WhatIsReadOnlyCannotBeWritten() {
  local file
  for file in version interface driver agent policy generation tenants/default/gpu_time_us \
    tenants/default/share_permille tenants/default/throttled_us tenants/default/freezes \
    tenants/default/turns tenants/default/held_us \
    tenants/default/memory_current tenants/default/memory_refused tenants/default/memory_peak \
    tenants/default/contexts_current tenants/default/events tenants/default/stat tenants/default/pressure \
    tenants/default/gpu_memory_current tenants/default/gpu_usage instance \
    tenants/default/controls_refused; do
    ! (echo 1 >$file) 2>/dev/null || fail "$file took a value"
  done
  ! cat create 2>/dev/null || fail "create can be read"
  ! cat remove 2>/dev/null || fail "remove can be read"
}

# name_is_refused FILE REASON NAME
name_is_refused() {
  ! echo "$3" >"$1" 2>/tmp/why || fail "$1 took '$3'"
  grep -q "$2" /tmp/why || fail "$1 refused '$3' by $(cat /tmp/why), want $2"
}
test_NamesOfTenants() {
  local name long=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  for name in a web-1 A_b.c 0 $long; do
    echo "$name" >create
    equal 100 "$(cat "tenants/$name/weight")" "weight of $name"
    name_is_refused create "File exists" "$name"
    echo "$name" >remove
    [ ! -e "tenants/$name" ] || fail "$name is still there"
    name_is_refused remove "No such file" "$name"
  done
  for name in "" . .. .a -a a//b a/ "a b" ä "${long}a"; do
    name_is_refused create "$invalid" "$name"
  done
  name_is_refused create "File exists" default
  name_is_refused remove "busy" default
}

test_AProcessIsInOneTenant() {
  local pid
  start /tmp/sleep.log sleep 1000
  pid=$started
  echo one >create
  echo two >create
  echo "$pid" >tenants/one/procs
  equal "$pid" "$(cat tenants/one/procs)" "procs of one"
  echo "$pid" >tenants/two/procs
  equal "" "$(cat tenants/one/procs)" "procs of one, after the move"
  equal "$pid" "$(cat tenants/two/procs)" "procs of two"
  echo two >remove
  equal "$pid" "$(cat tenants/default/procs)" "procs of default, after two was removed"
  end "$pid"
  wait_for 5 is_gone "$pid"
  equal "" "$(cat tenants/default/procs)" "procs of default, after its end"
  refuses tenants/one/procs "$invalid" "" x "1 2" -1
  refuses tenants/one/procs "$outside" 0 4294967296
  refuses tenants/one/procs "No such process" 999999
  echo one >remove
}

test_AnOwnerMayManageItsTenantOnly() {
  echo hers >create
  chown 1000 tenants/hers/weight tenants/hers/procs
  su alice -c "echo 300 >$tree/tenants/hers/weight"
  equal 300 "$(cat tenants/hers/weight)" "weight by alice"
  ! su alice -c "echo 300 >$tree/tenants/default/weight" 2>/dev/null || fail "default's weight, too"
  ! su alice -c "echo mine >$tree/create" 2>/dev/null || fail "alice made a tenant"
  ! su alice -c "cat /dev/gpushare" 2>/dev/null || fail "alice opened the agent's door"
  chown 0:998 tenants/hers/priority
  chmod g+w tenants/hers/priority
  su bob -c "echo idle >$tree/tenants/hers/priority"
  equal idle "$(cat tenants/hers/priority)" "priority by bob, who is in group gpushare"
  echo hers >remove
}

test_ThousandTenantsComeAndGo() {
  local i=0
  while [ $i -lt 1000 ]; do
    echo t$i >create
    i=$((i + 1))
  done
  equal 1001 "$(ls tenants | wc -l)" tenants
  takes tenants/t999/weight 7
  while [ $i -gt 0 ]; do
    i=$((i - 1))
    echo t$i >remove
  done
  equal default "$(ls tenants)" tenants
}

test_ChangesAreNotified() {
  local before
  before=$(cat generation)
  echo 200 >tenants/default/weight
  between $((before + 1)) 1000000000 "$(cat generation)" generation
  echo 100 >tenants/default/weight
}

test_TheAgentsDoor() {
  start /tmp/door.log door register policy=fair gpu=0 gpu=3 publish=default publish=nobody again \
    echo=there wait
  wait_for 5 grep -q there /tmp/door.log
  equal "open ok register ok policy=fair ok gpu=0 ok gpu=3 ok publish=default ok publish=nobody errno=2 again errno=16 there" \
    "$(echo $(cat /tmp/door.log))" answers
  equal "$started fair" "$(cat agent) $(cat policy)" "agent and policy"
  equal "0 3" "$(echo $(ls gpus))" gpus
  equal "GPU-1 132 1073741824 time-slicing" \
    "$(echo $(cd gpus/3 && cat uuid sm_count memory_bytes sharing))" "a gpu"
  equal "12000000 5000000 3 7 4000000 250" "$(echo $(cd tenants/default &&
    cat gpu_time_us throttled_us freezes turns held_us share_permille))" "published usage"
  end "$started"
  wait_for 5 is_gone "$started"
  wait_for 5 grep -q none agent
  equal "none" "$(cat policy)" "policy without an agent"
  equal "" "$(ls gpus)" "gpus without an agent"
}

test_TheDoorRefusesWhatItDoesNotKnow() {
  equal "" "$(door bad | grep -v -e '^open ok' -e 'errno=22$' -e '^unknown errno=25' || true)" \
    "bad arguments"
  equal 10 "$(door bad | grep -c errno=)" "bad arguments, refused"
  equal 5 "$(door wrong-maps | grep -c errno=)" "wrong mappings, refused"
}

# "documented" has the What: lines, and "present" the live tree with its names made general.
test_EveryAttributeIsDocumentedAndEveryDocumentedOneIsThere() {
  [ -e /test/sysfs-kernel-gpushare ] || skip "the module has no ABI document"
  echo probe >create
  start /tmp/door.log door gpu=0 echo=there wait
  wait_for 5 grep -q there /tmp/door.log
  sed -n 's/^What:[[:space:]]*//p' /test/sysfs-kernel-gpushare | sed 's,/$,,' | sort >/tmp/documented
  find $tree -type f | sed -e 's,/tenants/[^/]*/,/tenants/<name>/,' -e 's,/gpus/[^/]*/,/gpus/<n>/,' |
    sort -u >/tmp/present
  while read -r path; do
    grep -qxF "$path" /tmp/documented || echo "not documented: $path"
  done </tmp/present >/tmp/missing
  while read -r path; do
    grep -qxF "$path" /tmp/present || [ "${path%>}" != "$path" ] || [ -d "$path" ] ||
      echo "not there: $path"
  done </tmp/documented >>/tmp/missing
  cat /tmp/missing
  [ ! -s /tmp/missing ]
  echo probe >remove
}

run_tests Sysfs
