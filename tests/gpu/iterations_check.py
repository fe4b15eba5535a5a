#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Iterations on a GPU: iterations_check.py BUILD [OUT.jsonl] [--pci ADDRESS] [--quick]

Boundaries that are recognised, of steps and of the PyTorch programs of iterations.py (where there
is torch), beside the truth; two programs that take turns; and what a launch costs. Prints a table,
and adds the run to OUT.jsonl. Status 1: something was not as it must be.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from record import Record, origin

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("out", nargs="?")
parser.add_argument("--pci", help="of the simulated GPU")
parser.add_argument("--quick", action="store_true", help="fewer iterations")
options = parser.parse_args()
build = pathlib.Path(options.build)
here = pathlib.Path(__file__).resolve().parent
has_torch = importlib.util.find_spec("torch") is not None
results, wrong = [], 0


def drive(arguments, *commands):
    """The JSON lines of the programs, and those of the driver."""
    command = [str(build / "bin/tests/shim_drive")]
    command += ["--pci", options.pci] if options.pci else []
    command += arguments
    for each in commands:
        command += ["--", *each]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lines = [[json.loads(line) for line in text.splitlines() if line.startswith("{")]
             for text in (done.stdout, done.stderr)]
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode, *lines


def note(name, is_right, **what):
    global wrong
    wrong += not is_right
    results.append({"check": name, "is_right": is_right, **what})
    short = {k: v for k, v in what.items() if not isinstance(v, (list, dict))}
    print(f"{'right' if is_right else 'WRONG'}  {name:44} "
          + " ".join(f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}"
                     for k, v in short.items()), flush=True)


def steps(mode, count, *more):
    return [str(build / "bin/workloads/steps"), "--mode", mode, "--iterations", str(count), *more]


def torch_program(mode, count):
    return [sys.executable, str(here / "iterations.py"), mode, str(count)]


def accuracy(name, command, features="iterations"):
    code, out, err = drive(["--features", features], command)
    seen = out[-1] if out else {}
    score = seen.get("accuracy") or 0
    note(name, code == 0 and score >= 0.99, accuracy=score,
         **{k: seen.get(k) for k in ("iterations", "right", "missed", "invented", "phases",
                                     "known_phases", "wrong_phases", "mean_us", "true_mean_us",
                                     "wrong")},
         driver=err[-2:])


few = 200 if options.quick else 1000
for mode in ("train", "decode", "serve"):
    accuracy(f"steps {mode}", steps(mode, few))
if has_torch:
    for mode, count in (("conv", 480), ("transformer", 300), ("lora", 300), ("decode", 1200)):
        accuracy(f"torch {mode}", torch_program(mode, count // 4 if options.quick else count))

pairs = [("steps train and decode", steps("train", 2 * few), steps("decode", 2 * few))]
if has_torch:
    pairs += [("torch conv and transformer", torch_program("conv", 480),
               torch_program("transformer", 300)),
              ("torch transformer and decode", torch_program("transformer", 300),
               torch_program("decode", 1200))]
for name, *commands in pairs:
    code, out, err = drive(["--features", "iterations", "--alternate", "10"], *commands)
    turns = next((line for line in err if "turns" in line), {})
    note(f"turns of 10: {name}",
         code == 0 and turns.get("gaps", 0) > 0 and turns["gap_p99_us"] <= 2000
         and turns["wrong_length"] == 0, **turns, accuracies=[each.get("accuracy") for each in out])

for way in ("none", "iterations", "gate,partitions,iterations"):
    medians = []
    for _ in range(3):
        code, out, _ = drive(["--features", way], [str(build / "bin/workloads/launch"), "--count",
                                                   "20000", "--sync-count", "5000"])
        medians.append((out[-1]["launch_p50_ns"], out[-1]["sync_p50_ns"]))
    note(f"launch, features {way}", True, launch_p50_ns=min(m[0] for m in medians),
         sync_p50_ns=min(m[1] for m in medians))

if options.out:
    Record(options.out).write({**origin(), "checks": results})
print(f"{len(results) - wrong} right, {wrong} wrong")
sys.exit(wrong != 0)
