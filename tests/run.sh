#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: run.sh all|check MAKE BUILD [FILTER]
#   check   `make check`: runs the programs of ring 1 as they are built, plain. FILTER is GoogleTest's
#           (T= of make): only the tests that it names.
#   all     `make test`: checks the floors of the includes, then builds and runs every test that this
#           machine can run. Those with threads, and
#           those that start programs, run plain; all but those in real time, for which sanitized
#           programs are too slow, under the address and undefined sanitizers; those with threads under
#           the thread sanitizer; then the fuzzers, each for GPUSHARE_FUZZ_SECONDS (20). While tests run
#           that do not measure time, the next stage is built.
# The last line is "N passed, N failed, N skipped". The status is 0 only when nothing failed and
# something passed.
set -u
mode=$1
make=$2
build=$3
filter=${4:-*}
fuzz_seconds=${GPUSHARE_FUZZ_SECONDS:-20}
SECONDS=0
jobs=$(nproc)
passed=0 failed=0 skipped=0
failures=()

# run_tests FOLDER FILTER MOST PROGRAM...: runs MOST programs at a time; each leaves
# FOLDER/logs/PROGRAM.log and .status. PROGRAM@iofn runs the part i of n of its tests.
run_tests() {
  local folder=$1 filter=$2 most=$3 program log
  shift 3
  mkdir -p "$folder/logs"
  for program in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n; done
    log=$folder/logs/$(basename "$program")
    (
      if [[ $program =~ (.*)@([0-9]+)of([0-9]+)$ ]]; then
        program=${BASH_REMATCH[1]}
        export GTEST_SHARD_INDEX=${BASH_REMATCH[2]} GTEST_TOTAL_SHARDS=${BASH_REMATCH[3]}
      fi
      timeout 600 "$program" --gtest_filter="$filter" >"$log.log" 2>&1
      echo $? >"$log.status"
    ) &
  done
  wait
}

# count_tests FOLDER LABEL PROGRAM...: of what they left. A test program that ends badly without naming
# a test (a crash, a sanitizer's report at exit) counts as one failure.
count_tests() {
  local folder=$1 label=$2 program log bad ok skip
  shift 2
  for program in "$@"; do
    log=$folder/logs/$(basename "$program").log
    bad=$(grep -cE '^\[  FAILED  \] [^ ]+ \(' "$log")
    [ "$(cat "${log%.log}.status")" = 0 ] || [ "$bad" != 0 ] || bad=1
    ok=$(grep -cE '^\[       OK \]' "$log")
    skip=$(grep -cE '^\[  SKIPPED \] [^ ]+ \(' "$log")
    printf '  %-10s %-22s %4d passed %3d failed %3d skipped\n' \
      "$label" "$(basename "$program")" "$ok" "$bad" "$skip"
    if [ "$skip" != 0 ]; then
      grep -A2 -E '^\S+:[0-9]+: Skipped' "$log" | grep -vE '^--|: Skipped' | sort -u | sed 's/^/      skipped: /'
    fi
    if [ "$bad" != 0 ]; then
      failures+=("$label $(basename "$program"), see $log")
      tail -n 60 "$log"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
  done
}

# The programs of a target of the Makefile, one a line.
list() { # KIND MAKE-ARGUMENT...
  local kind=$1
  shift
  "$make" --no-print-directory -s "$@" "list-of-$kind-tests"
}

build_or_count() {
  local label=$1
  shift
  echo "building: $label (after $SECONDS s)"
  if ! ${beside:+nice -n 19} "$make" --no-print-directory -j"$jobs" "$@"; then
    failed=$((failed + 1))
    failures+=("$label does not build")
    return 1
  fi
}

