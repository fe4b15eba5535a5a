#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long it takes from a decision to its effect: effect.py BUILD [--out FILE]

Two programs that launch one kernel after the other, and look on which SMs each kernel ran, have 25 and 75 % of the
SMs and exchange their partitions again and again. The time runs from before the first of the two requests on the
agent's socket until both programs have launched a kernel that ran on their new SMs; the program that grows may do so
only when the other one has left those SMs. It needs root, and a GPU that nothing else uses.
"""
import json
import pathlib
import random
import socket
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from record import Record, origin, quantile
from rig import TWO_PARTITIONS, Agent, Program, parser


# How many SMs a program may have at 25 and at 75 %: of an H200's 15 groups of 8 SMs and one group of 12.
SMS = {25: (32, 36), 75: (96, 100)}


class Door:
    """The agent's socket, which takes and gives one JSON object a line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")

    def ask(self, **request):
        self.socket.sendall((json.dumps(request) + "\n").encode())
        answer = json.loads(self.lines.readline())
        if not answer.get("ok"):
            sys.exit(f"{request}: {answer}")


class Watched(Program):
    """A program that says of each launch when it was and on how many SMs it ran."""

    def __init__(self, command):
        self.seen = []  # (ns, SMs) of each launch that ran on another number of SMs than the one before
        super().__init__(command, heard=self.note)

    def note(self, said):
        if "sms" in said and (not self.seen or self.seen[-1][1] != said["sms"]):
            self.seen.append((said["t_ns"], said["sms"]))

    def until(self, percent, seconds=10):
        """When it first launched on that many SMs, since it last had another number of them."""
        end = time.monotonic() + seconds
        while not self.seen or self.seen[-1][1] not in SMS[percent]:
            if self.has_ended() or time.monotonic() > end:
                sys.exit(f"no launch on {percent} %, {SMS[percent]} SMs: {self.seen[-3:]}\n{self.errors()}")
            time.sleep(0.001)
        return self.seen[-1][0]


def measure(build, times):
    """Milliseconds from each exchange to its effect."""
    took, draw, shares = [], random.Random(5), {"a": 25, "b": 75}
    program = [build / "bin/workloads/sms", "--launches", "1000000000", "--units", "100"]
    with Agent(build, TWO_PARTITIONS.format(25, 75)) as agent, \
            Watched(agent.command("a", program)) as a, Watched(agent.command("b", program)) as b:
        running, door = {"a": a, "b": b}, Door(agent.folder + "/agent.sock")
        for name, percent in shares.items():
            running[name].until(percent, 60)
        for _ in range(times):
            time.sleep(draw.uniform(0.02, 0.12))  # so that it comes at any point of the agent's rounds
            shares = {"a": shares["b"], "b": shares["a"]}
            begin = time.monotonic_ns()
            for name in sorted(shares, key=shares.get):
                door.ask(op="set", tenant=name, create=False, settings={"sm_percent": str(shares[name])})
            took.append(max(running[name].until(percent) - begin for name, percent in shares.items()) / 1e6)
    return took


def main():
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=200, help="how often they exchange (default: 200)")
    options = options.parse_args()
    took = measure(options.build, options.times)
    result = {**origin(commit=options.commit), "times": len(took), "p50_ms": round(quantile(took, 0.5), 3),
              "p99_ms": round(quantile(took, 0.99), 3), "max_ms": round(max(took), 3),
              "all_ms": [round(one, 2) for one in sorted(took)]}
    print(json.dumps({key: value for key, value in result.items() if key != "all_ms"}))
    Record(options.out).write(result)


if __name__ == "__main__":
    main()
