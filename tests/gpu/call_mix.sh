#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which ioctls do real programs make of the driver, from their start to their end, and which of them
# would the kernel module look at?
#   call_mix.sh BUILD OUT.jsonl [COMMIT]      needs a GPU
# Runs each program with BUILD/lib/tests/libcall_mix.so preloaded. One that fails, or is not installed, is
# left out, and the result says so. tests/kernel/mean_cost.py makes a mean of it.
set -u
build=$(realpath "$1")
out=$2
commit=${3:-}
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for script in "$here"/programs/*.py; do
  name=$(basename "$script" .py)
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
