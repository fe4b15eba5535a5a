#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trace of jobs under the agent's orders, on a GPU: trace.py BUILD [--ways WAY...] [--scale D] [--every N] [--out FILE]

The jobs are those of `order-replay --generate` (100 jobs of 1, 5 and 10 minutes in 51 minutes, as in Salus' evaluation),
with all times divided by --scale. Each is a process of bin/bench/iterations with iterations of 4 to 20 ms. All are
started and warm before the clock runs, and wait for their instant, so that nobody's start is measured; the length that
is told includes the warm-up, and nothing for the start.
Ways: fifo; srtf, told each length; unknown, srtf that is told nothing and has learnt nothing; turns; slices, the
driver's time slices with all at once. Beside each stand its completion times (mean, p95, p99), how long it took from the first arrival to
the last end, the ideals for the same jobs, the GPU time that the jobs' starts had taken by the agent's counting
(starts_ms), and what the agent says of its gaps; and by the GPU's own clock the gaps between two jobs (all, and those
where the first one had ended) and how long all iterations took in all. It needs root, and a GPU that nothing else uses;
with --sim it uses a simulated one, whose driver takes --teardown-ms to take a context down and is held six times for
--start-ms by each start, to try the script and not to measure.
"""
import contextlib
import csv
import itertools
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


class Job:
    def __init__(self, row, scale, random_of):
        self.submit_s = float(row["submit_s"]) / scale
        self.length_s = int(row["iterations"]) * float(row["iteration_us"]) / 1e6 / scale
        wished_s = random_of.uniform(0.004, 0.020)
        self.iterations = max(round(self.length_s / wished_s), 1)
        self.iteration_us = self.length_s / self.iterations * 1e6

    def words(self, build, alone, is_simulated):
        """An iteration takes as long alone as the trace says, with what host and driver add to its kernels."""
        kernels_us = max(self.iteration_us - alone["overhead_us"], 1)
        return [build / "bin/bench/iterations", "--iterations", str(self.iterations), "--launches", str(LAUNCHES),
                "--kernel-us", f"{kernels_us / LAUNCHES:.3f}", "--ns-per-unit", str(alone["ns_per_unit"]),
                *(["--clock", "0"] if is_simulated else [])]


def trace(build, scale, every):
    """Every so-manieth job of the generated trace, in the order of arrival; `every` divides their arrivals too. And the
    ideals of these jobs, in which no hand-over costs anything."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.csv")
        replay = build / "bin/bench/order-replay"
        subprocess.run([replay, "--generate", TRACE, "--write-trace", path], check=True, stdout=subprocess.DEVNULL)
        rows = list(csv.DictReader(path.read_text().splitlines()))[::every]
        for row in rows:
            row["submit_s"] = float(row["submit_s"]) / every
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        said = subprocess.run([replay, "--trace", path, "--scale", str(scale), "--json"], check=True,
                              capture_output=True)
    ideals = {ideal.pop("order").removeprefix("ideal: "): ideal for ideal in json.loads(said.stdout)["ideals"]}
    random_of = random.Random(1)
    return [Job(row, scale, random_of) for row in rows], ideals


def summary(arrivals, ends):
    """Of instants in seconds, job by job."""
    took = [end - arrival for arrival, end in zip(arrivals, ends)]
    return {"makespan_s": max(ends) - min(arrivals), "mean_s": sum(took) / len(took),
            "p95_s": record.quantile(took, 0.95), "p99_s": record.quantile(took, 0.99)}


def seen_by_the_gpu(said):
    """Where the time went, by the stamps at the begin and the end of each iteration. Empty where there are none."""
    if not all(value["stamps"] for value in said):
        return {}
    last = [value["stamps"][-1] for value in said]
    all_of = sorted((instant, who) for who, value in enumerate(said) for instant in value["stamps"])
    gaps = [(later[0] - earlier[0], earlier[0] == last[earlier[1]])
            for earlier, later in itertools.pairwise(all_of) if earlier[1] != later[1]]
    ends = [gap / 1e6 for gap, is_end in gaps if is_end]
    others = [gap / 1e6 for gap, is_end in gaps if not is_end]
    iterations = sum(end - begin for value in said for begin, end in zip(value["stamps"][::2], value["stamps"][1::2]))
    return {"iterations_s": iterations / 1e9, "gaps_in_all_s": sum(gap for gap, _ in gaps) / 1e9,
            "gap_at_end_ms": {"count": len(ends), "p50": record.quantile(ends, 0.5), "p90": record.quantile(ends, 0.9),
                              "max": max(ends, default=None)},
            "gap_ms": {"count": len(others), "p50": record.quantile(others, 0.5), "p99": record.quantile(others, 0.99)}}


