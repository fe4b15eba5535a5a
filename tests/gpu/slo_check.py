#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The policy `slo` and `gpushare profile` on a real GPU: slo_check.py [--build DIR] [--out FILE].

First comes `gpushare profile` of a service that announces its iterations, and of one that does not. Then two services
with a target run beside a training: after STEP_AT seconds the requests of the first service triple, after BACK_AT
seconds they fall back. Every quarter of a second, what the agent says is added to `lines` of the run that goes to
FILE. The last line sums up: the seconds from each step until the share was right for good, the most SMs on the way,
and the seconds over the target, by the programs' own clocks.

It needs root, python3 with torch, NVIDIA's MPS, and a GPU that nothing else uses. What must be seen: both services
within their targets in nearly all seconds, shares that settle within about five seconds after each step with at most
16 SMs more than at the end, and curves that fall as SMs are added.
"""
import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1] / "bench"))
import rig
from record import Record, origin

STEP_AT, BACK_AT, END_AT = 25, 50, 75
TARGETS_US = {"chat": 8000, "search": 20000}
PROGRAM = [sys.executable, HERE / "slo_program.py"]
CONFIG = f"""
[agent]
knees = "{{folder}}/knees.json"
[gpu.0]
sharing = "spatial"
policy = "slo"
[tenant.chat]
slo_us = {TARGETS_US['chat']}
[tenant.search]
slo_us = {TARGETS_US['search']}
[tenant.training]
"""
# What a line has of each service, from `gpushare status --json`.
SEEN = ("sms_entitled", "sms_in_use", "slo_us", "latency_us", "p99_us", "iterations_per_s", "iteration_source",
        "sms_knee", "sms_needed", "slo_state")


def rounds_to_settle(samples, begin, end):
    """How many seconds the first service's SMs took to stay what they were at the end, and the most SMs above that;
    None where nothing was seen."""
    span = [(t, sms) for t, sms, state in samples if begin <= t < end and state != "sampling"]
    if not span:
        return None, None
    last = sorted(sms for _, sms in span[-12:])[len(span[-12:]) // 2]
    wrong = [t for t, sms in span if abs(sms - last) > 8]
    return (round(max(wrong) - begin, 2) if wrong else 0), max(sms for _, sms in span) - last


def follow(agent, running, note):
    """Notes what the agent says until the services' schedule is over; returns when it began and the first service's
    samples, or None when a program ended."""
    samples, begin = [], None
    while begin is None or time.monotonic() - begin < END_AT:
        time.sleep(0.25)
        if any(program.has_ended() for program in running.values()):
            return None
        begin = next((line["start"] for line in running["chat"].said if "start" in line), None)
        if begin is None:
            continue
        uses, t = agent.uses(), time.monotonic() - begin
        note(t=round(t, 2), **{name: {key: use[key] for key in SEEN} for name, use in uses.items()
                               if use["slo_state"] != "none"})
        if "chat" in uses:
            samples.append((t, uses["chat"]["sms_entitled"] or 0, uses["chat"]["slo_state"]))
    return begin, samples


def step_of_load(build, note):
    programs = {"training": ["train", "--batch", "8192", "--layers", "8"],
                "search": ["serve", "--schedule", "0:30", "--batch", "2048"],
                "chat": ["serve", "--schedule", f"0:40,{STEP_AT}:120,{BACK_AT}:40"]}
    with rig.Agent(build, CONFIG) as agent, contextlib.ExitStack() as stack:
        running = {tenant: stack.enter_context(rig.Program(agent.command(tenant, [*PROGRAM, *words, "--name", tenant])))
                   for tenant, words in programs.items()}
        followed = follow(agent, running, note)
        if followed is None:
            sys.stderr.write("".join(program.errors() for program in running.values()))
            return note(error="a program ended")
        said = {tenant: list(program.said) for tenant, program in running.items()}
    begin, samples = followed
    summary = {"summary": "a service's requests triple and fall back", "targets_us": TARGETS_US}
    for name, (first, last) in {"up": (STEP_AT, BACK_AT), "back": (BACK_AT, END_AT)}.items():
        summary[name + "_settled_s"], summary[name + "_sms_above_last"] = rounds_to_settle(samples, first, last)
    for tenant, lines in said.items():
        lines = [line for line in lines if line.get("t", 0) >= begin + 5]
        done = sum(line["done"] for line in lines)
        summary[tenant] = {"per_s": round(done / max(len(lines), 1), 2)}
        if tenant in TARGETS_US:
            over = [line for line in lines if line["mean_ms"] * 1e3 > TARGETS_US[tenant]]
            summary[tenant] |= {"seconds": len(lines), "seconds_over_target": len(over)}
    note(**summary)
    print(json.dumps(summary))


def profile(build, note, name, *words):
    with tempfile.TemporaryDirectory(prefix="gpushare-slo-") as folder:
        file = pathlib.Path(folder) / "sweep.json"
        seen = rig.run([build / "bin/gpushare", "profile", "-n", "30", "-s", "5", "--json", file, "--", *PROGRAM,
                        *words], timeout=1800)
        sweep = json.loads(file.read_text()) if file.exists() else None
    print(seen.out)
    note(profile=name, exit_code=seen.code, seconds=round(seen.seconds, 1), sweep=sweep,
         **({} if seen.code == 0 else {"errors": seen.err[-2000:]}))
    if seen.code != 0:
        sys.stderr.write(seen.err[-2000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=rig.build_folder, default="build",
                        help="the folder that make or make dist has filled (default: build)")
    parser.add_argument("--out", default="slo.jsonl",
                        help="the file to which this run is added, as one line of JSON (default: slo.jsonl)")
    options = parser.parse_args()
    lines = []

    def note(**fields):
        lines.append(fields)

    try:
        profile(options.build, note, "announced", "loop")
        profile(options.build, note, "recognised", "loop", "--silent")
        step_of_load(options.build, note)
    finally:
        Record(options.out).write({**origin(), "lines": lines})


if __name__ == "__main__":
    main()
