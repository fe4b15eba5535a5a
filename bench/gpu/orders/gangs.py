#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A data-parallel job on two GPUs beside others, under `fair`: gangs.py BUILD [--only ROW...] [--off] [--out FILE].

cap-40        the job under a cap of 40 %, beside an endless program on each GPU
weights-1-1   weights of 100 and 100 beside the same; weights-1-3 and weights-3-1 likewise
jobs-1-1      beside another such job on the same GPUs; jobs-1-3 and jobs-3-1 likewise

Of each: steps/s as a part of what is due (share x alone), the 99th percentile of a step, the longest step, what each tenant
has of each GPU by the agent's records, and whether the losses are those of the job alone. --off leaves each GPU to itself,
for comparison.
Needs root, torch with NCCL, and two GPUs that nobody else uses.
"""
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

SECONDS = 20
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


def ddp(port):
    return [sys.executable, HERE / "ddp.py", "--port", str(port), "--seconds", str(SECONDS)]


def ready(program):
    if not (program.take(rig.READY_S) or {}).get("ready"):
        sys.exit(program.errors()[-1500:])


def alone(build):
    with rig.Agent(build, "[tenant.a]\n") as agent, rig.Program(agent.command("a", ddp(29511), False)) as job:
        ready(job)
        job.tell("go")
        return job.take(SECONDS + 120)


def gpu_times(agent):
    """When it is (ns), and what each tenant has had of each GPU until then."""
    status = json.loads(agent.ask("status", "--json").stdout)
    return time.monotonic_ns(), {(tenant["name"], gpu["gpu"]): gpu["gpu_time_ns"] for tenant in status["tenants"]
                                 for gpu in tenant["gpus"]}


def shares(earlier, later):
    """By tenant, the percentages of each GPU between two answers of gpu_times()."""
    passed, found = later[0] - earlier[0], {}
    for (name, gpu), had in sorted(later[1].items()):
        if name in ("a", "b"):
            found.setdefault(name, []).append(round(100 * (had - earlier[1].get((name, gpu), 0)) / passed, 1))
    return found


def measure(build, row, single, gangs):
    own, others, are_jobs, share = ROWS[row]
    config = f'[agent]\ngangs = "{gangs}"\n[tenant.a]\n{own}\n[tenant.b]\n{others}\n'
    with rig.Agent(build, config) as agent, rig.Program(agent.command("a", ddp(29511), False)) as job:
        ready(job)
        endless = [build / "bin/workloads/spin", "--seconds", "1000"]
        commands = [ddp(29512)] if are_jobs else [[*endless, "--device", str(gpu)] for gpu in (0, 1)]
        neighbours = [rig.Program(agent.command("b", words, False)) for words in commands]
        try:
            if are_jobs:
                ready(neighbours[0])
                neighbours[0].tell("go")
            else:
                time.sleep(5)  # until they have measured their kernels
            job.tell("go")
            time.sleep(ASIDE)
            earlier = gpu_times(agent)
            time.sleep(SECONDS - 2 * ASIDE)
            later = gpu_times(agent)
            said = job.take(SECONDS + 120)
            other = neighbours[0].take(SECONDS + 120) if are_jobs else None
        finally:
            for neighbour in neighbours:
                neighbour.__exit__(None, None, None)
        log = agent.log()
    if said is None:
        sys.exit(f"the job ended early: {job.errors()[-800:]}\n{log[-2000:]}")
    rate, full = said["steps"] / SECONDS, single["steps"] / SECONDS
    result = {"share_due": share, "steps_per_s": rate, "alone_steps_per_s": full, "of_due": rate / (share * full),
              "step_p99_ms": record.quantile(said["ms"], 0.99), "step_max_ms": max(said["ms"]),
              "alone_step_ms": record.quantile(single["ms"], 0.5),
              "losses_equal": said["losses"] == single["losses"],
              "shares_pct": shares(earlier, later)}
    if other is not None:
        result["other_of_due"] = other["steps"] / SECONDS / ((1 - share) * full)
    return result


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), default=list(ROWS))
    parser.add_argument("--off", action="store_true", help="leave each GPU to itself")
    options = parser.parse_args()
    gangs = "off" if options.off else "auto"
    single = alone(options.build)
    for row in options.only:
        result = {"row": row, "gangs": gangs} | measure(options.build, row, single, gangs)
        print(result, flush=True)
        command = f"bench/gpu/orders/gangs.py build --only {row}{' --off' * options.off} --out FILE"
        record.Record(options.out).write(record.origin(command, options.commit) | result)


if __name__ == "__main__":
    main()
