#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What moving costs, and launching in a partition: moves.py BUILD [--json FILE]

gaps: the time the GPU does nothing between two kernels of a stream, natively, in a partition at rest, and while the
stream moves 1,000 times between partitions. Each move makes at most one gap longer, so as many of the longest gaps
as there were moves are taken for theirs, and the usual gap is subtracted. The eight longest of all are those of the
moves to a set of SMs that the program has not been in before, and are shown apart.
launch: the host's cost of a launch, and of a launch and the wait for it: natively, in a green context that the
program makes itself, under the shim without a feature, with all features in the whole GPU and in a partition; in
turn, on one core, several times: medians, and the median of the ratios to the native one of the same turn.

Needs a GPU and no other user of it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from record import origin


# Of 8 groups of 15, as neighbours. The first move to each makes a partition, when the GPU is at rest.
SETS = 8


def run(words, timeout=200):
    seen = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout)
    if seen.returncode != 0:
        sys.exit(f"{words}: status {seen.returncode}\n{seen.stdout[-500:]}{seen.stderr[-1500:]}")
    return [json.loads(line) for line in seen.stdout.splitlines()], \
        [json.loads(line) for line in seen.stderr.splitlines() if line.startswith("{")]


def part(ordered, p):
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))]


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
    rows.append({"way": "moves", **said[-1], "moves": moves, "extra_p50_ns": part(known, 0.5),
                 "extra_p99_ns": part(known, 0.99), "extra_max_ns": known[-1], "to_new_sets_ns": made})
    return rows


def launches(build, rounds):
    drive = [build / "bin/tests/shim_drive", "--features"]
    program = [build / "bin/workloads/launch", "--count", 50000, "--sync-count", 10000]
    ways = {"native": program, "native, green context of 120 SMs": [*program, "--green-sms", 120],
            "shim, no feature": [*drive, "none", "--", *program],
            "partitions, the whole GPU": [*drive, "gate,partitions", "--", *program],
            "partitions, 120 SMs": [*drive, "gate,partitions", "--groups", "7fff", "--", *program],
            "all features, 120 SMs": [*drive, "gate,partitions,iterations", "--groups", "7fff", "--", *program]}
    seen, cores = {way: [] for way in ways}, os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    for _ in range(rounds):
        for way, words in ways.items():
            seen[way].append(run(words)[0][-1])
    os.sched_setaffinity(0, cores)
    rows = []
    for way, all_of_it in seen.items():
        row = {"way": way}
        for name in ("launch_p50_ns", "sync_p50_ns"):
            values = [one[name] for one in all_of_it]
            ratios = [value / native[name] for value, native in zip(values, seen["native"])]
            row |= {name: statistics.median(values), name + "_of_rounds": values,
                    name.split("_")[0] + "_to_native": round(statistics.median(ratios), 4)}
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--kernels", type=int, default=500_000)
    parser.add_argument("--kernel-us", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7, help="of the launches")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    result = {**origin("moves.py", options.commit),
              "gaps": gaps(options.build, options.kernels, options.kernel_us),
              "launch": launches(options.build, options.rounds)}
    for row in result["gaps"] + result["launch"]:
        print(json.dumps(row))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


main()
