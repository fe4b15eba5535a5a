#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a client of NVIDIA's MPS that is killed does to another one: mps_kills.py BUILD [--out FILE] [--keep S]

No agent runs, so that what is seen is MPS's own; with --agent gpushared does, and they are clients of its server. Two clients keep the GPU busy; one is killed while it has kernels there.
Of each kind of kernel, how often the other one came to its end, and how many Xid errors the driver reported meanwhile.
With --keep this script holds copies of the killed client's driver files, those of the driver's memory manager
(nvidia-uvm), the others, or all, for so many seconds longer: does the driver take memory away from running kernels when
the process ends, or when its files are closed? It needs root and a GPU that nothing else uses.
"""
import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
import rig
from record import Record, origin

BEFORE_S, AFTER_S, SPREAD_S = 0.8, 1.5, 0.05
STARTS_S, LONGEST_END_S = 1, 2.5
KINDS = {"kernels of 50 us": ("spin", "--kernel-us", "50"), "kernels of 2 ms": ("spin", "--kernel-us", "2000"),
         "kernels of 20 ms": ("spin", "--kernel-us", "20000"), "kernels of 200 ms": ("spin", "--kernel-us", "200000"),
         "4 s of kernels in line": ("spin", "--kernel-us", "100000", "--depth", "40"), "one kernel without end": ("endless",)}
LATE = "a kernel of 60 s for which it has waited for 11 s"  # the agent takes it for endless after 10 s
OF_AGENT = KINDS | {LATE: ("spin", "--kernel-us", "60000000", "--depth", "1", "--ns-per-unit", "129")}
AGENT = '[gpu.0]\nsharing = "spatial"\noverlap = true\n[tenant.a]\n[tenant.b]\n'


FILES = {"all": lambda path: True, "uvm": lambda path: "uvm" in path, "others": lambda path: "uvm" not in path}
PIDFD_GETFD = 438  # pidfd_getfd(2), on all architectures


def copy_files(pid, is_wanted):
    """Copies of the files of the driver that a process has open."""
    libc, process, copies = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid), []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if path.startswith("/dev/nvidia") and is_wanted(path):
                copies.append(libc.syscall(PIDFD_GETFD, process, int(number), 0))
    os.close(process)
    if -1 in copies:
        sys.exit("a file of the killed process could not be copied")
    return copies


def count_xids():
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    return len(re.findall(r"Xid \(", said))


def used_mib():
    """Memory of all GPUs that is used."""
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True)
    return sum(map(int, said.stdout.split()))


def kill_one(build, kind, kept, options):
    """What came of it."""
    before, words = count_xids(), OF_AGENT[kind]
    before_s = BEFORE_S + (STARTS_S if options.agent else 0) + (11 if kind == LATE else 0)
    length = before_s + LONGEST_END_S + AFTER_S + options.keep
    server = rig.Agent(build, AGENT) if options.agent else rig.Mps()
    words_of = server.command if options.agent else lambda _, words: words
    with server:
        spin = words_of("a", [build / "bin/workloads/spin", "--kernel-us", "2000", "--seconds", length])
        with rig.Program(spin, server.environment) as other:
            begin = time.monotonic() + before_s
            command = words_of("b", [build / "bin/workloads" / words[0], "--seconds", "30", *words[1:]])
            victim = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                      env=os.environ | server.environment)
            time.sleep(max(0, begin - time.monotonic()) + random.random() * SPREAD_S)
            is_running, used = victim.poll() is None, used_mib()
            copies = copy_files(victim.pid, FILES[kept]) if kept else []
            killed = time.monotonic()
            victim.kill()
            victim.wait()
            took = time.monotonic() - killed
            time.sleep(options.keep)
            for copy in copies:
                os.close(copy)
            time.sleep(AFTER_S)
            freed = used - used_mib()
            said = other.take(rig.READY_S)
            if options.agent and said is None:
                print(server.log()[-2000:], file=sys.stderr, flush=True)
            return {"was_running": is_running, "other_survived": said is not None and said.get("workload") == "spin",
                    "end_s": round(took, 2), "freed_mib": freed, "xids": count_xids() - before}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--only", help="this kind of kernel only")
    parser.add_argument("--kills", type=int, default=4, help="of each kind")
    parser.add_argument("--agent", action="store_true", help="under gpushared, which keeps its memory files itself")
    parser.add_argument("--keep", type=float, default=0, metavar="S",
                        help="keep its files open for so long (default: not)")
    options = parser.parse_args()
    record = Record(options.out)
    result = {**origin(commit=options.commit), "kills_of_each": options.kills, "rows": []}
    kinds = [kind for kind in (OF_AGENT if options.agent else KINDS) if options.only in (None, kind)]
    for kept, kind in itertools.product(FILES if options.keep else [None], kinds):
        seen = [kill_one(options.build, kind, kept, options) for _ in range(options.kills)]
        row = {"killed": kind, **({"kept": kept, "kept_s": options.keep} if kept else {}), "agent": options.agent,
               "kills": sum(one["was_running"] for one in seen),
               "other_survived": sum(one["other_survived"] for one in seen),
               "end_s": [one["end_s"] for one in seen], "freed_mib": [one["freed_mib"] for one in seen],
               "xids": sum(one["xids"] for one in seen)}
        print(json.dumps(row), flush=True)
        result["rows"].append(row)
        record.write(result)


if __name__ == "__main__":
    main()
