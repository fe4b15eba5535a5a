#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ring 2 runs every suite in a kernel of its own under QEMU. It runs two more at a time than there are
# processors, because the guests wait more than they work.
#   run.sh [-k KERNEL] BUILD [SUITE...]    BUILD is where make has put what it built; the suites are below
#   run.sh --list                          prints the names of the suites that run if none is named
#   KERNEL: the one in BUILD/kernel/KERNEL, e.g. debug, instead of the one in BUILD/kernel
# GPUSHARE_KERNEL_ROUNDS: how often gpushare.ko is loaded and unloaded under load (4 times, 3 s each).
# GPUSHARE_KERNEL_FUZZ_SECONDS: how long the fuzzing lasts (5 s).
# GPUSHARE_KERNEL_CALLS: how many calls each of the parallel callers makes (200).
# GPUSHARE_KERNEL_ACCEL=kvm: boots with KVM and a processor each for eight callers, so that times are those
# of the machine; not in a virtual machine, where it may hang or be slower than emulation.
# GPUSHARE_KERNEL_SLOW: how many times longer all bounds are, for a machine that is busy with other things (1).
# GPUSHARE_KERNEL_TESTS: runs only tests whose names match this extended regular expression without blanks.
# GPUSHARE_KERNEL_BEFORE: a folder with gpushared, gpushare (static) and gpushare.ko of an earlier version, from which
# `upgrade` upgrades, instead of this one by another name. Tests that expect the same interface fail with one of another.
# It prints GoogleTest's lines. Its status is 0 if nothing failed. Logs are in BUILD/kernel/[KERNEL/]logs/SUITE/.
set -u
here=$(dirname "$(realpath "$0")")
kernel=
if [ "${1-}" = -k ]; then
  kernel=$2
  shift 2
fi
build=
[ "${1-}" = --list ] || build=$(realpath "$1")
ring=$build/kernel${kernel:+/$kernel}
rounds=${GPUSHARE_KERNEL_ROUNDS:-4} fuzz_seconds=${GPUSHARE_KERNEL_FUZZ_SECONDS:-5}
rounds_each=$(((rounds + $(nproc) - 1) / $(nproc)))
# $slow: how many times slower than the cloud kernel of 6.1 this kernel may be; it lengthens all bounds.
slow=${GPUSHARE_KERNEL_SLOW:-1} memory=768 before=${GPUSHARE_KERNEL_BEFORE-}
case $kernel in
  debug) slow=10 memory=1024 ;;
  ?*) slow=3 ;;
esac

# A line is SUITE SECONDS FILE...: the script guest/SUITE.sh (or guest/named/SUITE.sh), what it takes at most on a quiet machine, and the files in the guest's /test.
suites() { # the longest come first
  local driver=$ring/nvidia/nvidia.ko client=bin/tests/rm_client
  local module=$ring/gpushare/gpushare.ko
  echo "agent 120 $driver $client kernel/static/gpushared kernel/static/gpushare"
  echo "filter 120 $driver $client $module kernel/refused-controls bin/tests/rm_fuzz"
  echo "escapes 120 $driver $client $module bin/tests/door $ring/nvidia/nvidia-drm.ko" \
    "$ring/nvidia/nvidia-uvm.ko $ring/beside/forks.ko"
  echo "module 120 $driver $client $module $ring/livepatch/standin-livepatch.ko $ring/beside/direct.ko" \
    "$ring/nvidia-535/nvidia.ko:/test/nvidia-535.ko" \
    "$ring/nvidia-unknown/nvidia.ko:/test/nvidia-unknown.ko" \
    "$(ls "$ring/gpushare-checked/gpushare.ko" 2>/dev/null | sed 's#$#:/test/gpushare-checked.ko#')"
  echo "together 120 $driver $client $module kernel/static/gpushared kernel/static/gpushare"
  echo "upgrade 240 $driver $client $(in_versions gpushared) $(in_versions gpushare)" \
    "${before:-$ring/before}/gpushare.ko:/test/before/gpushare.ko $module:/test/after/gpushare.ko" \
    "$ring/other/gpushare.ko:/test/other/gpushare.ko" \
    "$here/../../kmod/install/module.sh:/bin/gpushare-module $here/../../kmod/uapi/gpushare.h:/test/uapi/gpushare.h" \
    "$(for script in gpushare.postinst gpushare.prerm gpushare.postrm gpushare-dkms.postinst gpushare-dkms.prerm; do
      echo "$here/../../tools/setup/debian/$script:/test/debian/$script"
    done | tr '\n' ' ')"
  echo "cost 120 $driver $client $module bin/tests/door"
  echo "fuzz $((90 + fuzz_seconds)) $driver $client $module bin/tests/kmod_fuzz"
  echo "device 90 $driver $client $module bin/tests/kmod_device"
  echo "sysfs 60 $driver $client $module bin/tests/door" \
    "$(ls "$here"/../../kmod/ABI/sysfs-kernel-gpushare 2>/dev/null)"
  echo "parallel 120 $driver $client $module"
  echo "tree 120 $driver $client $module"
  echo "standin 60 $driver $client"
}
in_versions() { echo "${before:-$build/kernel/before}/$1:/test/before/$1 kernel/static/$1:/test/after/$1"; }
# These run only if they are named. The rounds of soak are shared out over one guest for each processor.
more_suites() {
  local client=bin/tests/rm_client module=$ring/gpushare/gpushare.ko guest
  for guest in $(seq "$(nproc)"); do
    echo "soak.$guest $((120 + 10 * rounds_each)) $ring/nvidia/nvidia.ko $client $module"
  done
  echo "real $((120 + fuzz_seconds)) $ring/driver/nvidia.ko $ring/driver/nvidia-stays.ko:/test/nvidia-stays.ko" \
    "$client $module kernel/refused-controls bin/tests/kmod_fuzz $ring/beside/uvm_call.ko"
}

