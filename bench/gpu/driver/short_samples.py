#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What NVML tells of programs that end soon: short_samples.py BUILD [--seconds S] [--out FILE]

Without an agent, three crowds after one another: programs that work for 50 ms and end, one at a time and four at a
time, and programs that make a context, do nothing and end, four at a time. Meanwhile the driver is asked all the time
for its samples of processes, since the newest one, and for those of the whole GPU. For each crowd: how much it did by
its own count; how much the samples of processes and those of the GPU add up to; how many processes were there, how many
of them the samples name, and how many of these were dead by then. It needs root and a GPU that nothing else uses.
"""
import contextlib
import ctypes
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig
from samples import Sample, first_gpu

CROWDS = (("work, one at a time", 50, 1), ("work, four at a time", 50, 4), ("nothing, four at a time", 0, 4))
GPU_UTILISATION = 1  # nvmlSamplingType_t
AFTER = 2  # seconds


class GpuSample(ctypes.Structure):
    _fields_ = [("stamp_us", ctypes.c_ulonglong), ("value", ctypes.c_uint), ("pad", ctypes.c_uint)]


class Driver:
    def __init__(self):
        self.nvml, self.device = first_gpu()
        self.newest_us = self.newest_of_gpu_us = int(time.time() * 1e6)
        self.rows, self.of_gpu = [], []

    def read(self):
        since, rows, count = self.newest_us, (Sample * 256)(), ctypes.c_uint(256)
        if not self.nvml.nvmlDeviceGetProcessUtilization(self.device, rows, ctypes.byref(count),
                                                         ctypes.c_ulonglong(since)):
            for row in rows[:count.value]:
                if row.stamp_us > since:
                    self.rows.append((row.pid, row.sm / 100, (row.stamp_us - since) / 1e3, os.path.exists(f"/proc/{row.pid}")))
                    self.newest_us = max(self.newest_us, row.stamp_us)
        kind, count, samples = ctypes.c_int(), ctypes.c_uint(256), (GpuSample * 256)()
        if not self.nvml.nvmlDeviceGetSamples(self.device, GPU_UTILISATION, ctypes.c_ulonglong(self.newest_of_gpu_us),
                                              ctypes.byref(kind), ctypes.byref(count), samples):
            for sample in samples[:count.value]:
                if sample.stamp_us > self.newest_of_gpu_us:
                    self.of_gpu.append((sample.value / 100, (sample.stamp_us - self.newest_of_gpu_us) / 1e3))
                    self.newest_of_gpu_us = sample.stamp_us


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=6, help="for how long each (default: 6)")
    options = parser.parse_args()
    rows = []
    with rig.Program([options.build / "bin/workloads/spin", "--seconds", "1"]) as program:
        while "ns_per_unit" not in (said := program.take(60)):
            continue
    unit = said["ns_per_unit"]
    for name, ms, lanes in CROWDS:
        driver = Driver()
        words = [options.build / "bin/attacks/short_programs", "--program-ms", ms, "--lanes", lanes, "--seconds",
                 options.seconds, "--ns-per-unit", unit]
        began, said = time.monotonic(), None
        with rig.Program(words) as program:
            while said is None and time.monotonic() < began + options.seconds + 30:
                driver.read()
                with contextlib.suppress(TimeoutError):
                    said = program.take(0.01)
            over = time.monotonic() + AFTER
            while time.monotonic() < over:
                driver.read()
                time.sleep(0.01)
        rows.append({"crowd": name, **{key: said[key] for key in ("programs", "done_ms", "elapsed_ms")},
                     "by_processes_ms": round(sum(sm * ms for _, sm, ms, _ in driver.rows), 1),
                     "by_gpu_ms": round(sum(part * ms for part, ms in driver.of_gpu), 1),
                     "named": len({pid for pid, *_ in driver.rows}), "named_dead": len({row[0] for row in driver.rows if not row[3]}),
                     "rows": [[pid, sm, round(ms), alive] for pid, sm, ms, alive in driver.rows],
                     "gpu_rows": [[part, round(ms)] for part, ms in driver.of_gpu]})
        print(rows[-1], flush=True)
    record.Record(options.out).write(record.origin(commit=options.commit) | {"crowds": rows})


if __name__ == "__main__":
    main()
