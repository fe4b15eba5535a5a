# SPDX-License-Identifier: Apache-2.0
# Ways around what gpushare.ko watches: other files, other processes, other names.
. /test/lib.sh
load_driver
load_module

status_of() { awk -v word="$1" 'index($1, word) == 1 { print $2; exit }'; } # WORD
has_no_memory() { [ "$(attribute "$1" memory_current)" = 0 ]; }
counts_what_the_driver_gave() { # TENANT
  equal "$(video_memory_used)" "$(attribute "$1" memory_current)" memory_current
}

is_in() { grep -qx "$1" "$tree/tenants/$2/procs"; } # PID TENANT

test_AClientOnALinkedControlFileIsNotMade() {
  tenant linked
  client_of linked linked=64 linked=64 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  counts_what_the_driver_gave linked
  equal 0x1b "$(answer_of "$started" linked=64)" status
  end "$started"
  wait_for 5 has_no_memory linked
  echo linked >$tree/remove
}

test_MemoryByAnotherFileStaysCountedWhenThatIsClosed() {
  client open linked-child=32 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" linked-child=32)" "the child's memory"
  equal $((32 << 20)) "$(video_memory_used)" "video memory"
  counts_what_the_driver_gave default
  end "$started"
  wait_for 5 has_no_memory default
}

test_KernelsMustLeaveTheGpuBeforeTheyEnd() {
  rm_client open preemption=2 preemption=1 preemption=0 >/tmp/modes
  equal "0x0 0x0 0x1b" "$(echo $(awk '/preemption/ { print $2 }' /tmp/modes))" statuses
}

# In serialized parameters the module cannot see which GPU a device is on, nor that a group is a context.
test_NoDeviceOrGroupIsMadeByParametersThatCannotBeRead() {
  rm_client open serialized=device serialized=group >/tmp/serialized
  equal "0x1b 0x1b" "$(echo $(awk '/serialized/ { print $2 }' /tmp/serialized))" statuses
}

test_ASecondNameSchedulesNoGroupAgain() {
  equal 0x1b "$(rm_client open schedule-dup | status_of schedule-dup)" status
}

are_held_by() { # PROGRAM
  local programs pid
  programs=$(for pid in $(holders); do cat "/proc/$pid/comm"; done)
  equal "$1" "$programs" "the programs that have a control file open"
}
# outlives PROGRAM WORD...: of a client that ends or becomes another program by these words the files are kept by PROGRAM.
# Its memory is its tenant's until they are closed, and until then it is not reported as closed.
outlives() {
  local program=$1 door pid
  shift
  rm -f /tmp/look /tmp/look-again
  start /tmp/door door register echo=there until=/tmp/look events until=/tmp/look-again events wait
  door=$started
  wait_for 5 grep -q there /tmp/door
  tenant outlived
  client_of outlived alloc=48 echo=made "$@"
  pid=$started
  wait_for 5 grep -q made "/tmp/client.$pid"
  wait_for 5 are_held_by "$program"
  equal $((48 << 20)) "$(video_memory_used)" "video memory"
  counts_what_the_driver_gave outlived
  sleep 0.5
  : >/tmp/look
  wait_for 5 grep -q lost /tmp/door
  grep -q "event client pid=$pid" /tmp/door || fail "$(cat /tmp/door)"
  ! grep "event closed pid=$pid" /tmp/door || fail "its work goes on"
  end $(holders)
  wait_for 5 has_no_memory outlived
  : >/tmp/look-again
  wait_for 5 grep -q "event closed pid=$pid" /tmp/door
  end "$door"
  echo outlived >$tree/remove
}
test_WhatIsLeftOpenStaysCountedAndIsNotReportedAsClosed() {
  outlives rm_client leave-open
}
test_WhatAnotherProgramKeepsByExecStaysCountedAndIsNotReportedAsClosed() {
  outlives sleep exec-open
  outlives sleep go-on-in-child exec-open
}

