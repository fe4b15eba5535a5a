#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Counts the ioctls that real programs make of the driver from their start to their end, and tells which
# of them the kernel module would look at. It needs a GPU.
#   call_mix.sh BUILD OUT.jsonl [COMMIT]
# Each program of tests/gpu/programs runs with BUILD/lib/tests/libcall_mix.so preloaded. One that fails, or
# is not installed, has no calls in the result, which says so. tests/kernel/mean_cost.py weighs the cost of
# the module's calls with these numbers.
set -u
build=$(realpath "$1")
out=$2
commit=${3:-}
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for script in "$here"/programs/*.py; do
  name=$(basename "$script" .py)
  : >"$folder/$name.log"
  GPUSHARE_CALL_MIX=$folder/$name.log LD_PRELOAD=$build/lib/tests/libcall_mix.so \
    timeout 120 python3 "$script" >"$folder/$name.out" 2>&1
  echo $? >"$folder/$name.code"
  printf '%-20s %s\n' "$name" "$(tail -n 1 "$folder/$name.out" | cut -c1-90)"
done

PYTHONPATH=$here/../../bench python3 - "$folder" "$out" "$commit" <<'PYTHON'
import collections, glob, os, sys

from record import Record, origin

folder, out, commit = sys.argv[1:]
result = {**origin("tests/gpu/call_mix.sh BUILD OUT", commit), "programs": []}
for code in sorted(glob.glob(folder + "/*.code")):
    label = os.path.basename(code)[:-5]
    exit_code = int(open(code).read())
    calls = collections.Counter()
    if exit_code == 0:
        calls.update(tuple(line.split()) for line in open(folder + "/" + label + ".log"))
    result["programs"].append({"program": label, "exit_code": exit_code, "calls": [
        {"number": number, "word": word, "is_of_interest": interest == "yes", "calls": count}
        for (number, word, interest), count in sorted(calls.items())]})
Record(out).write(result)
sys.exit(any(program["exit_code"] for program in result["programs"]))
PYTHON
