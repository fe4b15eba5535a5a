#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: run.sh all|check MAKE BUILD [FILTER]
#   check   `make check`: runs the programs of ring 1 as they are built, plain. FILTER is GoogleTest's
#           (T= of make): only the tests that it names.
#   all     `make test`: checks the floors of the includes, then builds and runs every test that this
#           machine can run. Those with threads, and those that start programs, run plain; all but
#           those in real time, for which sanitized programs are too slow, under the address and
#           undefined sanitizers; those with threads under the thread sanitizer; the fuzzers, each for
#           GPUSHARE_FUZZ_SECONDS (20). One stage is built after the other without a pause, in the
#           processors' idle time, and is tested as soon as it is built: first what waits most of its
#           time, and what the builder takes meanwhile is nobody's.
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

# Before a command that is to have the processors only while nothing else wants them.
in_idle_time=()
chrt --idle 0 true 2>/dev/null && in_idle_time=(chrt --idle 0)
# Before each test program.
before_each=()
# After so many seconds a test program is ended, because it hangs. In idle time, where test programs of
# `check` and the fuzzers may run, one that does not hang may wait for hours while others work.
most_seconds=1800 most_idle_seconds=$((3 * 3600))

# Programs of tests that run at a time: `more` than there are processors, as many of them wait more
# than they work. Beside the builder, as many as there are; `beside` is its process.
at_once() {
  if [ -n "$beside" ] && kill -0 "$beside" 2>/dev/null; then
    echo "$jobs"
  else
    echo $((jobs + more))
  fi
}
more=2
# The quiet ones work for a fifth of their time.
run_quiet_tests() {
  more=6
  run_tests "$@"
  more=2
}

# run_tests FOLDER FILTER PROGRAM...: each program leaves FOLDER/logs/PROGRAM.log, .status, and .cpu, the seconds
# that it and the programs it waited for have computed.
# PROGRAM@iofn runs the part i of n of its tests.
run_tests() {
  local folder=$1 filter=$2 program log pid pids=()
  shift 2
  mkdir -p "$folder/logs"
  for program in "$@"; do
    while :; do
      for pid in "${!pids[@]}"; do kill -0 "$pid" 2>/dev/null || unset "pids[$pid]"; done
      [ "${#pids[@]}" -ge "$(at_once)" ] || break
      sleep 0.1
    done
    log=$folder/logs/$(basename "$program")
    (
      if [[ $program =~ (.*)@([0-9]+)of([0-9]+)$ ]]; then
        program=${BASH_REMATCH[1]}
        export GTEST_SHARD_INDEX=${BASH_REMATCH[2]} GTEST_TOTAL_SHARDS=${BASH_REMATCH[3]}
      fi
      "${before_each[@]}" timeout "$most_seconds" "$program" --gtest_filter="$filter" >"$log.log" 2>&1
      echo $? >"$log.status"
      times >"$log.cpu"
    ) &
    pids[$!]=1
  done
  wait "${!pids[@]}"
}

# Of what runs plain as well: nothing in real time, and no figures that take minutes when they are
# sanitized; and fewer random events, whose kinds all come up in the first thousands. Of the models of freezes and
# charges fewer seeds, which take ten times as long as plain (`make check` runs more). The thread sanitizer
# has nothing to find in long tests of one thread, which run plain and under the others.
run_sanitized_tests() { # FOLDER PROGRAM...
  local folder=$1 not="-*RealTime*:*AgentLoop.*:*ComeAndGo.*:*OrdersOfEach.*:Ring.*:*/Partitions.*:CopyPartitions.*:CreditGate.*:Gate.*:*/Announced.*:Steps.*:Replay.TurnsAreProcessorSharing:UsageOfShortJobs.*:UsageFile.NeverExceedsItsLimit"
  shift
  [[ $folder != *thread ]] ||
    not+=:Usage*:Seeds/DeathsModel.*/1?
  GPUSHARE_TEST_ORDER_EVENTS=${GPUSHARE_TEST_ORDER_EVENTS:-20000} \
    GPUSHARE_TEST_VIRTUAL_KILLS=${GPUSHARE_TEST_VIRTUAL_KILLS:-100} \
    GPUSHARE_TEST_FREEZE_SEEDS=${GPUSHARE_TEST_FREEZE_SEEDS:-8} \
    GPUSHARE_TEST_CHARGE_SEEDS=${GPUSHARE_TEST_CHARGE_SEEDS:-1} \
    run_tests "$folder" "$not" "$@"
}

# Of the children, in the second line of what `times` prints: "1m2.345s 0m1.002s".
cpu_seconds() { # FILE
  tail -n 1 "$1" | tr 'ms' '  ' | awk '{ printf "%.0f\n", 60 * $1 + $2 + 60 * $3 + $4 }'
}