# The other process is of another tenant, which pays for what it makes itself, and it may do no more with these files
# than with its own.
test_WhatIsSentToAnotherProcessStaysCountedAndOpensNothing() {
  local taker
  rm -f /tmp/files /tmp/go
  tenant giver
  tenant taker
  echo 8M >$tree/tenants/taker/memory_max
  client_of taker receive-at=/tmp/files echo=received until=/tmp/go alloc=16 alloc=4 preempt slice=2048 \
    echo=done wait
  taker=$started
  client_of giver alloc=48 send-to=/tmp/files
  wait_for 5 grep -q received "/tmp/client.$taker"
  wait_for 5 is_gone "$started"
  equal $((48 << 20)) "$(video_memory_used)" "video memory"
  counts_what_the_driver_gave giver
  equal 0 "$(attribute taker memory_current)" "what the taker has made"
  : >/tmp/go
  wait_for 5 grep -q done "/tmp/client.$taker"
  equal 0x51 "$(answer_of "$taker" alloc=16)" "more than the taker may have"
  equal 0x0 "$(answer_of "$taker" alloc=4)" "what the taker may have"
  equal $((48 << 20)) "$(attribute giver memory_current)" "what the giver had made"
  equal $((4 << 20)) "$(attribute taker memory_current)" "what the taker has made"
  equal "0x1b 0x1b" "$(answer_of "$taker" preempt) $(answer_of "$taker" slice=2048)" \
    "controls that the giver may make"
  equal 2 "$(attribute taker controls_refused)" controls_refused
  end "$taker"
  wait_for 5 has_no_memory giver
  wait_for 5 has_no_memory taker
  echo giver >$tree/remove
  echo taker >$tree/remove
}

# On a file that is older than the module a client that it does not know may be the caller's own.
test_AClientThatIsNotKnownIsNobodysOnAFileThatIs() {
  tenant strangers
  equal 0x1b "$(run_in strangers open slice-of-nobody=2048 | status_of slice-of-nobody)" status
  equal 1 "$(attribute strangers controls_refused)" controls_refused
  unload_module
  client open echo=opened until=/tmp/strange slice-of-nobody=2048 echo=done wait
  wait_for 5 grep -q opened "/tmp/client.$started"
  load_module
  : >/tmp/strange
  wait_for 5 grep -q done "/tmp/client.$started"
  [ "$(answer_of "$started" slice-of-nobody=2048)" != 0x1b ] || fail "it was refused on a file that is older"
  end "$started"
  rm -f /tmp/strange
}

# In a kernel with PREEMPT_RT children inherit when they first use the driver, if their parents still live.
inherits_at_fork() { ! grep -q PREEMPT_RT /proc/version || skip "this kernel has no memory to give while a process forks"; }
# The parent has ended, and init is the parent of its child, before that uses the driver.
test_ADaemonStaysInItsTenant() {
  inherits_at_fork
  tenant daemons
  rm -f /tmp/go /tmp/daemon
  sh -c "echo \$\$ >$tree/tenants/daemons/procs
    (setsid sh -c 'while [ ! -e /tmp/go ]; do sleep 0.1; done; rm_client open realtime >/tmp/daemon.new; mv /tmp/daemon.new /tmp/daemon' &) &
    exit 0"
  sleep 0.3
  : >/tmp/go
  wait_for 10 [ -e /tmp/daemon ]
  equal 1 "$(attribute daemons controls_refused)" controls_refused
  echo daemons >$tree/remove
}

has_members() { equal "$2" "$(wc -l <"$tree/tenants/$1/procs")" "members"; } # TENANT COUNT
test_ChildrenOfAMemberAreMembersAndLeaveNothing() {
  inherits_at_fork
  tenant many
  rm -f /tmp/forked
  sh -c "echo \$\$ >$tree/tenants/many/procs; i=0
    while [ \$i -lt 300 ]; do true | true; i=\$((i + 1)); done
    sleep 1000 & : >/tmp/forked; exec sleep 1000" &
  started=$!
  echo $started >>/tmp/pids
  wait_for 60 [ -e /tmp/forked ]
  wait_for 10 holds has_members many 2
  echo many >$tree/remove
  is_in "$started" default || fail "it is not in default"
  end $(cat $tree/tenants/default/procs)
  wait_for 10 holds has_members default 0
}

