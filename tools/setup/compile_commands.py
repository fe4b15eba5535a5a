#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the commands that `make --dry-run V=1` prints into compile_commands.json, which clangd and clang-tidy read.

    make -nB V=1 OBJECT... | compile_commands.py > compile_commands.json

Left out is what says how fast to compile, not what: ccache and the precompiled header, on which no file relies.
"""
import json
import os
import shlex
import sys

SOURCES = (".cc", ".c")


def arguments_of(line):
    """The compiler and its arguments, or None when the line compiles nothing."""
    words = shlex.split(line)
    if "-c" not in words or "-o" not in words or not words[-1].endswith(SOURCES):
        return None
    if os.path.basename(words[0]) == "ccache":
        words = words[1:]
    if "-include-pch" in words:
        at = words.index("-include-pch")
        del words[at:at + 2]
    return words


def main():
    entries = []
    for line in sys.stdin:
        if " -c " in line and (words := arguments_of(line)):
            entries.append({"directory": os.getcwd(), "file": words[-1], "output": words[words.index("-o") + 1],
                            "arguments": words})
    if not entries:
        sys.exit("compile_commands.py: no command compiles anything")
    json.dump(entries, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
