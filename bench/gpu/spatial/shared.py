#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two tenants that run on the same SMs at the same time, with and without a gate on the GPU: shared.py BUILD [--out FILE]

Both must have all SMs (sm_min = 100), so that neither slices nor partitions part them. With gate = "host" and "credit":
weights   300 and 100, and 100 each, beside each other: 64 queued kernels of 400 us; what each makes of what it makes alone
requests  a kernel of 300 us every 5 ms, of the same priority as 64 queued kernels of 2 ms, and of a higher one: its
          latencies, and what the other one makes; natively they are one after the other
It needs root, and a GPU that nothing else uses.
"""
import json
import pathlib
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
import rig
from record import Record, origin
from saturating import BLOCKS, LOADING_S, WARM_S, last_of

CELLS = [  # name, settings of a and of b, us of b's kernels
    ("weights", "weight = 100", "weight = 100", 400),
    ("weights", "weight = 300", "weight = 100", 400),
    ("requests", "", "", 2000),
    ("requests", 'priority = "high"', "", 2000),
    ("requests", "", 'priority = "idle"', 400),
]


def spin(build, kernel_us, unit_ns, seconds, start):
    return [build / "bin/workloads/spin", "--kernel-us", kernel_us, "--depth", 64, *BLOCKS, "--seconds", seconds,
            "--measure-from", WARM_S, "--ns-per-unit", unit_ns, "--start-at", start]


def measure(build, gate, cell, unit_ns, seconds):
    name, first, second, kernel_us = cell
    config = (f'[gpu.0]\nsharing = "spatial"\ngate = "{gate}"\n[tenant.a]\nsm_percent = 50\nsm_min = 100\n{first}\n'
              f'[tenant.b]\nsm_percent = 50\nsm_min = 100\n{second}\n')
    with rig.Agent(build, config) as agent:
        start = time.monotonic_ns() + int(LOADING_S * 1e9)
        words = {"b": spin(build, kernel_us, unit_ns, seconds, start), "a": spin(build, 400, unit_ns, seconds, start)}
        if name == "requests":
            words["a"] = [build / "bin/workloads/periodic", "--kernel-us", 300, "--period-us", 5000, "--ns-per-unit",
                          unit_ns, "--samples", int(200 * seconds), "--start-at", start]
        programs = {tenant: rig.Program(agent.command(tenant, each), agent.environment) for tenant, each in words.items()}
        try:
            time.sleep(LOADING_S + seconds / 2)
            sharers = {tenant: (use["sms_sharers"], use["sms_in_use"]) for tenant, use in agent.uses().items()}
            said = {tenant: last_of(program, 60) for tenant, program in programs.items()}
        finally:
            for program in programs.values():
                program.__exit__()
    seen = {tenant: {key: round(value, 4) if isinstance(value, float) else value for key, value in one.items()
                     if key in ("gpu_share", "verified", "p50_us", "p99_us", "p999_us", "max_us")}
            for tenant, one in said.items()}
    return {"cell": name, "gate": gate, "a": first, "b": second, "kernel_us": kernel_us, "seen": seen,
            "sharers_and_sms": {tenant: sharers.get(tenant) for tenant in "ab"}}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each cell (default: 5)")
    parser.add_argument("--only", type=int, nargs="+", choices=range(len(CELLS)), default=range(len(CELLS)),
                        help="cells, by their place in the script from 0 on (default: all)")
    parser.add_argument("--gates", nargs="+", choices=("host", "credit"), default=("host", "credit"))
    options = parser.parse_args()
    alone = rig.json_lines(rig.run([options.build / "bin/workloads/spin", "--seconds", 1, *BLOCKS], 60).out)[-1]
    unit_ns = alone["ns_per_unit"]
    record = Record(options.out)
    result = {**origin(commit=options.commit), "ns_per_unit": unit_ns, "rows": []}
    for cell in (CELLS[place] for place in options.only):
        for gate in options.gates:
            row = measure(options.build, gate, cell, unit_ns, options.seconds)
            print(json.dumps(row), flush=True)
            result["rows"].append(row)
            record.write(result)


if __name__ == "__main__":
    main()