# Others can name the child before the module has been told of it. The parent stands still on one
# processor meanwhile, so this works on the other.
attach_child_of() { # PID PROCS: lets the process fork, puts the child there, lets the fork go on, and prints the child
  taskset 1 sh -c ': >/tmp/go
    until child=$(grep -l "^PPid:.$1\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3) && [ -n "$child" ]; do
      kill -0 $1 || exit 1; done
    echo $child >$2; echo 0 >/sys/module/forks/parameters/holds_forks; echo $child' sh "$1" "$2"
}
test_AChildThatIsAttachedInTheInstantOfItsForkIsInOneTenant() {
  local parent child
  insmod /test/forks.ko holds_forks=1
  tenant from
  tenant into
  rm -f /tmp/go
  client until=/tmp/go leave-open
  parent=$started
  taskset -p 2 "$parent" >/dev/null
  echo "$parent" >$tree/tenants/from/procs
  child=$(attach_child_of "$parent" $tree/tenants/into/procs)
  wait_for 15 is_gone "$parent"
  is_in "$child" into || fail "it is not where it was put"
  ! is_in "$child" from || fail "it is where its parent is, too"
  end "$child"
  wait_for 5 holds has_members into 0
  wait_for 5 holds has_members from 0
  rmmod forks
  echo from >$tree/remove
  echo into >$tree/remove
}

test_APathThatIsTooLongMatchesByItsAncestor() {
  tenant deep
  echo "/jobs/*" >$tree/tenants/deep/match_cgroup
  mkdir /sys/fs/cgroup/jobs
  rm_client deep=/sys/fs/cgroup/jobs open realtime >/dev/null
  equal 1 "$(attribute deep controls_refused)" controls_refused
  echo deep >$tree/remove
}

test_ARuleLooksAtTheHierarchiesOfV1Too() {
  mkdir -p /tmp/v1
  mount -t cgroup -o cpuacct none /tmp/v1 2>/dev/null || mount -t cgroup -o pids none /tmp/v1 || skip "this kernel has no v1"
  mkdir /tmp/v1/legacy
  tenant legacy
  echo "/legacy" >$tree/tenants/legacy/match_cgroup
  sh -c 'echo $$ >/tmp/v1/legacy/cgroup.procs; exec rm_client open realtime' >/dev/null
  equal 1 "$(attribute legacy controls_refused)" controls_refused
  echo legacy >$tree/remove
  rmdir /tmp/v1/legacy
  umount /tmp/v1
}

test_ARuleIsLookedAtAgainInAnotherCgroup() {
  tenant moved
  echo "/later" >$tree/tenants/moved/match_cgroup
  mkdir /sys/fs/cgroup/later
  client open alloc=8 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  is_in "$started" default || fail "it is not in default"
  echo "$started" >/sys/fs/cgroup/later/cgroup.procs
  wait_for 5 is_in "$started" moved
  equal $((8 << 20)) "$(attribute moved memory_current)" memory_current
  echo "$started" >/sys/fs/cgroup/cgroup.procs
  wait_for 5 is_in "$started" default
  echo "$started" >$tree/tenants/moved/procs # who is attached stays
  echo "$started" >/sys/fs/cgroup/later/cgroup.procs
  echo "$started" >/sys/fs/cgroup/cgroup.procs
  sleep 0.3
  is_in "$started" moved || fail "it has left"
  end "$started"
  wait_for 5 rmdir /sys/fs/cgroup/later
  echo moved >$tree/remove
}

# As newuidmap does with the ids of /etc/subuid, which rootless containers have.
test_ARuleByUserHoldsForTheOtherIdsThatAUserMaps() {
  local inside map
  [ -e /proc/self/ns/user ] || skip "this kernel has no user namespaces"
  tenant alices
  echo 1000 >$tree/tenants/alices/match_uid
  rm -f /tmp/mapped
  start /tmp/inside su alice -c "unshare -U sh -c 'echo inside \$\$; while [ ! -e /tmp/mapped ]; do sleep 0.1; done
    su bob -c \"rm_client open realtime\"'"
  wait_for 5 grep -q inside /tmp/inside
  inside=$(awk '/inside/ { print $2 }' /tmp/inside)
  for map in uid gid; do printf '0 1000 1\n998 100998 1\n1001 101001 1\n' >"/proc/$inside/${map}_map"; done
  : >/tmp/mapped
  wait_for 5 grep -q realtime /tmp/inside
  equal 1 "$(attribute alices controls_refused)" controls_refused
  echo alices >$tree/remove
}

# What counts is who has opened the file, not who writes to it.
test_TheOpenerOfProcsDecidesWhatMayBeAttached() {
  tenant alices
  chown 1000 $tree/tenants/alices/procs
  start /tmp/sleep.log sleep 1000
  equal errno=1 "$(rm_client "procs-as=1000:$tree/tenants/alices/procs:$started" | status_of procs-as)" \
    "root's process, by a file that alice has opened"
  su alice -c "echo $started >&3" 3>$tree/tenants/alices/procs || fail "alice by a file that root has opened"
  is_in "$started" alices || fail "it is not there"
  end "$started"
  echo alices >$tree/remove
}

test_OnlyRootMakesRemovesAndDrains() {
  local file
  for file in create remove drain; do
    chown 1000 $tree/$file
    ! su alice -c "echo x >$tree/$file" 2>/tmp/why || fail "alice wrote $file"
  done
  ! su alice -c "echo hers >$tree/create" 2>/tmp/why || fail "alice made a tenant"
  grep -q "not permitted" /tmp/why || fail "$(cat /tmp/why)"
  ! su alice -c "echo 1 >$tree/drain" 2>/tmp/why || fail "alice drained"
  grep -q "not permitted" /tmp/why || fail "$(cat /tmp/why)"
  for file in create remove drain; do chown 0 $tree/$file; done
}

test_ADrainForgetsNothing() {
  tenant kept
  echo 64M >$tree/tenants/kept/memory_max
  rm -f /tmp/go
  client_of kept alloc=48 echo=done until=/tmp/go alloc=32 schedule-dup echo=after wait
  wait_for 5 grep -q done "/tmp/client.$started"
  echo 1 >$tree/drain
  equal drained "$(cat $tree/driver)" driver
  equal 0x0 "$(cheat)" "a cheat while it is drained"
  echo 0 >$tree/drain
  equal hooked "$(driver_state)" driver
  equal $((48 << 20)) "$(attribute kept memory_current)" memory_current
  sleep 0.2
  : >/tmp/go
  wait_for 5 grep -q after "/tmp/client.$started"
  equal 0x51 "$(answer_of "$started" alloc=32)" "memory beyond the limit"
  equal 0x1b "$(cheat)" "a cheat afterwards"
  end "$started"
  wait_for 5 has_no_memory kept
  echo kept >$tree/remove
}

test_TheDefaultTenantCanBeClosed() {
  echo 32M >$tree/tenants/default/memory_max
  equal 0x51 "$(rm_client open alloc=33 | status_of alloc)" "33 MiB"
  equal 0x0 "$(rm_client open alloc=32 | status_of alloc)" "32 MiB"
  echo max >$tree/tenants/default/memory_max
}

# The driver for displays may come before the module and after it.
display_memory_is_refused() {
  local how
  for how in 0 1 2; do
    equal errno=12 "$(run_in small open display=$how | status_of display)" "way $how with a limit"
    equal 0x0 "$(rm_client open display=$how | status_of display)" "way $how without a limit"
  done
}
test_MemoryForDisplaysIsRefusedUnderALimit() {
  insmod /test/nvidia-drm.ko
  tenant small
  echo 64M >$tree/tenants/small/memory_max
  display_memory_is_refused
  equal "3 3" "$(attribute small memory_refused) $(cat /sys/module/nvidia_drm/parameters/made)" \
    "memory_refused, and how often it was made"
  unload_module
  load_module
  tenant small
  echo 64M >$tree/tenants/small/memory_max
  display_memory_is_refused
  rmmod nvidia-drm
  echo small >$tree/remove
  equal hooked "$(driver_state)" driver
}

# It maps memory by a name of its own, which keeps the memory when the program has freed it.
kept_by_uvm() { # TENANT WORD...: starts a client of the tenant that does these between files /tmp/go1, 2, ...
  local name=$1
  shift
  rm -f /tmp/go*
  [ -e /sys/module/nvidia_uvm ] || insmod /test/nvidia-uvm.ko
  tenant "$name"
  client_of $name "$@" echo=done wait
}
holds_mib() { # TENANT MIB: what the driver has given, and what is counted
  equal $(($2 << 20)) "$(video_memory_used)" "video memory"
  equal $(($2 << 20)) "$(attribute "$1" memory_current)" memory_current
}
test_MemoryThatUvmKeepsStaysCounted() {
  kept_by_uvm keeper alloc=48 uvm-map uvm-map free echo=freed until=/tmp/go1 uvm-unmap=0 echo=one \
    until=/tmp/go2 uvm-unmap=1 alloc=16 uvm-map free uvm-close echo=none alloc=8 uvm-map free
  wait_for 5 grep -q freed "/tmp/client.$started"
  holds_mib keeper 48
  : >/tmp/go1
  wait_for 5 grep -q one "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" uvm-unmap=0)" "the first mapping's end"
  holds_mib keeper 48
  : >/tmp/go2
  wait_for 5 grep -q done "/tmp/client.$started"
  holds_mib keeper 8
  end "$started"
  wait_for 5 has_no_memory keeper
  equal 0 "$(video_memory_used)" "video memory"
  echo keeper >$tree/remove
}

