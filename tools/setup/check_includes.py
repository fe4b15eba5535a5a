#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house: `make check-includes`.

Reads floors.txt beside this file, then every source file that git knows. Each include that goes up,
or sideways, or into a room that is closed to its file, is named by file and line; so is each folder
of more than 14 units, where a unit is a source file with its header. Exits with 1 when anything is
named.
"""

import collections
import os
import re
import subprocess
import sys

MOST_UNITS = 14
SOURCE = re.compile(r"\.(cc|c|h|S|def|inc|bpf\.c|py|sh)$")
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def read_floors(path):
    """Returns {folder: {entry: floor}}, floor 0 uppermost, and {room: (folders that may include)}."""
    floors, closed = {}, {}
    for number, line in enumerate(open(path), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if " only " in line:
            room, allowed = line.split(" only ")
            closed[room.strip()] = allowed.split()
        elif ":" in line:
            folder, row = line.split(":")
            entries = {}
            for floor, names in enumerate(row.split(">")):
                for name in names.split():
                    entries[name] = floor
            floors[folder.strip().strip("/")] = entries
        else:
            sys.exit(f"{path}:{number}: neither 'FOLDER: FLOOR > ...' nor 'ROOM only FROM...'")
    return floors, closed


def is_below(path, folder):
    return path.startswith(folder + "/")


def violation(source, target, floors, closed):
    """Says in words why `source` must not include `target`; None when it may."""
    rooms = [room for room in closed if is_below(target, room)]
    if rooms:
        room = max(rooms, key=len)
        if not any(is_below(source, allowed) for allowed in closed[room]):
            return f"{room} is open only to {', '.join(closed[room])}"
    here, there = source.split("/"), target.split("/")
    if {here[0], there[0]} == {"tests", "bench"}:
        return None  # they share rigs
    depth = 0
    while here[depth] == there[depth] and min(len(here), len(there)) > depth + 1:
        depth += 1
    folder = "/".join(here[:depth])
    mine = here[depth] if len(here) > depth + 1 else "."
    other = there[depth] if len(there) > depth + 1 else "."
    if mine == other:
        return None
    entries = floors.get(folder)
    if {here[0], there[0]} <= {"tests", "bench"} and entries is None:
        return None  # their folders mirror those that they try
    if entries is None:
        return f"{folder or '/'} has no row in floors.txt"
    for name in (mine, other):
        if name not in entries:
            return f"{name} is not in the row of {folder or '/'} in floors.txt"
    if entries[mine] < entries[other]:
        return None
    way = "the same floor" if entries[mine] == entries[other] else "up"
    return f"{mine} includes {other}: {way}"


def main():
    top = subprocess.check_output(["git", "rev-parse", "--show-toplevel"], text=True).strip()
    os.chdir(top)
    floors, closed = read_floors(os.path.join(os.path.dirname(os.path.abspath(__file__)), "floors.txt"))
    files = subprocess.check_output(["git", "ls-files"], text=True).splitlines()
    known, units, bad = set(files), collections.defaultdict(set), 0
    for path in files:
        if not SOURCE.search(path) or not os.path.exists(path):
            continue
        units[os.path.dirname(path)].add(os.path.basename(path).split(".")[0])
        if path.endswith((".py", ".sh")):
            continue
        for number, line in enumerate(open(path, errors="replace"), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            # From the root; the kernel module's own files include from kmod/.
            target = found.group(1)
            if path.startswith("kmod/") and "kmod/" + target in known:
                target = "kmod/" + target
            if "/" not in target or target not in known:
                continue
            why = violation(path, target, floors, closed)
            if why:
                print(f"{path}:{number}: includes {target}: {why}")
                bad += 1
    for folder, names in sorted(units.items()):
        if len(names) > MOST_UNITS:
            print(f"{folder or '.'}: {len(names)} units; a folder holds at most {MOST_UNITS}")
            bad += 1
    if bad:
        print(f"check-includes: {bad} violation{'s' if bad > 1 else ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
