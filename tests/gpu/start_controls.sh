#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Lists the scheduling controls that real programs make of the driver, and tells whether the kernel module
# would allow them. It needs a GPU, and root for a server of MPS.
#   start_controls.sh BUILD OUT.jsonl [COMMIT]
# Each program runs with BUILD/lib/tests/libcontrol_log.so preloaded. A program whose library (PyTorch, JAX,
# Triton) is not installed is left out, and the result says so. The exit status is 1 when a program failed,
# or made a control that the driver accepted and the module would refuse.
set -u
build=$(realpath "$1")
out=$2
commit=${3:-}
here=$(dirname "$(realpath "$0")")
logger=$build/lib/tests/libcontrol_log.so
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

programs() { # NAME COMMAND...
  echo "spin $build/bin/workloads/spin --seconds 1 --device 0"
  echo "launch $build/bin/workloads/launch --count 2000 --sync-count 500 --streams 8"
  echo "copy $build/bin/workloads/copy --rounds 3"
  local script
  for script in "$here"/programs/*.py; do echo "$(basename "$script" .py) python3 $script"; done
}
run() { # LABEL NAME COMMAND...
  local label=$1 name=$2
  shift 2
  GPUSHARE_CONTROL_LOG=$folder/$label.log LD_PRELOAD=$logger timeout 120 "$@" >"$folder/$label.out" 2>&1
  echo $? >"$folder/$label.code"
  printf '%-28s %s\n' "$label" "$(tail -n 1 "$folder/$label.out" | cut -c1-90)"
}

while read -r name command; do
  # shellcheck disable=SC2086 # the command's words
  run "$name" "$name" $command
done < <(programs)

# The same programs run as clients of MPS; its server and its control daemon are watched, too.
export CUDA_MPS_PIPE_DIRECTORY=$folder/mps CUDA_MPS_LOG_DIRECTORY=$folder/mps
mkdir -p "$folder/mps"
if command -v nvidia-cuda-mps-control >/dev/null && GPUSHARE_CONTROL_LOG=$folder/mps-server.log \
  LD_PRELOAD=$logger timeout 60 nvidia-cuda-mps-control -d; then
  while read -r name command; do
    # shellcheck disable=SC2086
    run "mps-$name" "$name" $command
  done < <(programs)
  echo quit | timeout 60 nvidia-cuda-mps-control
  touch "$folder/mps-server.log"
  echo 0 >"$folder/mps-server.code"
fi

PYTHONPATH=$here/../../bench python3 - "$folder" "$out" "$commit" "$here" <<'PYTHON'
import collections, glob, json, os, sys

from record import Record, origin

folder, out, commit, here = sys.argv[1:]
result = {**origin("tests/gpu/start_controls.sh BUILD OUT", commit), "programs": []}
bad = 0
for code in sorted(glob.glob(folder + "/*.code")):
    label = os.path.basename(code)[:-5]
    exit_code = int(open(code).read())
    text = open(folder + "/" + label + ".out").read() if os.path.exists(folder + "/" + label + ".out") else ""
    is_missing = "ModuleNotFoundError" in text
    calls, times = collections.Counter(), collections.Counter()
    lines = [json.loads(line) for line in open(folder + "/" + label + ".log")] if os.path.exists(folder + "/" + label + ".log") else []
    for line in lines:
        key = (line["control"], line["rule"], line["is_allowed"], line["status"])
        calls[key] += 1
        if line["value"] not in ("0", "0x0"):
            times[key, line["value"]] += 1
    rows = [{"control": c, "rule": r, "is_allowed": a, "driver_status": s, "calls": n,
             "values": sorted({v for (k, v) in times if k == (c, r, a, s)})[:8]}
            for (c, r, a, s), n in sorted(calls.items())]
    conflicts = [row for row in rows if not row["is_allowed"] and row["driver_status"] in ("0", "0x0")]
    if not is_missing:
        bad += len(conflicts) + (exit_code != 0)
    result["programs"].append({"program": label, "exit_code": exit_code, "is_installed": not is_missing,
                               "controls": rows, "would_be_refused": conflicts,
                               **({"output": text[-600:]} if exit_code else {})})
Record(out).write(result)
for program in result["programs"]:
    for row in program["would_be_refused"]:
        print("would be refused:", program["program"], json.dumps(row))
print(f"{len(result['programs'])} programs, {bad} problems")
sys.exit(1 if bad else 0)
PYTHON
