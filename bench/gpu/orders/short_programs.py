#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs that start, do a little and end cost the one that has the turn:
short_programs.py BUILD [--policy NAME] [--seconds S] [--units N] [--no-shim] [--out FILE]

A program that always works is in one tenant; in another one three loops start programs that make a context, run four
kernels of N units and end. Figures: which part of the time the busy one has of the GPU, and how many programs there
were and what each was charged. It needs root and a GPU that nothing else uses; with GPUSHARE_SIM and LD_LIBRARY_PATH
(bench/rig.py) it uses the simulated one.
"""
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

LOOPS = 3


def used_ns(agent):
    """What each tenant has had of the first GPU."""
    return {name: use["gpu_time_ns"] for name, use in agent.uses().items()}


def run_short_ones(words, seconds):
    """Returns how many there were."""
    over, counts, failed = time.monotonic() + seconds, [0] * LOOPS, []

    def loop(index):
        while time.monotonic() < over and not failed:
            outcome = rig.run(words, 30)
            counts[index] += 1
            if outcome.code != 0:
                failed.append(f"{outcome.code}: {outcome.err[-300:]}")

    loops = [threading.Thread(target=loop, args=(index,)) for index in range(LOOPS)]
    for one in loops:
        one.start()
    for one in loops:
        one.join()
    if failed:
        sys.exit(f"a short program failed: {failed[0]}")
    return sum(counts)


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--policy", default="turns", help="of the GPU (default: turns)")
    parser.add_argument("--seconds", type=float, default=4, help="for how long (default: 4)")
    parser.add_argument("--units", type=int, default=20_000, help="in each kernel (default: 20000)")
    parser.add_argument("--no-shim", action="store_true", help="all programs are without it")
    options = parser.parse_args()
    workloads, shim = options.build / "bin/workloads", not options.no_shim
    with rig.Agent(options.build, f'[gpu.0]\npolicy = "{options.policy}"\n[tenant.busy]\n[tenant.short]\n') as agent:
        busy = [workloads / "spin", "--kernel-us", "2000", "--seconds", "100000"]
        short = [workloads / "churn", "--kernels", "4", "--units", str(options.units)]
        with rig.Program(agent.command("busy", busy, shim)):
            time.sleep(2)
            before, began = used_ns(agent), time.monotonic()
            count = run_short_ones(agent.command("short", short, shim), options.seconds)
            time.sleep(0.5)  # until the log has told of the last one
            after, passed = used_ns(agent), time.monotonic() - began
    result = {"policy": options.policy, "has_shim": shim, "units": options.units, "programs": count,
              "charged_ms_each": round((after["short"] - before["short"]) / 1e6 / count, 2),
              "busy_has_pct": round((after["busy"] - before["busy"]) / 1e7 / passed, 1)}
    print(result)
    record.Record(options.out).write(record.origin(commit=options.commit) | result)


if __name__ == "__main__":
    main()
