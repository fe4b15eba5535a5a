#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpushare.ko adds to the mean ioctl that real programs make of the driver, in instructions.

    mean_cost.py COST.jsonl MIX.jsonl    the last runs of `make test-kernel-cost` and of tests/gpu/call_mix.sh

How often a program makes each call, and what a call of each kind in MEASURED costs, was measured. That a
call in ASSUMED costs as much as the kind that it is counted with is assumed."""
import collections
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from record import runs

ALLOC, FREE, CONTROL, DUP = "0x2b", "0x29", "0x2a", "0x34"  # kmod/rm/rm_abi.h
MEMORY, CHANNEL_ENDS_IN = "0x40", "6f"

MEASURED = {
    "kept": "video memory made",
    "free": "freed",
    "dup": "duplicated",
    "channel": "a channel made",
    "preempt": "a scheduling control that is allowed",
    "control": "a control of no interest",
    "object": "an object of no interest made",
    "version": "any other call of no interest",
}
ASSUMED = {
    "kept": "video memory made by the older calls",
    "channel": "a client, device, subdevice or group made",
    "preempt": "any other scheduling control",
}


def kind_of(call):
    """The kind, and whether that is an assumption."""
    number, word = call["number"], call["word"]
    if not call["is_of_interest"]:
        return {CONTROL: "control", ALLOC: "object"}.get(number, "version"), False
    if number == ALLOC and word != MEMORY:
        return "channel", not word.endswith(CHANNEL_ENDS_IN)
    if number == ALLOC:
        return "kept", False
    if number == CONTROL:
        return "preempt", True
    return {FREE: "free", DUP: "dup"}.get(number, "kept"), number not in (FREE, DUP)


def mean_of(program, added, suffix=""):
    counts, assumed = collections.Counter(), 0
    for call in program["calls"]:
        kind, is_assumed = kind_of(call)
        counts[kind] += call["calls"]
        assumed += call["calls"] * is_assumed
    calls = sum(counts.values())
    cost = {kind: count * added[f"instructions_added_to_{kind}{suffix}"] for kind, count in counts.items()}
    return {"calls": calls, "of_no_interest": sum(counts[kind] for kind in ("version", "control", "object")),
            "assumed": assumed, "counts": dict(counts), "mean": round(sum(cost.values()) / calls)}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: mean_cost.py COST.jsonl MIX.jsonl")
    cost_file, mix_file = sys.argv[1:]
    added = runs(cost_file)[-1]["figures"]
    mix = runs(mix_file)[-1]
    print(f"{'program':16} {'calls':>6} {'of no interest':>15} {'assumed':>8} {'mean added':>11} {'with agent':>11}")
    for program in mix["programs"]:
        if not program["calls"]:
            continue
        quiet, heard = mean_of(program, added), mean_of(program, added, "_while_heard")
        print(f"{program['program']:16} {quiet['calls']:6} {quiet['of_no_interest']:15} {quiet['assumed']:8} "
              f"{quiet['mean']:11} {heard['mean']:11}   {quiet['counts']}")
    for title, kinds in (("measured", MEASURED), ("assumed", ASSUMED)):
        print(f"{title}:", "; ".join(f"{text} = {kind}" for kind, text in kinds.items()))


if __name__ == "__main__":
    main()
