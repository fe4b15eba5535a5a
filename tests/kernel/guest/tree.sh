# SPDX-License-Identifier: Apache-2.0
# Tenants below tenants: limits of those above bind, and users to whom a subtree was given manage it and
# no more.
. /test/lib.sh
load_driver
load_module
cd $tree

# says WORDS COMMAND: the command fails, and its message has the words.
says() {
  ! sh -c "$2" 2>/tmp/why || fail "it went through: $2"
  grep -q "$1" /tmp/why || fail "$2: $(cat /tmp/why), want $1"
}
# holder NAME WORD...: starts a client in that tenant, with its output in /tmp/held.PID.
holder() {
  local into=$1
  shift
  rm -f /tmp/held
  start /tmp/held sh -c "echo \$\$ >$tree/tenants/$into/procs; exec rm_client open $* echo=done wait"
  wait_for 10 grep -q done /tmp/held
}
answer() { awk -v word="$1" '$1 == word { print $2 }' /tmp/held; }
removed() { echo "$1" >$tree/remove; }
is_empty() { [ "$(attribute "$1" memory_current)" = 0 ]; }

test_TenantsAreMadeBelowOthersAndRemovedFromBelow() {
  echo team >create
  echo team/a >create
  echo b >tenants/team/create
  echo b/deep >tenants/team/create
  echo team/b/deep/er >create
  for path in team/a team/b team/b/deep team/b/deep/er; do
    equal 100 "$(attribute $path weight)" "weight of $path"
  done
  says "Invalid argument" "echo team/b/deep/er/est >create"
  says "Invalid argument" "echo ../x >tenants/team/create"
  says "Invalid argument" "echo /x >create"
  says "Invalid argument" "echo team/ >create"
  says "No such file" "echo nobody/x >create"
  says "File exists" "echo a >tenants/team/create"
  says "File exists" "echo weight >tenants/team/create"
  says "File exists" "echo procs >tenants/team/create"
  says "busy" "echo team >remove"
  says "busy" "echo b/deep >tenants/team/remove"
  says "No such file" "echo c >tenants/team/remove"
  says "Permission denied" "cat tenants/team/create"
  echo deep/er >tenants/team/b/remove
  echo b/deep >tenants/team/remove
  echo team/b >remove
  echo team/a >remove
  echo team >remove
  [ ! -e tenants/team ] || fail "it is still there"
}

test_LimitsOfThoseAboveBind() {
  echo team >create
  echo a >tenants/team/create
  echo b >tenants/team/create
  echo 5M >tenants/team/memory_max
  echo 3M >tenants/team/a/memory_max
  holder team/a alloc=2 alloc=1 alloc=4
  equal "0x0 0x0 0x51" "$(answer alloc=2) $(answer alloc=1) $(answer alloc=4)" "in a, whose limit is 3 MiB"
  holder team/b alloc=2 alloc=1
  equal "0x0 0x51" "$(answer alloc=2) $(answer alloc=1)" "in b, below a limit of 5 MiB"
  equal "5242880 3145728 2097152" \
    "$(echo $(attribute team memory_current) $(attribute team/a memory_current) $(attribute team/b memory_current))" held
  equal "2 1 1" "$(echo $(attribute team memory_refused) $(attribute team/a memory_refused) \
    $(attribute team/b memory_refused))" refused
  # What moves within the team is held by it all the time.
  echo "$started" >tenants/team/a/procs
  equal "5242880 5242880 0" \
    "$(echo $(attribute team memory_current) $(attribute team/a memory_current) $(attribute team/b memory_current))" moved
  equal 5242880 "$(attribute team memory_peak)" memory_peak
  echo "$started" >tenants/default/procs
  equal "3145728 2097152" "$(echo $(attribute team memory_current) $(attribute default memory_current))" "moved out"
  says "busy" "echo a >tenants/team/remove"
  # shellcheck disable=SC2046 # words
  end $(cat /tmp/pids)
  wait_for 5 is_empty team
  wait_for 5 removed team/a
  removed team/b
  removed team
}

test_ContextsOfThoseBelowCount() {
  echo team >create
  echo a >tenants/team/create
  echo b >tenants/team/create
  echo 1 >tenants/team/contexts_max
  holder team/a
  equal "1 1 0" "$(echo $(attribute team contexts_current) $(attribute team/a contexts_current) \
    $(attribute team/b contexts_current))" contexts
  ! sh -c "echo \$\$ >$tree/tenants/team/b/procs; exec rm_client open" 2>/dev/null || fail "a second context"
  grep -qx "contexts_max 1" tenants/team/events || fail "$(cat tenants/team/events)"
  # shellcheck disable=SC2046 # words
  end $(cat /tmp/pids)
  wait_for 5 removed team/a
  wait_for 5 removed team/b
  removed team
}

