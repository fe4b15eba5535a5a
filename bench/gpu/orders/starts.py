#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the agent's answers take while programs start: starts.py BUILD [--programs N] [--policy NAME] [--out FILE]

N programs with the shim start one after the other, without waiting for each other within 16. While a CUDA program
starts, the driver's lock is held for tens of milliseconds at a time, and everything that the agent asks the driver
waits for it. Meanwhile this asks the agent for something every 30 ms. Figures: how long its answers took, and whether
every program began. Where the policy orders jobs also what the starts were charged (beyond the kernels with which each
program warms up), and, as one program is told to take 0.3 s and the others 2 s, what the agent believes is left of that one.
It needs root, and a GPU that nothing else uses; with --sim it uses a simulated one, each of whose
starts holds the lock for --start-ms.
"""
import contextlib
import json
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

READY_S = 60
SHORT = 7  # of the programs: the one that is told to be short


def ask_until(over, agent, answers):
    while not over.is_set():
        began = time.monotonic()
        code = agent.ask("thaw", "default").returncode
        answers.append((time.monotonic() - began, code))
        time.sleep(0.03)


def play(options):
    words = [str(options.build / "bin/bench/iterations"), "--iterations", "20", "--ns-per-unit", "130",
             *(["--clock", "0"] if options.sim else [])]
    answers, lost, over, warm_ns, jobs = [], [], threading.Event(), {}, []
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(rig.Agent(options.build, f'[gpu.0]\npolicy = "{options.policy}"\n'))
        asker = threading.Thread(target=ask_until, args=(over, agent, answers))
        asker.start()
        began = time.monotonic()
        try:
            commands = [[*agent.tool, "run", "--shim", "--length", "300ms" if index == SHORT else "2s", "--", *words]
                        for index in range(options.programs)]
            for batch in rig.batches(commands):
                for program in rig.start_in_order(stack, batch, "iterations"):
                    said = None
                    with contextlib.suppress(TimeoutError):
                        said = program.take(READY_S)
                    if (said or {}).get("ready"):
                        warm_ns[f"run-{program.process.pid}"] = said["warm_ns"]
                        continue
                    lost.append(program.errors()[-200:] or f"it was not ready in {READY_S} s")
            seconds = time.monotonic() - began
            jobs = json.loads(agent.ask("queue", "--json").stdout)["jobs"]
        finally:
            over.set()
            asker.join()
    times = [taken for taken, _ in answers]
    charged_ms = [(job["received_ns"] - warm_ns[job["job"]]) / 1e6 for job in jobs if job["job"] in warm_ns]
    short = sorted((job for job in jobs if job["job"] in warm_ns), key=lambda job: list(warm_ns).index(job["job"]))
    left_us = short[SHORT].get("left_us") if len(short) > SHORT else None
    return {"programs": options.programs, "policy": options.policy, "seconds": seconds, "lost": lost,
            "answers": len(times), "failed_answers": sum(code != 0 for _, code in answers),
            "answer_p50_s": record.quantile(times, 0.5), "answer_p99_s": record.quantile(times, 0.99),
            "answer_max_s": max(times),
            "starts_ms": {"p50": record.quantile(charged_ms, 0.5), "max": max(charged_ms)} if charged_ms else None,
            "short_left_ms": left_us / 1e3 if left_us is not None else None}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    parser.add_argument("--start-ms", default="45", help="how long a start holds the simulated driver's lock at a time")
    options = parser.parse_args()
    simulation = rig.Simulation(options.build, "--start-ms", options.start_ms) if options.sim else contextlib.nullcontext()
    with simulation:
        result = play(options)
    print(json.dumps(result))
    command = f"bench/gpu/orders/starts.py build --programs {options.programs} --policy {options.policy}" + \
        (f" --sim --start-ms {options.start_ms}" if options.sim else "") + " --out FILE"
    record.Record(options.out).write(record.origin(command, options.commit) | result)
    sys.exit(1 if result["lost"] else 0)


if __name__ == "__main__":
    main()
