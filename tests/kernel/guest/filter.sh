# SPDX-License-Identifier: Apache-2.0
# What gpushare.ko refuses, to whom, and what it lets through.
. /test/lib.sh
load_driver
load_module

test_WhatACudaProgramDoesAtStartIsAllowed() {
  local before
  before=$(attribute default controls_refused)
  rm_client open busy
  equal "$before" "$(attribute default controls_refused)" controls_refused
}

test_ATenantCannotGiveItselfMoreTime() {
  client open slice=50000 interleave=2 realtime unschedule schedule echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  local word
  for word in slice=50000 interleave=2 realtime unschedule schedule; do
    equal 0x1b "$(answer_of "$started" $word)" "$word"
  done
  equal 2048 "$(slice_of "$started")" slice
}

# libcuda does this with its groups when a context ends (seen on an H200).
test_AProgramMayTakeItsOwnGroupOffTheGpu() {
  equal "0x0 0x0" "$(echo $(rm_client open busy preempt preempt | awk '/preempt/ { print $2 }'))" statuses
}

test_ATenantCannotFreezeAnother() {
  local victim
  busy_client && victim=$started
  equal 0x1b "$(rm_client open freeze="$victim" | awk '/freeze/ { print $2 }')" status
  is_thawed "$victim" || fail "it is frozen"
  rm_client open thaw="$victim" | grep -q 0x1b || fail "a thaw was let through"
}

test_EveryControlOfTheTableIsRefused() {
  local control status
  between 15 100 "$(wc -l </test/refused-controls)" "controls in the table"
  for control in $(cat /test/refused-controls); do
    status=$(rm_client open "control=$control" | awk '/control/ { print $2 }')
    equal 0x1b "$status" "control $control"
  done
}

test_RefusalsAreCountedForTheirTenant() {
  tenant cheats
  run_in cheats open realtime realtime realtime >/dev/null
  equal 3 "$(attribute cheats controls_refused)" controls_refused
  echo cheats >$tree/remove
}

test_ChildrenBelongToTheTenantOfTheirParent() {
  tenant family
  sh -c "echo \$\$ >$tree/tenants/family/procs; sh -c 'rm_client open realtime; true'; true"
  equal 1 "$(attribute family controls_refused)" controls_refused
  echo family >$tree/remove
}

test_MemoryMaxIsHeldByEveryWayToMemory() {
  local way
  tenant small
  echo 64M >$tree/tenants/small/memory_max
  for way in alloc alloc21 heap range tiled xfer; do
    equal 0x51 "$(run_in small open $way=96 | awk '/=96/ { print $2 }')" "$way of 96 MiB"
    equal 0x0 "$(run_in small open $way=64 | awk '/=64/ { print $2 }')" "$way of 64 MiB"
  done
  equal 6 "$(attribute small memory_refused)" memory_refused
  equal 0 "$(attribute small memory_current)" "memory_current when all have ended"
  echo small >$tree/remove
}

test_AskingHowMuchMemoryThereIsTakesNone() {
  tenant asks
  client_of asks heap-size echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" heap-size)" "the question"
  equal 0 "$(attribute asks memory_current)" memory_current
  end "$started"
  echo asks >$tree/remove
}

test_MemoryIsCountedOverTheTenantsProcesses() {
  tenant pair
  echo 100M >$tree/tenants/pair/memory_max
  client_of pair alloc=60 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal $((60 << 20)) "$(attribute pair memory_current)" memory_current
  equal 0x51 "$(run_in pair open alloc=60 | awk '/alloc/ { print $2 }')" "the second one's 60 MiB"
  equal 0x0 "$(run_in pair open alloc=40 | awk '/alloc/ { print $2 }')" "the second one's 40 MiB"
  end "$started"
  wait_for 5 has_no_memory pair
  echo pair >$tree/remove
}
has_no_memory() { [ "$(attribute "$1" memory_current)" = 0 ]; }

test_MemoryComesBackByFreeAndByKill() {
  tenant back
  echo 64M >$tree/tenants/back/memory_max
  equal "alloc=64 0x0 free 0x0 alloc=64 0x0" \
    "$(echo $(run_in back open alloc=64 free alloc=64 | grep -v open))" "made, freed, made again"
  client_of back alloc=64 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal $((64 << 20)) "$(attribute back memory_current)" memory_current
  kill -9 "$started"
  wait_for 5 has_no_memory back
  echo back >$tree/remove
}

test_ASecondNameKeepsMemoryCounted() {
  tenant names
  echo 100M >$tree/tenants/names/memory_max
  equal 0x51 "$(run_in names open alloc=64 dup free alloc=63 | awk '/=63/ { print $2 }')" \
    "what does not fit beside the duplicate"
  echo names >$tree/remove
}