# As with cgroups, what is given away is the right to make tenants below and to attach, and not the limits.
test_AUserManagesWhatIsBelow() {
  echo lab >create
  echo 4M >tenants/lab/memory_max
  chown 1000 tenants/lab/create tenants/lab/remove tenants/lab/procs
  su alice -c "echo mine >$tree/tenants/lab/create"
  [ "$(stat -c %u tenants/lab/mine/memory_max)" = 1000 ] || fail "it is not hers"
  [ "$(stat -c %u tenants/lab/mine/create)" = 1000 ] || fail "she cannot divide it"
  su alice -c "echo max >$tree/tenants/lab/mine/memory_max; echo 10000 >$tree/tenants/lab/mine/weight"
  su alice -c "echo part >$tree/tenants/lab/mine/create"
  says "Permission denied" "su alice -c 'echo max >$tree/tenants/lab/memory_max'"
  says "Permission denied" "su alice -c 'echo x >$tree/create'"
  says "Permission denied" "su bob -c 'echo x >$tree/tenants/lab/mine/create'"
  says "not permitted" "su alice -c 'echo 0 >$tree/tenants/lab/mine/match_uid'"
  says "not permitted" "su alice -c 'echo \"*\" >$tree/tenants/lab/mine/match_cgroup'"
  says "not permitted" "su alice -c 'echo $$ >$tree/tenants/lab/mine/procs'"
  echo /none >tenants/lab/mine/match_cgroup
  start /tmp/held su alice -c "echo \$\$ >$tree/tenants/lab/mine/part/procs; exec rm_client open alloc=3 alloc=2 echo=done wait"
  wait_for 10 grep -q done /tmp/held
  equal "0x0 0x51" "$(answer alloc=3) $(answer alloc=2)" "below the limit that is not hers"
  # shellcheck disable=SC2046 # words
  end $(cat /tmp/pids)
  wait_for 5 su alice -c "echo mine/part >$tree/tenants/lab/remove"
  su alice -c "echo mine >$tree/tenants/lab/remove"
  su alice -c "i=0; while echo n\$i >$tree/tenants/lab/create; do i=\$((i + 1)); done" 2>/tmp/why || true
  grep -q "No space" /tmp/why || fail "$(cat /tmp/why)"
  equal 128 "$(find tenants/lab -mindepth 1 -maxdepth 1 -type d | wc -l)" "how many she may make"
  echo admin >tenants/lab/create
  for path in tenants/lab/*/; do basename "$path" >tenants/lab/remove; done
  removed lab
}

# Who was given a tenant is held by another one all the same, if root has put a process there.
test_AUserTakesNoProcessOutOfAnotherTree() {
  echo lab >create
  echo night >tenants/lab/create
  echo held >create
  chown 1000 tenants/lab/procs tenants/lab/night/procs
  start /tmp/in su alice -c "exec sleep 1000"
  wait_for 5 grep -q '^Uid:.1000' "/proc/$started/status"
  su alice -c "echo $started >$tree/tenants/lab/procs" || fail "from where no one has put it"
  su alice -c "echo $started >$tree/tenants/lab/night/procs" || fail "within the tree"
  echo "$started" >tenants/held/procs
  says "not permitted" "su alice -c 'echo $started >$tree/tenants/lab/procs'"
  grep -qx "$started" tenants/held/procs || fail "it is not there any more"
  end "$started"
  wait_for 5 removed lab/night
  wait_for 5 removed lab
  removed held
}

# A program that runs as root for a user may print what the user likes into a file that the user has opened.
test_NoSetuidProgramWritesARuleForAUser() {
  echo lab >create
  chown 1000 tenants/lab/create
  su alice -c "echo mine >$tree/tenants/lab/create"
  cp /test/rm_client /tmp/prints
  chmod 4755 /tmp/prints
  su alice -c "/tmp/prints 'echo=*' >$tree/tenants/lab/mine/match_cgroup" || true
  equal "" "$(attribute lab/mine match_cgroup)" match_cgroup
  echo mine >tenants/lab/remove
  removed lab
}

# A tenant below another is removed only when it is empty, also if a process comes at that moment: it would
# be in the default tenant then, and above it nothing would bind it.
test_NobodyLeavesByARemovalThatIsJustMade() {
  local visitor n
  echo lab >create
  echo in >tenants/lab/create
  start /tmp/in sh -c "while :; do :; done"
  visitor=$started
  echo "$visitor" >tenants/lab/in/procs
  start /tmp/comes sh -c "while :; do echo $visitor >$tree/tenants/lab/in/procs; done"
  for n in $(seq 60); do
    echo "$visitor" >tenants/lab/procs
    holds removed lab/in || continue
    ! grep -qx "$visitor" tenants/default/procs || fail "it is in the default tenant, after $n"
    echo in >tenants/lab/create
  done
  # shellcheck disable=SC2046 # words
  end $(cat /tmp/pids)
  [ ! -e tenants/lab/in ] || wait_for 5 removed lab/in
  wait_for 5 removed lab
}

# Those who make, remove and write at once neither wait for each other for ever nor leave anything.
test_TheTreeMayBeChangedFromAllSidesAtOnce() {
  local i
  for i in 1 2; do
    start /tmp/top.$i sh -c "for n in \$(seq 40); do echo churn >$tree/create; echo churn >$tree/remove; done"
    start /tmp/below.$i sh -c "for n in \$(seq 80); do echo x >$tree/tenants/churn/create; echo x >$tree/tenants/churn/remove; done"
    start /tmp/deep.$i sh -c "for n in \$(seq 40); do echo y >$tree/tenants/churn/x/create; echo y >$tree/tenants/churn/x/remove; done"
    start /tmp/write.$i sh -c "for n in \$(seq 80); do echo 7 >$tree/tenants/churn/x/weight; cat $tree/tenants/churn/stat; done"
  done
  for i in $(cat /tmp/pids); do wait_for 60 is_gone "$i"; done
  [ ! -e tenants/churn/x/y ] || removed churn/x/y
  [ ! -e tenants/churn/x ] || removed churn/x
  [ ! -e tenants/churn ] || removed churn
  equal default "$(ls tenants)" "what is left"
}

# A module that goes takes whole trees along.
test_TheModuleGoesWithItsTree() {
  cd /
  for path in a a/b a/b/c a/d e e/f; do echo $path >$tree/create; done
  unload_module
  load_module
  equal default "$(ls $tree/tenants)" "after another load"
}

run_tests Tree
