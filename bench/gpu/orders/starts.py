#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the agent's answers take while programs start: starts.py BUILD [--programs N] [--policy NAME] [--out FILE]

N programs with the shim start one after the other, without waiting for each other within 16. While a CUDA program
starts, the driver's lock is held for tens of milliseconds at a time, and everything that the agent asks the driver
waits for it. Meanwhile this asks the agent for something every 30 ms. Figures: how long its answers took, and whether
every program began. It needs root, and a GPU that nothing else uses; with --sim it uses a simulated one, whose starts
hold no lock.
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

AT_ONCE = 16
READY_S = 60


def ask_until(over, agent, answers):
    while not over.is_set():
        began = time.monotonic()
        code = agent.ask("thaw", "default").returncode
        answers.append((time.monotonic() - began, code))
        time.sleep(0.03)


def play(options):
    words = [str(options.build / "bin/bench/iterations"), "--iterations", "20", "--ns-per-unit", "130",
             *(["--clock", "0"] if options.sim else [])]
    answers, lost, over = [], [], threading.Event()
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(rig.Agent(options.build, f'[gpu.0]\npolicy = "{options.policy}"\n'))
        asker = threading.Thread(target=ask_until, args=(over, agent, answers))
        asker.start()
        began = time.monotonic()
        try:
            for first in range(0, options.programs, AT_ONCE):
                batch = []
                for _ in range(min(AT_ONCE, options.programs - first)):
                    batch.append(stack.enter_context(
                        rig.Program([*agent.tool, "run", "--shim", "--length", "1s", "--", *words])))
                    while not rig.has_become(batch[-1], "iterations"):
                        time.sleep(0.001)
                for program in batch:
                    with contextlib.suppress(TimeoutError):
                        if (program.take(READY_S) or {}).get("ready"):
                            continue
                    lost.append(program.errors()[-200:] or f"it was not ready in {READY_S} s")
            seconds = time.monotonic() - began
        finally:
            over.set()
            asker.join()
    times = [taken for taken, _ in answers]
    return {"programs": options.programs, "policy": options.policy, "seconds": seconds, "lost": lost,
            "answers": len(times), "failed_answers": sum(code != 0 for _, code in answers),
            "answer_p50_s": record.quantile(times, 0.5), "answer_p99_s": record.quantile(times, 0.99),
            "answer_max_s": max(times)}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    options = parser.parse_args()
    with rig.Simulation(options.build) if options.sim else contextlib.nullcontext():
        result = play(options)
    print(json.dumps(result))
    command = f"bench/gpu/orders/starts.py build --programs {options.programs} --policy {options.policy}" + \
        (" --sim" if options.sim else "") + " --out FILE"
    record.Record(options.out).write(record.origin(command, options.commit) | result)
    sys.exit(1 if result["lost"] else 0)


if __name__ == "__main__":
    main()
