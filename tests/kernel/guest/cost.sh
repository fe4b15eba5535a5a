# SPDX-License-Identifier: Apache-2.0
# What gpushare.ko adds to a call, in instructions. QEMU runs with -icount shift=0, where an instruction
# takes one nanosecond of the guest. There are 1,000 tenants, and the caller is in one of them.
. /test/lib.sh
# What each kind of call may cost at the most, without an agent and with one, to which events are written.
# The probe where the driver enters RM takes 110 of each. For a call of no interest the rest is to find that
# out, in the hook and in the probe. "rep" counts once for every word that it writes. Where the host is busy
# the guest's interrupts add up to 40 (seen), to any of them. Of what is remembered the limits are 60 above
# what was seen on a quiet host.
limits() {
  echo "other 1 1
version 200 200
control 230 230
alloc 1400 1720
kept 1400 1730
free 950 1230
channel 1045 1360
preempt 1070 1375
object 220 220
dup 1315 1390"
}
kinds="other version control object preempt refused channel alloc free kept dup"
load_driver
echo 0 >/proc/sys/kernel/randomize_va_space # where the stack lies is worth a few instructions

# The probe is a breakpoint, which costs 200 more, until the kernel has time to make it a jump.
probe_is_a_jump() { grep -q 'rm_ioctl.*OPTIMIZED' /sys/kernel/debug/kprobes/list; }
costs() { # KIND...: prints "KIND INSTRUCTIONS" for each
  # shellcheck disable=SC2046 # words
  rm_client open $(printf 'cost=%s ' "$@") | sed -n 's/^cost=//p'
}
cost_of() { awk -v kind="$2" '$1 == kind { print $2 }' "$1"; }
added() { # FILE KIND
  echo "$(cost_of "$1" "$2") $(cost_of /tmp/without "$2")" | awk '{ printf "%.1f", $1 - $2 }'
}

test_CallsStayCheapWithAThousandTenants() {
  local i=0 kind
  # shellcheck disable=SC2086 # words
  costs $kinds >/tmp/without
  load_module
  while [ $i -lt 1000 ]; do
    echo t$i >$tree/create
    i=$((i + 1))
  done
  echo $$ >$tree/tenants/t500/procs
  wait_for 10 probe_is_a_jump
  # shellcheck disable=SC2086
  costs $kinds >/tmp/with
  start /tmp/door door register wait
  wait_for 5 grep -q 'register ok' /tmp/door
  # shellcheck disable=SC2086
  costs $kinds >/tmp/heard
  for kind in $kinds; do
    figure "instructions_of_$kind" "$(cost_of /tmp/without $kind)"
    figure "instructions_added_to_$kind" "$(added /tmp/with $kind)"
    figure "instructions_added_to_${kind}_while_heard" "$(added /tmp/heard $kind)"
    echo "cost: $kind +$(added /tmp/with $kind) instructions, +$(added /tmp/heard $kind) while an agent listens, $(cost_of /tmp/without $kind) without the module" >/dev/ttyS1
  done
  limits | while read -r kind quiet heard; do
    between -1 "$quiet" "$(added /tmp/with "$kind")" "added to $kind"
    between -1 "$heard" "$(added /tmp/heard "$kind")" "added to $kind while an agent listens"
  done
}

run_tests Cost
