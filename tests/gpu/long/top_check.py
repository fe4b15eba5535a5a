#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks on a real GPU that gpushare-top shows what NVML says: top_check.py [BUILD]

Starts an agent and a program (root), shows gpushare-top in a terminal of its own for some seconds, and compares the power
that it shows with nvidia-smi's, which is asked in the same seconds. It prints the processor time that gpushare-top took.
"""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SECONDS = 8


def show(build, environment):
    """What gpushare-top writes in so many seconds, and the part of a core that it took."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        os.execve(build / "bin/gpushare-top", ["gpushare-top"], {**environment, "TERM": "xterm"})
    written, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            written += os.read(terminal, 65536)
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") / SECONDS
    os.write(terminal, b"q")
    with contextlib.suppress(OSError):  # the other end is closed
        while os.read(terminal, 65536):
            pass
    os.waitpid(pid, 0)
    return written.decode(errors="replace"), cpu


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-top-check-"))
        environment = {**os.environ, "GPUSHARE_SOCKET": folder + "/agent.sock", "GPUSHARE_REGION": folder + "/region",
                       "XDG_CONFIG_HOME": folder, "LC_ALL": "C.UTF-8"}
        log = stack.enter_context(open(folder + "/log", "w", encoding="utf-8"))
        for command in ([build / "bin/gpushared"], [build / "bin/workloads/spin", "--seconds", "60"]):
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGTERM)
            time.sleep(2)
        written, cpu = show(build, environment)
        said = subprocess.run(["nvidia-smi", "--query-gpu=power.draw,power.limit", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]", " ", written)
    shown = [(int(a), int(b)) for a, b in re.findall(r"(\d+)/(\d+) W", text)]
    draw, limit = (float(word) for word in said.split(","))
    print(f"nvidia-smi: {said} W; gpushare-top: {shown}; {100 * cpu:.1f} % of a core")
    is_right = bool(shown) and abs(shown[-1][1] - limit) < 2 and abs(shown[-1][0] - draw) < 0.2 * limit
    print("right" if is_right else "WRONG")
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
