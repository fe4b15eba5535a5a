#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests in kernels that take too long for `make test`.
#   long.sh MAKE BUILD debug     the suites in a kernel with KASAN, lockdep and kmemleak, then fuzzing for
#                                GPUSHARE_KERNEL_FUZZ_SECONDS (600) and GPUSHARE_KERNEL_ROUNDS (1000) rounds of
#                                loading and unloading
#   long.sh MAKE BUILD real      the module on NVIDIA's own open module, also in the debug kernel when
#                                there is one
#   long.sh MAKE BUILD matrix    the suites in the other kernels of the distribution
#   long.sh MAKE BUILD starved   the suites while guests are stopped at random for up to five seconds, as on a
#                                machine that is busy with other things; GPUSHARE_KERNEL_STARVED (3) times
#   long.sh MAKE BUILD cost      what the module adds to a call, in instructions, and beside seven other callers
# It fetches and builds kernels and sources below BUILD/kernel when they are first needed, and adds what was
# counted to RESULTS/kernel_NAME.jsonl, by default in BUILD/bench. It ends with "N passed, N failed,
# N skipped". Its status is 0 only if nothing failed and something passed.
set -u
make=$1 build=$(realpath -m "$2") what=$3
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
results=$(mktemp)
trap 'rm -f "$results"' EXIT
began=$(date +%s)

say() { echo "  [$((($(date +%s) - began) / 60)) min] $*"; }
skip() { # NAME REASON
  printf '[  SKIPPED ] %s (0 ms)\n%s\n' "$1" "$2" | tee -a "$results"
}
suites() { # ARGUMENT OF run.sh...: shows and keeps what it prints
  GPUSHARE_KERNEL_ROUNDS=$rounds GPUSHARE_KERNEL_FUZZ_SECONDS=$seconds "$here/run.sh" "$@" | tee -a "$results"
}
build_modules() { # KERNEL
  "$make" --no-print-directory -C "$root" O="$build" "kernel-$1" ||
    { echo "[  FAILED  ] kernel-$1.Builds (0 ms)" | tee -a "$results"; return 1; }
}
# Stops one guest after the other until it is ended.
starve() {
  local guest
  while sleep "$((RANDOM % 3)).$((RANDOM % 10))"; do
    guest=$(pgrep qemu-system | shuf -n 1)
    [ -n "$guest" ] || continue
    kill -STOP "$guest"
    sleep "$((RANDOM % 5)).$((RANDOM % 10))"
    kill -CONT "$guest"
  done 2>/dev/null
}
# What the guests counted, as members of a JSON object, each after a comma.
figures() { # FOLDER OF LOGS...
  cat "${@/%//test.log}" 2>/dev/null | tr -d '\r' |
    awk '/^figure: / { sum[$2] += $3 }
      END { for (name in sum) printf ", \"%s\": %s", name, sum[name] }'
}
kernel_of() { # FOLDER OF LOGS
  sed -n 's/.*Linux version \([^ ]*\).*/\1/p' "$1/kernel.log" | head -n 1
}
record() { # NAME KERNEL DRIVER FIGURES
  local results=${RESULTS:-$build/bench}
  mkdir -p "$results"
  printf '{"minutes": %d, "passed": %d, "failed": %d, "skipped": %d, "figures": {%s}}' \
    $((($(date +%s) - began) / 60)) "$passed" "$failed" "$skipped" "${4#, }" |
    python3 "$root/bench/record.py" "$results/kernel_$1.jsonl" gpu=none "driver=$3" "kernel=$2" \
      "command=make test-kernel-$1" "qemu=$(qemu-system-x86_64 --version | head -n 1)"
}
count() {
  passed=$(grep -c '^\[       OK \]' "$results")
  failed=$(grep -c '^\[  FAILED  \]' "$results")
  skipped=$(grep -c '^\[  SKIPPED \]' "$results")
}

