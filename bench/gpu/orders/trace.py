#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trace of jobs under the agent's orders, on a GPU: trace.py BUILD [--ways WAY...] [--scale D] [--every N] [--out FILE]

The jobs are those of `order-replay --generate` (100 jobs of 1, 5 and 10 minutes in 51 minutes, as in Salus' evaluation),
with all times divided by --scale. Each is a process of bin/bench/iterations with iterations of 4 to 20 ms. All are
started and warm before the clock runs, and wait for their instant, so that nobody's start is measured.
Ways: fifo; srtf, told each length; unknown, srtf that is told nothing and has learnt nothing; turns; slices, the
driver's time slices with all at once. Beside each stand its completion times (mean, p95, p99), how long it took from the first arrival to
the last end, the ideals for the same jobs, and what the agent says of its gaps. It needs root, and a GPU that nothing
else uses; with --sim it uses a simulated one, to try the script and not to measure.
"""
import contextlib
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

TRACE = "n=100,long=19,mid=8,span_min=51,bias=3,seed=3117"
LAUNCHES = 20  # kernels of one iteration
TURN_MS = 100
WAYS = {"fifo": ("fifo", True), "srtf": ("srtf", True), "unknown": ("srtf", False), "turns": ("turns", False),
        "slices": (None, False)}
AT_ONCE = 16  # programs that start at a time


class Job:
    def __init__(self, row, scale, random_of):
        self.submit_s = float(row["submit_s"]) / scale
        self.length_s = int(row["iterations"]) * float(row["iteration_us"]) / 1e6 / scale
        wished_s = random_of.uniform(0.004, 0.020)
        self.iterations = max(round(self.length_s / wished_s), 1)
        self.iteration_us = self.length_s / self.iterations * 1e6

    def words(self, build, unit_ns, is_simulated):
        return [build / "bin/bench/iterations", "--iterations", str(self.iterations), "--launches", str(LAUNCHES),
                "--kernel-us", f"{self.iteration_us / LAUNCHES:.3f}", "--ns-per-unit", str(unit_ns),
                *(["--clock", "0"] if is_simulated else [])]


def trace(build, scale, every):
    """Every so-manieth job of the generated trace, in the order of arrival; `every` divides their arrivals too."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.csv")
        subprocess.run([build / "bin/bench/order-replay", "--generate", TRACE, "--write-trace", path], check=True,
                       stdout=subprocess.DEVNULL)
        rows = list(csv.DictReader(path.read_text().splitlines()))[::every]
    random_of = random.Random(1)
    jobs = [Job(row, scale, random_of) for row in rows]
    for job in jobs:
        job.submit_s /= every
    return jobs


def summary(arrivals, ends):
    """Of instants in seconds, job by job."""
    took = [end - arrival for arrival, end in zip(arrivals, ends)]
    return {"makespan_s": max(ends) - min(arrivals), "mean_s": sum(took) / len(took),
            "p95_s": record.quantile(took, 0.95), "p99_s": record.quantile(took, 0.99)}


def one_after_the_other(jobs, order):
    """The ideal: no hand-over costs anything. `order` picks the next one of (left, arrival, number)."""
    now, left, ends, waiting = 0.0, [job.length_s for job in jobs], [0.0] * len(jobs), set()
    coming = list(range(len(jobs)))
    while coming or waiting:
        if not waiting:
            now = max(now, jobs[coming[0]].submit_s)
        while coming and jobs[coming[0]].submit_s <= now:
            waiting.add(coming.pop(0))
        who = min(waiting, key=lambda i: order(left[i], jobs[i].submit_s, i))
        until = min(now + left[who], jobs[coming[0]].submit_s if coming else float("inf"))
        left[who] -= until - now
        now = until
        if left[who] <= 1e-9:
            waiting.remove(who)
            ends[who] = now
    return summary([job.submit_s for job in jobs], ends)


def calibrated(build, is_simulated):
    """What the program says when it is warm and alone: how long a unit of work is, and how long it took to warm up."""
    with rig.Program([build / "bin/bench/iterations", "--launches", str(LAUNCHES),
                      *(["--clock", "0"] if is_simulated else [])]) as program:
        return ready(program)


