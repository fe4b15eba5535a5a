#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a program gains by giving itself a slice of 100 ms every 20 ms, without the kernel module: own_slice.py BUILD
[--seconds N] [--out FILE].

First beside an equal program, which is due half of the GPU; then beside the same with a cap of 20 %. Parts are the
agent's count, which is that of the hardware's switch log. Beside the equal program it must have at most MOST, with the
cap at most MOST_CAPPED. It needs a GPU that nothing else uses; with GPUSHARE_SIM and LD_LIBRARY_PATH=BUILD/lib/sim in
the environment it uses that simulated GPU.
"""
import sys
import time
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import rig  # noqa: E402
from record import Record, origin  # noqa: E402

MOST, MOST_CAPPED = 55, 22  # percent
SETTLE_S = 3


def measure(options, settings):
    """Percent of the time that the two had, and how often the slice was set."""
    with rig.Agent(options.build, f"[tenant.equal]\n[tenant.greedy]\n{settings}") as agent:
        greedy = [options.build / "bin/attacks/own_slice", "--seconds", 1000]
        equal = [options.build / "bin/workloads/spin", "--kernel-us", 2000, "--seconds", 1000, "--report-ms", 1000]
        with rig.Program(agent.command("equal", equal, shim=False)) as second, \
                rig.Program(agent.command("greedy", greedy, shim=False)) as first:
            said = [program.take(60) for program in (first, second)]
            if None in said:
                sys.exit("a program did not start:\n" + first.errors()[-500:] + second.errors()[-500:])
            time.sleep(SETTLE_S)
            began, before = time.monotonic(), [agent.used_ns(name) for name in ("greedy", "equal")]
            time.sleep(options.seconds)
            after = [agent.used_ns(name) for name in ("greedy", "equal")]
            elapsed = time.monotonic() - began
            times = first.said[-1].get("times_set", 0)
    return [round((end - begin) / 1e7 / elapsed, 2) for begin, end in zip(before, after)], times


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=12, help="how long each part lasts (default: 12)")
    options = parser.parse_args()
    rows = []
    for name, settings, most in (("equal", "", MOST), ("cap 20 %", 'max = "20%"\n', MOST_CAPPED)):
        parts, times = measure(options, settings)
        rows.append({"beside": name, "greedy_percent": parts[0], "equal_percent": parts[1], "times_set": times,
                     "most_percent": most, "is_held": parts[0] <= most and times > 0})
        print(rows[-1], flush=True)
    is_held = all(row["is_held"] for row in rows)
    Record(options.out).write({**origin(commit=options.commit), "seconds": options.seconds, "rows": rows, "is_held": is_held})
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
