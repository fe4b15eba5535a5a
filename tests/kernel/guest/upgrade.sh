# SPDX-License-Identifier: Apache-2.0
# Another version comes while programs work, and goes: the packages' own scripts, in dpkg's order, with stand-ins for
# systemd and DKMS. /test/before and /test/after hold a version each, /test/other a module of another interface.
. /test/lib.sh
load_driver
uuid=GPU-00000000-0000-4000-8000-000000001b00
before=$(/test/before/gpushare --version | grep -oE '[0-9]+[.][0-9a-z.]+' | head -n 1)
after=$(/test/after/gpushare --version | grep -oE '[0-9]+[.][0-9a-z.]+' | head -n 1)

export GPUSHARE_MODULE_PATIENCE=$((120 * ${slow:-1})) # in an emulated machine programs are in a call nearly always

# --- a machine with packages ----------------------------------------------------------------------
command_named() { # NAME: what is read becomes the program
  rm -f "/bin/$1"
  { echo '#!/bin/sh' && cat; } >"/bin/$1"
  chmod +x "/bin/$1"
}
command_named systemctl <<'END'
for unit; do :; done
is_up() { [ -e /tmp/agent.pid ] && grep -qs '^State:.[^Z]' "/proc/$(cat /tmp/agent.pid)/status"; }
stop() {
  is_up || return 0
  kill "$(cat /tmp/agent.pid)"
  while is_up; do sleep 0.1; done
  rm -f /tmp/agent.pid
  gpushared --recover >>/tmp/agent.log 2>&1
}
start() {
  ! is_up || return 0
  modprobe gpushare 2>/dev/null
  gpushared >>/tmp/agent.log 2>&1 </dev/null &
  echo $! >/tmp/agent.pid
  until gpushare thaw default 2>/dev/null; do sleep 0.1; done
}
[ "$unit" = gpushared.service ] || exit 3
case $1 in
  is-active)
    is_up || { echo inactive && exit 3; }
    echo active
    ;;
  stop) stop ;;
  start) start ;;
  restart) stop && start ;;
  try-restart) ! is_up || { stop && start; } ;;
esac
END
command_named deb-systemd-invoke <<'END'
exec systemctl "$@"
END
command_named dkms <<'END'
case $1 in
  status) cat "/lib/modules/$(uname -r)/modules.dep" ;;
  remove) rm "/lib/modules/$(uname -r)/gpushare.ko" && : >"/lib/modules/$(uname -r)/modules.dep" ;;
esac
END
command_named getent <<'END'
grep "^$2:" "/etc/$1"
END
modules=/lib/modules/$(uname -r)
mkdir -p /run/systemd/system /etc/gpushare /usr/lib/dkms /usr/libexec "$modules" /sys/fs/bpf
: >"$modules/modules.dep"
ln -s /bin/gpushare-module /usr/libexec/gpushare-module
mount -t bpf bpf /sys/fs/bpf
printf '#!/bin/sh\n' >/usr/lib/dkms/common.postinst && chmod +x /usr/lib/dkms/common.postinst