if [ "$1" = --list ]; then
  suites | cut -d' ' -f1
  exit 0
fi
shift
is_named=${1-}
tsc_khz=$("$build/bin/tests/tsc_khz") || exit

run_suite() {
  # Ten times as long as a guest takes on a quiet machine, and more: what the limit ends is one that hangs.
  local suite=$1 seconds=$(($2 * slow * 10)) file files=()
  shift 2
  for file in "$@"; do
    case $file in
      /*) files+=("$file") ;;
      *) files+=("$build/$file") ;;
    esac # A name in the guest may follow after a colon.
    if [ ! -e "${files[-1]%%:*}" ]; then
      printf '[  SKIPPED ] %s (0 ms)\nrun.sh:1: Skipped\n%s was not built: %s\n' \
        "$suite" "$(basename "$file")" \
        "$([ -n "$kernel" ] && echo "make kernel-$kernel" || echo "no headers of the kernel (package linux-headers-cloud-amd64)")"
      return 0
    fi
  done
  # The kernel hands words with = that it does not know to the guest's init, in its environment.
  local counted= cpus=2 append="slow=$slow rounds=$rounds_each FUZZ_SECONDS=$fuzz_seconds"
  [ -z "${GPUSHARE_KERNEL_TESTS-}" ] || append+=" only=$GPUSHARE_KERNEL_TESTS"
  case $suite in
    cost) counted=-i ;; # in it a count is a nanosecond
    parallel) append+=" calls=${GPUSHARE_KERNEL_CALLS:-200}" ;;
    real) append+=" lockdep.prove_locking=0" ;; # the driver's locks are of one class, and would be reported
    # What takes longest runs if it is asked for, and in the kernels of the matrix; `together` has the agent's, too.
    agent) [ -n "$is_named${GPUSHARE_KERNEL_TESTS-}" ] || append+=" but=WorkThatOutlives" ;;
    upgrade) [ -n "$is_named${GPUSHARE_KERNEL_TESTS-}" ] || append+=" only=AnUpgradeUnder|TheNewModule|RemovalLeaves" ;;
    filter | module | escapes | tree) append+=" slub_debug=FZPU" ;; # finds writes to freed memory
  esac
  [ -n "$counted" ] || append+=" tsc_early_khz=$tsc_khz"
  [ "$suite" != parallel ] || [ -z "${GPUSHARE_KERNEL_ACCEL-}" ] || cpus=8
  local script=$here/guest/${suite%.*}.sh
  [ -e "$script" ] || script=$here/guest/named/${suite%.*}.sh
  [ -z "$kernel" ] || suite=$suite-on-$kernel
  # shellcheck disable=SC2086 # nothing or an option
  "$here/qemu/run-qemu.sh" -k "$ring/vmlinuz" -m "$memory" -c "$cpus" $counted -a "$append" -n "$suite" \
    -o "$ring/logs/$suite" -t "$seconds" "$script" "$here/lib.sh" "${files[@]}"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
chosen=()
while read -r line; do
  read -r suite _ <<<"$line"
  [ $# = 0 ] || [[ " $* " == *" ${suite%.*} "* ]] || continue
  while [ "$(jobs -rp | wc -l)" -gt $(($(nproc) + 1)) ]; do wait -n; done
  # shellcheck disable=SC2086 # the words of the line
  run_suite $line >"$logs/$suite" &
  chosen+=("$suite")
done < <(
  suites
  [ $# = 0 ] || more_suites
)
wait
[ ${#chosen[@]} -gt 0 ] || { echo "run.sh: no such suite: $*" >&2; exit 2; }
for suite in "${chosen[@]}"; do cat "$logs/$suite"; done
! cat "$logs"/* | grep -q '^\[  FAILED  \]'