test_MemoryThatUvmKeepsCountsToTheLimit() {
  kept_by_uvm full
  end "$started"
  echo 64M >$tree/tenants/full/memory_max
  equal "0x0 0x0 0x0 0x51" "$(echo $(run_in full open alloc=48 uvm-map free alloc=32 | awk 'NR > 1 { print $2 }'))" statuses
  wait_for 5 has_no_memory full
  echo full >$tree/remove
}

# The handle leads to little memory when nvidia-uvm names it, and to much when RM looks.
test_AHandleThatIsSwappedWhileUvmTakesItHidesNothing() {
  [ -e /sys/module/nvidia_uvm ] || insmod /test/nvidia-uvm.ko
  echo 600 >/sys/module/nvidia/parameters/name_delay_ms
  kept_by_uvm swapper alloc=1 uvm-map-raced=32 free
  wait_for 10 grep -q done "/tmp/client.$started"
  echo 0 >/sys/module/nvidia/parameters/name_delay_ms
  equal 0x0 "$(answer_of "$started" uvm-map-raced=32)" "the mapping"
  holds_mib swapper 32
  end "$started"
  wait_for 5 has_no_memory swapper
  echo swapper >$tree/remove
}

# A file keeps what was put into it, and so does who takes it out.
test_MemoryInAFileStaysCounted() {
  local place
  tenant carrier
  for place in 0 3; do
    rm -f /tmp/go*
    client_of carrier alloc=48 export=$place free echo=freed until=/tmp/go1 import=$place unexport echo=imported \
      until=/tmp/go2 free echo=done wait
    wait_for 5 grep -q freed "/tmp/client.$started"
    equal "0x0 0x0" "$(answer_of "$started" export=$place) $(answer_of "$started" free)" "by place $place"
    holds_mib carrier 48
    : >/tmp/go1
    wait_for 5 grep -q imported "/tmp/client.$started"
    equal 0x0 "$(answer_of "$started" import=$place)" "import by place $place"
    holds_mib carrier 48
    : >/tmp/go2
    wait_for 5 grep -q done "/tmp/client.$started"
    holds_mib carrier 0
    end "$started"
  done
  rm -f /tmp/go*
  client_of carrier alloc=16 export=1 free alloc=8 export=1 free echo=again wait
  wait_for 5 grep -q again "/tmp/client.$started"
  holds_mib carrier 8
  end "$started"
  wait_for 5 has_no_memory carrier
  echo carrier >$tree/remove
}

