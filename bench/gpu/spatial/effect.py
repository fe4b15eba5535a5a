#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a decision to its effect: effect.py BUILD [--out FILE]

Two programs that launch one kernel after the other and look on which SMs each ran have 25 and 75 % of the SMs, and
exchange their shares again and again. Timed from before the first of the two requests on the agent's socket until
both have launched a kernel that ran on their new SMs: the one that grows may only do so when the other has left
them. Needs root, a GPU and no other user of it.
"""
import argparse
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from record import Record, origin
from servers import Agent, TWO_PARTS


# Of an H200's 15 groups of 8 SMs and one of 12, which either program may have.
SMS = {25: (32, 36), 75: (96, 100)}


class Door:
    """The agent's socket: one JSON object a line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")

    def ask(self, **request):
        self.socket.sendall((json.dumps(request) + "\n").encode())
        answer = json.loads(self.lines.readline())
        if not answer.get("ok"):
            sys.exit(f"{request}: {answer}")
        return answer


class Watched:
    """A program that says of each launch when it was and on how many SMs it ran."""

    def __init__(self, command, errors):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(errors, "w"), text=True)
        self.seen = []  # (ns, SMs), wherever it is another number than before
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if "sms" in said and (not self.seen or self.seen[-1][1] != said["sms"]):
                self.seen.append((said["t_ns"], said["sms"]))

    def until(self, percent, seconds=10):
        """When it launched first into that part, since it had another number of SMs."""
        end = time.monotonic() + seconds
        while not self.seen or self.seen[-1][1] not in SMS[percent]:
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"waited in vain for {percent} %, {SMS[percent]} SMs: {self.seen[-3:]}")
            time.sleep(0.001)
        return self.seen[-1][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="a file to add this run to, one line of JSON")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--commit", help="what is measured; by default the repository's HEAD")
    options = parser.parse_args()
    build, took = options.build.resolve(), []
    with tempfile.TemporaryDirectory(prefix="gpushare-effect-", ignore_cleanup_errors=True) as folder:
        agent = Agent(folder, build, TWO_PARTS.format(25, 75))
        running = {name: Watched([*agent.tool, "run", "--shim", "--tenant", name, "--", str(build / "bin/workloads/sms"),
                                  "--launches", "1000000000", "--units", "100"], f"{folder}/{name}.err")
                   for name in "ab"}
        try:
            door, draw = Door(folder + "/agent.sock"), random.Random(5)
            shares = {"a": 25, "b": 75}
            for name, percent in shares.items():
                running[name].until(percent, 60)
            for _ in range(options.times):
                time.sleep(draw.uniform(0.02, 0.12))  # at any point of the agent's rounds
                shares = {"a": shares["b"], "b": shares["a"]}
                begin = time.monotonic_ns()
                for name in sorted(shares, key=shares.get):
                    door.ask(op="set", tenant=name, create=False,
                             settings={"sm_percent": str(shares[name])})
                took.append(max(running[name].until(percent) - begin for name, percent in shares.items()) / 1e6)
        finally:
            for program in running.values():
                program.process.kill()
                program.process.wait()
            agent.end()
    took.sort()
    result = {**origin(commit=options.commit),
              "times": len(took), "p50_ms": round(took[len(took) // 2], 3),
              "p99_ms": round(took[int(len(took) * 0.99)], 3), "max_ms": round(took[-1], 3),
              "all_ms": [round(one, 2) for one in took]}
    print(json.dumps({key: value for key, value in result.items() if key != "all_ms"}))
    if options.out:
        Record(options.out).write(result)


if __name__ == "__main__":
    main()
