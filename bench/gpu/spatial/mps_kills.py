#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a client of NVIDIA's MPS that is killed does to another one: mps_kills.py BUILD [--out FILE] [--keep S]

No agent runs, so that what is seen is MPS's own. Two clients keep the GPU busy; one is killed while it has kernels there.
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

BEFORE_S, AFTER_S, SPREAD_S = 0.8, 0.8, 0.05
KINDS = {"kernels of 50 us": ("spin", "--kernel-us", "50"), "kernels of 2 ms": ("spin", "--kernel-us", "2000"),
         "kernels of 20 ms": ("spin", "--kernel-us", "20000"), "kernels of 200 ms": ("spin", "--kernel-us", "200000"),
         "one kernel without end": ("endless",)}


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


def kill_one(build, words, kept, keep_s):
    """Whether the victim was running, whether the other client came to its end, and how many Xid errors there were."""
    before = count_xids()
    begin = time.monotonic() + BEFORE_S
    spin = [build / "bin/workloads/spin", "--kernel-us", "2000", "--seconds", str(BEFORE_S + AFTER_S + keep_s)]
    with rig.Mps() as mps, rig.Program(spin, mps.environment) as other:
        victim = subprocess.Popen([build / "bin/workloads" / words[0], "--seconds", "30", *words[1:]],
                                  stdout=subprocess.DEVNULL, env=os.environ | mps.environment)
        time.sleep(max(0, begin - time.monotonic()) + random.random() * SPREAD_S)
        is_running = victim.poll() is None
        copies = copy_files(victim.pid, FILES[kept]) if kept else []
        victim.kill()
        victim.wait()
        time.sleep(keep_s)
        for copy in copies:
            os.close(copy)
        said = other.take(rig.READY_S)
        return is_running, said is not None and said.get("workload") == "spin", count_xids() - before


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--kills", type=int, default=4, help="of each kind")
    parser.add_argument("--keep", type=float, default=0, metavar="S",
                        help="keep its files open for so long (default: not)")
    options = parser.parse_args()
    record = Record(options.out)
    result = {**origin(commit=options.commit), "kills_of_each": options.kills, "rows": []}
    for kept, (kind, words) in itertools.product(FILES if options.keep else [None], KINDS.items()):
        seen = [kill_one(options.build, words, kept, options.keep) for _ in range(options.kills)]
        row = {"killed": kind, **({"kept": kept, "kept_s": options.keep} if kept else {}),
               "kills": sum(one[0] for one in seen), "other_survived": sum(one[1] for one in seen),
               "xids": sum(one[2] for one in seen)}
        print(json.dumps(row), flush=True)
        result["rows"].append(row)
        record.write(result)


if __name__ == "__main__":
    main()
