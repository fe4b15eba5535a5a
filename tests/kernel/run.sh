#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ring 2: every suite in a kernel of its own under QEMU, one more at a time than there are processors
# (the guests wait as much as they work).
#   run.sh BUILD [SUITE...]    BUILD: where make has put what it built; SUITE: of those below
# GPUSHARE_KERNEL_ROUNDS: how often gpushare.ko is loaded and unloaded under load (4; 2 s each).
# Prints GoogleTest's lines; status 0 when nothing failed. Logs are in BUILD/kernel/SUITE/.
set -u
here=$(dirname "$(realpath "$0")")
build=$(realpath "$1")
shift

# SUITE SECONDS FILE...: the script guest/SUITE.sh, its limit, and what it finds in the guest's /test.
suites() { # the longest first
  local driver=kernel/nvidia/nvidia.ko client=bin/tests/rm_client
  local module=kernel/gpushare/gpushare.ko
  echo "agent 120 $driver $client bin/gpushared bin/gpushare"
  echo "module 120 $driver $client $module" \
    "kernel/nvidia-535/nvidia.ko:/test/nvidia-535.ko" \
    "kernel/nvidia-unknown/nvidia.ko:/test/nvidia-unknown.ko"
  echo "together 120 $driver $client $module bin/gpushared bin/gpushare"
  echo "cost 120 $driver $client $module"
  echo "filter 120 $driver $client $module kernel/refused-controls bin/tests/rm_fuzz"
  echo "fuzz 90 $driver $client $module bin/tests/kmod_fuzz"
  echo "device 90 $driver $client $module bin/tests/kmod_device"
  echo "sysfs 60 $driver $client $module bin/tests/door" \
    "$(ls "$here"/../../kmod/ABI/sysfs-kernel-gpushare 2>/dev/null)"
  echo "standin 60 $driver $client"
}

run_suite() {
  local suite=$1 seconds=$2 file files=()
  shift 2
  for file in "$@"; do
    case $file in
      /*) files+=("$file") ;;
      *) files+=("$build/$file") ;;
    esac # a name in the guest may follow, after a colon
    if [ ! -e "${files[-1]%%:*}" ]; then
      printf '[  SKIPPED ] %s (0 ms)\nrun.sh:1: Skipped\n%s was not built: no headers of the kernel (package linux-headers-cloud-amd64)\n' \
        "$suite" "$(basename "$file")"
      return 0
    fi
  done
  local rounds=${GPUSHARE_KERNEL_ROUNDS:-4}
  seconds=$((seconds + 3 * rounds))
  local counted= append="rounds=$rounds"
  case $suite in
    cost) counted=-i ;;
    filter | module) append+=" slub_debug=FZPU" ;; # finds writes to freed memory
  esac
  # shellcheck disable=SC2086 # nothing or an option
  local kernel=$build/kernel/image/vmlinuz image=()
  [ ! -e "$kernel" ] || image=(-k "$kernel")
  "$here/qemu/run-qemu.sh" "${image[@]}" $counted -a "$append" -n "$suite" -o "$build/kernel/$suite" -t "$seconds" \
    "$here/guest/$suite.sh" "$here/guest/lib.sh" "${files[@]}"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
chosen=()
while read -r line; do
  read -r suite _ <<<"$line"
  [ $# = 0 ] || [[ " $* " == *" $suite "* ]] || continue
  while [ "$(jobs -rp | wc -l)" -gt "$(nproc)" ]; do wait -n; done
  # shellcheck disable=SC2086 # the words of the line
  run_suite $line >"$logs/$suite" 2>&1 &
  chosen+=("$suite")
done < <(suites)
wait
[ ${#chosen[@]} -gt 0 ] || { echo "run.sh: no such suite: $*" >&2; exit 2; }
for suite in "${chosen[@]}"; do cat "$logs/$suite"; done
! cat "$logs"/* | grep -q '^\[  FAILED  \]'