# count_tests FOLDER LABEL PROGRAM...: of what they left. A test program that ends badly without naming
# a test (a crash, a sanitizer's report at exit) counts as one failure, and so does one that says of no test.
count_tests() {
  local folder=$1 label=$2 program log bad ok skip
  shift 2
  for program in "$@"; do
    log=$folder/logs/$(basename "$program").log
    bad=$(grep -cE '^\[  FAILED  \] [^ ]+ \(' "$log")
    [ "$(cat "${log%.log}.status")" = 0 ] || [ "$bad" != 0 ] || bad=1
    ok=$(grep -cE '^\[       OK \]' "$log")
    skip=$(grep -cE '^\[  SKIPPED \] [^ ]+ \(' "$log")
    [ "$ok$bad$skip" != 000 ] || grep -qE '^\[==========\]' "$log" || bad=1
    printf '  %-10s %-22s %4d passed %3d failed %3d skipped %5s s of a processor\n' \
      "$label" "$(basename "$program")" "$ok" "$bad" "$skip" "$(cpu_seconds "${log%.log}.cpu")"
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

# The programs of a list of the Makefile, one a line.
list() { # KIND MAKE-ARGUMENT...
  local kind=$1
  shift
  "$make" --no-print-directory -s "$@" "list-of-$kind-tests"
}

# One stage after the other. Writes "STAGE STATUS" to descriptor 9 when each is built.
build_stages() {
  local stage folder targets
  for stage in plain address,undefined thread; do
    folder=$build/san-${stage//,/-} targets=(SAN="$stage" sanitized-tests)
    case $stage in
    plain) folder=$build targets=(all plain-tests) ;;
    address*) targets+=(fuzzers) ;;
    esac
    echo "building: $stage (after $SECONDS s)"
    "${in_idle_time[@]}" nice -n 5 "$make" --no-print-directory -j"$jobs" O="$folder" "${targets[@]}" 9>&-
    echo "$stage $?" >&9
  done
}

fuzzers() { find "$build/san-address-undefined/bin/fuzz" -maxdepth 1 -type f -executable 2>/dev/null | sort; }

# Each leaves a log and a status, as a test program does. Two at a time: the machine that this is made for has two cores.
# In idle time an input may take long that is quick, and so may the end of one that has found nothing.
run_fuzzers() {
  local program log
  for program in $(fuzzers); do
    log=$build/logs/$(basename "$program")
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    (
      cd "$(mktemp -d)" || exit
      "${in_idle_time[@]}" timeout $((fuzz_seconds + most_idle_seconds)) "$program" -max_total_time="$fuzz_seconds" \
        -timeout=300 -rss_limit_mb=2048 -print_final_stats=1 >"$log.log" 2>&1
      echo $? >"$log.status"
    ) &
  done
  wait
}

count_fuzzers() {
  local program log
  for program in $(fuzzers); do
    log=$build/logs/$(basename "$program")
    if [ "$(cat "$log.status")" = 0 ]; then
      passed=$((passed + 1))
      printf '  %-10s %-22s %s\n' fuzz "$(basename "$program")" \
        "$(grep -o 'number_of_executed_units: [0-9]*' "$log.log")"
    else
      failed=$((failed + 1))
      failures+=("fuzz $(basename "$program"), see $log.log")
      tail -n 40 "$log.log"
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

beside=
trap '[ -z "$beside" ] || kill "$beside" 2>/dev/null' EXIT

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
  mapfile -t quiet < <(list quiet O="$build")
  mapfile -t programs < <(list check O="$build")
  mapfile -t computing < <(list computing O="$build")
  # What only computes has the time that the others leave.
  (
    before_each=("${in_idle_time[@]}") most_seconds=$most_idle_seconds more=0
    [ "${#in_idle_time[@]}" = 0 ] || run_tests "$build" "$filter" "${computing[@]}"
  ) &
  run_quiet_tests "$build" "$filter" "${quiet[@]}"
  run_tests "$build" "$filter" "${programs[@]}"
  [ "${#in_idle_time[@]}" != 0 ] || run_tests "$build" "$filter" "${computing[@]}"
  wait
  count_tests "$build" plain "${quiet[@]}" "${programs[@]}" "${computing[@]}"
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
mkfifo "$build/logs/built.$$"
build_stages 9>"$build/logs/built.$$" &
beside=$!
exec 9<"$build/logs/built.$$"
rm "$build/logs/built.$$"
declare -A is_built
fuzzing=
while read -r stage status <&9; do
  if [ "$status" != 0 ]; then
    failed=$((failed + 1))
    failures+=("$stage does not build")
    continue
  fi
  is_built[$stage]=1
  case $stage in
  plain)
    mapfile -t programs < <(list quiet O="$build")
    run_quiet_tests "$build" "*" "${programs[@]}"
    count_tests "$build" plain "${programs[@]}"
    mapfile -t programs < <(list plain O="$build")
    run_tests "$build" "*" "${programs[@]}"
    count_tests "$build" plain "${programs[@]}"
    ;;
  address,undefined | thread)
    # Nothing is built any more.
    if [ "$stage" = thread ] && [ -n "${is_built[address,undefined]-}" ]; then
      run_fuzzers &
      fuzzing=$!
    fi
    folder=$build/san-${stage//,/-}
    mapfile -t programs < <(list sanitized O="$folder" SAN="$stage")
    run_sanitized_tests "$folder" "${programs[@]}"
    count_tests "$folder" "${stage%%,*}" "${programs[@]}"
    ;;
  esac
done
wait "$beside" 2>/dev/null  # the shell may have forgotten one that ended long ago
beside=
if [ -n "${is_built[address,undefined]-}" ]; then
  [ -n "$fuzzing" ] || run_fuzzers  # the last stage was not built
  [ -z "$fuzzing" ] || wait "$fuzzing"
  count_fuzzers
fi

finish
