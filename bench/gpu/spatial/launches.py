#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a launch costs the host with the shim: launches.py BUILD [--json FILE] [--rounds N]

Launches, and launches each waited for, of an empty kernel: natively; in a green context of 64 SMs that the program
makes itself; and with the shim: no feature on, all on in the whole GPU, all on in a partition of 64 SMs. The ways are
taken in turn, again and again, so that what drifts with the machine is in all of them alike; a way's ratio is the
median, over the rounds, of its median to that of the native one of the same round, and its spread is what lies between
the rounds' quartiles. The partition is compared with the native green context too, which is what the driver itself
charges for one. Needs a GPU and no other user of it; no agent (bin/tests/shim_drive plays it).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from record import origin

WAYS = {
    "native": ([], []),
    "native, 64 SMs": ([], ["--green-sms", "64"]),
    "no feature": (["--features", "none"], []),
    "all, whole GPU": (["--features", "gate,partitions,iterations", "--groups", "7fff"], []),
    "all, 64 SMs": (["--features", "gate,partitions,iterations", "--groups", "ff"], []),
}
COSTS = ("launch_p50_ns", "sync_p50_ns")


def measure(build, way, count):
    drive, more = WAYS[way]
    command = [str(build / "bin/workloads/launch"), "--count", str(count), "--sync-count", str(count // 5), *more]
    if drive:
        command = [str(build / "bin/tests/shim_drive"), *drive, "--", *command]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    said = [line for line in seen.stdout.splitlines() if line.startswith("{") and COSTS[0] in line]
    if seen.returncode != 0 or not said:
        sys.exit(f"{' '.join(command)}: status {seen.returncode}\n{seen.stdout[-500:]}{seen.stderr[-1500:]}")
    return {cost: json.loads(said[-1])[cost] for cost in COSTS}


def ratio(rounds, way, to, cost):
    ratios = sorted(one[way][cost] / one[to][cost] for one in rounds)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"median": round(statistics.median(ratios), 4), "quartiles": [round(low, 4), round(high, 4)]}


def summary(rounds):
    rows = []
    for way in WAYS:
        row = {"way": way}
        for cost in COSTS:
            row[cost] = statistics.median(one[way][cost] for one in rounds)
            row[cost + "_to_native"] = ratio(rounds, way, "native", cost)
            if way == "all, 64 SMs":
                row[cost + "_to_native_64_sms"] = ratio(rounds, way, "native, 64 SMs", cost)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if options.rounds < 1 or options.count < 5:
        parser.error("--rounds is at least 1, --count at least 5")
    build, rounds = options.build.resolve(), []
    for _ in range(options.rounds):
        rounds.append({way: measure(build, way, options.count) for way in WAYS})
        if options.json:
            options.json.write_text(json.dumps({
                **origin("launches.py", options.commit), "ways": summary(rounds), "rounds": rounds}, indent=1) + "\n")
    print(f"{'':16} {'launch ns':>10} {'to native':>24} {'and wait':>10} {'to native':>24}")
    for row in summary(rounds):
        print(f"{row['way']:16}", *(f"{row[cost]:10.0f} {ratio_text(row[cost + '_to_native'])}" for cost in COSTS))
    row = summary(rounds)[-1]
    print("to the native green context:", *(f"{ratio_text(row[cost + '_to_native_64_sms'])}" for cost in COSTS))


def ratio_text(ratio):
    low, high = ratio["quartiles"]
    return f"{ratio['median']:8.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
