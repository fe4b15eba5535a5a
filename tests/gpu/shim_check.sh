#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the shim on a real GPU: shim_check.sh [BUILD]. It prints what was expected beside what was seen,
# and ends with "N right, N wrong". It needs no root. On the simulated GPU it needs GPUSHARE_SIM and
# LD_LIBRARY_PATH, as any workload does, and PCI=0000:10:00.0.
set -u
build=${1:-build}
work=$build/bin/workloads
drive="$build/bin/tests/shim_drive ${PCI:+--pci $PCI}"
right=0 wrong=0
verdict() { # NAME IS_RIGHT SEEN
  if [ "$2" = 1 ]; then right=$((right + 1)); word=right; else wrong=$((wrong + 1)); word=WRONG; fi
  printf '%-5s %-58s %s\n' "$word" "$1" "$3"
}
field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" | tail -1; }

echo "# the driver's library calls itself past other libraries (SYMBOLIC):"
library=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -1)
[ -n "$library" ] && readelf -dW "$library" | grep -E 'SYMBOLIC|FLAGS' || echo "no libcuda.so.1 in ldconfig"

echo "# SMs by kind of stream and set of groups"
for kind in legacy per-thread blocking non-blocking; do
  for pair in 0:132 1:8 6:16 5:16 7fff:120 8000:12 8001:20 ffff:132; do
    groups=${pair%:*} expected=${pair#*:}
    seen=$($drive --features partitions --groups "$groups" -- "$work/sms" --launches 3 --stream $kind 2>&1)
    most=$(echo "$seen" | field most)
    verdict "sms, $kind stream, groups $groups: $expected" "$([ "$most" = "$expected" ] && echo 1 || echo 0)" "$most $(echo "$seen" | tail -1 | cut -c1-200)"
  done
done

echo "# SMs of graphs by how they were made; one within another stays in the whole GPU"
for pair in captured:6:16 built:6:16 captured:7fff:120 built:8000:12 within:6:132; do
  by=${pair%%:*} rest=${pair#*:}
  seen=$($drive --features partitions --groups "${rest%:*}" -- "$work/sms" --launches 3 --by "$by" 2>&1)
  most=$(echo "$seen" | field most)
  verdict "sms, graph that is $by, groups ${rest%:*}: ${rest#*:}" "$([ "$most" = "${rest#*:}" ] && echo 1 || echo 0)" "$most $(echo "$seen" | tail -1 | cut -c1-200)"
done
seen=$("$work/execs" --steps ${STEPS:-4000} 2>&1)
verdict "execs, alone" "$([ $? = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | tail -1 | cut -c1-200)"
for seed in 1 2 3 4; do
  for every in 100 1000 30000; do
    seen=$($drive --features gate,partitions --move-us $every --seed $seed -- "$work/execs" --seed $seed --steps ${STEPS:-4000} 2>&1)
    code=$?
    verdict "execs, moves every $every us, seed $seed" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | tail -2 | tr '\n' ' ' | cut -c1-250)"
  done
done

for seed in 1 2 3 4 5 6; do
  seen=$($drive --features gate,partitions --move-us 600 --seed $seed -- "$work/execs" --threads 4 --seed $seed --steps ${STEPS:-3000} 2>&1)
  code=$?
  verdict "execs of four threads, moves every 600 us, seed $seed" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | tail -3 | tr '\n' ' ' | cut -c1-350)"
done

if [ -z "${GPUSHARE_SIM:-}" ]; then
  echo "# graphs with conditional nodes, which the driver wants in one context"
  conditional=$(dirname "$0")/programs/conditional.py
  for way in captured built; do
    for groups in 0 6 7fff; do
      seen=$($drive --features partitions --groups $groups -- python3 "$conditional" $way 2>&1)
      code=$?
      verdict "conditional, $way, groups $groups" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | head -1 | cut -c1-200)"
    done
  done
fi

echo "# streams, events, copies and the legacy stream in order, under random moves"
for seed in 1 2 3 4; do
  for every in 100 1000; do
    seen=$($drive --features gate,partitions --move-us $every --seed $seed -- "$work/hash" --rounds ${ROUNDS:-1000} --words ${WORDS:-262144} --streams 8 2>&1)
    code=$?
    verdict "hash, moves every $every us, seed $seed" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | field verified) moves $(echo "$seen" | field moves)"
  done
