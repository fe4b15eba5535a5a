#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two programs at once on one GPU, shared in every way there is: table.py BUILD [--out FILE] [--only ROW,...]

Ways: alone; time: the driver's own time slices; mps: NVIDIA's MPS; mps P Q: the same with
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; ours P Q: gpushared with sharing = "spatial", sm_percent P and Q; part: under the
shim, every quarter of a second into a partition of all SMs and back, as two processes differ by more than that costs
(at home a stream is the driver's own, its launches 0.1 us longer). Needs root, python3 with torch and torchvision,
and no other user of the GPU. Each measures for --seconds, after both are warm.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from record import Record, origin, quantile
from servers import TWO_PARTS, Agent, Mps

ALL_SMS = "ffff"  # of an H200: 15 groups of 8, and 12 SMs
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs.py"
# Row: the first program, the one beside it, the ways.
ROWS = {
    "gemm": (["gemm"], None, ["alone", "part", "ours 100 100", "alone"]),
    "small beside heavy": (["small"], ["heavy"], ["alone", "time", "mps", "mps 25 75", "ours 25 75"]),
    "small beside copier": (["small"], ["copier"], ["alone", "time", "mps", "mps 25 75", "ours 25 75"]),
    "decoder beside training": (["decoder"], ["resnet"],
                                ["alone", "time", "mps", "mps 40 60", "ours 30 70", "ours 40 60", "ours 50 50"]),
}


def measure(way, programs, seconds, build):
    """{"programs": [what each said], "parts": ...}"""
    kind, *shares = way.split()
    with tempfile.TemporaryDirectory(prefix="gpushare-table-", ignore_cleanup_errors=True) as folder:
        server = None
        if kind == "mps":
            server = Mps(folder)
        elif kind == "ours":
            server = Agent(folder, build, TWO_PARTS.format(*shares))
        running = []
        try:
            for i, words in enumerate(programs):
                command, environment = [sys.executable, str(PROGRAMS), *words], dict(os.environ)
                if kind == "mps":
                    environment |= server.environment
                    if shares:
                        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = shares[i]
                if kind == "ours":
                    command = server.command("ab"[i], command)
                running.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True,
                                                stdout=subprocess.PIPE, stderr=open(f"{folder}/{i}.err", "w")))
            for i, program in enumerate(running):
                if "ready" not in program.stdout.readline():
                    return {"failed": open(f"{folder}/{i}.err").read()[-1500:]}
            for program in running:
                program.stdin.write(f"{seconds}\n")
                program.stdin.flush()
            result = {}
            if kind == "ours":
                time.sleep(seconds / 2)
                result["parts"] = {name: [use.get("sms_in_use")] for name, use in server.uses().items() if name in "ab"}
            result["programs"] = [json.loads(program.stdout.readline() or "{}") for program in running]
            return result
        finally:
            for program in running:
                program.kill()
                program.wait()
            if server is not None:
                server.end()


def between(build, seconds):
    """Times in a partition of all SMs and in none, of one process."""
    with tempfile.TemporaryDirectory(prefix="gpushare-table-") as folder:
        errors = open(f"{folder}/err", "w+")
        program = subprocess.Popen(
            [str(build / "bin/tests/shim_drive"), "--features", "gate,partitions,iterations", "--sets", f"{ALL_SMS},0",
             "--move-us", "250000", "--", sys.executable, str(PROGRAMS), "gemm", "--rounds"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            if "ready" not in program.stdout.readline():
                return {"failed": open(errors.name).read()[-1500:]}
            program.stdin.write(f"{seconds}\n")
            program.stdin.flush()
            rounds = json.loads(program.stdout.readline() or "{}").get("rounds", [])
            program.wait(timeout=60)
        finally:
            program.kill()
            program.wait()
        lines = [json.loads(line) for line in open(errors.name) if line.startswith("{")]
    moves = [(line["at_ns"], line["set"]) for line in lines if "set" in line]
    times = {ALL_SMS: [], "0": []}
    for (begin, which), (end, _) in zip(moves, moves[1:]):
        for (began, one), (ended, _) in zip(rounds, rounds[1:]):
            if begin + 20_000_000 < began and ended < end:  # it has moved, and not again
                times[which] += one
    return {"programs": [{"what": name, "count": len(seen), **{f"p{round(part * 100)}_ms": quantile(seen, part)
                                                               for part in (0.5, 0.95)}}
                         for name, seen in (("whole GPU", times["0"]), ("partition of all SMs", times[ALL_SMS]))]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="a file to add this run to, one line of JSON")
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas: " + ", ".join(ROWS))
    parser.add_argument("--ways", help="other ones than the row's own, with commas")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--commit", help="what is measured; by default the repository's HEAD")
    options = parser.parse_args()
    build = options.build.resolve()
    rows, record = {}, Record(options.out)

    def keep():
        if options.out:
            record.write({**origin(commit=options.commit), "seconds": options.seconds, "rows": rows})

    for row in options.only.split(","):
        first, second, ways = ROWS[row]
        if first == ["decoder"]:  # half of what it can answer alone
            full = measure("alone", [first], options.seconds, build)["programs"][0]
            first = [*first, "--rate", str(round(full["per_s"] / 2, 2))]
            print(row, "flat out alone", json.dumps(full), flush=True)
        rows[row] = []
        for way in options.ways.split(",") if options.ways else ways:
            both = [first] if way == "alone" or second is None else [first, second]
            seen = between(build, options.seconds) if way == "part" else measure(way, both, options.seconds, build)
            rows[row].append({"way": way, **seen})
            print(f"{row:26} {way:14}", json.dumps(seen), flush=True)
            keep()
        if second is not None:
            seen = measure("alone", [second], options.seconds, build)
            rows[row].append({"way": "alone, the other", **seen})
            print(f"{row:26} {'other alone':14}", json.dumps(seen), flush=True)
            keep()


if __name__ == "__main__":
    main()