# What debhelper adds to the scripts of a package with a service.
debhelper() { # SCRIPT
  case $1 in
    gpushare.postinst) echo '[ "$1" != configure ] || systemctl $([ -n "$2" ] && echo restart || echo start) gpushared.service' ;;
    gpushare.prerm) echo '[ "$1" != remove ] || systemctl stop gpushared.service' ;;
  esac
}
script() { # VERSION PACKAGE.SCRIPT ARGUMENT...
  local version=$1 name=$2
  shift 2
  debhelper "$name" >/tmp/debhelper
  sed -e "s/#MODULE_VERSION#/$version/" -e '/^#DEBHELPER#/r /tmp/debhelper' "/test/debian/$name" >/tmp/script
  sh /tmp/script "$@" || fail "$name $*: status $?"
}
unpack() { # FOLDER VERSION: as dpkg does, by renaming
  local file
  for file in gpushared gpushare; do cp "/test/$1/$file" /bin/.new && mv -f /bin/.new /bin/$file; done
  cp "/test/$1/gpushare.ko" "$modules" && echo "gpushare.ko:" >"$modules/modules.dep"
  rm -rf /usr/src/gpushare-*
  mkdir -p "/usr/src/gpushare-$2/uapi" /var/lib/gpushare
  cp /test/uapi/gpushare.h "/usr/src/gpushare-$2/uapi"
}
install_packages() { # FOLDER VERSION
  unpack "$1" "$2"
  script "$2" gpushare.postinst configure ""
  script "$2" gpushare-dkms.postinst configure ""
  wait_for 30 agent_drives
}
upgrade_packages() { # VERSION FOLDER VERSION
  script "$1" gpushare.prerm upgrade "$3"
  script "$1" gpushare-dkms.prerm upgrade "$3"
  unpack "$2" "$3"
  script "$1" gpushare.postrm upgrade "$3"
  script "$3" gpushare.postinst configure "$1"
  script "$3" gpushare-dkms.postinst configure "$1"
  wait_for 30 agent_drives
}
remove_packages() { # VERSION
  script "$1" gpushare-dkms.prerm remove
  script "$1" gpushare.prerm remove
  rm -rf /bin/gpushare /bin/gpushared /usr/src/gpushare-*
  [ ! -e "$modules/gpushare.ko" ] || fail "DKMS still has the module"
  script "$1" gpushare.postrm remove
}
purge_packages() { # VERSION
  [ ! -e /bin/gpushared ] || remove_packages "$1"
  script "$1" gpushare.postrm purge
}
# Each test begins without.
begin_with() { # FOLDER VERSION [LINE OF THE CONFIGURATION...]
  local folder=$1 version=$2
  shift 2
  purge_packages "$version" 2>/dev/null
  : >$agent_log
  printf '%s\n' "$@" >/etc/gpushare/gpushare.toml
  install_packages "$folder" "$version"
}

# --- programs that work, and what is set ----------------------------------------------------------
# Of everything that can be set in sysfs: what it is, and whose.
settings() {
  local file
  find $tree/tenants -type f ! -name procs | sort | while read -r file; do
    case $(stat -c %A "$file") in -rw*) echo "$file: $(cat "$file")" ;; esac
  done
  find $tree/tenants -user 1000 | sort
}
is_member() { grep -qx "$1" "$tree/tenants/$2/procs"; }
# Weights, a cap that only sysfs knows, a freeze by a person, rules, limits, one below another, one that is alice's.
work() {
  gpushare set --create light weight=100
  gpushare set --create heavy weight=300
  gpushare set --create capped memory_max=64M
  gpushare set --create held weight=50
  gpushare set --create team weight=40
  gpushare set --create team/job priority=idle
  echo "$uuid 20000 100000" >$tree/tenants/capped/gpu_max
  echo "$uuid 512M" >$tree/tenants/light/gpu_memory_max
  echo 9 >$tree/tenants/light/contexts_max
  echo 1000 >$tree/tenants/team/job/match_uid
  echo '/jobs/a\b-*' >$tree/tenants/heavy/match_cgroup
  chown 1000 $tree/tenants/team/create $tree/tenants/team/procs
  for name in light heavy capped held; do
    busy_client alloc=4
    wait_for 10 gpushare attach "$started" $name
    eval "$name=$started"
  done
  gpushare freeze held
  wait_for 10 is_frozen "$held"
  settings >/tmp/settings
  grep -q "gpu_max: $uuid 20000 100000" /tmp/settings || fail "there is no cap: $(cat /tmp/settings)"
  shares
}
shares() {
  has_true_share "$heavy" 45 72 1
  has_true_share "$light" 12 30 1
  has_true_share "$capped" 4 27 2
}

