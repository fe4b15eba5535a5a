#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work that goes on after its program has ended, in a tenant with a cap of 10 %: outlived.py BUILD [--out FILE].

A child that never calls the driver keeps the descriptors that it inherited, so that the driver goes on with what lies
in the stream (tests/attacks/escapes/outlived). Seven ways: alone; by an exec instead of an end; beside a program of
another tenant; while the agent is killed and started again; while it is stopped and started again, as an upgrade does;
in a tenant that is frozen then; and without an agent, while all channels are frozen that RM tells of when it is asked on
the child's descriptors. Of each second: which part of
it the work had. The status is 0 if the cap and the freezes held. It needs root, and a GPU that nothing else uses.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import rig
from record import Record, origin

CONFIG, MOST, BEFORE_S, WHOLE_S = '[tenant.capped]\nmax = "10%"\n[tenant.other]\n', 0.11, 3, 10
# More than the child counts, and few enough that all are in the stream at once.
QUEUED = ["--kernel-us", 50_000, "--kernels", 300]


def parts(said):
    """The part of each second that was work."""
    ends = [(0, 0), *((line["done_ms"], line["elapsed_ms"]) for line in said)]
    return [round((b[0] - a[0]) / (b[1] - a[1]), 2) for a, b in zip(ends, ends[1:])]


def play(words, begin):
    """Starts the program. Three seconds after its end `begin` is called; returns the parts before and after."""
    with rig.Program([*words, *QUEUED, "--seconds", WHOLE_S]) as program:
        for _ in range(BEFORE_S):
            if program.take(60) is None:
                sys.exit(f"outlived: {program.errors()[-300:]}")
        if not program.said[-1]["done_ms"]:
            sys.exit("here the work ends with its program, so that nothing can be shown (a simulated GPU does so)")
        begin(program.process.pid)
        while (said := program.take(60)) is not None and "gpu_share" not in said:
            continue
        return {"before": parts(program.said)[:BEFORE_S], "after": parts(program.said)[BEFORE_S:]}


def with_agent(options, begin, *more):
    """`begin`: what happens after three seconds, given the agent. `more`: words of the attack."""
    attack = [options.build / "bin/attacks/outlived", *more]
    with rig.Agent(options.build, CONFIG) as agent:
        row = play(agent.command("capped", attack, shim=False), lambda _: begin(agent))
        charged = {name: round(use["gpu_time_ns"] / 1e6) for name, use in agent.uses().items()}
    return {**row, "charged_ms": charged}


def main():
    options = rig.parser(__doc__).parse_args()
    build = options.build
    beside = contextlib.ExitStack()  # what runs beside the work until its way has ended

    def other(agent):
        words = [build / "bin/workloads/spin", "--seconds", 100]
        beside.enter_context(rig.Program(agent.command("other", words, shim=False)))

    def kill(agent):
        os.kill(agent.status()["agent"]["pid"], signal.SIGKILL)

    def restart(agent):
        if agent.stop() != 0:
            sys.exit(agent.log()[-1500:])
        agent.start()

    def freeze_from_outside(session):
        child = subprocess.run(["pgrep", "-n", "-s", str(session)], capture_output=True, text=True, check=True).stdout
        words = [build / "bin/attacks/foreign_control", "--victim", child.strip(), "--hold-ms", 3000]
        beside.enter_context(rig.Program(words))

    rows = []
    ways = {"alone": (lambda _: None,), "by exec": (lambda _: None, "--by-exec", 1), "beside another": (other,),
            "agent killed": (kill,), "agent restarted": (restart,),
            "frozen": (lambda agent: agent.ask("freeze", "capped"),)}
    for name, way in ways.items():
        with beside:
            row = {"way": name, **with_agent(options, *way)}
        # The first second after a change is left out.
        row["is_held"] = max(row["after"][1:]) <= (0 if name == "frozen" else MOST)
        rows.append(row)
        print(json.dumps(row), flush=True)
    with beside:
        rows.append({"way": "no agent, channels frozen", **play([build / "bin/attacks/outlived"], freeze_from_outside)})
    print(json.dumps(rows[-1]), flush=True)
    held = all(row.get("is_held", True) for row in rows)
    Record(options.out).write({**origin(commit=options.commit), "cap": "10%", "rows": rows, "is_held": held})
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
