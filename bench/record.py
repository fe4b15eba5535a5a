#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds a run to a file of results, in which each line is the JSON object of one run (bench/results/README.md).

    record.py FILE [--rows NAME] [KEY=VALUE...] -- COMMAND...    runs the command and records what it prints
    record.py FILE [KEY=VALUE...] < OBJECT                       records a JSON object

Each run says its date, GPU (or CPU), driver, kernel, commit and command; KEY=VALUE replaces one of these or adds a
text. Of what a command prints, the lines that are JSON objects become the list NAME (default: rows), a JSON document
becomes `result`, and the other lines become `output`. The exit status is the command's. Scripts in Python import this
file instead.
"""
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def quantile(values, part):
    """The value below which `part` of the values lie, in any order; None when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def _said(*command):
    """What a command prints, or nothing when it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(": ", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def origin(command=None, commit=None):
    """What a run was made with. By default the command is that of this process, with its script named from the root of
    the repository."""
    script, repository = pathlib.Path(sys.argv[0]).resolve(), HERE.parent
    name = str(script.relative_to(repository)) if script.is_relative_to(repository) else sys.argv[0]
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    gpu, _, driver = gpus[0].rpartition(", ") if gpus else ("none", "", "none")
    return {"date": datetime.date.today().isoformat(), "gpu": f"{len(gpus)}x {gpu}" if len(gpus) > 1 else gpu,
            "driver": driver, "kernel": platform.release(), **({} if gpus else {"cpu": _cpu()}),
            "commit": commit or _said("git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD") or "unknown",
            "command": command or shlex.join([name, *sys.argv[1:]])}


class Record:
    """The line of one run in a file. Writing it again replaces it, so that a run can keep what it has so far; no other
    run may add itself to the file meanwhile. Without a path nothing is written. Where the repository and Python lie on
    this machine is left out of it, as in command lines that an agent has logged."""

    def __init__(self, path):
        self.path, self.begin = path, None

    def write(self, run):
        if not self.path:
            return
        with open(self.path, "ab") as file:
            if self.begin is None:
                self.begin = file.tell()
            file.truncate(self.begin)
            line = json.dumps(run, ensure_ascii=False)
            file.write((line.replace(f"{HERE.parent}/", "").replace(sys.executable or "python3", "python3") + "\n").encode())


def runs(path):
    """The runs of a file, in its order."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _object(text):
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _run(words, rows):
    """Runs a command, shows what it prints, and returns that as members of the run's object."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    found = {"exit_code": process.returncode}
    document = _object("\n".join(lines)) if len(lines) > 1 else None
    objects = [] if document else [one for one in map(_object, lines) if one is not None]
    if document:
        found["result"] = document
    if objects:
        found[rows] = objects
    texts = [] if document else [line for line in lines if _object(line) is None]
    return {**found, **({"output": texts} if texts else {})}


def main():
    words, command = sys.argv[1:], []
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if "--" in words:
        command = words[words.index("--") + 1:]
        words = words[:words.index("--")]
    rows = "rows"
    if "--rows" in words[:-1]:
        rows = words.pop(words.index("--rows") + 1)
        words.remove("--rows")
    if not words or words[0].startswith("-") or not all("=" in word for word in words[1:]):
        sys.exit(__doc__)
    path, *members = words
    given = dict(member.split("=", 1) for member in members)
    head = {**origin(shlex.join(command) if command else "stdin", given.pop("commit", None)), **given}
    found = _run(command, rows) if command else json.load(sys.stdin)
    Record(path).write({**head, **found})
    return found.get("exit_code", 0) if command else 0


if __name__ == "__main__":
    sys.exit(main())