# The kernel's memory for the cgroup ends in the midst of the export, when the driver has made it.
test_MemoryInAFileStaysCountedWhereTheCgroupIsFull() {
  local group=/sys/fs/cgroup/tight
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || skip "this kernel counts no memory by cgroup"
  mkdir $group
  rm -f /tmp/go*
  tenant tight
  client_of tight alloc=4 alloc=48 echo=ready until=/tmp/go1 export-many until=/tmp/go2 free echo=freed wait
  wait_for 5 grep -q ready "/tmp/client.$started"
  echo -1000 >"/proc/$started/oom_score_adj" # it is not killed for that
  echo 1 >/proc/sys/kernel/printk            # of which the kernel tells at length
  echo "$started" >$group/cgroup.procs
  echo 32768 >$group/memory.max
  : >/tmp/go1
  wait_for 10 grep -q export-many "/tmp/client.$started"
  echo max >$group/memory.max
  echo 7 >/proc/sys/kernel/printk
  : >/tmp/go2
  wait_for 5 grep -q freed "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" export-many)" "the export"
  holds_mib tight 52
  end "$started"
  wait_for 5 has_no_memory tight
  wait_for 5 rmdir $group
  echo tight >$tree/remove
}

# Twenty times, so that one meets the instant.
test_AFileThatIsSwappedInMidCallHidesNoMemory() {
  local round=0
  tenant swapped
  while [ $round -lt 20 ]; do
    rm -f /tmp/go*
    client_of swapped alloc=4 export-raced free echo=done wait
    wait_for 5 grep -q done "/tmp/client.$started"
    equal 0x0 "$(answer_of "$started" export-raced)" status
    holds_mib swapped 4
    end "$started"
    wait_for 5 has_no_memory swapped
    round=$((round + 1))
  done
  echo swapped >$tree/remove
}

