#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/figures.svg from the runs of record: figures.py OUT.svg

Each panel takes the last run in its file of bench/results that holds what it shows. The colours follow the reader's
theme, and the picture brings its own background, so that it can be read on any page.
"""
import pathlib
import statistics
import sys

from svg import document, element

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "bench"))
from record import runs

WIDTH, MARGIN, GAP, HEAD, ROW, FOOT = 960, 24, 26, 52, 22, 24
PANEL = (WIDTH - 2 * MARGIN - 2 * GAP) / 3
LABEL, VALUE = 112, 54  # the columns left and right of the bars
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 } .small { font-size: 11px } .source { font-size: 10px } .small, .label { fill: #59636e }
.strong { font-weight: 600 } .end { text-anchor: end } .middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 } .ours { fill: #1f883d } .other { fill: #9198a1 } .mps { fill: #bc4c00 }
.dot { fill: #1f883d; fill-opacity: .45 } .line { stroke: #d1d9e0 } .mark { stroke: #1f2328; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small, .label { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d } .ours { fill: #3fb950 } .other { fill: #6e7681 } .mps { fill: #db6d28 }
.dot { fill: #3fb950 } .line { stroke: #3d444d } .mark { stroke: #f0f6fc } }
"""


def last_run(experiment, holds):
    """The last run of an experiment for which `holds` finds something, and what it finds."""
    for run in reversed(runs(ROOT / "bench/results" / f"{experiment}.jsonl")):
        found = holds(run)
        if found:
            return run, found
    sys.exit(f"figures.py: no run in {experiment}.jsonl has what is to be drawn")


def scenarios(*names):
    """The numbers of some scenarios of one run of gpu-scenarios."""
    def holds(run):
        found = {one["name"]: one["numbers"] for one in run["scenarios"]}
        return [found[name] for name in names] if set(names) <= set(found) else None
    return last_run("gpu_scenarios", holds)


def source_of(run):
    return f"{run['date'][:10]}, {run['commit'].split()[0][:7]}"


class Panel:
    """One figure: a title, a line that says what is measured, and rows of a label, a picture and a value."""

    def __init__(self, title, what, run, scale):
        self.title, self.what, self.run, self.scale = title, what, run, scale
        self.parts, self.height, self.more = [], HEAD, []  # more: other runs, in words

    def x(self, value):
        return LABEL + (PANEL - LABEL - VALUE) * value / self.scale

    def row(self, label, value, *parts, strong=False):
        middle = self.height + ROW / 2
        self.parts += [element("text", text=label, x=LABEL - 8, y=middle + 4, class_="label end"), *parts,
                       element("text", text=value, x=PANEL, y=middle + 4, class_="end strong" if strong else "end")]
        self.height += ROW

    def bar(self, label, value, text, kind):
        self.row(label, text, element("rect", x=LABEL, y=self.height + 4, width=max(self.x(value) - LABEL, 1.5),
                                      height=ROW - 8, rx=2, class_=kind), strong=kind == "ours")

    def dots(self, label, values, text):
        """Every single value, and a mark at the median."""
        middle, half = self.height + ROW / 2, statistics.median(values)
        self.row(label, text, element("line", x1=LABEL, x2=PANEL - VALUE, y1=middle, y2=middle, class_="line"),
                 *[element("circle", cx=self.x(value), cy=middle, r=3.5, class_="dot") for value in values],
                 self.mark(half), strong=True)

    def mark(self, value):
        return element("line", x1=self.x(value), x2=self.x(value), y1=self.height + 2, y2=self.height + ROW - 2,
                       class_="mark")

    def ratio(self, label, value, least, most):
        """A dot on an axis from `least` to `most`, of which 1 is marked."""
        place = (value - least) / (most - least) * self.scale
        middle, one = self.height + ROW / 2, self.x((1 - least) / (most - least) * self.scale)
        self.row(label, f"{value:.3f}", element("line", x1=LABEL, x2=PANEL - VALUE, y1=middle, y2=middle, class_="line"),
                 element("line", x1=one, x2=one, y1=self.height, y2=self.height + ROW, class_="mark"),
                 element("circle", cx=self.x(place), cy=middle, r=5, class_="ours"), strong=True)

    def axis(self, *ticks, least=0, most=None):
        """Numbers below the rows, where they lie."""
        for tick in ticks:
            place = (tick - least) / ((most or self.scale) - least) * self.scale
            self.parts.append(element("text", text=f"{tick:g}", x=self.x(place), y=self.height + 12, class_="small middle"))
        self.height += 16

    def note(self, *lines):
        for line in lines:
            self.height += 15
            self.parts.append(element("text", text=line, x=0, y=self.height, class_="small"))

    def draw(self, x, y, height):
        source = "; ".join([source_of(self.run), *self.more])
        return element("g", element("text", text=self.title, x=0, y=18, class_="title"),
                       element("text", text=self.what, x=0, y=36, class_="small"), *self.parts,
                       element("text", text=source, x=0, y=height - 2, class_="small source"),
                       transform=f"translate({x:.1f} {y:.1f})")


