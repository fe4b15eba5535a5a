#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/gpushare-top.svg and its tree from a real run on the simulated GPU: top.py BUILD OUT.svg TREE.svg

Starts a simulated GPU, an agent and programs of four tenants, shows gpushare-top in a terminal of tmux until its
history is full, with one weight changed on the way, and turns what the terminal shows into SVG. Needs tmux; no root, no
GPU. Takes some 20 seconds, and everything that it starts ends with it.
"""
import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace

from svg import document, element

COLUMNS, LINES = 118, 22
INTERVAL_S = 0.4
CONFIG = """
[tenant.train]
weight = 300
[tenant.notebook]
weight = 100
[tenant.ci]
weight = 300
max = "20%"
[tenant.nightly]
priority = "idle"
"""
CHANGE = ["set", "notebook", "weight=200"]
PROGRAMS = {"train": ["spin", "--seconds", "600"], "notebook": ["spin", "--seconds", "600"],
            "ci": ["endless", "--seconds", "600"], "nightly": ["spin", "--seconds", "600"]}

OF_TWO = {"train"}  # their jobs have two processes

# --- the run --------------------------------------------------------------------------------------


def wait_for(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            sys.exit(f"top.py: waited in vain for {what}")
        time.sleep(0.05)
    return found


def record(build):
    """What gpushare-top shows at last, as a list and as a tree, with the terminal's escape sequences."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-picture-"))
        environment = {**os.environ, "GPUSHARE_SOCKET": folder + "/agent.sock", "GPUSHARE_SIM": folder + "/sim.sock",
                       "GPUSHARE_REGION": "/" + os.path.basename(folder), "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": folder}
        log = stack.enter_context(open(folder + "/log", "w", encoding="utf-8"))

        def start(*words, **more):
            process = subprocess.Popen(words, stdout=log, stderr=log, env={**environment, **more})
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGTERM)

        def tmux(*words):
            return subprocess.run(["tmux", "-S", folder + "/tmux", "-f", "/dev/null", *words], env=environment, text=True,
                                  capture_output=True, check=True).stdout

        def tool(*words):
            return subprocess.run([build / "bin/gpushare", *words], env=environment, capture_output=True)

        start(build / "bin/gpushare-sim")
        wait_for("the simulated GPU", lambda: os.path.exists(folder + "/sim.sock"))
        pathlib.Path(folder + "/gpushare.toml").write_text(CONFIG, encoding="utf-8")
        start(build / "bin/gpushared", "--sim", "--config", folder + "/gpushare.toml")
        wait_for("the agent", lambda: tool("status").returncode == 0)
        for tenant, (program, *arguments) in PROGRAMS.items():
            command = shlex.join([str(build / "bin/workloads" / program), *arguments])
            start(build / "bin/gpushare", "run", "--tenant", tenant, "--", "sh", "-c",
                  f"{command} & {command} & trap 'kill $(jobs -p)' TERM; wait" if tenant in OF_TWO else "exec " + command,
                  LD_LIBRARY_PATH=str(build / "lib/sim"))
        tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES),
             f"TERM=tmux-256color exec {build}/bin/gpushare-top --interval {INTERVAL_S}")
        stack.callback(tmux, "kill-server")

        def history():
            """Which part of the column is filled, 0 to 1."""
            lines = tmux("capture-pane", "-p").splitlines()
            heads = [line for line in lines if "HISTORY" in line]
            programs = [line for line in lines if re.search(" train .*running", line)]
            return len(re.findall("[\u2581-\u2588]", programs[0])) / (COLUMNS - heads[0].index("HISTORY")) \
                if heads and programs else 0
        wait_for("half of the history", lambda: history() >= 0.5)
        if tool(*CHANGE).returncode != 0:
            sys.exit("top.py: a setting was refused")
        wait_for("the history", lambda: history() >= 1)

        def shot():
            return tmux("capture-pane", "-e", "-p", "-N")
        listed = shot()
        tmux("send-keys", "v", "v", "w")
        wait_for("the tree", lambda: "weight of tenant" in shot() and "run-" in shot())
        return listed, shot()

# --- the picture ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """How a terminal shows a character; colours are numbers of its table."""
    colour: int | None = None
    behind: int | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False


PAGE, TEXT = "#0d1117", "#c9d1d9"
COLOURS = ["#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
           "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff"]
SIZE, CELL, LINE, EDGE, TOP = 14, 8.43, 19, 16, 56  # pixels; CELL: how wide a character is
STYLE = f"""
text {{ font: {SIZE}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
white-space: pre }} g rect {{ shape-rendering: crispEdges }}
"""