# A DMA buffer keeps what was put into it.
holds_in_dma_buf() { # WORD MIB: by that word, beside 8 MIB more that are made when all else is freed
  rm -f /tmp/go*
  client_of buffers alloc=4 alloc=48 "$1" free-two alloc=8 echo=freed until=/tmp/go1 dma-buf-close echo=closed wait
  wait_for 5 grep -q freed "/tmp/client.$started"
  equal 0x0 "$(answer_of "$started" "$1")" "$1"
  holds_mib buffers $(($2 + 8))
  : >/tmp/go1
  wait_for 5 grep -q closed "/tmp/client.$started"
  wait_for 5 holds holds_mib buffers 8
  end "$started"
  wait_for 5 has_no_memory buffers
}
test_MemoryInADmaBufferStaysCounted() {
  tenant buffers
  holds_in_dma_buf dma-buf 48
  holds_in_dma_buf dma-buf-two 52
  holds_in_dma_buf dma-buf-handle 48 # what the driver took, whatever the module has read
  echo 64M >$tree/tenants/buffers/memory_max
  equal "0x0 0x51" "$(run_in buffers open alloc=48 dma-buf free alloc=32 |
    awk '/dma-buf/ { kept = $2 } /alloc=32/ { print kept, $2 }')" "a buffer, and more than is left beside it"
  wait_for 5 has_no_memory buffers
  echo buffers >$tree/remove
}

test_ADmaBufferThatIsNotMadeKeepsNothing() {
  tenant buffers
  client_of buffers alloc=48 dma-buf-half echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal 0x33 "$(answer_of "$started" dma-buf-half)" "status"
  holds_mib buffers 48
  client_of buffers alloc=4 alloc=8 dma-buf-count free-two echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal 0x33 "$(answer_of "$started" dma-buf-count)" "more than the module was told of"
  holds_mib buffers 48
  end "$started"
  killall -q -9 rm_client
  wait_for 5 has_no_memory buffers
  echo buffers >$tree/remove
}

# The buffer outlives the program, in a child that has its files.
test_ADmaBufferThatOutlivesItsProgramStaysCounted() {
  tenant buffers
  client_of buffers alloc=48 dma-buf free leave-open
  wait_for 5 is_gone "$started"
  holds_mib buffers 48
  killall -q -9 rm_client
  wait_for 5 has_no_memory buffers
  echo buffers >$tree/remove
}

# The driver takes the memory of whatever client is named.
test_NobodyPutsAnothersMemoryIntoADmaBuffer() {
  local victim
  tenant victims
  client_of victims alloc=4 alloc=8 echo=ready wait && victim=$started
  wait_for 5 grep -q ready "/tmp/client.$victim"
  equal 0x1b "$(rm_client open alloc=4 alloc=8 "foreign-dma-buf=$victim" | awk '/foreign/ { print $2 }')" named
  equal 0x33 "$(rm_client open alloc=4 alloc=8 "dma-buf-client=$victim" | awk '/client/ { print $2 }')" \
    "named in mid-call"
  equal 0x33 "$(rm_client open alloc=4 dma-buf-swapped | awk '/swapped/ { print $2 }')" "a call that the module does not see"
  end "$victim"
  wait_for 5 has_no_memory victims
  wait_for 5 has_no_memory default
  echo victims >$tree/remove
}