done
for seed in 1 2 3 4; do
  for every in 50 300 3000; do
    seen=$($drive --features gate,partitions --move-us $every --seed $seed -- "$work/order" --seed $seed --steps ${STEPS:-10000} 2>&1)
    code=$?
    verdict "order, moves every $every us, seed $seed" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | field verified) moves $(echo "$seen" | field moves)"
  done
done
for seed in 1 2 3 4; do
  seen=$($drive --features gate,partitions --move-us 100 --seed $seed -- "$work/crowd" --threads 8 --launches ${LAUNCHES:-5000} --seed $seed 2>&1)
  code=$?
  verdict "crowd, moves every 100 us, seed $seed" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | field verified) moves $(echo "$seen" | field moves)"
done
seen=$("$work/order" --steps ${STEPS:-10000} 2>&1)
verdict "order, alone" "$([ $? = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | field verified)"
seen=$($drive --features gate --gate-us 3000 --closed-us 2000 -- "$work/hash" --rounds ${ROUNDS:-3000} 2>&1)
code=$?
verdict "hash, gate closed 2 of 5 ms" "$([ $code = 0 ] && echo 1 || echo 0)" "$(echo "$seen" | tail -1)"

echo "# scenes whose order is known"
scenes() { # NAME SEEN CODE
  verdict "$1" "$([ "$3" = 0 ] && echo 1 || echo 0)" "$(echo "$2" | grep 'scenes as expected' | tail -1)"
  [ "$3" = 0 ] || echo "$2" | grep -E '^(seen|expected) ' | head -40
}
seen=$("$work/conformance" --repeat 3 2>&1 >/dev/null)
scenes "conformance, alone" "$seen" $?
for groups in 0 6; do
  seen=$($drive --features gate,partitions,iterations --groups $groups -- "$work/conformance" 2>&1 >/dev/null)
  scenes "conformance, groups $groups" "$seen" $?
done
for seed in 1 2 3; do
  seen=$($drive --features gate,partitions,iterations --move-us 300 --seed $seed -- "$work/conformance" --repeat 10 2>&1 >/dev/null)
  scenes "conformance, moves every 300 us, seed $seed" "$seen" $?
done

echo "# costs, ns: launch p50, launch and wait p50 (three rounds each, in turn)"
for round in 1 2 3; do
  for how in native preloaded none gate partitions partitions:7fff partitions:moving; do
    case $how in
    native) seen=$("$work/launch" --count ${COUNT:-50000} --sync-count ${COUNT:-10000}) ;;
    preloaded) seen=$(LD_PRELOAD=$build/lib/libgpushare.so "$work/launch" --count ${COUNT:-50000} --sync-count ${COUNT:-10000}) ;;
    partitions:7fff) seen=$($drive --features partitions --groups 7fff -- "$work/launch" --count ${COUNT:-50000} --sync-count ${COUNT:-10000} 2>/dev/null) ;;
    partitions:moving) seen=$($drive --features partitions --move-us 3000 -- "$work/launch" --count ${COUNT:-50000} --sync-count ${COUNT:-10000} 2>/dev/null) ;;
    *) seen=$($drive --features $how -- "$work/launch" --count ${COUNT:-50000} --sync-count ${COUNT:-10000} 2>/dev/null) ;;
    esac
    printf '  %-20s %10s %10s\n' "$how" "$(echo "$seen" | field launch_p50_ns)" "$(echo "$seen" | field sync_p50_ns)"
  done
done

echo "# throughput of a saturating program, units per ms: in the whole GPU, in 64 SMs, in 64 SMs that move"
for round in 1 2 3; do
  for how in "--groups 0" "--groups ff" "--groups ff --length 8 --move-us 3000"; do
    seen=$($drive --features partitions $how -- "$work/spin" --seconds 2 2>&1)
    printf '  %s %-40s %s\n' "$round" "$how" "$(echo "$seen" | field units_per_ms) moves $(echo "$seen" | field moves)"
  done
done

echo "$right right, $wrong wrong"
[ "$wrong" = 0 ]
