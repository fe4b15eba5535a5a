#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is a program that has the GPU to itself charged for what it does, and held to its cap? lone.py BUILD [--out FILE]
[--seconds N]

The switch log says nothing of a program that is alone, and the driver's samples tell of it later. Rows:
bursts            stopped and continued by signals, so that it works now and then: the agent's count beside the time in
                  which it was let run; with the library that says what it launches, and without
cap               always at work, with a cap of 30 %: its own count of what it did, and the agent's
rotation          three programs of a tenant with a cap of 10 %, which work for a second each, one after the other, and
                  rest meanwhile
beside            a program with a cap of 10 % that asks for 2 ms of the GPU every 97 ms, beside one that is always at work
                  and held to a cap of 45 %: the GPU holds the first one, which rests, while the other one is frozen. What
                  the agent counts of what the first one asked for, how long its requests take, for which part of the time
                  it was frozen, and the own count of the other one
It needs root, and a GPU that nothing else uses; with GPUSHARE_SIM and LD_LIBRARY_PATH=BUILD/lib/sim in the environment it
uses that simulated GPU.
"""
import itertools
import json
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import rig
from record import Record, origin, quantile

BURSTS = ((0.3, 0.9), (1.0, 1.7), (0.5, 0.5), (1.6, 2.3), (0.2, 0.4))  # seconds of work and of rest
KERNEL_US = 1000
PERIOD_MS, REQUEST_MS = 97, 2  # of the program beside another one


def done_s(program):
    """What it has done so far, by its own count of kernels."""
    done = [said["kernels"] for said in program.said if "kernels" in said]
    return (done[-1] if done else 0) * KERNEL_US / 1e6


def latencies(program):
    """Of its requests so far, in us."""
    return [said["latency_us"] for said in program.said if "latency_us" in said]


def spin(options, agent, tenant, shim):
    words = [options.build / "bin/workloads/spin", "--kernel-us", str(KERNEL_US), "--seconds", "100000", "--report-ms", "50"]
    return rig.Program(agent.command(tenant, words, shim))


def stop(program):
    program.process.send_signal(signal.SIGSTOP)


def go_on(program):
    program.process.send_signal(signal.SIGCONT)


def bursts(options, shim):
    with rig.Agent(options.build, "[tenant.a]\n") as agent, spin(options, agent, "a", shim) as program:
        time.sleep(4)  # until it has measured its kernels
        stop(program)
        time.sleep(2)
        charged, worked, over = agent.used_ns("a") / 1e9, 0, time.monotonic() + options.seconds
        for work, rest in itertools.cycle(BURSTS):
            if time.monotonic() > over:
                break
            began = time.monotonic()
            go_on(program)
            time.sleep(work)
            stop(program)
            worked += time.monotonic() - began
            time.sleep(rest)
        time.sleep(1.5)  # until all of it is sampled
        charged = agent.used_ns("a") / 1e9 - charged
    return {"worked_s": round(worked, 3), "charged_s": round(charged, 3), "of_work": round(charged / worked, 4)}


def cap(options):
    with rig.Agent(options.build, '[tenant.a]\nmax = "30%"\n') as agent, spin(options, agent, "a", False) as program:
        time.sleep(6)
        charged, done, began = agent.used_ns("a") / 1e9, done_s(program), time.monotonic()
        time.sleep(options.seconds)
        passed = time.monotonic() - began
        return {"own_part": round((done_s(program) - done) / passed, 4),
                "agents_part": round((agent.used_ns("a") / 1e9 - charged) / passed, 4)}


def rotation(options):
    config = '[tenant.a]\nmax = "10%"\n'
    with rig.Agent(options.build, config) as agent, spin(options, agent, "a", False) as one, \
            spin(options, agent, "a", False) as two, spin(options, agent, "a", False) as three:
        programs = [one, two, three]
        end = time.monotonic() + 60
        while not all(done_s(program) > 0 for program in programs) and time.monotonic() < end:
            time.sleep(0.1)
        for program in programs:
            stop(program)
        time.sleep(3)
        charged, done, began = agent.used_ns("a") / 1e9, sum(map(done_s, programs)), time.monotonic()
        for program in itertools.cycle(programs):
            if time.monotonic() - began > options.seconds:
                break
            go_on(program)
            time.sleep(1)
            stop(program)
        passed = time.monotonic() - began
        return {"own_part": round((sum(map(done_s, programs)) - done) / passed, 4),
                "agents_part": round((agent.used_ns("a") / 1e9 - charged) / passed, 4)}


def beside(options):
    config = '[tenant.light]\nmax = "10%"\n[tenant.heavy]\nmax = "45%"\n'
    words = [options.build / "bin/workloads/periodic", "--kernel-us", str(REQUEST_MS * 1000), "--period-us",
             str(PERIOD_MS * 1000), "--samples", "100000", "--report-ms", "1"]
    with rig.Agent(options.build, config) as agent, spin(options, agent, "heavy", False) as heavy, \
            rig.Program(agent.command("light", words, False)) as light:
        while "latency_us" not in light.take(60):  # it has measured its kernel
            continue
        time.sleep(4)

        def seen():
            of_light = agent.tenants()["light"]
            return (time.monotonic(), len(latencies(light)), of_light["gpus"][0]["gpu_time_ns"] / 1e9, of_light["throttled_ns"] / 1e9,
                    done_s(heavy))
        before = seen()
        time.sleep(options.seconds)
        passed, asked, charged, frozen, done = (now - then for now, then in zip(seen(), before))
        took = latencies(light)[before[1]:]
        return {"of_asked": round(charged / (asked * REQUEST_MS / 1e3), 3),
                "latency_us": [round(quantile(took, part)) for part in (0.5, 0.99, 1)],
                "frozen_part": round(frozen / passed, 4), "heavy_part": round(done / passed, 4)}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long each row lasts (default: 20)")
    options = parser.parse_args()
    rows = {"bursts": bursts(options, False), "bursts, with the library": bursts(options, True), "cap": cap(options),
            "rotation": rotation(options), "beside": beside(options)}
    for name, row in rows.items():
        print(json.dumps({"row": name} | row), flush=True)
    Record(options.out).write({**origin(commit=options.commit), "seconds": options.seconds, "rows": rows})
    held = rows["cap"]["own_part"] <= 0.31 and rows["rotation"]["own_part"] <= 0.11
    return 0 if held and all(abs(rows[row]["of_work"] - 1) <= 0.03 for row in list(rows)[:2]) else 1


if __name__ == "__main__":
    sys.exit(main())
