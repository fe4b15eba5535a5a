#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The policy `slo` and `gpushare profile` on a real GPU: slo_check.py [--build DIR] [--out FILE].

Two services with a target beside a training: at STEP_AT the requests of the first triple, at BACK_AT
they fall back. Every quarter of a second what the agent says, and what the programs measure
themselves, goes to `lines` of the run that is added to FILE; the last one sums up: rounds until the
share was right for good after each step, the most SMs on the way, seconds over the target. Before
that there is `gpushare profile` of one service that announces its iterations, and of one that does
not.

Needs root, python3 with torch, NVIDIA's MPS, and no other user of the GPU. What must be seen: both
services within their targets in nearly all seconds, settled within about five seconds after each step
with at most 16 SMs more than at the end, and curves that fall with SMs.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from record import Record, origin

STEP_AT, BACK_AT, END_AT = 25, 50, 75
TARGETS_US = {"chat": 8000, "search": 20000}
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slo_program.py")
CONFIG = """
[agent]
knees = "{folder}/knees.json"
[gpu.0]
sharing = "spatial"
policy = "slo"
[tenant.chat]
slo_us = {chat}
[tenant.search]
slo_us = {search}
[tenant.training]
"""


class Run:
    def __init__(self, build):
        self.build, self.lines = build, []
        self.folder = tempfile.mkdtemp(prefix="gpushare-slo-")
        self.socket = self.folder + "/agent.sock"
        self.region = "/" + os.path.basename(self.folder)
        self.programs, self.agent = {}, None

    def note(self, **fields):
        self.lines.append(fields)

    def tool(self, *words):
        return [self.build + "/bin/gpushare", "--socket", self.socket, "--region", self.region,
                *words]

    def start_agent(self):
        with open(self.folder + "/gpushare.toml", "w") as config:
            config.write(CONFIG.format(folder=self.folder, **TARGETS_US))
        self.agent = subprocess.Popen(
            [self.build + "/bin/gpushared", "--socket", self.socket, "--region", self.region,
             "--config", self.folder + "/gpushare.toml"],
            stderr=open(self.folder + "/agent.log", "w"))
        for _ in range(200):
            if self.status():
                return
            time.sleep(0.1)
        sys.exit("no agent:\n" + open(self.folder + "/agent.log").read())

    def start(self, tenant, *words):
        self.programs[tenant] = subprocess.Popen(
            self.tool("run", "--shim", "-t", tenant, "--", sys.executable, PROGRAM, *words,
                      "--name", tenant),
            stdout=open(f"{self.folder}/{tenant}.jsonl", "w"),
            stderr=open(f"{self.folder}/{tenant}.err", "w"))

    def status(self):
        seen = subprocess.run(self.tool("status", "--json"), capture_output=True, text=True)
        return json.loads(seen.stdout) if seen.returncode == 0 else None

    def tenants(self):
        status = self.status() or {}
        return {tenant["name"]: tenant["gpus"][0] for tenant in status.get("tenants", [])}

    def lines_of(self, tenant):
        with open(f"{self.folder}/{tenant}.jsonl") as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    def stop(self):
        for program in [*self.programs.values(), self.agent]:
            if program and program.poll() is None:
                program.send_signal(signal.SIGTERM)
                try:
                    program.wait(10)
                except subprocess.TimeoutExpired:
                    program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def rounds_to_settle(samples, begin, end):
    """Rounds of a second until the first service's SMs stayed what they were at the end."""
    span = [(t, sms) for t, sms, state in samples if begin <= t < end and state != "sampling"]
    if not span:
        return None, None
    last = sorted(sms for _, sms in span[-12:])[len(span[-12:]) // 2]
    wrong = [t for t, sms in span if abs(sms - last) > 8]
    return (round(max(wrong) - begin, 2) if wrong else 0), max(sms for _, sms in span) - last


def step_of_load(run):
    schedule = f"0:40,{STEP_AT}:120,{BACK_AT}:40"
    run.start("training", "train", "--batch", "8192", "--layers", "8")
    run.start("search", "serve", "--schedule", "0:30", "--batch", "2048")
    run.start("chat", "serve", "--schedule", schedule)
    samples, begin = [], None
    while begin is None or time.monotonic() - begin < END_AT:
        time.sleep(0.25)
        if any(program.poll() is not None for program in run.programs.values()):
            for tenant in run.programs:
                sys.stderr.write(open(f"{run.folder}/{tenant}.err").read())
            return run.note(error="a program ended")
        tenants = run.tenants()
        begin = next((line["start"] for line in run.lines_of("chat") if "start" in line), None)
        if begin is None:
            continue
        t = time.monotonic() - begin
        run.note(t=round(t, 2), **{name: {key: use[key] for key in (
            "sms_entitled", "sms_in_use", "slo_us", "latency_us", "p99_us", "iterations_per_s",
            "iteration_source", "sms_knee", "sms_needed", "slo_state")}
            for name, use in tenants.items() if use["slo_state"] != "none"})
        samples.append((t, tenants["chat"]["sms_entitled"] or 0, tenants["chat"]["slo_state"]))
    summary = {"summary": "a service's requests triple and fall back", "targets_us": TARGETS_US}
    for name, (first, last) in {"up": (STEP_AT, BACK_AT), "back": (BACK_AT, END_AT)}.items():
        summary[name + "_settled_s"], summary[name + "_sms_above_last"] = \
            rounds_to_settle(samples, first, last)
    for tenant in run.programs:
        lines = [line for line in run.lines_of(tenant) if line.get("t", 0) >= begin + 5]
        done = sum(line["done"] for line in lines)
        summary[tenant] = {"per_s": round(done / max(len(lines), 1), 2)}
        if tenant in TARGETS_US:
            over = [line for line in lines if line["mean_ms"] * 1e3 > TARGETS_US[tenant]]
            summary[tenant] |= {"seconds": len(lines), "seconds_over_target": len(over)}
    run.note(**summary)
    print(json.dumps(summary))


def profile(run, name, *words):
    file = f"{run.folder}/{name}.sweep.json"
    began = time.monotonic()
    seen = subprocess.run(
        [run.build + "/bin/gpushare", "profile", "-n", "30", "-s", "5", "--json", file, "--",
         sys.executable, PROGRAM, *words], capture_output=True, text=True)
    print(seen.stdout)
    sweep = json.load(open(file)) if os.path.exists(file) else None
    run.note(profile=name, exit_code=seen.returncode, seconds=round(time.monotonic() - began, 1),
             sweep=sweep, **({} if seen.returncode == 0 else {"errors": seen.stderr[-2000:]}))
    if seen.returncode != 0:
        sys.stderr.write(seen.stderr[-2000:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="slo.jsonl")
    options = parser.parse_args()
    run = Run(os.path.abspath(options.build))
    try:
        profile(run, "announced", "loop")
        profile(run, "recognised", "loop", "--silent")
        run.start_agent()
        step_of_load(run)
    finally:
        run.stop()
        Record(options.out).write({**origin(), "lines": run.lines})


if __name__ == "__main__":
    main()