def hexadecimal(colour):
    """Of a number of the terminal's table of 256."""
    if colour < len(COLOURS):
        return COLOURS[colour]
    if colour >= 232:
        return "#" + 3 * f"{8 + 10 * (colour - 232):02x}"
    steps = (0, 95, 135, 175, 215, 255)
    return "#" + "".join(f"{steps[(colour - 16) // part % 6]:02x}" for part in (36, 6, 1))


def changed(look, codes):
    """After an escape sequence for colours (SGR)."""
    codes = iter(codes)
    for code in codes:
        if code == 0:
            look = Look()
        elif code in (1, 2, 22):
            look = replace(look, bold=code == 1, dim=code == 2)
        elif code in (7, 27):
            look = replace(look, reverse=code == 7)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            look = replace(look, colour=code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47:
            look = replace(look, behind=code - 40)
        elif code in (38, 48):  # 5, and a number of the table of 256
            next(codes)
            look = replace(look, **{"colour" if code == 38 else "behind": next(codes)})
        elif code == 39:
            look = replace(look, colour=None)
        elif code == 49:
            look = replace(look, behind=None)
        else:
            sys.exit(f"top.py: gpushare-top uses a sequence that is not known here: {code}")
    return look


def cells(screen):
    """For each line, its (character, look); looks last over the ends of lines, as tmux writes them."""
    look = Look()
    for line in screen.rstrip("\n").split("\n"):
        row = []
        for codes, character in re.findall("\x1b\\[([0-9;]*)m|([^\x0f])", line):
            if character:
                row.append((character, look))
            else:
                look = changed(look, [int(code or 0) for code in codes.split(";")])
        yield row


def draw_line(row, y):
    parts, begin = [], 0
    while begin < len(row):
        look = row[begin][1]
        end = begin
        while end < len(row) and row[end][1] == look:
            end += 1
        front = TEXT if look.colour is None else hexadecimal(look.colour)
        behind = None if look.behind is None else hexadecimal(look.behind)
        if look.reverse:
            front, behind = behind or PAGE, front
        if behind:
            parts.append(element("rect", x=EDGE + begin * CELL, y=y - SIZE, width=(end - begin) * CELL, height=LINE,
                                 fill=behind))
        # Words apart, so that a reader's other font shifts none of them; blocks drawn, as fonts differ most there.
        text = "".join(character for character, _ in row[begin:end])
        for found in re.finditer("(?P<up>[\u2581-\u2588])(?P=up)*|(?P<left>[\u2589-\u258f])|[^ \u2581-\u258f]+", text):
            x = EDGE + (begin + found.start()) * CELL
            if found["up"]:
                height = (ord(found["up"]) - 0x2580) * LINE / 8
                parts.append(element("rect", x=x, y=y - SIZE + LINE - height, width=len(found[0]) * CELL, height=height,
                                     fill=front))
            elif found["left"]:
                parts.append(element("rect", x=x, y=y - SIZE, width=(0x2590 - ord(found["left"])) * CELL / 8, height=LINE,
                                     fill=front))
            else:
                parts.append(element("text", text=found[0], x=x, y=y, textLength=len(found[0]) * CELL,
                                     **({"fill": front} if front != TEXT else {}),
                                     **({"font_weight": "bold"} if look.bold else {}),
                                     **({"fill_opacity": 0.6} if look.dim else {})))
        begin = end
    return parts


def draw(screen, title, path):
    rows = list(cells(screen))
    width, height = round(2 * EDGE + COLUMNS * CELL), TOP + len(rows) * LINE
    frame = [element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=8, fill=PAGE, stroke="#3d444d"),
             *[element("circle", cx=EDGE + 6 + 20 * i, cy=18, r=6, fill=colour)
               for i, colour in enumerate(("#ff7b72", "#d29922", "#3fb950"))],
             element("text", text="gpushare-top", x=width / 2, y=23, text_anchor="middle", fill="#9198a1")]
    parts = [part for i, row in enumerate(rows) for part in draw_line(row, TOP + i * LINE)]
    pathlib.Path(path).write_text(document(width, height, title, STYLE, *frame, element("g", *parts, fill=TEXT)),
                                  encoding="utf-8")


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: top.py BUILD OUT.svg TREE.svg")
    listed, tree = record(pathlib.Path(sys.argv[1]).resolve())
    draw(listed, "gpushare-top, with four tenants on a simulated GPU", sys.argv[2])
    draw(tree, "gpushare-top, a tree of tenants and jobs, while a weight is typed", sys.argv[3])


if __name__ == "__main__":
    main()