standin="stand-in (tests/kernel/nvidia)"
# All suites but cost, whose limits hold for the cloud kernel of 6.1, and fuzz, which runs apart.
uncounted_suites=$("$here/run.sh" --list | grep -vxE 'cost|fuzz' | tr '\n' ' ')
case $what in
  debug)
    sh "$root/tools/setup/packages.sh" --kernel --debug-kernel || exit 1
    "$here/qemu/build-debug-kernel.sh" "$build/kernel/debug" || exit 1
    if [ ! -e "$build/kernel/debug/vmlinuz" ]; then
      skip debug "no source of a kernel to build"
    elif build_modules debug; then
      say "the suites"
      rounds=8 seconds=5
      # shellcheck disable=SC2086 # words
      suites -k debug "$build" $uncounted_suites
      rounds=${GPUSHARE_KERNEL_ROUNDS:-1000} seconds=${GPUSHARE_KERNEL_FUZZ_SECONDS:-600}
      say "fuzzing for $seconds s, and $rounds rounds of loading and unloading"
      suites -k debug "$build" fuzz soak
    fi
    count
    logs=$build/kernel/debug/logs
    record debug "$(kernel_of "$logs/fuzz-on-debug")" "$standin" \
      "\"fuzz_seconds\": ${seconds:-0}$(figures "$logs"/{fuzz,soak.*}-on-debug)"
    ;;
  real)
    rounds=${GPUSHARE_KERNEL_ROUNDS:-50} seconds=${GPUSHARE_KERNEL_FUZZ_SECONDS:-60}
    driver=$build/kernel/driver
    "$here/qemu/fetch-driver.sh" "$driver"
    if [ ! -e "$driver/source" ]; then
      skip real "no package of the driver's source, in contrib"
    else
      headers=$(ls -dv /lib/modules/*-cloud-amd64/build | tail -n 1)
      "$here/qemu/build-driver.sh" "$driver/source" "$headers" "$build/kernel/driver" || exit 1
      suites "$build" real
      if [ -e "$build/kernel/debug/vmlinuz" ] && build_modules debug; then
        "$here/qemu/build-driver.sh" "$driver/source" "$build/kernel/debug/build" "$build/kernel/debug/driver" || exit 1
        suites -k debug "$build" real
      else
        skip real-on-debug "no debug kernel (make test-kernel-debug makes one)"
      fi
    fi
    count
    record real "$(kernel_of "$build/kernel/logs/real")" "NVIDIA's open module 535, without a GPU" "$(figures "$build/kernel/logs/real")"
    ;;
  matrix)
    rounds=8 seconds=5
    suites "$build"
    tried=$(kernel_of "$build/kernel/logs/module")
    for kernel in 6.1-rt 6.12-cloud 6.14-generic 6.17-generic 7.0-generic; do
      case $kernel in
        *-generic) "$here/qemu/fetch-ubuntu.sh" "$build/kernel/$kernel" "${kernel%-*}" ;;
        *) "$here/qemu/fetch-kernel.sh" "$build/kernel/$kernel" "${kernel%-*}" "${kernel#*-}" ;;
      esac
      if [ ! -e "$build/kernel/$kernel/vmlinuz" ]; then
        skip "$kernel" "no package of this kernel"
      elif build_modules "$kernel"; then
        say "$kernel: $(cut -d' ' -f1 "$build/kernel/$kernel/made-of")"
        # shellcheck disable=SC2086 # words
        suites -k "$kernel" "$build" fuzz $uncounted_suites
        tried+=", $(kernel_of "$build/kernel/$kernel/logs/module-on-$kernel")"
      fi
    done
    count
    record matrix "$tried" "$standin" ""
    ;;
  starved)
    rounds=4 seconds=5
    starve &
    starver=$!
    for round in $(seq "${GPUSHARE_KERNEL_STARVED:-3}"); do
      say "round $round"
      # shellcheck disable=SC2086 # words
      suites "$build" fuzz $uncounted_suites
    done
    kill $starver
    pkill -CONT qemu-system
    count
    ;;
  cost)
    rounds=1 seconds=1
    export GPUSHARE_KERNEL_CALLS=${GPUSHARE_KERNEL_CALLS:-1500}
    suites "$build" cost parallel
    count
    record cost "$(kernel_of "$build/kernel/logs/cost")" "$standin" \
      "\"tenants\": 1000, \"times_by\": \"${GPUSHARE_KERNEL_ACCEL:-emulation}\"$(figures "$build/kernel/logs"/{cost,parallel})"
    ;;
  *)
    echo "long.sh: debug, real, matrix, starved or cost" >&2
    exit 2
    ;;
esac
grep '^\[  FAILED  \]' "$results" | sed 's/^\[  FAILED  \]/FAILED:/'
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
