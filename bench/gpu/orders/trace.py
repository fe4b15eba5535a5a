#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trace of jobs under the agent's orders, on GPUs: trace.py BUILD [--ways WAY...] [--scale D] [--every N] [--models]
[--gpus N] [--out FILE]

The jobs are those of `order-replay --generate` (100 jobs of 1, 5 and 10 minutes in 51 minutes, as in Salus' evaluation),
with all times divided by --scale. Each is a process of bin/bench/iterations with iterations of 4 to 20 ms, or with
--models the PyTorch model of Salus' list that the trace names (program.py), with as many iterations as fill its time. All
are started and warm before the clock runs, and wait for their instant, so that nobody's start is measured; the length
that is told includes the warm-up, and nothing for the start.
Ways: fifo; srtf, told each length; unknown, srtf that is told nothing and has learnt nothing; learnt, srtf that is told
nothing and has learnt lengths on a day that is run before it (seed 77, each job up to 5 % longer or shorter); turns;
slices, the driver's time slices with all at once; mps, NVIDIA's MPS with all at once, of which 48 are warm and the others
start as these end, because a server takes no more clients. With --gpus 2 each job goes where `gpushare run --gpu auto`
places it (not under slices and mps).
Beside each stand its completion times (mean, p95, p99), how long it took from the first arrival to the last end, the
ideals for the same jobs, what order-replay says of the same way, the GPU time that the jobs' starts had taken by the
agent's counting (starts_ms), and what the agent says of its gaps; and by the GPU's own clock the gaps between two jobs
(all, and those where the first one had ended) and how long all iterations took in all. Models' losses are compared with
those of the model alone (verified). It needs root, and a GPU that nothing else uses; with --sim it uses simulated ones,
whose driver takes --teardown-ms to take a context down and is held six times for --start-ms by each start, to try the
script and not to measure: there --models are programs of bin/bench/iterations after all.
"""
import contextlib
import csv
import itertools
import json
import os
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
DAY_BEFORE = (TRACE.replace("3117", "77"), "--jitter", 5, "--jitter-seed", 5)
LAUNCHES = 20  # kernels of one iteration
TURN_MS = 100
WAYS = {"fifo": ("fifo", True), "srtf": ("srtf", True), "unknown": ("srtf", False), "learnt": ("srtf", False),
        "turns": ("turns", False), "slices": (None, False), "mps": (None, False)}
MPS_CLIENTS = 48
LEARNS_S = 40  # until the agent has written what the last job took: it remembers one for 2 s, or 10 s, and writes each 10 s
COMPARED = 40  # losses of a model, from its first iteration on


class Job:
    """One of the trace. An iteration takes as long alone as the trace says, or as long as the model's."""

    def __init__(self, row, scale, random_of):
        self.model, self.alone = row["model"], None
        self.submit_s = float(row["submit_s"]) / scale
        self.length_s = int(row["iterations"]) * float(row["iteration_us"]) / 1e6 / scale
        wished_s = random_of.uniform(0.004, 0.020)
        self.iterations = max(round(self.length_s / wished_s), 1)
        self.iteration_us = self.length_s / self.iterations * 1e6

    def measured(self, alone, is_model):
        """With what is known of a program alone: a model's iterations take what they take."""
        self.alone = alone
        if is_model:
            self.iterations = max(round(self.length_s / alone["iteration_s"]), 1)
            self.length_s = self.iterations * alone["iteration_s"]
        return self

    def words(self, build):
        """With what host and driver add to its kernels."""
        if "losses" in self.alone:
            return model_words(self.model, self.iterations)
        kernels_us = max(self.iteration_us - self.alone["overhead_us"], 1)
        return [build / "bin/bench/iterations", "--iterations", str(self.iterations), "--launches", str(LAUNCHES),
                "--kernel-us", f"{kernels_us / LAUNCHES:.3f}", "--ns-per-unit", str(self.alone["ns_per_unit"]),
                *(["--clock", "0"] if "GPUSHARE_SIM" in os.environ else [])]

    def told_us(self):
        return self.length_s * 1e6 + self.alone["warm_ns"] / 1e3

    def is_right(self, said):
        if "losses" not in self.alone:
            return said["verified"]
        ours, theirs = said["losses"][:COMPARED], self.alone["losses"][:COMPARED]
        count = min(len(ours), len(theirs))
        return count > 0 and ours[:count] == theirs[:count]


def model_words(model, iterations):
    return [sys.executable, HERE / "program.py", model, "--iterations", str(iterations)]


def replay(build, *options):
    return json.loads(subprocess.run([build / "bin/bench/order-replay", *map(str, options), "--json"], check=True,
                                     capture_output=True).stdout)


def generated(build, path, every, *spec):
    """Writes every so-manieth job of a generated trace to `path`, in the order of arrival, and returns them; `every`
    divides their arrivals too."""
    replay(build, "--generate", *spec, "--write-trace", path)
    rows = list(csv.DictReader(path.read_text().splitlines()))[::every]
    for row in rows:
        row["submit_s"] = float(row["submit_s"]) / every
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def trace(build, scale, every, gpus):
    """The jobs of the trace, and those of the day before it; the ideals of the trace, in which no hand-over costs
    anything; and what the replay says of each way."""
    with tempfile.TemporaryDirectory() as folder:
        path, day = pathlib.Path(folder, "trace.csv"), pathlib.Path(folder, "day.csv")
        rows, before = generated(build, path, every, TRACE), generated(build, day, every, *DAY_BEFORE)
        same = ["--trace", path, "--scale", scale, "--gpus", gpus]
        said = replay(build, *same)
        expected = {order["order"]: order for order in said["orders"]}
        nothing = replay(build, *same, "--order", "srtf", "--told", "nothing")["orders"][0]
        learnt = replay(build, *same, "--order", "srtf", "--told", "nothing", "--history", day)["orders"][0]
        expected |= {"unknown": nothing, "learnt": learnt}
    ideals = {ideal.pop("order").removeprefix("ideal: "): ideal for ideal in said["ideals"]}
    random_of = random.Random(1)
    return *([Job(row, scale, random_of) for row in some] for some in (rows, before)), ideals, expected


def summary(arrivals, ends):
    """Of instants in seconds, job by job."""
    took = [end - arrival for arrival, end in zip(arrivals, ends)]
    return {"makespan_s": max(ends) - min(arrivals), "mean_s": sum(took) / len(took),
            "p95_s": record.quantile(took, 0.95), "p99_s": record.quantile(took, 0.99)}


def seen_by_the_gpu(said, are_models):
    """Where the time went, by the stamps at the begin and the end of each iteration. Empty where there are none. A model
    has many in each."""
    if not all(value["stamps"] for value in said):
        return {}
    last = [value["stamps"][-1] for value in said]
    all_of = sorted((instant, who) for who, value in enumerate(said) for instant in value["stamps"])
    gaps = [(later[0] - earlier[0], earlier[0] == last[earlier[1]])
            for earlier, later in itertools.pairwise(all_of) if earlier[1] != later[1]]
    ends = [gap / 1e6 for gap, is_end in gaps if is_end]
    others = [gap / 1e6 for gap, is_end in gaps if not is_end]
    iterations = sum(end - begin for value in said for begin, end in zip(value["stamps"][::2], value["stamps"][1::2]))
    return {**({} if are_models else {"iterations_s": iterations / 1e9}), "gaps_in_all_s": sum(gap for gap, _ in gaps) / 1e9,
            "gap_at_end_ms": {"count": len(ends), "p50": record.quantile(ends, 0.5), "p90": record.quantile(ends, 0.9),
                              "max": max(ends, default=None)},
            "gap_ms": {"count": len(others), "p50": record.quantile(others, 0.5), "p99": record.quantile(others, 0.99)}}


def calibrated(build):
    """What the program says when it is warm and alone: how long a unit of work is, and how long it took to warm up; and
    what an iteration takes besides its kernels."""
    iterations, iteration_us = 200, 12_000
    said, alone = run_alone([build / "bin/bench/iterations", "--launches", str(LAUNCHES), "--iterations", str(iterations),
                             "--kernel-us", str(iteration_us / LAUNCHES),
                             *(["--clock", "0"] if "GPUSHARE_SIM" in os.environ else [])])
    took_us = (said["ended_ns"] - said["began_ns"]) / 1e3 / iterations
    return alone | {"overhead_us": max(took_us - iteration_us, 0)}


def calibrated_model(model):
    said, alone = run_alone(model_words(model, 2 * COMPARED))
    ended = said["ended"]  # the first half is for the clocks
    return alone | {"losses": said["losses"], "iteration_s": (ended[-1] - ended[COMPARED - 1]) / COMPARED}


def run_alone(words):
    with rig.Program(words) as program:
        alone = ready(program)
        program.tell("go")
        return program.take(60) or sys.exit(program.errors()[-1500:]), alone


def ready(program):
    said = program.take(120) or {}
    return said if said.get("ready") else sys.exit("a job ended before it was ready: " + program.errors()[-1500:])


def queue_of(agent):
    return json.loads(agent.ask("queue", "--json").stdout)


class Players:
    """The programs of a way, in the order of their jobs, each started at the latest when its instant comes."""

    def __init__(self, stack, jobs, commands, limit, environment):
        self.stack, self.jobs, self.commands, self.environment = stack, jobs, commands, environment
        self.programs, self.said, self.told_at = [None] * len(jobs), [None] * len(jobs), [None] * len(jobs)
        self.rooms = threading.Semaphore(limit or len(jobs))
        self.late = 0 if limit is None else max(len(jobs) - limit, 0)

    def warm_up(self):
        early = list(range(len(self.jobs) - self.late))
        for batch in rig.batches(early):
            words = [self.commands[index] for index in batch]
            for index, program in zip(batch, rig.start_in_order(self.stack, words, self.name(), self.environment)):
                self.rooms.acquire()
                self.programs[index] = program
            for index in batch:
                ready(self.programs[index])
        return len(early)

    def name(self):
        words = self.commands[0]
        return pathlib.Path(str(words[words.index("--") + 1] if "--" in words else words[0])).name

    def play(self, index):
        """On a thread of its own, from the job's instant on."""
        if self.programs[index] is None:
            self.rooms.acquire()
            self.programs[index] = self.stack.enter_context(rig.Program(self.commands[index], self.environment))
            ready(self.programs[index])
        self.programs[index].tell("go")
        self.said[index] = self.programs[index].take(900)
        self.programs[index].process.wait(60)
        self.rooms.release()

    def play_all(self, start):
        readers = []
        for index, job in enumerate(self.jobs):
            time.sleep(max(start + job.submit_s - time.monotonic(), 0))
            self.told_at[index] = time.monotonic()
            readers.append(threading.Thread(target=self.play, args=(index,), daemon=True))
            readers[-1].start()
        for reader in readers:
            reader.join()


def config_of(way, gpus, lengths):
    policy = WAYS[way][0]
    turn = f"turn_ms = {TURN_MS}\n" if policy == "turns" else ""
    return f'[agent]\njobs = "{lengths}"\n' + "".join(
        f'[gpu.{gpu}]\npolicy = "{policy}"\n{turn}' for gpu in range(gpus))


def learns_from(jobs, lengths):
    """Waits until the agent has written how long they were: a job has ended when it has not been seen for a while."""
    end = time.monotonic() + LEARNS_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), open(lengths, encoding="utf-8") as file:
            if sum(1 for _ in file) > len(jobs):  # and the heading
                return True
        time.sleep(0.5)
    return False