def ready(program):
    said = program.take(120) or {}
    return said if said.get("ready") else sys.exit("a job ended before it was ready: " + program.errors()[-1500:])


def play(way, build, jobs, alone, is_simulated):
    policy, is_told = WAYS[way]
    config = f'[gpu.0]\npolicy = "{policy}"\nturn_ms = {TURN_MS}\n' if policy == "turns" else \
        f'[gpu.0]\npolicy = "{policy}"\n'
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(rig.Agent(build, config) if policy else rig.Native())
        programs = []
        for begin in range(0, len(jobs), AT_ONCE):
            batch = []
            for job in jobs[begin:begin + AT_ONCE]:
                words = [str(word) for word in job.words(build, alone["ns_per_unit"], is_simulated)]
                if policy:
                    length_us = job.length_s * 1e6 + alone["warm_ns"] / 1e3
                    told = ["--length", f"{length_us:.0f}"] if is_told else []
                    words = [*agent.tool, "run", "--shim", *told, "--", *words]
                batch.append(stack.enter_context(rig.Program(words)))
                while not rig.has_become(batch[-1], "iterations"):  # its place is after those before it
                    time.sleep(0.001)
            for program in batch:
                ready(program)
            programs += batch
        print(f"{way}: {len(programs)} jobs are warm", file=sys.stderr, flush=True)
        start = time.monotonic() + 0.2
        said = [None] * len(jobs)

        def wait_for(index):
            said[index] = programs[index].take(900)

        readers = [threading.Thread(target=wait_for, args=(index,), daemon=True) for index in range(len(jobs))]
        for reader in readers:
            reader.start()
        told_at = []
        for job, program in zip(jobs, programs):
            time.sleep(max(start + job.submit_s - time.monotonic(), 0))
            told_at.append(time.monotonic())
            program.tell("go")
        for reader in readers:
            reader.join()
        queue = json.loads(agent.ask("queue", "--json").stdout) if policy else None
        log = agent.log() if policy else ""
    lost = [index for index, value in enumerate(said) if not value]
    if lost:
        sys.exit(f"{way}: jobs {lost} ended without a result: {log[-1500:]}")
    ends = [value["ended_ns"] / 1e9 for value in said]
    return summary(told_at, ends) | {
        "way": way, "verified": all(value["verified"] for value in said),
        "longest_queue_s": max(value["began_ns"] / 1e9 - at for value, at in zip(said, told_at)),
        "jobs": [[round(at - start, 4), round(job.length_s, 4), round(end - at, 4)]
                 for job, at, end in zip(jobs, told_at, ends)],
        "gpus": queue.get("gpus") if queue else None}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--ways", nargs="+", choices=sorted(WAYS), default=["fifo", "srtf"])
    parser.add_argument("--scale", type=float, default=150, help="all times are divided by it (default: 150)")
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth job, arrivals divided by it too")
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    options = parser.parse_args()
    jobs = trace(options.build, options.scale, options.every)
    with rig.Simulation(options.build) if options.sim else contextlib.nullcontext():
        alone = calibrated(options.build, options.sim)
        ideals = {"fifo": one_after_the_other(jobs, lambda left, arrival, number: (arrival, number)),
                  "srtf": one_after_the_other(jobs, lambda left, arrival, number: (left, arrival, number))}
        print(json.dumps({"ideal": ideals}), flush=True)
        command = f"bench/gpu/orders/trace.py build --scale {options.scale:g} --every {options.every} --ways " + \
            " ".join(options.ways) + (" --sim" if options.sim else "") + " --out FILE"
        for way in options.ways:  # each is kept as soon as it is over
            result = play(way, options.build, jobs, alone, options.sim)
            print(json.dumps({key: value for key, value in result.items() if key != "jobs"}), flush=True)
            record.Record(options.out).write(record.origin(command, options.commit) |
                                             {"trace": TRACE, "alone": alone, "ideal": ideals} | result)


if __name__ == "__main__":
    main()
