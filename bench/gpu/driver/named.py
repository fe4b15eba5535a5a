#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whom NVML names where one of two programs works and the other one holds the GPU: named.py BUILD [--seconds S] [--out FILE]

Without an agent. One program, `worker`, works for a part of each round of 97 ms. The other one, `holder`, launches some
kernels of 20 us in a millisecond and rests: the GPU keeps its context until another one launches. Both are stopped and
continued by signals. Six ways, each for S seconds: the holder rests all the time; it comes after the work, before it,
in its middle, or after little work; and both work, for half of the round each. For each way: how often a sample named
whom, and how much it gave him; how busy the whole GPU was; and of each sample whom it named, its part, and at which ms
of a round it was made. It needs root and a GPU that nothing else uses.
"""
import contextlib
import pathlib
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig
from short_samples import Driver

# Who works when, in ms of each round.
WAYS = {
    "holder rests": {"worker": [(0, 40)], "holder": []},
    "holder after the work": {"worker": [(0, 40)], "holder": [(45, 46)]},
    "holder before the work": {"worker": [(20, 60)], "holder": [(10, 11)]},
    "holder amid the work": {"worker": [(0, 20), (25, 45)], "holder": [(21, 22)]},
    "holder after little work": {"worker": [(0, 10)], "holder": [(15, 16)]},
    "both work": {"worker": [(0, 45)], "holder": [(50, 95)]},
}
ROUND_MS = 97  # the driver looks each 200 ms: at all parts of the round, one after the other
STARTS_S = 4  # it makes a context, and measures its kernels
KERNEL_US = {"worker": 500, "holder": 20}


def play(programs, way, seconds):
    """Lets both work by turns; what the driver said meanwhile."""
    edges = sorted((at, name, what) for name, spans in way.items() for span in spans
                   for at, what in zip(span, (signal.SIGCONT, signal.SIGSTOP)))
    driver, begin, worked, phases = Driver(), time.monotonic(), dict.fromkeys(programs, 0.0), []
    clocks = time.time() - begin
    while (round_began := time.monotonic()) < begin + seconds:
        since = {}
        for at, name, what in edges:
            time.sleep(max(0, round_began + at / 1e3 - time.monotonic()))
            programs[name].process.send_signal(what)
            if what == signal.SIGCONT:
                since[name] = time.monotonic()
            else:
                worked[name] += time.monotonic() - since[name]
        count = len(driver.rows)
        driver.read()
        phases += [round((driver.newest_us / 1e6 - clocks - round_began) * 1e3) % ROUND_MS] * (len(driver.rows) - count)
        time.sleep(max(0, round_began + ROUND_MS / 1e3 - time.monotonic()))
    return driver, phases, {name: round(part / (time.monotonic() - begin), 3) for name, part in worked.items()}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="for how long each way (default: 4)")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        programs = {}
        for name, kernel_us in KERNEL_US.items():
            words = [options.build / "bin/workloads/spin", "--kernel-us", kernel_us, "--depth", "1", "--seconds", "100000"]
            programs[name] = stack.enter_context(rig.Program(words))
            time.sleep(STARTS_S)
            programs[name].process.send_signal(signal.SIGSTOP)
        names, rows = {program.process.pid: name for name, program in programs.items()}, []
        for way, spans in WAYS.items():
            play(programs, spans, 0.5)
            driver, phases, worked = play(programs, spans, options.seconds)
            said = {}
            for (pid, part, *_), phase in zip(driver.rows, phases):
                said.setdefault(names.get(pid, str(pid)), []).append((part, phase))
            rows.append({"way": way, "worked": worked, "gpu": round(statistics.fmean(part for part, _ in driver.of_gpu), 3),
                         "named": {name: {"times": len(of), "mean": round(statistics.fmean(part for part, _ in of), 3)}
                                   for name, of in said.items()}, "said": said})
            print({key: value for key, value in rows[-1].items() if key != "said"}, flush=True)
    record.Record(options.out).write(record.origin(commit=options.commit) | {"ways": rows})


if __name__ == "__main__":
    main()
