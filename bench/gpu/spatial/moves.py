#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a move costs, and what a launch in a partition costs: moves.py BUILD [--out FILE]

gaps: the time for which the GPU does nothing between two kernels of a stream: natively, in a partition at rest, and
while the stream moves 1,000 times between partitions. Each move makes at most one gap longer, so as many of the
longest gaps as there were moves are taken for the moves' gaps, and the usual gap is subtracted from them. The eight
longest of all belong to the moves to a set of SMs that the program has not been in before, and are shown apart.
launch: what a launch, and a launch with the wait for it, cost the host, past the shim and through it in the same
process (launches.cc): with no feature, with all features in the whole GPU, and in a partition; into streams of the
program and into the legacy default stream. The program has no iterations except where the row says so; "looks" is
the cost until the recogniser stops looking for them.

It needs a GPU that nothing else uses.
"""
import json
import pathlib
import statistics
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
import rig
from record import Record, origin, quantile


# The moves go to this many sets of groups, neighbours of each other. The first move to each set makes a partition,
# when the GPU is at rest.
SETS = 8
ALL = "gate,partitions,iterations"
# Turns of 250 launches: after the first number the recogniser is surely asleep, before the second it surely is not.
ASLEEP, LOOKS = 400, 250


def run(words):
    """The JSON objects that a command wrote to standard output, and those on standard error."""
    seen = rig.run(words, timeout=200)
    if seen.code != 0:
        sys.exit(f"{words}: status {seen.code}\n{seen.out[-500:]}{seen.err[-1500:]}")
    return rig.json_lines(seen.out), rig.json_lines(seen.err)


def gaps(build, kernels, kernel_us):
    program = [build / "bin/bench/gaps", "--kernels", kernels, "--kernel-us", kernel_us]

    def drive(*how):
        return rig.shim_drive(build, "--features", "gate,partitions", *how)

    rows = []
    for way, before in (("native", []), ("in a partition", drive("--groups", "ff"))) * 2:
        rows.append({"way": way, **run([*before, *program])[0][-1]})
    move_us = kernels * kernel_us // 4000  # four times as often: it moves at launches only
    said, driven = run([*drive("--length", 8, "--settle-ms", 2000, "--move-us", move_us, "--seed", 3), *program,
                        "--largest", 5000])
    moves, usual = driven[-1]["moves"], statistics.median([row["gap_p50_ns"] for row in rows[1::2]])
    extra = sorted(line["gap_ns"] - usual for line in said[:-1][:moves])
    known, made = extra[:-SETS], extra[-SETS:]
    rows.append({"way": "moves", **said[-1], "moves": moves, "extra_p50_ns": quantile(known, 0.5),
                 "extra_p99_ns": quantile(known, 0.99), "extra_max_ns": known[-1], "to_new_sets_ns": made})
    return rows


def launches(build, turns):
    rows = []
    looks, asleep = ["--warm-up", 20, "--turns", min(turns, LOOKS)], ["--warm-up", ASLEEP, "--turns", turns]
    for under, features, how in (
            ("no feature", ["none"], ["--turns", turns]), ("gate and partitions", ["gate,partitions"], ["--turns", turns]),
            ("all features, the whole GPU", [ALL], asleep), ("all features, the whole GPU, looks", [ALL], looks),
            ("all features, the whole GPU, iterations of 50", [ALL], ["--iterate", 50, "--warm-up", 50, "--turns", turns]),
            ("partitions, 120 SMs", ["gate,partitions", "--groups", "7fff"], ["--turns", turns]),
            ("all features, 120 SMs", [ALL, "--groups", "7fff"], asleep)):
        for stream, legacy in (("own", 0), ("legacy", 1)):
            said, _ = run([*rig.shim_drive(build, "--features", *features), build / "bin/bench/launches", "--legacy",
                           legacy, *how])
            rows += [{"under": under, "stream": stream, **row} for row in said if "way" in row]
    return rows


def main():
    options = rig.parser(__doc__)
    options.add_argument("--kernels", type=int, default=500_000, help="of each measurement of gaps (default: 500000)")
    options.add_argument("--kernel-us", type=int, default=30, help="how long each of them runs (default: 30)")
    options.add_argument("--turns", type=int, default=2000, help="of each measurement of launches (default: 2000)")
    options = options.parse_args()
    result = {**origin(commit=options.commit),
              "gaps": gaps(options.build, options.kernels, options.kernel_us),
              "launch": launches(options.build, options.turns)}
    for row in result["gaps"] + result["launch"]:
        print(json.dumps(row))
    Record(options.out).write(result)


if __name__ == "__main__":
    main()