test_ALimitBelowWhatIsHeldRefusesOnlyMore() {
  tenant late
  rm -f /tmp/go
  client_of late alloc=64 echo=done until=/tmp/go alloc=1 free alloc=1 wait
  wait_for 5 grep -q done "/tmp/client.$started"
  echo 32M >$tree/tenants/late/memory_max
  equal $((64 << 20)) "$(attribute late memory_current)" memory_current
  : >/tmp/go
  wait_for 5 grep -q 'alloc=1 0x51' "/tmp/client.$started"
  end "$started"
  echo late >$tree/remove
}

test_AMovedProcessTakesItsMemoryAlong() {
  tenant from
  tenant to
  client_of from alloc=16 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  echo "$started" >$tree/tenants/to/procs
  equal "0 $((16 << 20))" "$(attribute from memory_current) $(attribute to memory_current)" \
    "memory_current of both"
  echo to >$tree/remove
  grep -qx "$started" $tree/tenants/default/procs || fail "it is not in default"
  end "$started"
  echo from >$tree/remove
}

test_WhoHeldTheDriverBeforeTheModuleIsStillServed() {
  unload_module
  rm -f /tmp/go
  client open busy echo=ready until=/tmp/go alloc=8 slice=40000 wait
  wait_for 5 grep -q ready "/tmp/client.$started"
  load_module
  : >/tmp/go
  wait_for 5 grep -q 'slice=40000' "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" alloc=8)" "memory"
  equal 0x1b "$(answer_of "$started" slice=40000)" "a cheat"
}

# The stand-in waits between the module's look at an argument and its own, so that the write of another
# thread is sure to fall between them.
test_AnArgumentThatChangesInMidCallIsRefused() {
  echo 1 >/sys/module/nvidia/parameters/delay_ms
  rm_client open race=77777 >/tmp/race
  echo 0 >/sys/module/nvidia/parameters/delay_ms
  equal "race 2048" "$(grep race /tmp/race)" "its slice"
}

test_ASliceThatChangesInMidCallIsNotSet() {
  echo 1 >/sys/module/nvidia/parameters/params_delay_ms
  rm_client open race-slice=50000 >/tmp/race
  echo 0 >/sys/module/nvidia/parameters/params_delay_ms
  equal "race-slice 2048" "$(grep race /tmp/race)" "the longest slice"
}

# What the module has seen does not come into RM then, and that is not because its probe is disarmed.
swaps_for_what_is_not_watched() { # WORD
  echo 1 >/sys/module/nvidia/parameters/delay_ms
  rm_client open "$1"
  echo 0 >/sys/module/nvidia/parameters/delay_ms
  sleep 0.5 # the module looks into what it takes for a fault a little later
  equal hooked "$(driver_state)" "driver: $(cat $tree/driver)"
  equal 0x1b "$(cheat)" "a cheat afterwards"
}
test_AControlThatIsSwappedForAHarmlessOneDisarmsNothing() { swaps_for_what_is_not_watched race-away; }
test_ACallThatIsSwappedForOneWithoutRmDisarmsNothing() { swaps_for_what_is_not_watched race-away-wrapped; }

is_in_the_driver() { grep -q msleep "/proc/$1/wchan"; } # PID: where the stand-in delays it
waits_for_a_page() { grep -q handle_userfault "/proc/$1/wchan"; }
# The stand-in waits before it reads the argument, as it would for a page that takes long to come.
test_WhoNamesAnothersClientKeepsNobodyWaiting() {
  local victim
  rm -f /tmp/go /tmp/stall
  client open busy echo=ready until=/tmp/go alloc=8 echo=done wait
  victim=$started
  wait_for 10 grep -q ready "/tmp/client.$victim"
  client open echo=ready until=/tmp/stall "foreign-alloc=$victim" echo=refused wait
  wait_for 10 grep -q ready "/tmp/client.$started"
  echo 20000 >/sys/module/nvidia/parameters/delay_ms
  : >/tmp/stall
  wait_for 10 is_in_the_driver "$started"
  echo 0 >/sys/module/nvidia/parameters/delay_ms
  : >/tmp/go
  wait_for 5 grep -q done "/tmp/client.$victim"
  equal 0x0 "$(answer_of "$victim" alloc=8)" "memory of the one who was named"
  equal "" "$(grep refused "/tmp/client.$started" || true)" "the other's answer"
}

