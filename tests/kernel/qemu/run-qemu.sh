#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a shell script as root in a fresh kernel under QEMU, and says whether both came through well.
# README.md beside it is the manual.
set -u
here=$(dirname "$(realpath "$0")")

usage() {
  sed -n 's/^    //p' "$here/README.md" >&2
  exit 2
}

name= out= kernel= seconds=60 memory=768 cpus=2 icount= append=
# A Zen 2, so that the kernel's mitigations (retpolines, safe returns) are in force as on machines that
# need the most of them. QEMU has no processor with indirect branch tracking to offer.
cpu=max,la57=off,family=23,model=49,stepping=0 mitigations= accel=tcg,thread=single
if [ "${GPUSHARE_KERNEL_ACCEL-}" = kvm ]; then
  accel=kvm cpu=host
fi
while getopts n:o:k:t:m:c:ia: option; do
  case $option in
    n) name=$OPTARG ;;
    o) out=$OPTARG ;;
    k) kernel=$OPTARG ;;
    t) seconds=$OPTARG ;;
    m) memory=$OPTARG ;;
    c) cpus=$OPTARG ;;
    i) icount=1 cpus=1 cpu=max,la57=off mitigations=mitigations=off accel=tcg,thread=single ;;
    a) append=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
script=$1
shift
name=${name:-$(basename "$script" .sh)}

skip() {
  printf '[  SKIPPED ] %s (0 ms)\n%s:1: Skipped\n%s\n' "$name" "$(basename "$0")" "$1"
  exit 77
}
command -v qemu-system-x86_64 >/dev/null || skip "qemu-system-x86_64 is missing (package qemu-system-x86)"
busybox=$(command -v busybox) || skip "busybox is missing (package busybox-static)"
! ldd "$busybox" >/dev/null 2>&1 || skip "busybox is not static (package busybox-static)"
command -v cpio >/dev/null || skip "cpio is missing (package cpio)"
if [ -z "$kernel" ]; then
  kernel=$(ls -v /boot/vmlinuz-*-cloud-amd64 2>/dev/null | tail -n 1)
  [ -n "$kernel" ] || skip "no kernel to boot (package linux-image-cloud-amd64)"
fi
[ -r "$kernel" ] || skip "no kernel to boot: $kernel"

if [ -z "$out" ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"
root=$out/root
rm -rf "$root" && mkdir -p "$root"/{bin,sbin,proc,sys,dev,run,tmp,etc,var,root,test,usr/bin} || exit 1

# A program needs its loader and libraries where it looks for them.
add_file() {
  local from=$1 to=$root$2 library
  mkdir -p "$(dirname "$to")"
  cp -L "$from" "$to" || exit 1
  [ -x "$from" ] && [ "$(head -c 4 "$from" | tail -c 3)" = ELF ] || return 0
  strip --strip-debug "$to"
  while read -r library; do
    [ -e "$root$library" ] && continue
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library" || exit 1
  done < <(ldd "$from" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*')
}
cp "$busybox" "$root/bin/busybox"
cp "$here/guest-init.sh" "$root/init"
cp "$script" "$root/test/run.sh"
chmod +x "$root/init"
for file in "$@"; do
  from=${file%%:*} to=${file#*:}
  [ "$to" != "$file" ] || to=/test/$(basename "$from")
  [ -r "$from" ] || { echo "$(basename "$0"): no file $from" >&2; exit 2; }
  add_file "$from" "$to"
done
(cd "$root" && find . -print0 | cpio -o -0 -H newc --quiet) >"$out/initramfs" || exit 1
rm -rf "$root"

: >"$out/kernel.log"
: >"$out/test.log"
start=$(date +%s%N)
# shellcheck disable=SC2086 # the words of $icount
timeout -k 5 "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -display none -monitor none \
  -accel "$accel" ${icount:+-icount shift=0,sleep=off} -cpu "$cpu" -smp "$cpus" -m "$memory" -no-reboot \
  -kernel "$kernel" -initrd "$out/initramfs" \
  -serial "file:$out/kernel.log" -serial "file:$out/test.log" </dev/null \
  -append "console=ttyS0 quiet loglevel=7 panic=-1 oops=panic tsc=reliable $mitigations random.trust_cpu=on no_timer_check cryptomgr.notests ipv6.disable=1 audit=0 $append" \
  2>"$out/qemu.log" &
qemu=$!
# Shows at once what a long test says of its progress.
tail -n +1 -s 0.2 -f --pid=$qemu "$out/test.log" | sed -un "s/^progress:/  $name:/p" >&2
wait $qemu
code=$?
took=$((($(date +%s%N) - start) / 1000000))
rm -f "$out/initramfs"

verdict() {
  printf '[%s] %s.%s (%d ms)\n' "$1" "$name" "$2" "$took"
}
failed=0
tr -d '\r' <"$out/test.log" | grep -vE '^(guest|progress|figure): '
grep -qE '^\[  FAILED  \]' "$out/test.log" && failed=1
if grep -q '^guest: end' "$out/test.log"; then
  verdict '       OK ' ReachesTheEnd
else
  failed=1
  [ "$code" = 124 ] && echo "after $seconds s it was still running"
  cat "$out/qemu.log"
  tail -n 30 "$out/kernel.log"
  verdict '  FAILED  ' ReachesTheEnd
fi
# Two lines of every start are no faults: "All kprobes are optimized if possible", and that QEMU's
# processor has no microcode against SRSO.
faults='BUG|Oops|WARNING|KASAN|UBSAN|possible|suspicious|suspected|unreferenced object|stall|blocked for|Call Trace'
if grep -E "$faults" "$out/kernel.log" | grep -v -e 'optimized if possible' -e 'Speculative Return Stack Overflow' >"$out/faults.log"; then
  failed=1
  tail -n 60 "$out/kernel.log"
  verdict '  FAILED  ' KernelLogIsClean
else
  verdict '       OK ' KernelLogIsClean
fi
exit "$failed"