# Times and how long each of the programs has run, ten times a second.
watch_progress() { # PID...
  while :; do
    awk -v pids="$*" '$1 == "group" { for (i = 2; i <= NF; i++) { split($i, f, "="); v[f[1]] = f[2] }; ran[v["pid"]] = v["ran_us"] }
      END { getline up <"/proc/uptime"; split(up, t, " "); n = split(pids, p, " "); line = t[1]; for (i = 1; i <= n; i++) line = line " " ran[p[i]]; print line }' $report
    sleep 0.1
  done >/tmp/progress
}
longest_pause() { # COLUMN: in tenths of a second
  awk -v c="$1" 'NR == 1 || $c != ran { if (NR > 1 && $1 - at > most) most = $1 - at; ran = $c; at = $1 }
    END { if ($1 - at > most) most = $1 - at; printf "%d", most * 10 }' /tmp/progress
}
ran_since() { [ "$(ran_us_of "$1")" -gt "$2" ]; }
still_runs() { wait_for 10 ran_since "$1" "$(ran_us_of "$1")"; }
# under_load COMMAND...: it is carried out while the programs work; none of them stands still for long. It stands
# for the agent's absence, a driver that is asked for all programs, and a machine that is busy with other guests.
under_load() {
  local watcher column=2 pause program
  watch_progress "$light" "$heavy" "$capped" &
  watcher=$!
  echo $watcher >>/tmp/pids
  wait_for 10 sh -c '[ "$(wc -l </tmp/progress)" -gt 2 ]'
  "$@" >/tmp/said 2>&1 || fail "$*: $(cat /tmp/said)"
  for program in $light $heavy $capped; do still_runs "$program"; done
  end $watcher
  for program in light heavy capped; do
    pause=$(longest_pause $column)
    figure "upgrade_pause_${program}_ds" "$pause"
    between 0 $((100 * ${slow:-1})) "$pause" "tenths of a second in which $program stood still"
    column=$((column + 1))
  done
}
# all_is_as_before VERSION OF-THE-MODULE
all_is_as_before() {
  equal "$1" "$(gpushare --version | grep -oE '[0-9]+[.][0-9a-z.]+' | head -n 1)" "version"
  equal "$2" "$(cat $tree/version)" "the module's version"
  equal "$(agent_pid)" "$(cat $tree/agent)" "the agent that is registered"
  wait_for 10 has_state "$held" frozen-user
  for name in light heavy capped held; do
    eval "is_member \$$name $name" || fail "the program of $name is elsewhere"
  done
  settings >/tmp/settings.now
  diff /tmp/settings /tmp/settings.now || fail "settings are lost"
  equal "300 100 50" "$(tenant_value heavy weight) $(tenant_value light weight) $(tenant_value held weight)" "weights that the agent has"
  for program in $light $heavy $capped; do still_runs "$program"; done
  is_frozen "$held" || fail "what a person froze works"
  shares
  wait_for 10 is_thawed "$light"
  wait_for 10 is_thawed "$heavy"
  ! grep -i -e '^error' $agent_log || fail "an agent complains"
}

test_AnUpgradeUnderLoadLosesNothing() {
  [ "$before" != "$after" ] || fail "both are $after"
  begin_with before "$before"
  work
  under_load upgrade_packages "$before" after "$after"
  grep -q "gpushare-module reload" /tmp/said || fail "how the new module is loaded is not said: $(cat /tmp/said)"
  all_is_as_before "$after" "$before"
}

test_TheNewModuleIsPutIntoTheOldOnesPlaceUnderLoad() {
  begin_with before "$before"
  work
  upgrade_packages "$before" after "$after"
  under_load gpushare-module reload
  wait_for 30 agent_drives
  all_is_as_before "$after" "$after"
  [ -z "$(ls -d /run/gpushare-module.* 2>/dev/null)" ] || fail "what it kept is left behind"
}

test_ADowngradeIsAnUpgradeBackwards() {
  begin_with after "$after"
  work
  under_load upgrade_packages "$after" before "$before"
  under_load gpushare-module reload
  wait_for 30 agent_drives
  all_is_as_before "$before" "$before"
}

# An agent cannot be registered with it, so nobody would have a share until the machine is booted.
test_AModuleOfAnotherInterfaceIsReplacedAtOnce() {
  begin_with after "$after"
  work
  systemctl stop gpushared.service
  wait_for 10 rmmod gpushare
  insmod /test/other/gpushare.ko
  systemctl start gpushared.service
  equal none "$(cat $tree/agent)" "the agent that is registered"
  under_load script "$after" gpushare-dkms.postinst configure "$before"
  wait_for 30 agent_drives
  equal "$after" "$(cat $tree/version)" "the module's version"
  equal "$(agent_pid)" "$(cat $tree/agent)" "the agent that is registered"
  is_member "$heavy" heavy || fail "it is elsewhere"
  equal 300 "$(attribute heavy weight)" weight
  has_true_share "$heavy" 45 72 1
}