run_fuzzers() {
  local program log names=() pids=() i
  for program in "$build"/bin/fuzz/*; do
    [ -x "$program" ] || continue
    log=$build/logs/$(basename "$program").log
    # Two at a time: the machine that this is made for has two cores.
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    (cd "$(mktemp -d)" && exec timeout $((fuzz_seconds + 60)) "$program" \
      -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1) &
    names+=("$program") pids+=($!)
  done
  for i in "${!pids[@]}"; do
    program=${names[i]} log=$build/logs/$(basename "${names[i]}").log
    if wait "${pids[i]}"; then
      passed=$((passed + 1))
      printf '  %-10s %-22s %s\n' fuzz "$(basename "$program")" \
        "$(grep -o 'number_of_executed_units: [0-9]*' "$log")"
    else
      failed=$((failed + 1))
      failures+=("fuzz $(basename "$program"), see $log")
      tail -n 40 "$log"
    fi
  done
}

build=$(realpath -m "$build")
mkdir -p "$build/logs"
# In the clang that is installed nothing else turns addresses into names.
symbolizer=external_symbolizer_path=$(command -v addr2line)
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:$symbolizer
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:$symbolizer
export TSAN_OPTIONS=halt_on_error=1:$symbolizer

# A stage is built while the tests of the one before it run, which mostly wait, and go first.
beside=
trap '[ -z "$beside" ] || kill "$beside"' EXIT
folder= label= programs=()
end_stage() {
  [ -n "$beside" ] || return 0
  wait "$beside"
  count_tests "$folder" "$label" "${programs[@]}"
  beside=
}

finish() {
  for failure in "${failures[@]:+${failures[@]}}"; do echo "FAILED: $failure"; done
  if [ "$passed" = 0 ]; then
    failed=$((failed + 1))
    [ "$filter" = "*" ] || echo "no test has a name like '$filter'"
  fi
  echo "after $SECONDS s:"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}

if [ "$mode" = check ]; then
  export GPUSHARE_TEST_REAL_KILLS=${GPUSHARE_TEST_REAL_KILLS:-20}
  mapfile -t programs < <(list ring1 O="$build")
  mapfile -t timed < <(list timed O="$build")
  run_tests "$build" "$filter" 1 "${timed[@]}"
  mapfile -t waiting < <(list waiting O="$build")
  run_tests "$build" "$filter" "${#waiting[@]}" "${waiting[@]}"
  mapfile -t others < <(printf '%s\n' "${programs[@]}" | grep -vxF "$(printf '%s\n' "${timed[@]}")")
  # Many of them wait more than they work.
  run_tests "$build" "$filter" $((jobs + 1)) "${others[@]}"
  count_tests "$build" plain "${waiting[@]}" "${programs[@]}"
  finish
  exit
fi

# Includes that go upwards count as a failed test.
if "$make" --no-print-directory -s check-includes; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  failures+=("an include goes upwards, or a folder is too full")
fi
if build_or_count plain O="$build" all plain-tests; then
  folder=$build label=plain
  mapfile -t programs < <(list plain O="$build")
  # What measures time has the machine for itself.
  mapfile -t timed < <(list timed O="$build")
  run_tests "$build" "*" 1 "${timed[@]}"
  mapfile -t waiting < <(list waiting O="$build")
  run_tests "$build" "*" "${#waiting[@]}" "${waiting[@]}"
  count_tests "$build" plain "${waiting[@]}"
  mapfile -t others < <(printf '%s\n' "${programs[@]}" | grep -vxF "$(printf '%s\n' "${timed[@]}")")
  run_tests "$build" "*" 1 "${others[@]}" &
  beside=$!
fi
for san in address,undefined thread; do
  built=
  build_or_count "$san" O="$build/san-${san//,/-}" SAN="$san" sanitized-tests && built=1
  end_stage
  [ -n "$built" ] || continue
  folder=$build/san-${san//,/-} label=${san%%,*}
  mapfile -t programs < <(list sanitized O="$folder" SAN="$san")
  run_tests "$folder" "-Demo.*:*RealTime*" 1 "${programs[@]}" &
  beside=$!
done
built=
build_or_count fuzzers O="$build" fuzzers && built=1
end_stage
[ -z "$built" ] || run_fuzzers

finish
