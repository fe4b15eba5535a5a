# SPDX-License-Identifier: Apache-2.0
# What gpushare.ko costs a call, in instructions: run with -icount shift=0, where a nanosecond of the
# guest is one. With 1,000 tenants and the caller in one of them.
. /test/lib.sh
# Measured on 2026-11-21: 147 for a call of no interest, 189 for a query. Of these the probe where the
# driver enters RM takes 110; the rest is to tell that it is of no interest, before RM and at it.
limit=200
# Memory made and freed is two calls of interest, measured 3,400: each is copied, put into its client's
# order, pinned and looked up, an object is kept for the one and let go for the other. A program makes some
# hundred such calls at its start and hardly any later. "rep" counts once for every word that it writes.
pair_limit=3600
heard_limit=4400 # the same while an agent listens, to whom an event is written for each of the two
load_driver
echo 0 >/proc/sys/kernel/randomize_va_space # where the stack lies is worth a few instructions

costs() { # prints "KIND INSTRUCTIONS" for each kind
  rm_client open cost=other cost=version cost=control cost=alloc | sed -n 's/^cost=//p'
}
cost_of() { awk -v kind="$2" '$1 == kind { print $2 }' "$1"; }

test_CallsStayCheapWithAThousandTenants() {
  local i=0 kind added
  costs >/tmp/without
  load_module
  while [ $i -lt 1000 ]; do
    echo t$i >$tree/create
    i=$((i + 1))
  done
  echo $$ >$tree/tenants/t500/procs
  sleep 2 # until the kernel has made a jump of the probe's breakpoint, which costs 200 more
  costs >/tmp/with
  for kind in other version control alloc; do
    added=$(echo "$(cost_of /tmp/with $kind) $(cost_of /tmp/without $kind)" |
      awk '{ printf "%.1f", $1 - $2 }')
    echo "cost: $kind +$added instructions, $(cost_of /tmp/without $kind) without the module"
    echo "$kind $added" >>/tmp/added
    figure "instructions_added_to_$kind" "$added"
    figure "instructions_of_$kind" "$(cost_of /tmp/without $kind)"
  done >/dev/ttyS1
  start /tmp/door door register wait
  wait_for 5 grep -q 'register ok' /tmp/door
  rm_client open cost=alloc | sed -n 's/^cost=//p' >/tmp/heard
  added=$(echo "$(cost_of /tmp/heard alloc) $(cost_of /tmp/without alloc)" |
    awk '{ printf "%.1f", $1 - $2 }')
  echo "cost: alloc +$added instructions while an agent listens" >/dev/ttyS1
  figure instructions_added_to_alloc_while_heard "$added"
  between 0 $heard_limit "$added" "added to memory made and freed while an agent listens"
  between -1 1 "$(cost_of /tmp/added other)" "added to an ioctl that is not the driver's"
  between 0 $limit "$(cost_of /tmp/added version)" "added to a short call"
  between 0 $limit "$(cost_of /tmp/added control)" "added to a query"
  between 0 $pair_limit "$(cost_of /tmp/added alloc)" "added to memory made and freed"
}

run_tests Cost