is_inside() { grep -qs msleep /proc/"$1"/task/*/wchan; }
# It cannot go while a program is inside, and goes on with all that it had.
test_AModuleThatCannotGoStaysAsItWas() {
  begin_with before "$before"
  work
  upgrade_packages "$before" after "$after"
  systemctl stop gpushared.service # whose calls would be as slow
  client open alloc-for=600000 wait
  wait_for 10 is_inside "$started"
  systemctl start gpushared.service
  wait_for 30 agent_drives
  ! GPUSHARE_MODULE_PATIENCE=1 gpushare-module reload 2>/tmp/why || fail "it went under a program"
  grep -q "goes on as before" /tmp/why || fail "$(cat /tmp/why)"
  equal 0 "$(cat $tree/drain)" drain
  wait_for 30 agent_drives
  all_is_as_before "$after" "$before"
  end "$started"
}

test_WithoutAnAgentTheModuleIsReplaced() {
  begin_with before "$before"
  work
  systemctl stop gpushared.service
  unpack after "$after"
  gpushare-module reload 2>/tmp/why
  [ ! -e /tmp/agent.pid ] || fail "an agent was started that did not run"
  equal "$after" "$(cat $tree/version)" "the module's version"
  # Only an agent says which GPU has which UUID.
  grep -q "'$uuid 20000 100000' is not written into gpu_max of tenant 'capped'" /tmp/why || fail "$(cat /tmp/why)"
  sed "s/$uuid .*//" /tmp/settings >/tmp/settings.want
  settings | diff /tmp/settings.want - || fail "settings are lost"
  is_member "$heavy" heavy || fail "it is elsewhere"
}

has_turn() { [ "$(process_value "$1" turn)" = running ]; }
test_JobsThatTakeTurnsKeepTheirOrder() {
  local first second third places
  begin_with before "$before" '[gpu.0]' 'policy = "fifo"'
  busy_client && first=$started
  wait_for 10 has_turn "$first"
  busy_client && second=$started
  wait_for 10 is_frozen "$second"
  busy_client && third=$started
  wait_for 10 is_frozen "$third"
  places="$(process_value "$first" job_place) $(process_value "$second" job_place) $(process_value "$third" job_place)"
  upgrade_packages "$before" after "$after"
  gpushare-module reload
  wait_for 30 agent_drives
  wait_for 20 has_turn "$first"
  wait_for 20 is_frozen "$second"
  wait_for 20 is_frozen "$third"
  equal "$places" "$(process_value "$first" job_place) $(process_value "$second" job_place) $(process_value "$third" job_place)" "places in the order"
  is_thawed "$first" || fail "nobody has the turn"
  end "$first"
  wait_for 20 has_turn "$second"
  wait_for 10 is_thawed "$second"
}

nothing_is_left() {
  local place
  for place in $tree /dev/gpushare /run/gpushare /var/lib/gpushare /sys/fs/bpf/run-gpushare-region /dev/shm/gpushare \
    /dev/shm/gpushare.lock /run/gpushare-module.*; do
    [ ! -e "$place" ] || fail "$place is left behind"
  done
  ! grep '^gpushare ' /proc/modules || fail "the module is left behind"
  ! ps | grep '[g]pushared' || fail "an agent is left behind"
}
all_is_the_drivers() {
  for program in $light $heavy $capped $held; do
    is_gone "$program" && fail "a program is gone"
    wait_for 10 is_thawed "$program"
    equal 2048 "$(slice_of "$program")" "the slice that the driver gives"
    still_runs "$program"
  done
}
test_RemovalLeavesProgramsAloneAndNothingBehind() {
  begin_with after "$after"
  work
  under_load remove_packages "$after"
  [ ! -e $tree ] || fail "the module is left behind, with its tenants"
  [ ! -e /sys/fs/bpf/run-gpushare-region ] || fail "forks are still followed"
  all_is_the_drivers
  purge_packages "$after" 2>/tmp/said
  grep -q "groupdel gpushare" /tmp/said || fail "it does not say that the group stays"
  nothing_is_left
  all_is_the_drivers
}

# Daemons are followed by pinned programs then.
test_RemovalWithoutAModuleLeavesNothingBehind() {
  purge_packages "$after" 2>/dev/null
  unpack after "$after"
  dkms remove
  script "$after" gpushare.postinst configure ""
  wait_for 30 agent_drives
  gpushare set --create heavy weight=300
  busy_client
  wait_for 10 gpushare attach "$started" heavy
  wait_for 10 test -e /sys/fs/bpf/run-gpushare-region
  remove_packages "$after"
  [ ! -e /sys/fs/bpf/run-gpushare-region ] || fail "forks are still followed"
  still_runs "$started"
  purge_packages "$after" 2>/dev/null
  nothing_is_left
}

run_tests Upgrade