def calibrated(build, is_simulated):
    """What the program says when it is warm and alone: how long a unit of work is, and how long it took to warm up; and
    what an iteration takes besides its kernels."""
    iterations, iteration_us = 200, 12_000
    with rig.Program([build / "bin/bench/iterations", "--launches", str(LAUNCHES), "--iterations", str(iterations),
                      "--kernel-us", str(iteration_us / LAUNCHES), *(["--clock", "0"] if is_simulated else [])]) as program:
        alone = ready(program)
        program.tell("go")
        said = program.take(60) or sys.exit(program.errors()[-1500:])
    took_us = (said["ended_ns"] - said["began_ns"]) / 1e3 / iterations
    return alone | {"overhead_us": max(took_us - iteration_us, 0)}


def ready(program):
    said = program.take(120) or {}
    return said if said.get("ready") else sys.exit("a job ended before it was ready: " + program.errors()[-1500:])


def queue_of(agent):
    return json.loads(agent.ask("queue", "--json").stdout)


def play(way, build, jobs, alone, is_simulated):
    policy, is_told = WAYS[way]
    config = f'[gpu.0]\npolicy = "{policy}"\nturn_ms = {TURN_MS}\n' if policy == "turns" else \
        f'[gpu.0]\npolicy = "{policy}"\n'
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(rig.Agent(build, config) if policy else rig.Native())
        programs = []
        for batch in rig.batches(jobs):
            commands = []
            for job in batch:
                words = [str(word) for word in job.words(build, alone, is_simulated)]
                if policy:
                    length_us = job.length_s * 1e6 + alone["warm_ns"] / 1e3
                    told = ["--length", f"{length_us:.0f}"] if is_told else []
                    words = [*agent.tool, "run", "--shim", *told, "--", *words]
                commands.append(words)
            begun = rig.start_in_order(stack, commands, "iterations")
            for program in begun:
                ready(program)
            programs += begun
        print(f"{way}: {len(programs)} jobs are warm", file=sys.stderr, flush=True)
        starts = queue_of(agent)["jobs"] if policy else []
        starts_ms = [job["received_ns"] / 1e6 for job in starts]
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
        queue = queue_of(agent) if policy else None
        log = agent.log() if policy else ""
    lost = [index for index, value in enumerate(said) if not value]
    if lost:
        sys.exit(f"{way}: jobs {lost} ended without a result: {log[-1500:]}")
    ends = [value["ended_ns"] / 1e9 for value in said]
    return summary(told_at, ends) | {
        "way": way, "verified": all(value["verified"] for value in said),
        **seen_by_the_gpu(said), "work_s": sum(job.length_s for job in jobs),
        "longest_queue_s": max(value["began_ns"] / 1e9 - at for value, at in zip(said, told_at)),
        "jobs": [[round(at - start, 4), round(job.length_s, 4), round(end - at, 4)]
                 for job, at, end in zip(jobs, told_at, ends)],
        "starts_ms": {"p50": record.quantile(starts_ms, 0.5), "max": max(starts_ms)} if starts_ms else None,
        "gpus": queue["gpus"] if queue else None}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--ways", nargs="+", choices=sorted(WAYS), default=["fifo", "srtf"])
    parser.add_argument("--scale", type=float, default=150, help="all times are divided by it (default: 150)")
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth job, arrivals divided by it too")
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    parser.add_argument("--teardown-ms", type=int, default=70, help="of the simulated GPU's contexts (default: 70)")
    parser.add_argument("--start-ms", type=int, default=25, help="of the simulated GPU's driver (default: 25)")
    options = parser.parse_args()
    jobs, ideals = trace(options.build, options.scale, options.every)
    driver = ("--teardown-ms", str(options.teardown_ms), "--start-ms", str(options.start_ms))
    with rig.Simulation(options.build, *driver) if options.sim else contextlib.nullcontext():
        alone = calibrated(options.build, options.sim)
        print(json.dumps({"ideal": ideals}), flush=True)
        command = f"bench/gpu/orders/trace.py build --scale {options.scale:g} --every {options.every} --ways " + \
            " ".join(options.ways) + (" --sim " + " ".join(driver) if options.sim else "") + " --out FILE"
        for way in options.ways:  # each is kept as soon as it is over
            result = play(way, options.build, jobs, alone, options.sim)
            print(json.dumps({key: value for key, value in result.items() if key != "jobs"}), flush=True)
            record.Record(options.out).write(record.origin(command, options.commit) |
                                             {"trace": TRACE, "alone": alone, "ideal": ideals} | result)


if __name__ == "__main__":
    main()
