#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that are killed faster than they find their programs again: kill_storm.py BUILD [--kills N] [--out FILE].

Six programs start by `gpushare run` with a weight, a cap, the idle class and a named tenant, one of them on no GPU.
Then the agent, or now and then its supervisor or both, is killed N times (200), each time 20 to 700 ms after a new
agent has answered. At the end every setting, membership and freeze must be as before, shares and cap must be in force,
and when the agent has been stopped every program must make progress. It needs root and a GPU that nothing else uses;
with GPUSHARE_SIM and LD_LIBRARY_PATH (bench/rig.py) it uses the simulated one. The exit status is 1 when something was
not as it must be.
"""
import contextlib
import os
import pathlib
import random
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[2] / "bench"))
import rig
from record import Record, origin, quantile

CONFIG = "[tenant.lab]\nweight = 100\n"
# Options of `gpushare run`, the program, and what its tenant must have.
PROGRAMS = {
    "heavy": (["-w", "300"], "spin", {"weight": 300}),
    "light": (["-w", "100"], "spin", {"weight": 100}),
    "capped": (["-m", "10%"], "spin", {"quota_us": 10000, "period_us": 100000}),
    "idle": (["-p", "idle"], "spin", {"priority": "idle"}),
    "frozen": (["-w", "150"], "spin", {"weight": 150}),
    "named": (["--tenant", "lab"], "spin", {"weight": 250}),
    "shell": (["-w", "70"], None, {"weight": 70}),
}
ON_GPU = [name for name, (_, workload, _) in PROGRAMS.items() if workload]


def until(limit, is_so):
    """The first true value of is_so(), or the last one when `limit` seconds are over."""
    end = time.monotonic() + limit
    while True:
        value = is_so()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.02)


class Storm:
    def __init__(self, options, agent, programs):
        self.options, self.agent, self.programs = options, agent, programs
        self.random, self.wrong, self.back_ms, self.kills = random.Random(options.seed), [], [], {}
        self.pids = {name: program.process.pid for name, program in programs.items()}
        self.tenants = {name: "lab" if name == "named" else f"run-{pid}" for name, pid in self.pids.items()}

    def note(self, is_right, text):
        print(f"{'right' if is_right else 'WRONG'}  {text}", flush=True)
        if not is_right:
            self.wrong.append(text)

    def agent_pid(self):
        return self.agent.status().get("agent", {}).get("pid", 0)

    def kill_once(self):
        agent = until(60, self.agent_pid)
        if not agent:
            sys.exit("no agent answers:\n" + self.agent.log()[-3000:])
        time.sleep(self.random.uniform(0.02, 0.7))
        victim = self.random.choices(["agent", "supervisor", "both"], [8, 1, 1])[0]
        self.kills[victim] = self.kills.get(victim, 0) + 1
        began = time.monotonic()
        if victim != "agent":
            self.agent.process.kill()
        if victim != "supervisor":
            os.kill(agent, signal.SIGKILL)
        if victim != "agent":
            self.agent.process.wait()
            self.agent.start_again()
        until(30, lambda: self.agent_pid() not in (0, agent))
        self.back_ms.append((time.monotonic() - began) * 1e3)

    def members(self):
        """The names of the tenants of all programs on the GPU."""
        return {process["pid"]: process.get("tenant") for process in self.agent.status().get("processes", [])}

    def states(self):
        """The states of all programs on the GPU."""
        return {process["pid"]: process["state"] for process in self.agent.status().get("processes", [])}

    def check(self, when):
        wanted = {self.pids[name]: self.tenants[name] for name in ON_GPU}
        until(30, lambda: self.members() == wanted)
        # The next agent knows its programs before it has frozen the one again.
        began = time.monotonic()
        until(10, lambda: self.states().get(self.pids["frozen"]) == "frozen-user")
        print(f"       {when}: the frozen one is frozen {time.monotonic() - began:.2f} s after all are known", flush=True)
        status = self.agent.status()
        members = self.members()
        for name in ON_GPU:
            self.note(members.get(self.pids[name]) == self.tenants[name],
                      f"{when}: {name} is in {members.get(self.pids[name])}, which must be {self.tenants[name]}")
        tenants = {tenant["name"]: tenant for tenant in status.get("tenants", [])}
        for name, (_, _, settings) in PROGRAMS.items():
            seen = {key: tenants.get(self.tenants[name], {}).get(key) for key in settings}
            self.note(seen == settings, f"{when}: settings of {name}: {seen}")
        states = self.states()
        self.note(states.get(self.pids["frozen"]) == "frozen-user",
                  f"{when}: the frozen one is {states.get(self.pids['frozen'])}")
        others = [name for name in ON_GPU if name != "frozen" and states.get(self.pids[name]) == "frozen-user"]
        self.note(not others, f"{when}: frozen by the user besides: {others}")

    def shares(self):
        """What each program has of the GPU, in percent; the mean of ten readings."""
        sums = dict.fromkeys(ON_GPU, 0.0)
        for _ in range(10):
            time.sleep(0.5)
            seen = {process["pid"]: process["share_pct"] or 0 for process in self.agent.status().get("processes", [])}
            for name in ON_GPU:
                sums[name] += seen.get(self.pids[name], 0) / 10
        return {name: round(value, 1) for name, value in sums.items()}

    def check_shares(self):
        time.sleep(3)
        shares = self.shares()
        rest = shares["heavy"] + shares["light"] + shares["named"]
        parts = {name: round(shares[name] / rest * 100, 1) if rest else 0 for name in ("heavy", "light", "named")}
        self.note(abs(shares["capped"] - 10) < 2, f"the cap of 10 %: {shares['capped']} %")
        for name, part in (("heavy", 300 / 650), ("light", 100 / 650), ("named", 250 / 650)):
            self.note(abs(parts[name] - part * 100) < 5, f"of the rest {name} has {parts[name]} %, {part * 100:.1f} wanted")
        self.note(shares["idle"] < 5, f"the idle class gives way: {shares['idle']} %")
        self.note(shares["frozen"] == 0, f"the frozen one has {shares['frozen']} %")
        return shares

    def check_progress(self):
        """With no agent nothing is frozen, not even what the user froze."""
        before = {name: len(self.programs[name].said) for name in ON_GPU}
        end = time.monotonic() + 30

        def moved(name):
            units = [line["units"] for line in self.programs[name].said[before[name]:] if "units" in line]
            return len(units) > 1 and units[-1] > units[0]
        while time.monotonic() < end and not all(moved(name) for name in ON_GPU):
            time.sleep(0.1)
        for name in ON_GPU:
            self.note(moved(name), f"{name} makes progress when no agent runs")


class KilledAgent(rig.Agent):
    """An agent whose supervisor is killed and started again, as by systemd."""

    def start_again(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            self.start()
            while self.process.poll() is None and time.monotonic() < end:
                # Until the agent before has ended, which holds the lock, it may be what answers.
                if self.status().get("agent", {}).get("supervisor_pid") == self.process.pid:
                    return
                time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often (default: 200)")
    parser.add_argument("--seed", type=int, default=os.getpid(), help="of the random numbers")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(KilledAgent(options.build, CONFIG))
        programs = {}
        for name, (words, workload, _) in PROGRAMS.items():
            program = ([options.build / "bin/workloads" / workload, "--seconds", "1000000", "--report-ms", "200"]
                       if workload else ["/bin/sleep", "1000000"])
            programs[name] = stack.enter_context(rig.Program([*agent.tool, "run", *words, "--", *program]))
        storm = Storm(options, agent, programs)
        until(60, lambda: len(storm.members()) == len(ON_GPU))
        agent.ask("set", "lab", "weight=250")
        agent.ask("freeze", str(storm.pids["frozen"]))
        time.sleep(0.5)
        storm.check("before")
        for kill in range(options.kills):
            storm.kill_once()
            if (kill + 1) % max(1, options.kills // 20) == 0:
                print(f"{kill + 1} of {options.kills} kills", flush=True)
        storm.check(f"after {options.kills} kills")
        shares = storm.check_shares()
        agent.stop()
        storm.check_progress()
        agent.start_again()
        storm.check("after a clean stop and a start")
    back = {"p50_ms": round(quantile(storm.back_ms, 0.5) or 0), "max_ms": round(max(storm.back_ms, default=0))}
    Record(options.out).write({**origin(commit=options.commit), "kills": storm.kills, "seed": options.seed,
                               "next_agent_answers": back, "shares_pct": shares, "wrong": storm.wrong})
    print(f"{sum(storm.kills.values())} kills ({storm.kills}), the next agent after {back}; {len(storm.wrong)} wrong")
    return bool(storm.wrong)


if __name__ == "__main__":
    sys.exit(main())
