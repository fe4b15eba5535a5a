#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a trace for order-replay from Slurm's accounting: what would another order have done to last week?

    sacct -a -X -P --starttime=now-7days --state=CD,F,TO,CA \\
        -o JobID,JobName,Submit,Start,ElapsedRaw,AllocTRES >week.txt
    bench/sched/sacct_trace.py week.txt >week.csv
    build/bin/bench/order-replay --trace week.csv --gpus 4 --svg week.svg

A job is one iteration as long as it ran (ElapsedRaw, seconds): Slurm knows nothing of what the GPU did
meanwhile. Jobs without a GPU, and those that never ran, are left out and counted on standard error. A job
on several GPUs keeps their number; --split makes one job of each GPU instead, because order-replay takes
jobs of one GPU only. Columns may stand in any order; JobName, Start and AllocTRES may be missing (then the name is
the number, and every job has one GPU). Reads standard input where no file is named.
"""
import argparse
import csv
import datetime
import re
import sys

HEADING = ["job", "submit_s", "model", "iterations", "iteration_us", "persistent_mib", "ephemeral_mib",
           "knee_permille", "gpus"]
NEEDED = ("JobID", "Submit", "ElapsedRaw")


def gpus_of(tres):
    """How many GPUs "cpu=8,gres/gpu=2,gres/gpu:h200=2" names: a total goes before the kinds."""
    total = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    if total:
        return int(total.group(1))
    return sum(int(count) for count in re.findall(r"(?:^|,)gres/gpu:[^=,]+=(\d+)", tres))


def seconds_of(text):
    """When "2026-11-22T13:00:00" or a number of seconds since 1970 was."""
    if text.isdigit():
        return int(text)
    return datetime.datetime.fromisoformat(text).timestamp()


def convert(lines, out, split=False):
    """Writes the trace. Returns how many jobs were written, had no GPU, and never ran. ValueError names the line."""
    rows = csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    heading = next(rows, [])
    missing = [name for name in NEEDED if name not in heading]
    if missing:
        raise ValueError(f"line 1: no column {', '.join(missing)}; ask sacct for them with -P -o")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADING)
    written = without_gpu = never_ran = 0
    for row in rows:
        if not row:
            continue
        if len(row) != len(heading):
            raise ValueError(f"line {rows.line_num}: {len(row)} fields; the heading has {len(heading)}")
        job = dict(zip(heading, row))
        try:
            elapsed, submit = int(job["ElapsedRaw"] or 0), seconds_of(job["Submit"])
        except ValueError as error:
            raise ValueError(f"line {rows.line_num}: {error}") from None
        gpus = gpus_of(job["AllocTRES"]) if "AllocTRES" in job else 1
        if elapsed <= 0 or job.get("Start", "") in ("Unknown", "None"):
            never_ran += 1
        elif gpus == 0:
            without_gpu += 1
        else:
            name = re.sub(r"[\x00-\x1f]", " ", job.get("JobName") or job["JobID"])
            parts = range(gpus) if split and gpus > 1 else [None]
            for part in parts:
                writer.writerow([job["JobID"] if part is None else f"{job['JobID']}/{part}", f"{submit:.0f}", name, 1,
                                 elapsed * 1_000_000, 0, 0, 1000, gpus if part is None else 1])
            written += 1
    return written, without_gpu, never_ran


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="what sacct -P has printed; standard input if there is none")
    parser.add_argument("--split", action="store_true", help="make one job of each GPU of a job")
    options = parser.parse_args()
    try:
        with open(options.file, encoding="utf-8") if options.file else sys.stdin as lines:
            written, without_gpu, never_ran = convert(lines, sys.stdout, options.split)
    except (OSError, ValueError) as error:
        sys.exit(f"sacct_trace.py: {options.file or 'standard input'}: {error}")
    print(f"{written} jobs; left out: {without_gpu} without a GPU, {never_ran} that never ran", file=sys.stderr)


if __name__ == "__main__":
    main()
