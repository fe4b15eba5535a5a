#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job on several GPUs beside others, under `fair`: gangs.py BUILD [--job JOB] [--only ROW...] [--gpus LIST] [--off]
[--out FILE].

The job is ddp, a training that adds its gradients at each step (ddp.py), or tensor, a model whose layers lie on all GPUs
(tensor.py).

cap-40        the job under a cap of 40 %, beside an endless program on each GPU
weights-1-1   weights of 100 and 100 beside the same; weights-1-3 and weights-3-1 likewise
jobs-1-1      beside another such job on the same GPUs; jobs-1-3 and jobs-3-1 likewise

Of each: steps/s as a part of what is due (share x alone), the 99th percentile of a step, the longest step, what each tenant
has of each GPU by the agent's records, and whether the losses are those of the job alone. --off leaves each GPU to itself,
for comparison. With --trace FOLDER a recording of the context switches is written there in the midst of each row
(`gpushare trace`, 2 s), and when each step began, where the job says so. With --kills, the agent is killed so many times a
minute, at random instants, and its supervisor starts the next one: the job must get on and end with the same losses, and
nothing may stay frozen; its share is not asked then.
Needs root, torch with NCCL, and GPUs that nobody else uses.
"""
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

ALONE = 20  # seconds
ASIDE = 2  # seconds at the begin and the end of the job that do not count for the shares
# The job's settings, its neighbours', whether these are a job, and what is due to the first.
ROWS = {
    "cap-40": ('max = "40%"', "", False, 0.4),
    "weights-1-1": ("weight = 100", "weight = 100", False, 0.5),
    "weights-1-3": ("weight = 100", "weight = 300", False, 0.25),
    "weights-3-1": ("weight = 300", "weight = 100", False, 0.75),
    "jobs-1-1": ("weight = 100", "weight = 100", True, 0.5),
    "jobs-1-3": ("weight = 100", "weight = 300", True, 0.25),
    "jobs-3-1": ("weight = 300", "weight = 100", True, 0.75),
}


def job_of(options, port, seconds=None):
    return [sys.executable, HERE / f"{options.job}.py", "--gpus", options.gpus, "--port", str(port),
            "--seconds", str(seconds or options.seconds)]


def ready(program):
    if not (program.take(rig.READY_S) or {}).get("ready"):
        sys.exit(program.errors()[-1500:])


def alone(options):
    with rig.Agent(options.build, "[tenant.a]\n") as agent, \
            rig.Program(agent.command("a", job_of(options, 29511, ALONE), False)) as job:
        ready(job)
        job.tell("go")
        return job.take(ALONE + 120)


class Killer:
    """Kills the agent `a_minute` times a minute within a `with` block; `kills` says how often."""

    def __init__(self, agent, a_minute):
        self.agent, self.a_minute, self.kills = agent, a_minute, 0
        self.over, self.random = threading.Event(), random.Random(1)
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        while not self.over.wait(self.random.uniform(0.2, 1.8) * 60 / self.a_minute):
            pid = self.agent.status().get("agent", {}).get("pid", 0)
            if pid:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    def __enter__(self):
        if self.a_minute:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.a_minute:
            self.thread.join(60)


def quantiles(times):
    return [round(record.quantile(times, part), 3) for part in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)]


def record_switches(agent, folder, row):
    """Records the context switches of two seconds, where it was asked for; returns the seconds that this took."""
    began = time.monotonic()
    if folder:
        agent.ask("trace", "-d", "2", "-o", str(folder / f"{row}.json"))
    return time.monotonic() - began


def gpu_times(agent):
    """When it is (ns), and what each tenant has had of each GPU until then."""
    status = agent.status()
    return time.monotonic_ns(), {(tenant["name"], gpu["gpu"]): gpu["gpu_time_ns"] for tenant in status["tenants"]
                                 for gpu in tenant["gpus"]}


def gpus_of(options):
    return [int(gpu) for gpu in options.gpus.split(",")]


def shares(earlier, later, gpus):
    """By tenant, the percentages of each of these GPUs between two answers of gpu_times()."""
    passed, found = later[0] - earlier[0], {}
    for (name, gpu), had in sorted(later[1].items()):
        if name in ("a", "b") and gpu in gpus:
            found.setdefault(name, []).append(round(100 * (had - earlier[1].get((name, gpu), 0)) / passed, 1))
    return found


def measure(options, row, single, gangs):
    build, seconds = options.build, options.seconds
    own, others, are_jobs, share = ROWS[row]
    config = f'[agent]\ngangs = "{gangs}"\n[tenant.a]\n{own}\n[tenant.b]\n{others}\n'
    with rig.Agent(build, config) as agent, \
            rig.Program(agent.command("a", job_of(options, 29511), False)) as job:
        ready(job)
        endless = [build / "bin/workloads/spin", "--seconds", "1000"]
        commands = [job_of(options, 29512)] if are_jobs else [[*endless, "--device", gpu] for gpu in gpus_of(options)]
        neighbours = [rig.Program(agent.command("b", words, False)) for words in commands]
        try:
            if are_jobs:
                ready(neighbours[0])
                neighbours[0].tell("go")
            else:
                time.sleep(5)  # until they have measured their kernels
            job.tell("go")
            with Killer(agent, options.kills) as killer:
                time.sleep(ASIDE)
                earlier = gpu_times(agent) if not options.kills else None
                half = (seconds - 2 * ASIDE) / 2
                time.sleep(half)
                recorded = record_switches(agent, options.trace, row)
                time.sleep(max(half - recorded, 0))
                later = gpu_times(agent) if not options.kills else None
            said = job.take(seconds + 120)
            other = neighbours[0].take(seconds + 120) if are_jobs else None
            others_go_on = not options.kills or are_jobs or go_on(agent, gpus_of(options))
        finally:
            for neighbour in neighbours:
                neighbour.__exit__(None, None, None)
        log = agent.log()
    if said is None:
        sys.exit(f"the job ended early: {job.errors()[-800:]}\n{log[-2000:]}")
    if options.trace and "begun_ns" in said:
        (options.trace / f"{row}-steps.json").write_text(json.dumps({key: said[key] for key in ("begun_ns", "ms")}))
    rate, full = said["steps"] / seconds, single["steps"] / ALONE
    result = {"share_due": share, "steps_per_s": rate, "alone_steps_per_s": full, "of_due": rate / (share * full),
              "step_p99_ms": record.quantile(said["ms"], 0.99), "step_max_ms": max(said["ms"]),
              "step_quantiles_ms": quantiles(said["ms"]), "alone_step_quantiles_ms": quantiles(single["ms"]),
              "alone_step_ms": record.quantile(single["ms"], 0.5),
              "losses_equal": said["losses"] == single["losses"]}
    if options.kills:
        result |= {"kills": killer.kills, "others_go_on": others_go_on}
    else:
        result["shares_pct"] = shares(earlier, later, gpus_of(options))
    if other is not None:
        result["other_of_due"] = other["steps"] / seconds / ((1 - share) * full)
    return result


def go_on(agent, gpus):
    """Whether the programs beside the job still get GPU time on each of these GPUs."""
    before = gpu_times(agent)
    time.sleep(3)
    had = shares(before, gpu_times(agent), gpus).get("b", [])
    return len(had) == len(gpus) and min(had) > 20


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), default=list(ROWS))
    parser.add_argument("--off", action="store_true", help="leave each GPU to itself")
    parser.add_argument("--job", choices=("ddp", "tensor"), default="ddp")
    parser.add_argument("--gpus", default="0,1", help="one rank on each (default: 0,1)")
    parser.add_argument("--trace", type=pathlib.Path, metavar="FOLDER", help="record context switches of each row there")
    parser.add_argument("--seconds", type=int, default=20, help="how long the job works (default: 20)")
    parser.add_argument("--kills", type=float, default=0, help="of the agent, in a minute (default: none)")
    options = parser.parse_args()
    if options.trace:
        options.trace.mkdir(parents=True, exist_ok=True)
    gangs = "off" if options.off else "auto"
    single = alone(options)
    for row in options.only:
        result = {"row": row, "job": options.job, "gpus": options.gpus, "gangs": gangs} | measure(options, row, single, gangs)
        print(result, flush=True)
        command = (f"bench/gpu/orders/gangs.py build --job {options.job} --only {row}{' --off' * options.off}"
                   f" --gpus {options.gpus} --seconds {options.seconds}{f' --kills {options.kills:g}' * (options.kills > 0)} --out FILE")
        record.Record(options.out).write(record.origin(command, options.commit) | result)


if __name__ == "__main__":
    main()
