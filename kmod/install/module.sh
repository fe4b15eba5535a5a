#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Takes gpushare.ko out of the kernel while programs work, or puts the installed one in its place:
#   gpushare-module reload    what is set in sysfs holds on: settings, rules, processes, owners
#   gpushare-module unload
# The agent's service is stopped meanwhile, so that nothing is frozen, and started again if it ran, but not where that
# would load what was unloaded. While programs stay in a call of the driver the module cannot go: after
# GPUSHARE_MODULE_PATIENCE seconds (20) reload leaves it as it was, and unload leaves it drained. Memory that programs
# hold when it is loaded is not counted.
# The packages' scripts call it, and root by hand. Status: 0 done, 1 not done, and why is said, 2 wrong usage.
set -u
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
tree=/sys/kernel/gpushare
unit=gpushared.service
patience=${GPUSHARE_MODULE_PATIENCE:-20}
kept='' has_stopped='' what=${1-}

say() { echo "gpushare-module: $*" >&2; }
fail() {
  say "$*"
  exit 1
}
# Half a reload is worse than one that nobody waits for, or whose lines nobody reads.
trap '' HUP INT TERM PIPE
trap end EXIT
end() {
  [ -z "$kept" ] || rm -rf "$kept"
  [ -n "$has_stopped" ] || return
  # Its unit loads the module that is installed.
  if [ "$what" = unload ] && [ ! -e $tree ] && is_installed; then
    say "$unit stays stopped, as its start loads the module"
    return
  fi
  start_agent
}

start_agent() { systemctl start $unit || say "$unit does not start: see 'systemctl status $unit'"; }
is_installed() { [ -n "$(modinfo -n gpushare 2>/dev/null)" ]; }
stop_agent() {
  registered=none
  if [ -d /run/systemd/system ]; then
    case $(systemctl is-active $unit 2>/dev/null) in
      inactive | failed | unknown | '') ;;
      *) # also one that is about to start again
        has_stopped=1
        systemctl stop $unit || fail "$unit does not stop"
        ;;
    esac
  fi
  [ ! -e $tree/agent ] || registered=$(cat $tree/agent)
  [ "$registered" != none ] || return 0
  # What holds on unseen after its packages are gone is worse than nothing.
  [ "$what" != unload ] || echo 1 2>/dev/null >$tree/drain
  fail "process $registered is registered with the module, and no service: end it first"
}

# A tenant's rules go before those of a newer one, and inode numbers rise.
tenants() {
  (cd $tree/tenants && find . -mindepth 1 -type d -exec stat -c '%i %n' {} \;) | sort -n | sed 's|^[0-9]* \./||'
}
# Modes and owners, where a tenant was given to a user.
owners() { find $tree/tenants -exec stat -c '%a %u:%g %n' {} \; 2>/dev/null; }

