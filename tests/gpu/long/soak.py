#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses everything at random for a long time, and looks for what leaks.

    soak.py BUILD [--minutes 5] [--seed N] [--simulated] [--out FILE]

Programs come and go under an agent, in tenants of their own and in shared ones; some are killed. Meanwhile every command
of `gpushare` is used at random, rightly and wrongly, and the configuration is read again. After each round (30 s) all
programs end, and the agent must be as it was after the first rounds: no more descriptors, memory within 4 MiB, no process,
no tenant of `gpushare run` and nothing frozen; at the end `gpushared --recover` must find nothing. With --simulated it runs
on a simulated GPU of its own.
"""
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
import record  # noqa: E402
import rig  # noqa: E402

ROUND_S, DRAIN_S, MOST_PROGRAMS = 30, 60, 12
MOST_GROWTH_KIB = 4096
WARM_ROUNDS = 3  # in which the agent opens what it keeps
CONFIG = """[tenant.gold]
weight = 300
[tenant.capped]
max = "20%"
[tenant.low]
priority = "idle"
[tenant.fast]
priority = "high"
"""
TENANTS = ["gold", "capped", "low", "fast", "default", "made1", "made2"]
GOOD = ["weight=50", "weight=900", "max=10%", "max=35ms/100ms", "max=max", "priority=idle", "priority=high",
        "priority=normal", "sm_percent=25", "sm_percent=max"]
BAD = ["weight=0", "weight=x", "max=200%", "max=-1", "priority=best", "=", "colour=red", "sm_percent=0"]


def kind_of(descriptor):
    """What a descriptor leads to, without the number that makes it one of many."""
    try:
        name = os.readlink(descriptor)
        return name if name.startswith("anon_inode") else name.partition(":[")[0]
    except OSError:
        return "closed meanwhile"


class Soak:
    def __init__(self, agent, build, seed):
        self.agent, self.build, self.random = agent, build, random.Random(seed)
        self.programs, self.counts, self.wrong = [], {}, []
        self.scratch = tempfile.TemporaryDirectory(prefix="gpushare-soak-")

    # --- what is done

    def start(self):
        if len(self.programs) >= MOST_PROGRAMS:
            return self.end()
        kernel = self.random.choice(["50", "500", "2000", "20000"])
        seconds = self.random.choice(["0.05", "1", "5", "1000"])
        words = self.random.choice([["spin", "--kernel-us", kernel, "--seconds", seconds, "--ns-per-unit", "130"],
                                    ["endless", "--seconds", seconds],
                                    ["periodic", "--period-us", "5000", "--samples", "1000", "--ns-per-unit", "130"]])
        words = [self.build / "bin/workloads" / words[0], *words[1:]]
        how = self.random.choice([[], ["--tenant", self.random.choice(TENANTS)], ["-w", "200"], ["-m", "30%"],
                                  ["-p", "idle"], ["--shim"]])
        if how or self.random.random() < 0.5:
            words = [*self.agent.tool, "run", *how, "--", *words]
        self.programs.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                              start_new_session=True))

    def end(self):
        if self.programs:
            program = self.programs.pop(self.random.randrange(len(self.programs)))
            program.send_signal(self.random.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGINT]))
            self.reap(program)

    def reap(self, program):
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait(20)

    def a_process(self):
        self.programs = [program for program in self.programs if program.poll() is None]
        return str(self.random.choice(self.programs).pid) if self.programs and self.random.random() < 0.9 else "4194303"

    def tool(self, *words, may_fail=True):
        told = self.agent.ask(*words)
        if told.returncode not in ((0, 1, 2) if may_fail else (0,)):
            self.wrong.append(f"gpushare {' '.join(words)}: exit code {told.returncode}: {told.stderr[-300:]}")
        if told.returncode != 0 and not (told.stderr + told.stdout).strip():
            self.wrong.append(f"gpushare {' '.join(words)}: exit code {told.returncode} without a word")

    def set(self):
        self.tool("set", self.random.choice(TENANTS), self.random.choice(GOOD), may_fail=True)

    def set_wrong(self):
        name = self.random.choice([*TENANTS, "no such", "", "x" * 100])
        self.tool("set", name, self.random.choice(BAD))

    def remove(self):
        self.tool("remove", self.random.choice(TENANTS[5:]))

    def attach(self):
        self.tool("attach", self.a_process(), self.random.choice(TENANTS))

    def freeze(self):
        self.tool("freeze", self.random.choice([self.a_process(), *TENANTS[:2]]))

    def thaw(self):
        self.tool("thaw", self.random.choice([self.a_process(), *TENANTS[:2]]))

    def look(self):
        self.tool(*self.random.choice([["status"], ["status", "--json"], ["tenants"], ["doctor"], ["version"]]))

    def trace(self):
        self.tool("trace", "-d", "0.3", "-o", self.scratch.name + "/trace.json")

    def reload(self):
        os.kill(self.agent_pid(), signal.SIGHUP)

    # --- what is looked at

    def status(self):
        return json.loads(self.agent.ask("status", "--json").stdout)

    def agent_pid(self):
        return self.status()["agent"]["pid"]

    def round(self, until):
        deeds = [self.start] * 6 + [self.end] * 4 + [self.set] * 3 + [self.look] * 2 + [
            self.set_wrong, self.remove, self.attach, self.freeze, self.thaw, self.thaw, self.trace, self.reload]
        while time.monotonic() < until:
            deed = self.random.choice(deeds)
            deed()
            self.counts[deed.__name__] = self.counts.get(deed.__name__, 0) + 1
            time.sleep(self.random.uniform(0, 0.2))
        for tenant in TENANTS:
            self.agent.ask("thaw", tenant)
        while self.programs:
            self.end()

    def is_empty(self):
        return not self.status().get("processes")

    def sample(self):
        """What the agent holds when nobody is on a GPU."""
        end = time.monotonic() + DRAIN_S
        while not self.is_empty():
            if time.monotonic() > end:
                self.wrong.append(f"processes are still listed after {DRAIN_S} s")
                break
            time.sleep(0.2)
        time.sleep(2)  # what is looked at once a second only
        names = [tenant["name"] for tenant in self.status()["tenants"]]
        left = [name for name in names if name.startswith("run-")]
        if left:
            self.wrong.append(f"tenants without a process are still there: {left}")
        pid = self.agent_pid()
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        kinds = collections.Counter(kind_of(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
        return {"pid": pid, "fds": kinds.total(), "kinds": dict(kinds), "rss_kib": memory,
                "tenants": len(names)}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--simulated", action="store_true", help="use a simulated GPU, which is started for it")
    options = parser.parse_args()
    samples, ends = [], time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        if options.simulated:
            stack.enter_context(rig.Simulation(options.build))
        agent = stack.enter_context(rig.Agent(options.build, CONFIG))
        soak = Soak(agent, options.build, options.seed)
        if "no GPU" in agent.log():
            sys.exit("the agent has no GPU:\n" + agent.log())
        try:
            while len(samples) <= WARM_ROUNDS or time.monotonic() < ends:
                soak.round(time.monotonic() + ROUND_S)
                samples.append(soak.sample())
                print(f"round {len(samples)}: {samples[-1]}, {sum(soak.counts.values())} deeds", flush=True)
                last = samples[-1]
                if last["pid"] != samples[0]["pid"]:
                    soak.wrong.append("the agent ended and was started again")
                for what, slack in (("fds", 0), ("rss_kib", MOST_GROWTH_KIB)):
                    usual = max(sample[what] for sample in samples[:WARM_ROUNDS])
                    if last[what] > usual + slack:
                        soak.wrong.append(f"{what}: {usual} in the first {WARM_ROUNDS} rounds, now {last[what]}")
                if soak.wrong:
                    break
        finally:
            for program in soak.programs:
                program.kill()
            code, recovered = agent.stop(), agent.recover()
            log = agent.log()
    if code != 0:
        soak.wrong.append(f"the agent's end: {code}")
    if "nothing to recover" not in recovered.out + recovered.err:
        soak.wrong.append("recover: " + (recovered.out + recovered.err)[-300:])
    for wrong in soak.wrong:
        print("WRONG:", wrong)
    if soak.wrong:
        print(log[-3000:])
    deeds = sum(soak.counts.values())
    print(f"{'NOT ' if soak.wrong else ''}ok: {deeds} deeds in {len(samples)} rounds")
    record.Record(options.out).write({**record.origin(commit=options.commit), "seed": options.seed,
                                      "minutes": options.minutes, "deeds": soak.counts, "rounds": samples,
                                      "wrong": soak.wrong, "is_right": not soak.wrong})
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