# What was put there while the module looked away is not counted, and goes all the same.
test_DmaBuffersComeAndGoWhileTheModuleIsDrainedOrGone() {
  rm -f /tmp/go*
  tenant buffers
  client_of buffers alloc=24 dma-buf free alloc=8 echo=kept until=/tmp/go1 dma-buf-close echo=closed until=/tmp/go2 \
    dma-buf free echo=unseen until=/tmp/go3 dma-buf-close echo=over wait
  wait_for 5 grep -q kept "/tmp/client.$started"
  holds_mib buffers 32
  echo 1 >$tree/drain
  : >/tmp/go1
  wait_for 5 grep -q closed "/tmp/client.$started"
  wait_for 5 holds holds_mib buffers 8
  : >/tmp/go2
  wait_for 5 grep -q unseen "/tmp/client.$started"
  echo 0 >$tree/drain
  equal $((8 << 20)) "$(video_memory_used)" "video memory"
  unload_module
  load_module
  : >/tmp/go3
  wait_for 5 grep -q over "/tmp/client.$started"
  equal 0 "$(video_memory_used)" "video memory"
  end "$started"
}

# What is older than the module is counted from the mapping on, on the first GPU.
test_NamesOfUvmComeAndGoWhileTheModuleIsDrainedOrGone() {
  kept_by_uvm drained alloc=24 uvm-map free alloc=8 echo=freed until=/tmp/go1 uvm-unmap=0 echo=unmapped \
    until=/tmp/go2 uvm-map free echo=older until=/tmp/go3 uvm-close
  wait_for 5 grep -q freed "/tmp/client.$started"
  holds_mib drained 32
  echo 1 >$tree/drain
  : >/tmp/go1
  wait_for 5 grep -q unmapped "/tmp/client.$started"
  echo 0 >$tree/drain
  holds_mib drained 8
  unload_module
  load_module
  tenant drained
  echo "$started" >$tree/tenants/drained/procs
  : >/tmp/go2
  wait_for 5 grep -q older "/tmp/client.$started"
  holds_mib drained 8
  : >/tmp/go3
  wait_for 5 grep -q done "/tmp/client.$started"
  holds_mib drained 0
  end "$started"
  echo drained >$tree/remove
  rmmod nvidia-uvm
}

test_FtraceCannotBeSwitchedOffUnderneath() {
  ! echo 0 >/proc/sys/kernel/ftrace_enabled 2>/dev/null || fail "it was switched off"
  echo 1 >/proc/sys/kernel/ftrace_enabled
  equal 0x1b "$(cheat)" "a cheat"
  unload_module
  echo 0 >/proc/sys/kernel/ftrace_enabled || fail "without the module it cannot be switched off"
  load_module
  equal "observing only" "$(driver_state)" driver
  grep -q ftrace_enabled $tree/driver || fail "$(cat $tree/driver)"
  equal 0x0 "$(cheat)" "a call, which nobody bars"
  echo 1 >/proc/sys/kernel/ftrace_enabled
  unload_module
  load_module
  equal hooked "$(driver_state)" driver
}

test_ADisarmedProbeIsNoticed() {
  echo 0 >/sys/kernel/debug/kprobes/enabled
  rm_client open >/dev/null
  wait_for 5 has_driver_state "observing only"
  grep -q kprobes $tree/driver || fail "$(cat $tree/driver)"
  rm_client open alloc=1 || fail "the driver is barred"
  echo 1 >/sys/kernel/debug/kprobes/enabled
  echo 1 >$tree/drain
  echo 0 >$tree/drain
  equal hooked "$(driver_state)" "driver, after a drain"
  equal 0x1b "$(cheat)" "a cheat"
}

# What the kernel frees under a reader is found by slub_debug, or by KASAN.
test_ThreadsThatEndAreAttachedWithoutHarm() {
  local round=0 worker
  tenant brief
  rm_client short-lives=200 >/tmp/lives &
  worker=$!
  echo $worker >>/tmp/pids
  while [ $round -lt 60 ] && holds kill -0 $worker; do
    for pid in $(tail -n 8 /tmp/lives); do echo "$pid" >$tree/tenants/brief/procs || true; done 2>/dev/null
    round=$((round + 1))
  done
  end $worker
  echo brief >$tree/remove
}

run_tests Escapes
