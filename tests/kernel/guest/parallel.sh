# SPDX-License-Identifier: Apache-2.0
# Eight callers make and free memory at once, threads of one program and programs of their own, without
# and with the module: the times of a call, and how often a caller found a lock taken. Times mean something
# only under KVM (run.sh): elsewhere QEMU runs one processor after the other, and they are for comparison.
. /test/lib.sh
calls=${calls:-200}
tracing=/sys/kernel/tracing
load_driver

# Of mutexes and spinlocks that a caller found taken. A kernel before 5.19, or one that cannot count by
# trigger, says nothing.
contention=$tracing/events/lock/contention_begin
count_contentions() {
  mount -t tracefs none $tracing 2>/dev/null || true
  [ -e $contention/trigger ] || return 0
  echo '!hist:keys=lock_addr.sym' >$contention/trigger 2>/dev/null || true
  echo 'hist:keys=lock_addr.sym' >$contention/trigger 2>/dev/null || true
}
contentions() { # of all processes since count_contentions
  [ -e $contention/hist ] || return 0
  awk '/Hits:/ { print $2 }' $contention/hist
}
# Of those, how often it was a lock of the module that all programs share, by its name.
shared_contentions() { awk '/\[gpushare\]/ { sum += $NF } END { print sum + 0 }' $contention/hist; }

measure() { # NAME KIND: threads or processes
  local word=parallel kind hits
  [ "$2" = threads ] || word=parallel-processes
  count_contentions
  rm_client $word=8:"$calls" >/tmp/parallel
  hits=$(contentions)
  equal 2 "$(grep -c "^$word .* p50_ns" /tmp/parallel)" "lines of $1"
  if [ -n "$hits" ]; then
    figure "$1_$2_contentions" "$hits"
    figure "$1_$2_contentions_of_the_modules_shared_locks" "$(shared_contentions)"
    echo "parallel: $1, 8 $2: of $hits contentions $(shared_contentions) were of the module's shared locks" >/dev/ttyS1
  fi
  for kind in alloc free; do
    # shellcheck disable=SC2046 # words
    set -- "$1" "$2" $(awk -v kind=$kind '$2 == kind { print $6, $8, $10 }' /tmp/parallel)
    figure "$1_$2_${kind}_p50_ns" "$3"
    figure "$1_$2_${kind}_p99_ns" "$4"
    echo "parallel: $1, 8 $2: $kind p50 $3 ns, p99 $4 ns, longest $5 ns${hits:+, $hits contentions in all}" >/dev/ttyS1
    set -- "$1" "$2"
  done
}

test_ParallelCallersAreCountedToTheByte() {
  measure without threads
  measure without processes
  load_module
  echo team >$tree/create
  echo $$ >$tree/tenants/team/procs
  measure with threads
  measure with processes
  wait_for 5 has_memory team 0
  [ "$(attribute team memory_peak)" -gt 0 ] || fail "nothing was counted"
}
has_memory() { equal "$2" "$(attribute "$1" memory_current)" memory_current; }

# A limit that three of eight fit in is never passed, and in the end nothing is left.
test_ParallelCallersNeverPassALimit() {
  local most=$((3 << 20)) i
  load_driver
  load_module
  echo small >$tree/create
  echo $most >$tree/tenants/small/memory_max
  for i in 1 2 3 4 5 6 7 8; do
    start /tmp/greedy.$i sh -c "echo \$\$ >$tree/tenants/small/procs; exec rm_client open churn=$calls"
  done
  while ! is_gone "$started"; do
    between 0 $most "$(attribute small memory_current)" memory_current
  done
  for i in $(cat /tmp/pids); do wait_for 20 is_gone "$i"; done
  between $((1 << 20)) $most "$(attribute small memory_peak)" memory_peak
  wait_for 5 has_memory small 0
}

run_tests Parallel
