#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Iterations on a GPU: iterations_check.py BUILD [OUT.jsonl] [--pci ADDRESS] [--quick]

Compares the boundaries that are recognised with the true ones, in `steps` and (where there is torch) in the PyTorch
programs of iterations.py; lets two programs take turns; and measures what a launch costs. It prints a table and adds
the run to OUT.jsonl. The exit status is 1 when something was not as it must be.

Turns are judged in real time: all but one in a hundred of the gaps between two turns must be at most 2 ms. On the
simulated GPU everything competes for processors with the rest of the machine, and one delay among some 50 gaps breaks
that bound. There a pair runs at real-time priority (as root) and has three attempts; on a real GPU it has one.
"""
import argparse
import importlib.util
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1] / "bench"))
import rig
from record import Record, origin

LONGEST_GAP_US = 2000


class Check:
    """The checks of one run: each is printed when it is made, and kept for the file."""

    def __init__(self, options):
        self.options, self.results, self.wrong = options, [], 0
        self.is_simulated = options.pci is not None or "GPUSHARE_SIM" in os.environ

    def drive(self, arguments, *commands):
        """Runs programs under shim_drive: its exit code, and the JSON lines of the programs and of itself."""
        words = rig.shim_drive(self.options.build, *arguments, pci=self.options.pci)
        if self.is_simulated and "--alternate" in arguments and os.geteuid() == 0:
            words = ["chrt", "--fifo", "1", *words]
        for i, each in enumerate(commands):
            words += ["--"] * (i > 0) + each
        seen = rig.run(words, timeout=240)
        if seen.code != 0:
            print(seen.code, seen.err[-2000:], file=sys.stderr)
        return seen.code, rig.json_lines(seen.out), rig.json_lines(seen.err)

    def note(self, name, is_right, **what):
        self.wrong += not is_right
        self.results.append({"check": name, "is_right": is_right, **what})
        print(f"{'right' if is_right else 'WRONG'}  {name:44} " +
              " ".join(f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}"
                       for key, value in what.items() if not isinstance(value, (list, dict))), flush=True)

    def accuracy(self, name, command):
        code, out, err = self.drive(["--features", "iterations"], command)
        seen = out[-1] if out else {}
        score = seen.get("accuracy") or 0
        self.note(name, code == 0 and score >= 0.99, accuracy=score,
                  **{key: seen.get(key) for key in ("iterations", "right", "missed", "invented", "phases", "known_phases",
                                                    "wrong_phases", "mean_us", "true_mean_us", "wrong")},
                  driver=err[-2:])

    def turns(self, name, *commands):
        for _ in range(3 if self.is_simulated else 1):
            code, out, err = self.drive(["--features", "iterations", "--alternate", "10"], *commands)
            turns = next((line for line in err if "turns" in line), {})
            is_right = (code == 0 and turns.get("gaps", 0) > 0 and turns["gap_p99_us"] <= LONGEST_GAP_US
                        and turns["wrong_length"] == 0)
            if is_right:
                break
        self.note(f"turns of 10: {name}", is_right, **turns, accuracies=[each.get("accuracy") for each in out])

    def launch(self, features):
        medians = []
        for _ in range(3):
            _, out, _ = self.drive(["--features", features], [self.options.build / "bin/workloads/launch", "--count",
                                                              "20000", "--sync-count", "5000"])
            medians.append((out[-1]["launch_p50_ns"], out[-1]["sync_p50_ns"]))
        self.note(f"launch, features {features}", True, launch_p50_ns=min(launch for launch, _ in medians),
                  sync_p50_ns=min(sync for _, sync in medians))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=rig.build_folder, help="the folder that make or make dist has filled")
    parser.add_argument("out", nargs="?", help="the file to which this run is added, as one line of JSON")
    parser.add_argument("--pci", help="the address of the simulated GPU (default: its own, where GPUSHARE_SIM is set)")
    parser.add_argument("--quick", action="store_true", help="make fewer iterations")
    options = parser.parse_args()
    check, few = Check(options), 200 if options.quick else 1000

    def steps(mode, count):
        return [options.build / "bin/workloads/steps", "--mode", mode, "--iterations", count]

    def torch(mode, count):
        return [sys.executable, HERE / "iterations.py", mode, count]

    pairs = [("steps train and decode", steps("train", 2 * few), steps("decode", 2 * few))]
    for mode in ("train", "decode", "serve"):
        check.accuracy(f"steps {mode}", steps(mode, few))
    if importlib.util.find_spec("torch") is not None:
        for mode, count in (("conv", 480), ("transformer", 300), ("lora", 300), ("decode", 1200)):
            check.accuracy(f"torch {mode}", torch(mode, count // 4 if options.quick else count))
        pairs += [("torch conv and transformer", torch("conv", 480), torch("transformer", 300)),
                  ("torch transformer and decode", torch("transformer", 300), torch("decode", 1200))]
    for name, *commands in pairs:
        check.turns(name, *commands)
    for features in ("none", "iterations", "gate,partitions,iterations"):
        check.launch(features)
    Record(options.out).write({**origin(), "checks": check.results})
    print(f"{len(check.results) - check.wrong} right, {check.wrong} wrong")
    return check.wrong != 0


if __name__ == "__main__":
    sys.exit(main())