# counts_exactly TENANT: the tenant holds what the driver has given, and it holds some.
counts_exactly() {
  between 1 $((1 << 40)) "$(video_memory_used)" "video memory used"
  equal "$(video_memory_used)" "$(attribute "$1" memory_current)" memory_current
}
holds_only_the_duplicate() {
  equal $((64 << 20)) "$(video_memory_used)" "video memory used"
  equal $((64 << 20)) "$(attribute default memory_current)" memory_current
}
# A client duplicates from another's while the page with its argument goes away, at the given delay of
# the stand-in. The other one is not kept waiting. When the page comes back the duplicate is made after all.
duplicates_on_a_page_that_goes() { # DELAY
  local victim delay=/sys/module/nvidia/parameters/$1
  rm -f /tmp/go /tmp/stall /tmp/goes /tmp/page
  echo 1 >/sys/module/nvidia/parameters/is_shared
  client open alloc=64 echo=ready until=/tmp/go alloc=8 echo=done wait
  victim=$started
  wait_for 10 grep -q ready "/tmp/client.$victim"
  client open alloc=64 free echo=ready until=/tmp/stall page-goes "foreign-dup=$victim" echo=answered wait
  wait_for 10 grep -q ready "/tmp/client.$started"
  echo 20000 >"$delay"
  : >/tmp/stall
  wait_for 10 is_in_the_driver "$started"
  : >/tmp/goes
  wait_for 10 grep -q gone "/tmp/client.$started"
  echo 0 >"$delay"
  echo "$started" >/sys/module/nvidia/parameters/delays_ended
  wait_for 10 waits_for_a_page "$started"
  : >/tmp/go
  wait_for 5 grep -q done "/tmp/client.$victim"
  equal 0x0 "$(answer_of "$victim" alloc=8)" "memory of the one who was named"
  equal "" "$(grep answered "/tmp/client.$started" || true)" "the other's answer, without its page"
  : >/tmp/page
  wait_for 5 grep -q answered "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" "foreign-dup=$victim")" "the duplicate"
  counts_exactly default
  end "$victim"
  wait_for 5 holds holds_only_the_duplicate
  end "$started"
  wait_for 5 has_no_memory default
  echo 0 >/sys/module/nvidia/parameters/is_shared
}
test_WhoDuplicatesFromAnothersClientKeepsNobodyWaiting() { duplicates_on_a_page_that_goes delay_ms; }
test_ADuplicateWhoseAnswerCannotBeWrittenYetKeepsNobodyWaiting() { duplicates_on_a_page_that_goes answer_delay_ms; }

race_for_size() { # WORD DELAY: a race of rm_client's, and the stand-in's delay that it needs
  tenant sizes
  echo 64M >$tree/tenants/sizes/memory_max
  client_of sizes "$1" echo=done wait
  echo 1 >"/sys/module/nvidia/parameters/$2"
  wait_for 10 grep -q done "/tmp/client.$started"
  echo 0 >"/sys/module/nvidia/parameters/$2"
  counts_exactly sizes
  between 1 $((64 << 20)) "$(video_memory_used)" "video memory used"
  end "$started"
  wait_for 5 has_no_memory sizes
  echo sizes >$tree/remove
}
test_ASizeThatChangesInMidCallIsStillHeld() { race_for_size race-size=40 params_delay_ms; }
test_ASizeInTheArgumentThatChangesInMidCallIsStillHeld() { race_for_size race-heap=40 delay_ms; }

counts_in_a_race() { # WORD
  tenant early
  client open "$1" echo=done wait
  echo "$started" >$tree/tenants/early/procs
  wait_for 10 grep -q done "/tmp/client.$started"
  equal $((64 << 20)) "$(attribute early memory_current)" memory_current
  counts_exactly early
  end "$started"
  wait_for 5 has_no_memory early
  echo early >$tree/remove
}
test_MemoryOfAClientThatIsNotKnownYetIsCounted() { counts_in_a_race race-client=64; }
test_WhoNamesAClientOnAnotherFileDoesNotHideItsMemory() { counts_in_a_race race-file=64; }

# The duplicating program's own client is busy for long. The duplicate waits and holds nothing meanwhile.
test_WhoWaitsForItsOwnClientKeepsNobodyWaiting() {
  local victims="" waiting="" victim n=0
  rm -f /tmp/go /tmp/stall
  while [ $n -lt 3 ]; do # who is asked about first may depend on where a client lies in memory
    client open alloc=64 echo=ready until=/tmp/go alloc=8 echo=done wait
    victim=$started
    wait_for 10 grep -q ready "/tmp/client.$victim"
    client open alloc=64 free alloc-for=20000 echo=ready until=/tmp/stall "foreign-dup=$victim" wait
    wait_for 10 grep -q ready "/tmp/client.$started"
    victims="$victims $victim" waiting="$waiting $started"
    n=$((n + 1))
  done
  : >/tmp/stall
  for started in $waiting; do # each waits in the module: for its own client
    wait_for 10 grep -q gs_call_enter_in_order "/proc/$started/stack"
  done
  : >/tmp/go
  for victim in $victims; do
    wait_for 5 grep -q done "/tmp/client.$victim"
    equal 0x0 "$(answer_of "$victim" alloc=8)" "memory of the one who was named"
  done
}

