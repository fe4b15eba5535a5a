#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the credit gate costs and holds: credit.py BUILD [--seconds S] [--rounds N] [--part cost|cap|beside]

Prints a JSON object for each figure; bench/record.py keeps them:
    bench/record.py bench/results/credit.jsonl -- bench/gpu/spatial/credit.py build
shim_drive plays the agent, so no agent runs, and nothing else may use the GPU.
  cost    kernels back to back and empty launches, with the gate on the host alone, with credit, and with at most 4 ms of
          work in line
  cap     512 kernels of 200 us queued, the gate open for 15 of 50 ms: the part that they get of what they get alone
  beside  a short kernel every 5 ms beside 512 queued ones of 400 us and 2 ms that are held half of the time. Both must be
          clients of one MPS server: CUDA_MPS_PIPE_DIRECTORY names its directory; without it this is not measured.
On the simulated GPU (GPUSHARE_SIM, LD_LIBRARY_PATH) it shows that the script works, and no figure of a GPU.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

OPEN_US, CLOSED_US = 15_000, 35_000  # 30 %
GATES = {"host": ("gate",), "credit": ("gate,credit",), "bounded": ("gate,credit", "--ahead-us", 4000)}


def last_object(text):
    objects = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(objects[-1]) if objects else sys.exit(f"a program said nothing: {text[-400:]}")


class Bench:
    def __init__(self, build, seconds, rounds):
        self.build, self.seconds, self.rounds = build, seconds, rounds

    def command(self, gate, words, *driven):
        name, *rest = words
        program = [self.build / "bin/workloads" / name, *rest]
        if gate is not None:
            program = [self.build / "bin/tests/shim_drive", "--features", *GATES[gate], *driven, "--", *program]
        return [str(word) for word in program]

    def run(self, gate, words, *driven):
        done = subprocess.run(self.command(gate, words, *driven), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{words[0]}: status {done.returncode}: {done.stderr[-400:]}")
        return last_object(done.stdout)

    def spin(self, kernel_us, depth):
        return ["spin", "--kernel-us", kernel_us, "--depth", depth, "--ns-per-unit", 129, "--seconds", self.seconds]

    def cost(self):
        for kernel_us in (5, 20, 100, 400, 2000):
            speeds = {gate: [] for gate in ("none", *GATES)}
            for _ in range(self.rounds):  # in turn, so that a drift meets all alike
                for gate, seen in speeds.items():
                    said = self.run(None if gate == "none" else gate, self.spin(kernel_us, 64))
                    seen.append(said["units_per_ms"])
            medians = {gate: statistics.median(seen) for gate, seen in speeds.items()}
            yield {"part": "cost", "kernel_us": kernel_us, "units_per_ms": medians,
                   "credit_of_host": round(medians["credit"] / medians["host"], 4),
                   "bounded_of_host": round(medians["bounded"] / medians["host"], 4), "rounds": self.rounds}
        for gate in GATES:
            said = [self.run(gate, ["launch", "--count", 100_000, "--sync-count", 10_000]) for _ in range(self.rounds)]
            yield {"part": "cost", "gate": gate, "rounds": self.rounds} | {
                key: statistics.median(one[key] for one in said) for key in ("launch_p50_ns", "sync_p50_ns")}

    def cap(self):
        for depth in (16, 512):
            alone = self.run(None, self.spin(200, depth))["units_per_ms"]
            for gate in ("host", "credit"):
                said = self.run(gate, self.spin(200, depth), "--gate-us", OPEN_US, "--closed-us", CLOSED_US)
                yield {"part": "cap", "gate": gate, "queued": depth, "due_pct": 30,
                       "pct": round(100 * said["units_per_ms"] / alone, 2), "verified": said["verified"]}

    def beside(self):
        if "CUDA_MPS_PIPE_DIRECTORY" not in os.environ and "GPUSHARE_SIM_MPS" not in os.environ:
            yield {"part": "beside", "not_measured": "CUDA_MPS_PIPE_DIRECTORY is not set"}
            return
        samples = max(int(self.seconds * 150), 10)
        short = ["periodic", "--period-us", 5000, "--samples", samples, "--ns-per-unit", 129]
        yield {"part": "beside", "kernel_us": 0, "gate": "alone"} | self.latency(short)
        for kernel_us in (400, 2000):
            for gate in (None, "host", "credit"):
                driven = () if gate is None else ("--gate-us", 25_000, "--closed-us", 25_000)
                other = subprocess.Popen(self.command(gate, self.spin(kernel_us, 512), *driven),
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                said = self.latency(short)
                share = last_object(other.communicate()[0])
                yield {"part": "beside", "kernel_us": kernel_us, "gate": gate or "none",
                       "other_units_per_ms": share["units_per_ms"], "verified": share["verified"]} | said

    def latency(self, words):
        said = self.run(None, words)
        return {key: said[key] for key in ("p50_us", "p99_us") if key in said}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=("cost", "cap", "beside"), action="append")
    options = parser.parse_args()
    bench = Bench(options.build.resolve(), options.seconds, options.rounds)
    for part in options.part or ("cost", "cap", "beside"):
        for row in getattr(bench, part)():
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
