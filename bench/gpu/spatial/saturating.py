#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs get whose queues never run empty: saturating.py BUILD [--only PART] [--out FILE]

Each tenant has one program that keeps kernels queued in its streams and waits only for the events behind old ones
(bin/workloads/spin). A cell is a number of tenants with their sm_percent, a length of the kernels, how many are queued
in each stream, and how many streams there are. Its figures are each program's progress as a percentage of what it
makes alone on the whole GPU, the same with plain MPS and no partitions, and what `gpushare status` says of each tenant.
With "requests" the first tenant's program makes one short kernel every 5 ms instead, and the figures are its latencies.
With "cap" the first tenant has max = "30%". With "changes" the settings of two tenants are exchanged every 100 ms, 100
times, while they run.
It needs root, and a GPU that nothing else uses.
"""
import json
import pathlib
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
import rig
from record import Record, origin, quantile

CELLS = [  # name, percents, kernel us, queued, streams
    ("two of 50 us", (50, 50), 50, 8, 1),
    ("two of 300 us", (50, 50), 300, 8, 1),
    ("two of 2 ms", (50, 50), 2000, 8, 1),
    ("two of 20 ms", (50, 50), 20000, 8, 1),
    ("two of 50 ms", (50, 50), 50000, 8, 1),
    ("64 queued", (25, 75), 2000, 64, 1),
    ("8 streams", (25, 75), 300, 8, 8),
    ("three", (20, 30, 50), 2000, 8, 2),
    ("four", (25, 25, 25, 25), 2000, 16, 1),
    ("requests beside 300 us", (25, 75), 300, 8, 1),
    ("requests beside 2 ms", (25, 75), 2000, 8, 1),
    ("requests beside 20 ms", (25, 75), 20000, 8, 1),
    ("changes", (25, 75), 2000, 8, 1),
    ("cap of 200 us", (100,), 200, 512, 1),
    ("cap of 2 ms", (100,), 2000, 64, 1),
    ("cap beside", (50, 50), 200, 512, 1),
]
WARM_S = 1.5  # that does not count
LATE_US = 300
LOADING_S = 3  # from the start of a program to its first kernel


# Fine enough that a part of the SMs is used as well as all of them.
BLOCKS = ["--blocks-per-sm", 64]


def spin(build, cell, unit_ns, seconds, start):
    _, _, kernel_us, queued, streams = cell
    return [build / "bin/workloads/spin", "--kernel-us", kernel_us, "--depth", queued, *BLOCKS,
            *(["--streams", streams] if streams > 1 else []), "--seconds", seconds, "--measure-from", WARM_S,
            "--ns-per-unit", unit_ns, "--start-at", start]


def requests(build, count, start):
    return [build / "bin/workloads/periodic", "--kernel-us", 0, "--period-us", 5000, "--samples", count,
            "--ns-per-unit", 1, "--start-at", start, "--report-ms", 1]


def last_of(program, limit):
    said = None
    while (value := program.take(limit)) is not None:
        said = value
    return said or sys.exit(f"a program said nothing: {program.errors()[-800:]}")


def figures(program, start):
    """Of requests also those later than LATE_US, with the seconds since the start: the first ones meet partitions that
    are being made."""
    said = last_of(program, 60)
    if "gpu_share" in said:
        return {"pct": round(100 * said["gpu_share"], 1), "verified": said["verified"]}
    each = [((one["t_ns"] - start) / 1e9, one["latency_us"]) for one in program.said if "latency_us" in one]
    warm = [us for seconds, us in each if seconds >= WARM_S]
    return {key: said[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")} | {
        "warm": {"requests": len(warm), "p999_us": quantile(warm, 0.999), "max_us": max(warm)},
        "late": [[round(seconds, 3), us] for seconds, us in each if us > LATE_US]}


def play(build, way, cell, unit_ns, seconds):
    """One cell. `way`: an Agent or an Mps, within its block."""
    name, percents = cell[0], cell[1]
    with_requests, is_agent = name.startswith("requests"), isinstance(way, rig.Agent)
    tenants = "abcd"[:len(percents)]
    programs, row = {}, {"cell": name, "way": "agent" if is_agent else "mps", "due_pct": list(percents)}
    start = time.monotonic_ns() + int(LOADING_S * 1e9)  # all have been idle for a while
    for tenant in tenants:
        words = (requests(build, int(1000 * seconds / 5), start) if with_requests and tenant == "a"
                 else spin(build, cell, unit_ns, seconds, start))
        programs[tenant] = rig.Program(way.command(tenant, words), way.environment)
    try:
        if is_agent:
            time.sleep(LOADING_S + seconds * 0.6)
            uses = way.uses()
            row["said"] = {tenant: {key: uses.get(tenant, {}).get(key)
                                    for key in ("sms_entitled", "sms_in_use", "sms_follows")} for tenant in tenants}
        if is_agent and name == "changes":
            first, second = percents
            time.sleep(max(0, WARM_S - seconds * 0.6))
            for _ in range(100):
                first, second = second, first
                for tenant, percent in sorted((("a", first), ("b", second)), key=lambda one: one[1]):
                    way.ask("set", tenant, f"sm_percent={percent}")
                time.sleep(0.08)
        row["seen"] = {tenant: figures(program, start) for tenant, program in programs.items()}
    finally:
        for program in programs.values():
            program.__exit__()
    row["total_pct"] = round(sum(one.get("pct", 0) for one in row["seen"].values()), 1)
    return row


def main():
    options = rig.parser(__doc__)
    options.add_argument("--only", default="", help="cells whose name has this in it (default: all)")
    options.add_argument("--seconds", type=float, default=5, help="of each cell (default: 5)")
    options.add_argument("--gate", default="host", choices=("host", "credit"), help="of the GPU (default: host)")
    options.add_argument("--ways", default="agent,mps", help="agent, mps or both (default: agent,mps)")
    options = options.parse_args()
    build = options.build
    alone = rig.json_lines(rig.run([build / "bin/workloads/spin", "--seconds", 1, *BLOCKS], 60).out)[-1]
    unit_ns = alone["ns_per_unit"]
    result = {**origin(commit=options.commit), "seconds": options.seconds, "gate": options.gate,
              "ns_per_unit": unit_ns, "rows": []}
    record = Record(options.out)
    for cell in CELLS:
        if options.only not in cell[0]:
            continue
        config = f'[gpu.0]\nsharing = "spatial"\ngate = "{options.gate}"\n' + "".join(
            f"[tenant.{tenant}]\nsm_percent = {percent}\n" + 'max = "30%"\n' * (tenant == "a" and "cap" in cell[0])
            for tenant, percent in zip("abcd", cell[1]))
        for way in options.ways.split(","):
            with (rig.Agent(build, config) if way == "agent" else rig.Mps()) as one:
                seconds = options.seconds + (12 if cell[0] == "changes" and way == "agent" else 0)
                row = play(build, one, cell, unit_ns, seconds)
            print(json.dumps(row), flush=True)
            result["rows"].append(row)
            record.write(result)


if __name__ == "__main__":
    main()
