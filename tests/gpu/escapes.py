#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that try to have more than their cap of 10 %: escapes.py BUILD [--out FILE] [--seconds N].

Programs of 50 ms run one after the other, then four at a time, then killed as soon as they stand still; the same in a
tenant that is frozen, which may have as much; then with slots of the shim in which they count no launch, so that they
look like starts, for 20 s, as a cap believes so much of that at first; then daemons that have left their parent in several ways. Each time their part of the GPU is taken by their own counting (the kernels
that they completed, in the length that these have alone) and by the agent's. It must be at most 11 % of the time by
both. It needs root, and a GPU that nothing else uses; with GPUSHARE_SIM and LD_LIBRARY_PATH=BUILD/lib/sim in the
environment it uses that simulated GPU.
"""
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1] / "bench"))
import rig
from record import Record, origin

CAP, MOST = "10%", 0.11
SHORT = {"short": [], "short, four at once": ["--lanes", "4"], "short, killed when frozen": ["--flee-ms", "20", "--lanes", "4"]}
FORGED = "short, slots that say nothing"
FROZEN = ["--flee-ms", "5", "--lanes", "16"]
DAEMONS = ("setsid", "double-fork", "clone-parent", "vfork-exec", "thread-exec", "namespaces")


def measure(agent, tenant, words, seconds):
    """Runs a program in a tenant to its end, or to that of the daemon that it leaves behind. Returns what it printed
    last, and the agent's count of the same time."""
    before = agent.used_ns(tenant) / 1e6
    with rig.Program(agent.command(tenant, words, shim=False)) as program:
        said, end = None, time.monotonic() + seconds + 120
        while not (said and "gpu_share" in said) and time.monotonic() < end:
            said = program.take(seconds + 120)
            if said is None:
                raise ChildProcessError(program.errors()[-300:])
    time.sleep(1)  # the agent publishes a little later
    return said, agent.used_ns(tenant) / 1e6 - before


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="how long each attempt lasts (default: 8)")
    parser.add_argument("--only", default="", metavar="TEXT", help="attempts whose name has TEXT (default: all)")
    options = parser.parse_args()
    attacks = options.build / "bin/attacks"
    # A simulated GPU's unit of work is known; to measure it under a cap takes long.
    unit = 129.293 if "GPUSHARE_SIM" in os.environ else None
    rows = []
    tries = [(name, "short", [attacks / "short_programs", "--program-ms", "50", *more]) for name, more in SHORT.items()]
    tries += [(FORGED, "short", [attacks / "short_programs", "--program-ms", "50", "--slots", "1"])]
    tries += [("short, frozen, killed at once", "frozen", [attacks / "short_programs", "--program-ms", "50", *FROZEN])]
    tries += [(f"daemon, {how}", "daemon", [attacks / "daemonise", "--how", how]) for how in DAEMONS]
    tries = [one for one in tries if options.only in one[0]]
    if not tries:
        parser.error(f"no attempt has a name like '{options.only}'")
    for name, tenant, words in tries:
        is_frozen = tenant == "frozen"
        seconds = max(options.seconds, 20) if name == FORGED else options.seconds
        order = '[gpu.0]\npolicy = "fifo"\n' if name == FORGED else ""
        with rig.Agent(options.build, f'{order}[tenant.{tenant}]\nmax = "{"max" if is_frozen else CAP}"\n') as agent:
            if unit is None:
                unit = unit_of(agent, attacks)
            if is_frozen:
                agent.ask("freeze", tenant)
            words = [*words, "--seconds", seconds, "--ns-per-unit", unit]
            try:
                said, charged = measure(agent, tenant, words, seconds)
            except ChildProcessError as refused:  # it got nothing, and shows nothing
                rows.append({"attempt": name, "did_not_run": str(refused), "is_held": None})
                print(json.dumps(rows[-1]), flush=True)
                continue
        row = {"attempt": name, "own_part": round(said["gpu_share"], 4),
               "agents_part": round(charged / said["elapsed_ms"], 4), "elapsed_ms": said["elapsed_ms"],
               "done_ms": said["done_ms"], **{key: said[key] for key in ("programs", "fled") if key in said}}
        # Of a frozen tenant's programs the agent counts their starts and ends as well, which are no work.
        row["is_held"] = row["own_part"] <= MOST and (is_frozen or row["agents_part"] <= MOST)
        rows.append(row)
        print(json.dumps(row), flush=True)
    held = all(row["is_held"] is not False for row in rows) and any(row["is_held"] for row in rows)
    Record(options.out).write({**origin(commit=options.commit), "cap": CAP, "most": MOST, "seconds": options.seconds,
                               "rows": rows, "is_held": held})
    return 0 if held else 1


def unit_of(agent, attacks):
    """The length of a unit of work on this GPU, which a program measures that nothing caps."""
    with rig.Program(agent.command("default", [attacks.parent / "workloads/spin", "--seconds", "1"], shim=False)) as program:
        while (said := program.take(120)) is not None:
            if "ns_per_unit" in said:
                return said["ns_per_unit"]
    sys.exit("spin: " + program.errors())


if __name__ == "__main__":
    sys.exit(main())