# Before an agent has said which it is, a GPU has no other name than gpuN; and which it is only an agent says.
keep_names_of_gpus() {
  kept=$(mktemp -d /run/gpushare-module.XXXXXX) || fail "there is no place for the settings"
  for gpu in "$tree"/gpus/*/; do
    [ ! -e "$gpu/uuid" ] || echo "s/^$(cat "$gpu/uuid") /gpu$(basename "$gpu") /" >>"$kept/gpus"
  done
}
# Into files NUMBER.ATTRIBUTE, by the numbers of the lines of `names`.
keep_settings() {
  tenants >"$kept/names"
  owners >"$kept/owners"
  number=0
  while IFS= read -r name; do
    number=$((number + 1))
    for file in "$tree/tenants/$name"/*; do
      case $(stat -c %A "$file" 2>/dev/null) in
        -rw*) cat "$file" >"$kept/$number.$(basename "$file")" ;;
      esac
    done
  done <"$kept/names"
}

write() { # TENANT ATTRIBUTE LINE
  printf '%s\n' "$3" 2>/dev/null >"$tree/tenants/$1/$2" || say "'$3' is not written into $2 of tenant '$1'"
}
restore_attribute() { # TENANT ATTRIBUTE FILE
  case $2 in
    procs)
      [ "$1" = default ] || while read -r pid; do
        [ ! -e "/proc/$pid" ] || write "$1" procs "$pid"
      done <"$3"
      ;;
    *)
      [ "$(cat "$tree/tenants/$1/$2" 2>/dev/null)" != "$(cat "$3")" ] || return 0
      case $2 in gpu_*) [ ! -e "$kept/gpus" ] || sed -i -f "$kept/gpus" "$3" ;; esac
      while IFS= read -r line; do
        case $2:$line in
          gpu_*:GPU-*) printf '%s\n' "$line" >>"$kept/later.$2.$number" ;; # a GPU that is not known yet
          *) write "$1" "$2" "$line" ;;
        esac
      done <"$3"
      ;;
  esac
}
restore_settings() {
  number=0
  while IFS= read -r name; do
    number=$((number + 1))
    [ -e "$tree/tenants/$name" ] || echo "$name" >$tree/create || { say "tenant '$name' is lost"; continue; }
    for file in "$kept/$number".*; do
      [ ! -e "$file" ] || restore_attribute "$name" "${file##*.}" "$file"
    done
  done <"$kept/names"
  owners >"$kept/fresh"
  grep -vxFf "$kept/fresh" "$kept/owners" | while read -r mode owner file; do
    [ ! -e "$file" ] || { chown "$owner" "$file" && chmod "$mode" "$file"; }
  done
}

# What is set for a GPU that only the agent can tell from the others.
restore_what_agent_tells() {
  set -- "$kept"/later.*
  [ -e "$1" ] || return 0
  if [ -n "$has_stopped" ]; then
    has_stopped=''
    start_agent
    tries=100
    until grep -qs GPU- $tree/gpus/*/uuid || [ $tries = 0 ]; do
      tries=$((tries - 1))
      sleep 0.1
    done
  fi
  for file in "$@"; do
    rest=${file##*/later.}
    name=$(sed -n "${rest##*.}p" "$kept/names")
    while IFS= read -r line; do write "$name" "${rest%.*}" "$line"; done <"$file"
  done
}

# A drained module lets the calls that are inside end, and no new ones in.
take_out() {
  echo 1 2>/dev/null >$tree/drain || fail "gpushare.ko cannot be drained from here: $tree is not writable"
  tries=$((patience * 10))
  until rmmod gpushare 2>/dev/null || [ ! -e $tree ]; do
    [ $tries -gt 0 ] || return 1
    tries=$((tries - 1))
    sleep 0.1
  done
}

usage() {
  echo "usage: $(basename "$0") reload|unload" >&2
  exit 2
}
[ $# = 1 ] || usage
case $what in reload | unload) ;; *) usage ;; esac
case $patience in
  '' | *[!0-9]*)
    say "GPUSHARE_MODULE_PATIENCE is '$patience', and must be a whole number of seconds"
    exit 2
    ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may change what is loaded"
if [ "$what" = unload ]; then
  [ -e $tree ] || exit 0
  stop_agent
  take_out || fail "gpushare.ko stays loaded, drained, because a program is inside; later: rmmod gpushare"
  exit 0
fi
is_installed || fail "no gpushare.ko is installed for this kernel; nothing was changed"
if [ -e $tree ]; then
  keep_names_of_gpus
  stop_agent
  keep_settings
  drain=$(cat $tree/drain)
  if ! take_out; then
    echo "$drain" >$tree/drain
    fail "a program stays inside gpushare.ko $(cat $tree/version), which goes on as before; try again later"
  fi
else
  stop_agent
fi
if ! modprobe gpushare; then
  [ -z "$kept" ] || say "what was set is in $kept"
  kept=''
  fail "gpushare.ko is not loaded, and limits of memory do not hold: see 'dmesg | tail'"
fi
if [ -n "$kept" ]; then
  restore_settings
  restore_what_agent_tells
fi
echo "gpushare.ko $(cat $tree/version) is loaded; it does not count the memory that programs had before"