# A program that names another's client on its own file does not make it another client.
test_ADuplicateIsCountedWhateverItsMakerNamedBefore() {
  local victim
  echo 1 >/sys/module/nvidia/parameters/is_shared
  client open alloc=64 echo=ready wait
  victim=$started
  wait_for 10 grep -q ready "/tmp/client.$victim"
  client open alloc=64 free "foreign-alloc-for=$victim" "foreign-dup=$victim" echo=answered wait
  wait_for 10 grep -q answered "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" "foreign-dup=$victim")" "the duplicate"
  end "$victim"
  wait_for 5 holds holds_only_the_duplicate # the memory that was named is charged until it is refused
  end "$started"
  wait_for 5 has_no_memory default
  echo 0 >/sys/module/nvidia/parameters/is_shared
}

test_AShortSizeOfTheParametersHidesNothing() {
  tenant short
  echo 64M >$tree/tenants/short/memory_max
  equal 0x51 "$(run_in short open alloc-short=65 | awk '/=65/ { print $2 }')" "65 MiB"
  equal 0x0 "$(run_in short open alloc-short=64 | awk '/=64/ { print $2 }')" "64 MiB"
  echo short >$tree/remove
}

# The driver leaves the status in the argument, where the program has put success.
test_WhatTheDriverDoesNotAnswerHasNotHappened() {
  tenant silent
  client_of silent alloc=16 free-gpu alloc-gpu=8 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal errno=22 "$(answer_of "$started" free-gpu)" "a free on the wrong file"
  equal errno=22 "$(answer_of "$started" alloc-gpu=8)" "memory on the wrong file"
  equal $((16 << 20)) "$(attribute silent memory_current)" memory_current
  counts_exactly silent
  end "$started"
  echo silent >$tree/remove
}

test_32BitProgramsAreHeldToo() {
  tenant old
  echo 64M >$tree/tenants/old/memory_max
  run_in old compat open interleave=2 realtime alloc=65 heap=65 alloc=64 free alloc=64 >/tmp/compat
  equal "open 0x0 interleave=2 0x1b realtime 0x1b alloc=65 0x51 heap=65 0x51 alloc=64 0x0 free 0x0 alloc=64 0x0" \
    "$(echo $(cat /tmp/compat))" "answers"
  equal 2 "$(attribute old controls_refused)" controls_refused
  wait_for 5 has_no_memory old
  echo old >$tree/remove
}

test_AProcessWithThousandsOfClientsIsCountedAndForgotten() {
  tenant many
  client_of many many=2000 wait
  wait_for 60 grep -q many= "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" many=2000)" "the last one's memory"
  equal $((2000 << 16)) "$(attribute many memory_current)" memory_current
  counts_exactly many
  echo many >$tree/remove # they move, all of them
  equal $((2000 << 16)) "$(attribute default memory_current)" "memory_current of default"
  end "$started"
  wait_for 10 has_no_memory default
}

test_TenantsComeAndGoWhileTheirProcessesWork() {
  local round=0 name first second
  client open churn=100000000
  first=$started
  client open churn=100000000
  second=$started
  while [ $round -lt 25 ]; do
    name=n$round.$((round * 7919))
    tenant "$name" "$first" "$second"
    echo 1M >"$tree/tenants/$name/memory_max"
    [ $((round % 2)) = 0 ] || echo "$first" >$tree/tenants/default/procs
    echo "$name" >$tree/remove
    round=$((round + 1))
  done
  grep -qx "$first" $tree/tenants/default/procs || fail "it is not in default"
  end "$first" "$second"
  wait_for 5 has_no_memory default
  equal 0 "$(video_memory_used)" "video memory used"
}

# Whatever a program asks for, exactly what it is given is counted.
test_RandomCallsGetNothingUncounted() {
  local seed
  tenant wild
  echo 256M >$tree/tenants/wild/memory_max
  for seed in 1 2 3; do
    sh -c "echo \$\$ >$tree/tenants/wild/procs; exec rm_fuzz $seed 15000 1" >/tmp/fuzz.$seed 2>&1 </dev/null &
    echo $! >>/tmp/pids
    wait_for 60 grep -qs done /tmp/fuzz.$seed
    between 300 1000000 "$(awk '{ print $2 }' /tmp/fuzz.$seed)" "calls that succeeded, seed $seed"
    counts_exactly wild
    end $!
    wait_for 5 has_no_memory wild
    equal 0 "$(video_memory_used)" "video memory at the end, seed $seed"
  done
  echo wild >$tree/remove
}

run_tests Filter
