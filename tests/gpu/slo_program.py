# SPDX-License-Identifier: Apache-2.0
"""The programs of slo_check.py: slo_program.py serve|loop|train [options]. They need torch and a GPU.

serve  answers requests, one after the other, that come at random at a rate that changes by
       --schedule SECOND:RATE,...; each answer is a forward pass. It announces its requests (gpushare.py).
loop   does the same without a pause; with --silent it announces nothing.
train  makes training steps without a pause, and announces nothing.

A program prints a line of JSON a second: what it did and how long that took, by its own clock. Before these lines,
serve prints when its schedule began.
"""
import argparse
import json
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "bench"), str(ROOT / "intercept/api")]
import gpushare
import torch
from arrivals import arrivals
from record import quantile


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["serve", "loop", "train"])
    parser.add_argument("--name", default="", help="what its lines call it (default: WHAT)")
    parser.add_argument("--schedule", default="0:50", help="requests a second, from each second on (default: 0:50)")
    parser.add_argument("--seconds", type=float, default=1e9, help="how long it works (default: without end)")
    parser.add_argument("--batch", type=int, default=1024, help="rows of the input (default: 1024)")
    parser.add_argument("--width", type=int, default=4096, help="of each layer (default: 4096)")
    parser.add_argument("--layers", type=int, default=12, help="how many (default: 12)")
    parser.add_argument("--silent", action="store_true", help="announce nothing")
    return parser.parse_args()


class Report:
    """Prints one line a second of what was added meanwhile."""

    def __init__(self, name):
        self.name, self.times, self.start, self.next = name, [], time.monotonic(), 1.0

    def add(self, seconds):
        self.times.append(seconds * 1e3)
        now = time.monotonic() - self.start
        if now < self.next:
            return
        share = gpushare.share()
        print(json.dumps({
            "program": self.name, "t": round(time.monotonic(), 3), "done": len(self.times),
            "mean_ms": round(sum(self.times) / len(self.times), 3), "p99_ms": round(quantile(self.times, 0.99), 3),
            "sms": share.sms_in_use if share else None}), flush=True)
        self.times, self.next = [], now + 1.0


def forward_pass(options):
    torch.manual_seed(1)
    weights = [torch.randn(options.width, options.width, device="cuda", dtype=torch.half) / 64
               for _ in range(options.layers)]
    batch = torch.randn(options.batch, options.width, device="cuda", dtype=torch.half)

    def run():
        state = batch
        for weight in weights:
            state = torch.relu(state @ weight)
        return state.sum().item()  # this waits for the GPU

    for _ in range(5):
        run()
    return run


def serve(options):
    run, report = forward_pass(options), Report(options.name)
    print(json.dumps({"program": options.name, "start": time.monotonic()}), flush=True)
    steps = [tuple(map(float, step.split(":"))) for step in options.schedule.split(",")]
    start, draw = time.monotonic(), random.Random(options.name)

    def due_times():
        due = start
        while due - start < options.seconds:
            due += draw.expovariate([rate for second, rate in steps if due - start >= second][-1])
            yield due

    for due, arrived in arrivals(due_times(), lambda due: gpushare.arrive()):
        if time.monotonic() - start >= options.seconds:
            break
        with gpushare.iteration(arrived=arrived):
            run()
        report.add(time.monotonic() - due)


def loop(options):
    run, report, start = forward_pass(options), Report(options.name), time.monotonic()
    while (begin := time.monotonic()) - start < options.seconds:
        if options.silent:
            run()
        else:
            with gpushare.iteration():
                run()
        report.add(time.monotonic() - begin)


def train(options):
    torch.manual_seed(2)
    layers = [torch.nn.Linear(options.width, options.width) for _ in range(options.layers)]
    net = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    host = torch.randn(options.batch, options.width).to(torch.bfloat16).pin_memory()
    report, start = Report(options.name), time.monotonic()
    while (begin := time.monotonic()) - start < options.seconds:
        batch = host.to("cuda", non_blocking=True)
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        report.add(time.monotonic() - begin)


if __name__ == "__main__":
    OPTIONS = arguments()
    OPTIONS.name = OPTIONS.name or OPTIONS.what
    {"serve": serve, "loop": loop, "train": train}[OPTIONS.what](OPTIONS)