def play_after(way, options, jobs, before):
    """Plays `before`, and then `jobs` under an agent that knows what the first one has learnt."""
    with tempfile.TemporaryDirectory() as folder:
        lengths = pathlib.Path(folder, "jobs.csv")
        earlier = play(way, options, before, str(lengths), is_lesson=True)
        day = {key: earlier[key] for key in ("makespan_s", "mean_s", "verified", "starts_ms")}
        return play(way, options, jobs, str(lengths)) | {"day_before": day}


def play(way, options, jobs, lengths="", is_lesson=False):
    policy, is_told = WAYS[way]
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(rig.Mps() if way == "mps" else
                                    rig.Agent(options.build, config_of(way, options.gpus, lengths)) if policy else
                                    rig.Native())
        commands = []
        for job in jobs:
            words = [str(word) for word in job.words(options.build)]
            if policy:
                told = ["--length", f"{job.told_us():.0f}"] if is_told else []
                placed = ["--gpu", "auto"] if options.gpus > 1 else []
                words = [*agent.tool, "run", "--shim", *told, *placed, "--", *words]
            commands.append(words)
        players = Players(stack, jobs, commands, MPS_CLIENTS if way == "mps" else None, agent.environment)
        print(f"{way}: {players.warm_up()} jobs are warm", file=sys.stderr, flush=True)
        starts = queue_of(agent)["jobs"] if policy else []
        starts_ms = [job["received_ns"] / 1e6 for job in starts]
        start = time.monotonic() + 0.2
        players.play_all(start)
        queue = queue_of(agent) if policy else None
        if is_lesson and not learns_from(jobs, lengths):
            sys.exit(f"{way}: the agent has not kept what {len(jobs)} jobs have taken")
        log = agent.log() if policy else ""
    said, told_at = players.said, players.told_at
    lost = [index for index, value in enumerate(said) if not value]
    if lost:
        sys.exit(f"{way}: jobs {lost} ended without a result: {log[-1500:]}")
    ends = [value["ended_ns"] / 1e9 for value in said]
    return summary(told_at, ends) | {
        "way": way, "verified": all(job.is_right(value) for job, value in zip(jobs, said)),
        **(seen_by_the_gpu(said, options.models) if options.gpus == 1 else {}), "work_s": sum(job.length_s for job in jobs),
        "started_late": players.late,
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
    parser.add_argument("--models", action="store_true", help="the PyTorch models that the trace names")
    parser.add_argument("--gpus", type=int, default=1, help="that jobs are placed on (default: 1)")
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    parser.add_argument("--teardown-ms", type=int, default=70, help="of the simulated GPU's contexts (default: 70)")
    parser.add_argument("--start-ms", type=int, default=25, help="of the simulated GPU's driver (default: 25)")
    options = parser.parse_args()
    if "learnt" in options.ways and options.scale > 400:
        parser.error("the agent learns from jobs of 100 ms and longer: learnt takes a --scale up to 400")
    jobs, before, ideals, expected = trace(options.build, options.scale, options.every, options.gpus)
    driver = ("--teardown-ms", str(options.teardown_ms), "--start-ms", str(options.start_ms), "--gpus", str(options.gpus))
    with rig.Simulation(options.build, *driver) if options.sim else contextlib.nullcontext():
        if options.models and not options.sim:
            alone = {model: calibrated_model(model) for model in sorted({job.model for job in jobs + before})}
            jobs, before = ([job.measured(alone[job.model], True) for job in some] for some in (jobs, before))
        else:
            alone = calibrated(options.build)
            jobs, before = ([job.measured(alone, False) for job in some] for some in (jobs, before))
        print(json.dumps({"ideal": ideals, "replay": expected}), flush=True)
        command = f"bench/gpu/orders/trace.py build --scale {options.scale:g} --every {options.every} --ways " + \
            " ".join(options.ways) + " --models" * options.models + f" --gpus {options.gpus}" * (options.gpus > 1) + \
            (" --sim " + " ".join(driver) if options.sim else "") + " --out FILE"
        for way in options.ways:  # each is kept as soon as it is over
            result = play_after(way, options, jobs, before) if way == "learnt" else play(way, options, jobs)
            print(json.dumps({key: value for key, value in result.items() if key != "jobs"}), flush=True)
            record.Record(options.out).write(
                record.origin(command, options.commit) |
                {"trace": TRACE, "alone": {name: {key: value for key, value in one.items() if key != "losses"}
                                           for name, one in alone.items()} if options.models and not options.sim else alone,
                 "ideal": ideals, "replay": expected.get(way)} | result)


if __name__ == "__main__":
    main()
