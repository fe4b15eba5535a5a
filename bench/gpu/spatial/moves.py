#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What moving costs, and launching in a partition: moves.py BUILD [--out FILE]

gaps: the time the GPU does nothing between two kernels of a stream, natively, in a partition at rest, and while the
stream moves 1,000 times between partitions. Each move makes at most one gap longer, so as many of the longest gaps
as there were moves are taken for theirs, and the usual gap is subtracted. The eight longest of all are those of the
moves to a set of SMs that the program has not been in before, and are shown apart.
launch: the host's cost of a launch, and of a launch and the wait for it, past the shim and through it in the same
process (launches.cc), with no feature, with all of them in the whole GPU, and in a partition; into streams of the
program's and into the legacy default stream. But where it says so the program has no iterations; "looks" is what it
costs until the recogniser gives up looking for them.

Needs a GPU and no other user of it.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from record import Record, origin, quantile


# Of 8 groups of 15, as neighbours. The first move to each makes a partition, when the GPU is at rest.
SETS = 8
ALL = "gate,partitions,iterations"
# Turns of 250 launches: until the recogniser is surely asleep, and while it surely is not.
ASLEEP, LOOKS = 400, 250


def run(words, timeout=200):
    seen = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout)
    if seen.returncode != 0:
        sys.exit(f"{words}: status {seen.returncode}\n{seen.stdout[-500:]}{seen.stderr[-1500:]}")
    return [json.loads(line) for line in seen.stdout.splitlines()], \
        [json.loads(line) for line in seen.stderr.splitlines() if line.startswith("{")]


def gaps(build, kernels, kernel_us):
    program = [build / "bin/bench/gaps", "--kernels", kernels, "--kernel-us", kernel_us]
    drive = [build / "bin/tests/shim_drive", "--features", "gate,partitions"]
    rows = []
    for way, before in (("native", []), ("in a partition", [*drive, "--groups", "ff", "--"]),
                        ("native", []), ("in a partition", [*drive, "--groups", "ff", "--"])):
        rows.append({"way": way, **run([*before, *program])[0][-1]})
    move_us = kernels * kernel_us // 4000  # it moves at launches, and does not launch all the time
    said, driven = run([*drive, "--length", 8, "--settle-ms", 2000, "--move-us", move_us, "--seed", 3, "--", *program,
                        "--largest", 5000])
    moves, usual = driven[-1]["moves"], statistics.median([row["gap_p50_ns"] for row in rows[1::2]])
    extra = sorted(line["gap_ns"] - usual for line in said[:-1][:moves])
    known, made = extra[:-SETS], extra[-SETS:]
    rows.append({"way": "moves", **said[-1], "moves": moves, "extra_p50_ns": quantile(known, 0.5),
                 "extra_p99_ns": quantile(known, 0.99), "extra_max_ns": known[-1], "to_new_sets_ns": made})
    return rows


def launches(build, turns):
    drive = [build / "bin/tests/shim_drive", "--features"]
    rows = []
    looks, asleep = ["--warm-up", 20, "--turns", min(turns, LOOKS)], ["--warm-up", ASLEEP, "--turns", turns]
    for under, features, how in (
            ("no feature", ["none"], ["--turns", turns]), ("gate and partitions", ["gate,partitions"], ["--turns", turns]),
            ("all features, the whole GPU", [ALL], asleep), ("all features, the whole GPU, looks", [ALL], looks),
            ("all features, the whole GPU, iterations of 50", [ALL], ["--iterate", 50, "--warm-up", 50, "--turns", turns]),
            ("partitions, 120 SMs", ["gate,partitions", "--groups", "7fff"], ["--turns", turns]),
            ("all features, 120 SMs", [ALL, "--groups", "7fff"], asleep)):
        for stream, legacy in (("own", 0), ("legacy", 1)):
            said, _ = run([*drive, *features, "--", build / "bin/bench/launches", "--legacy", legacy, *how])
            rows += [{"under": under, "stream": stream, **row} for row in said if "way" in row]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="a file to add this run to, one line of JSON")
    parser.add_argument("--kernels", type=int, default=500_000)
    parser.add_argument("--kernel-us", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2000, help="of the launches")
    parser.add_argument("--commit", help="what is measured; by default the repository's HEAD")
    options = parser.parse_args()
    result = {**origin(commit=options.commit),
              "gaps": gaps(options.build, options.kernels, options.kernel_us),
              "launch": launches(options.build, options.turns)}
    for row in result["gaps"] + result["launch"]:
        print(json.dumps(row))
    if options.out:
        Record(options.out).write(result)


if __name__ == "__main__":
    main()
