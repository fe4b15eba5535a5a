#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What looking costs: top_cost.py BUILD [SECONDS]

Shows gpushare-top, which looks once a second, in a terminal of its own over a made-up control plane, and prints a JSON object
for each case: GPUs, processes, size of the screen, view, and the part of a core that it took, in percent. No root, no GPU.
"""
import fcntl
import json
import os
import pathlib
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

CASES = [(1, 4, 80, 24, "list"), (8, 500, 80, 24, "list"), (8, 500, 300, 80, "list"), (8, 500, 300, 80, "jobs")]


def ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def drain(terminal, seconds):
    written, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                written += len(os.read(terminal, 65536))
            except OSError:  # the other end is closed
                break
    return written


def measure(build, folder, case, seconds):
    gpus, processes, width, height, view = case
    config = pathlib.Path(folder, "gpushare/top.json")
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"view": view}), encoding="utf-8")
    region = folder + "/region"
    plane = subprocess.Popen([build / "bin/tests/fake_plane", region, str(processes), str(gpus)])
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        os.execve(build / "bin/gpushare-top", ["gpushare-top", "--region", region],
                  {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": folder})
    try:
        drain(terminal, 2)  # the start is not what is asked
        before = ticks(pid)
        written = drain(terminal, seconds)
        percent = 100 * (ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / seconds
    finally:
        os.write(terminal, b"q")
        drain(terminal, 5)  # until it has ended
        os.waitpid(pid, 0)
        plane.terminate()
        plane.wait()
    return {"gpus": gpus, "processes": processes, "columns": width, "lines": height, "view": view, "seconds": seconds,
            "core_percent": round(percent, 2), "bytes_per_s": round(written / seconds)}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20
    with tempfile.TemporaryDirectory(prefix="gpushare-top-cost-") as folder:
        for case in CASES:
            print(json.dumps(measure(build, folder, case, seconds)), flush=True)


if __name__ == "__main__":
    main()
