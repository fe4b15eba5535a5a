#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What NVML's utilisation of a process tells of: samples.py BUILD [--since MS] [--seconds S] [--out FILE]

A program that is alone on the GPU, without an agent, is stopped and continued by signals, so that it works in bursts of
which the begin and the end are known. Meanwhile the driver is asked all the time for samples: for those since MS before
now, or by default for those since the newest one. Figures: how far apart they are, how late they come and what asking
takes; which span before its time stamp a sample tells of (those `span_ms` and `lag_ms` for which the samples differ
least from the bursts, and by how much); and what the driver still says of a program that was killed in a burst. It
needs root and a GPU that nothing else uses.
"""
import ctypes
import pathlib
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

BURSTS = ((0.3, 0.9), (1.0, 1.7), (0.5, 0.5), (1.6, 2.3), (0.2, 0.4))  # seconds of work and of rest
AFTER_DEATH = 4  # seconds


class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("stamp_us", ctypes.c_ulonglong), ("sm", ctypes.c_uint),
                ("memory", ctypes.c_uint), ("encoder", ctypes.c_uint), ("decoder", ctypes.c_uint)]


def first_gpu():
    """NVML, and the GPU of index 0."""
    nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        sys.exit("NVML gives no GPU")
    return nvml, device


class Samples:
    """Reads what is new of one process."""

    def __init__(self, since_ms):
        self.since_ms, self.newest_us, self.asked_us = since_ms, 0, []
        self.nvml, self.device = first_gpu()
        self.found = {}  # by time stamp: what it says, and when it was read

    def read(self, pid):
        since = ctypes.c_ulonglong(int(time.time() * 1e6) - self.since_ms * 1000 if self.since_ms else self.newest_us)
        began, count = time.monotonic(), ctypes.c_uint(0)
        self.nvml.nvmlDeviceGetProcessUtilization(self.device, None, ctypes.byref(count), since)
        if not count.value:
            return
        rows = (Sample * (count.value + 8))()
        count.value += 8
        if self.nvml.nvmlDeviceGetProcessUtilization(self.device, rows, ctypes.byref(count), since):
            return
        self.asked_us.append((time.monotonic() - began) * 1e6)
        for row in rows[:count.value]:
            if row.pid == pid and row.stamp_us:
                self.newest_us = max(self.newest_us, row.stamp_us)
                self.found.setdefault(row.stamp_us / 1e6, (row.sm / 100, time.time()))


def watch(samples, pid, seconds):
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        samples.read(pid)
        time.sleep(0.01)


def busy(bursts, begin, end):
    """The part of this span that lies in bursts."""
    return sum(max(0, min(end, until) - max(begin, since)) for since, until in bursts) / (end - begin)


def fit(samples, bursts):
    """Which span before its stamp each sample tells of: (error, span in s, lag in s), the best of all."""
    stamps = sorted(stamp for stamp in samples if bursts[0][0] + 3 < stamp < bursts[-1][1])
    tries = []
    for span in [None, *(part / 20 for part in range(2, 210))]:  # None: since the sample before
        for lag in (part / 20 for part in range(-10, 31)):
            spans = ((before if span is None else stamp - span, stamp) for before, stamp in zip(stamps, stamps[1:]))
            errors = [abs(samples[end][0] - busy(bursts, begin - lag, end - lag)) for begin, end in spans]
            tries.append((statistics.fmean(errors), span, lag))
    return min(tries, key=lambda one: one[0]), min((one for one in tries if one[1] is None), key=lambda one: one[0])


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="for how long (default: 30)")
    parser.add_argument("--since", type=int, default=0, metavar="MS",
                        help="ask for samples since so long before (default: since the newest)")
    options = parser.parse_args()
    samples, bursts = Samples(options.since), []
    with rig.Program([options.build / "bin/workloads/spin", "--kernel-us", "1000", "--seconds", "100000"]) as program:
        pid = program.process.pid
        watch(samples, pid, 3)
        over, turn = time.monotonic() + options.seconds, 0
        while time.monotonic() < over:
            work, rest = BURSTS[turn % len(BURSTS)]
            turn += 1
            program.process.send_signal(signal.SIGCONT)
            began = time.time()
            watch(samples, pid, work)
            program.process.send_signal(signal.SIGSTOP)
            bursts.append((began, time.time()))
            watch(samples, pid, rest)
        program.process.send_signal(signal.SIGCONT)
        began = time.time()
        watch(samples, pid, 0.7)
        program.process.kill()
        died = time.time()
        bursts.append((began, died))
        watch(samples, pid, AFTER_DEATH)
    found = dict(sorted(samples.found.items()))
    stamps = list(found)
    best, contiguous = fit(found, bursts)
    late = [(read - stamp) * 1e3 for stamp, (_, read) in found.items()]
    result = {"since_ms": options.since, "samples": len(found),
              "asked_us": [round(record.quantile(samples.asked_us, part)) for part in (0, 0.5, 0.99, 1)],
              "apart_ms": [round((b - a) * 1e3, 1) for a, b in zip(stamps, stamps[1:])],
              "read_late_ms": [round(record.quantile(late, part), 1) for part in (0, 0.5, 1)],
              "best": {"error": round(best[0], 3), "span_ms": best[1] and round(best[1] * 1e3),
                       "lag_ms": round(best[2] * 1e3)},
              "since_the_one_before": {"error": round(contiguous[0], 3), "lag_ms": round(contiguous[2] * 1e3)},
              "bursts_s": [[round(a - bursts[0][0], 3), round(b - bursts[0][0], 3)] for a, b in bursts],
              "said": [[round(stamp - bursts[0][0], 3), sm] for stamp, (sm, _) in found.items()],
              "after_death": [[round((stamp - died) * 1e3), sm] for stamp, (sm, read) in found.items() if read > died]}
    print(result)
    record.Record(options.out).write(record.origin(commit=options.commit) | result)


if __name__ == "__main__":
    main()