def shares():
    weights = (1, 2, 3, 4)
    run, (numbers,) = scenarios("shares-1-2-3-4")
    got, targets = numbers["ours"]["shares"], [weight / sum(weights) for weight in weights]
    panel = Panel("Shares follow the weights", "work done by four busy programs, share of all of it", run, 0.45)
    for weight, share, target in zip(weights, got, targets):
        panel.bar(f"weight {weight}", share, f"{share * 100:.1f} %", "ours")
        panel.height -= ROW
        panel.parts.append(panel.mark(target))
        panel.height += ROW
    error = max(abs(share - target) for share, target in zip(got, targets))
    panel.note(f"Mark: the target; off by {error * 100:.1f} points at most.", "The driver alone gives 25 % to each.")
    return panel


def idle_class():
    run, (numbers,) = scenarios("idle-class-3")
    panel = Panel("A request beside endless kernels", "median latency of 0.1 ms of work, in ms", run, 7.5)
    for label, way, kind in (("alone", "service_alone", "other"), ("driver alone", "native", "other"),
                             ("gpushare", "ours", "ours")):
        value = numbers[way]["service"]["p50_us"] / 1e3
        panel.bar(label, value, f"{value:.2f}", kind)
    kept = sum(numbers["ours"]["endless_turns_per_ms"]) / numbers["solo_turns_per_ms"]
    panel.note("Three of them, with priority idle: they still get", f"{kept * 100:.0f} % of the GPU.")
    return panel


def at_once():
    def holds(run):
        rows = {row["way"]: row["programs"][0]["p99_ms"] for row in run["rows"].get("small beside heavy", [])}
        return rows if {"alone", "time", "mps", "mps 25 75", "ours 25 75"} <= set(rows) else None
    run, found = last_run("spatial_table", holds)
    panel = Panel("Small kernels beside large ones", "99th percentile of a request of 0.8 to 1 ms, in ms", run, 6)
    for label, way, kind in (("alone", "alone", "other"), ("time slices", "time", "other"), ("MPS", "mps", "mps"),
                             ("MPS 25/75", "mps 25 75", "mps"), ("gpushare 25/75", "ours 25 75", "ours")):
        panel.bar(label, found[way], f"{found[way]:.2f}", kind)
    panel.note("Both at once. 25/75: percent of the SMs for each.")
    return panel


def freezes():
    run, (numbers,) = scenarios("freeze-thaw")
    panel = Panel("Stopping in the middle of a kernel", "every single freeze and thaw, in ms", run, 0.65)
    for verb in ("freeze", "thaw"):
        for program, label in (("spin", "2 ms"), ("endless", "endless")):
            values = [value / 1e3 for value in numbers[f"{program}_{verb}_us"]]
            panel.dots(f"{verb}, {label}", values, f"{statistics.median(values):.2f}")
    panel.axis(0, 0.2, 0.4, 0.6)
    panel.note("Kernels of 2 ms, and one without end.", "Mark and number: the median.")
    return panel


def deaths():
    run, (numbers,) = scenarios("kill-agent")
    values = numbers["thawed_after_ms"]
    panel = Panel("The agent is killed", "until every frozen program runs again, in ms", run, 15)
    panel.dots(f"{len(values)} times", values, f"{statistics.median(values):.0f}")
    after = numbers["recover_thawed_after_ms"]
    panel.dots("both killed*", [after], f"{after:.0f}")
    panel.axis(0, 5, 10, 15)
    panel.note(f"The supervisor thaws them; the longest took {max(values):.0f} ms.",
               "* It is killed too: until gpushared --recover is done.")
    return panel


def launches():
    run, (numbers,) = scenarios("launch-cost")
    panel = Panel("What a launch costs", "time of a launch, driver alone = 1", run, 1)
    median = statistics.median
    panel.ratio("agent runs", median(numbers["launch_ns_on"]) / median(numbers["launch_ns_off"]), 0.95, 1.1)

    def holds(moves):
        return {row["under"]: row["launch_to_driver"] for row in moves["launch"]
                if row.get("stream") == "own" and row["way"] == "program" and "launch_to_driver" in row}
    spatial, found = last_run("moves", holds)
    for label, under in (("library", "no feature"), ("all features", "all features, the whole GPU"),
                         ("in 120 SMs", "all features, 120 SMs")):
        panel.ratio(label, found[under], 0.95, 1.1)
    panel.axis(0.95, 1, 1.05, 1.1, least=0.95, most=1.1)
    panel.note("The last three: with the library, which only", "a GPU that is shared in space needs.")
    panel.more.append(f"library: {source_of(spatial)}")
    return panel


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: figures.py OUT.svg")
    panels = [shares(), idle_class(), freezes(), at_once(), deaths(), launches()]
    machines = {(panel.run["gpu"], panel.run["driver"]) for panel in panels}
    if len(machines) != 1:
        sys.exit(f"figures.py: the runs are of several machines: {machines}")
    (gpu, driver), = machines
    parts, y = [], MARGIN
    for line in (panels[:3], panels[3:]):
        height = max(panel.height for panel in line) + FOOT
        for column, panel in enumerate(line):
            parts.append(panel.draw(MARGIN + column * (PANEL + GAP), y, height))
        y += height + GAP
    y += 8
    parts.append(element("text", text=f"{gpu}, driver {driver}. Every number, date and command: bench/results. "
                         "Below each panel: date and commit of its run.", x=MARGIN, y=y, class_="small"))
    height = round(y + MARGIN - 6)
    page = element("rect", x=0.5, y=0.5, width=WIDTH - 1, height=height - 1, rx=8, class_="page")
    pathlib.Path(sys.argv[1]).write_text(document(WIDTH, height, "What gpushare does on a GPU, in six figures", STYLE,
                                                  page, *parts))


if __name__ == "__main__":
    main()
