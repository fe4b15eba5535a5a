#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""14 inference functions on one GPU, each with a target: functions.py BUILD [--out FILE] [--ways WAY,...]

There are two heavy functions (large batches that fill the GPU) and twelve light ones of three kinds, each in a process
of its own. Requests arrive at random, the same ones in every way. A target is a multiple of the time that the function
takes alone, which is measured first; together the functions keep the GPU busy for --load of the time. With --swing,
every second function has more requests than on average while the others have less, and they change places every
--phase seconds; with --tide as well, all have more, and then all have less. With --offline the heavy functions answer
without a pause and have no target under "ours", and the light ones have all the load.

Ways (separated by commas): native: time slices, as the driver gives them; mps: NVIDIA's MPS; mps N: each with
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=N; mps H L: the heavy functions with H, the light ones with L (20 5 is 100 % in all,
so that no SM is shared); with "low", the heavy ones with CUDA_MPS_CLIENT_PRIORITY=1, below normal; fixed H L:
gpushared with two disjoint partitions that stay as they are, H % of the SMs for all heavy functions, L % for all light
ones; ours: gpushared with sharing = "spatial", policy = "slo". Each way is warmed up for --warm-up seconds and
measured for --seconds. Goodput is the number of requests a second that were answered within their target. It needs
root, python3 with torch, and a GPU that nothing else uses.
"""
import argparse
import contextlib
import itertools
import json
import pathlib
import random
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[1:1] = [str(ROOT / "bench"), str(ROOT / "intercept/api")]
import rig
from arrivals import arrivals
from record import Record, origin, quantile

HEAVY = [("mlp", 8192, 6), ("mlp", 4096, 12)]
LIGHT = [("lstm", 1, 2), ("lstm", 4, 2), ("lstm", 8, 4), ("lstm", 16, 1),
         ("convolutions", 16, 12), ("convolutions", 24, 10), ("convolutions", 32, 8), ("convolutions", 64, 6),
         ("transformer", 32, 6), ("transformer", 48, 6), ("transformer", 64, 4), ("transformer", 96, 3)]
FUNCTIONS = HEAVY + LIGHT
# What the agent says of each function at the end.
SEEN = ("sms_entitled", "sms_sharers", "sms_needed", "slo_state", "latency_us", "iterations_per_s")
WAYS = ["mps", "mps 20 5", "mps 15", "mps 25", "mps 50", "mps 50 25", "mps 30 50", "mps 50 100", "mps 70 50", "mps low",
        "mps 50 100 low", "ours"]
A_WAY = re.compile(r"ours|native|fixed( [1-9][0-9]?){2}|mps( ([1-9][0-9]?|100)){0,2}( low)?")


# --- the functions, which alone need torch --------------------------------------------------------

def make(kind, batch, depth):
    """A forward pass that returns when it is done."""
    import torch
    from torch import nn
    torch.manual_seed(1)
    if kind == "mlp":
        net = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(4096, 4096), nn.ReLU())])
        data = torch.randn(batch, 4096)
    elif kind == "lstm":
        lstm = nn.LSTM(512, 512, depth, batch_first=True)
        net, data = (lambda batch: lstm(batch)[0]), torch.randn(batch, 64, 512)
        lstm.to("cuda", torch.half)
    elif kind == "convolutions":
        net = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())])
        data = torch.randn(batch, 128, 28, 28)
    else:
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        net = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).eval()
        data = torch.randn(batch, 64, 512)
    data = data.to("cuda", torch.half)
    if isinstance(net, nn.Module):
        net.to("cuda", torch.half)

    @torch.no_grad()
    def run():
        return net(data).float().sum().item()

    for _ in range(10):
        run()
    return run


def alone(seconds):
    """Prints how many seconds each function takes on the whole GPU, one after the other."""
    times = []
    for function in FUNCTIONS:
        run, count, begin = make(*function), 0, time.monotonic()
        while (now := time.monotonic()) - begin < seconds:
            run()
            count += 1
        times.append((now - begin) / count)
    print(json.dumps(times), flush=True)


def serve(which, options):
    """Answers requests, and prints how long those took that came after the warm-up. With a rate of 0 it answers
    without a pause."""
    import gpushare
    run = make(*FUNCTIONS[which])
    print(json.dumps({"ready": True}), flush=True)
    warm_up, seconds = map(float, sys.stdin.readline().split())
    start, draw, took = time.monotonic(), random.Random(which), []
    end = start + warm_up + seconds

    def due_times():
        due = start
        while True:
            is_up = (int((due - start) / options.phase) + (0 if options.tide else which)) % 2 == 0
            due += draw.expovariate(options.rate * (1 + options.swing if is_up else 1 - options.swing))
            yield due

    def answer(due, **announced):
        with gpushare.iteration(**announced):
            run()
        if due >= start + warm_up:
            took.append(time.monotonic() - due)

    if options.rate == 0:
        while (now := time.monotonic()) < end:
            answer(now)
    else:
        for due, arrived in arrivals(itertools.takewhile(lambda due: due < end, due_times()),
                                     lambda due: gpushare.arrive() and int(due * 1e9)):
            answer(due, arrived=arrived)
    print(json.dumps(took), flush=True)


# --- the comparison ----------------------------------------------------------------------------------

def percentage(way, which):
    """Which percentage of the SMs the way lets a function have under MPS, as a text; None: it says nothing of it."""
    parts = [part for part in way.split()[1:] if part != "low"]
    return parts[0 if which < len(HEAVY) else -1] if parts else None


def fixed(way):
    """A configuration with a tenant for all heavy functions, and one for all light ones."""
    heavy, light = way.split()[1:]
    return f'[gpu.0]\nsharing = "spatial"\n[tenant.heavy]\nsm_percent = {heavy}\n[tenant.light]\nsm_percent = {light}\n'


def targeted(targets, is_offline):
    """A configuration with a tenant and a target for each function."""
    return '[gpu.0]\nsharing = "spatial"\npolicy = "slo"\n' + "".join(
        f"[tenant.f{which}]\n" + (f"slo_us = {round(target * 1e6)}\n" if which >= len(HEAVY) or not is_offline else "")
        for which, target in enumerate(targets))


def server_of(way, targets, options):
    if way == "native":
        return rig.Native()
    if way.startswith("mps"):
        return rig.Mps()
    return rig.Agent(options.build, targeted(targets, options.offline) if way == "ours" else fixed(way))


def measure(way, rates, targets, options):
    with server_of(way, targets, options) as server, contextlib.ExitStack() as stack:
        running = []
        for which, rate in enumerate(rates):
            environment = dict(server.environment)
            tenant = f"f{which}" if way == "ours" else "heavy" if which < len(HEAVY) else "light"
            if way.startswith("mps") and (part := percentage(way, which)):
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = part
            if way.endswith(" low") and which < len(HEAVY):
                environment["CUDA_MPS_CLIENT_PRIORITY"] = "1"
            words = [sys.executable, __file__, "--serve", which, "--rate", rate, "--swing", options.swing, "--phase",
                     options.phase, *["--tide"] * options.tide]
            running.append(stack.enter_context(rig.Program(server.command(tenant, words), environment)))
        if failed := rig.begin_together(running, f"{options.warm_up} {options.seconds}"):
            return {"way": way, "failed": failed}
        uses = {}
        if way == "ours":
            time.sleep(options.warm_up + options.seconds * 0.9)
            uses = server.uses()
        limit = options.warm_up + options.seconds + rig.READY_S
        return summary(way, [program.take(limit) or [] for program in running], targets, options.seconds, uses)


def summary(way, times, targets, seconds, uses):
    functions = []
    for which, (took, target) in enumerate(zip(times, targets)):
        mean = sum(took) / len(took) if took else float("inf")
        use = uses.get(f"f{which}", {})
        functions.append({
            "function": " ".join(map(str, FUNCTIONS[which])), "target_ms": round(target * 1e3, 3), "requests": len(took),
            "within": sum(one <= target for one in took), "mean_ms": round(mean * 1e3, 3),
            "p99_ms": round(quantile(took, 0.99) * 1e3, 3) if took else None,
            "is_met": mean <= target, **{key: use[key] for key in SEEN if key in use}})
    return {"way": way, "met": sum(one["is_met"] for one in functions), "of": len(functions),
            "goodput": round(sum(one["within"] for one in functions) / seconds, 2), "functions": functions}


def best_static(results):
    return max((one for one in results if one["way"].startswith("mps") and "goodput" in one), default=None,
               key=lambda one: one["goodput"])


def main():
    parser = rig.parser(__doc__, nargs="?")
    parser.add_argument("--ways", default=",".join(WAYS), help="the ways, separated by commas")
    parser.add_argument("--load", type=float, default=0.6,
                        help="the part of the GPU's time in use, half of it by the heavy functions, with --offline all "
                             "of it by the light ones (default: 0.6)")
    parser.add_argument("--targets", default="4,3",
                        help="of the heavy and of the light functions, in multiples of the time alone (default: 4,3)")
    parser.add_argument("--swing", type=float, default=0,
                        help="the part by which the rates change, below 1 (default: 0)")
    parser.add_argument("--phase", type=float, default=5,
                        help="seconds from one change of the rates to the next (default: 5)")
    parser.add_argument("--tide", action="store_true", help="the rates of all functions go up and down together")
    parser.add_argument("--offline", action="store_true", help="the heavy functions answer without a pause")
    parser.add_argument("--warm-up", type=float, default=12, help="seconds (default: 12)")
    parser.add_argument("--seconds", type=float, default=20, help="how long each way is measured (default: 20)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return alone(1.0)
    if options.serve is not None:
        return serve(options.serve, options)
    if not 0 <= options.swing < 1:
        parser.error(f"--swing {options.swing}: allowed is 0 to below 1")
    if options.phase <= 0:
        parser.error(f"--phase {options.phase}: allowed is above 0")
    if options.tide and options.swing == 0:
        parser.error("--tide needs --swing, how high it is")
    if options.build is None:
        parser.error("BUILD is missing: a folder with bin/gpushared in it")
    for way in options.ways.split(","):
        if not A_WAY.fullmatch(way):
            parser.error(f"--ways {way}: allowed are ours, native, fixed H L, mps, mps N and mps H L (percentages, 1 to "
                         f"100), and \"low\" after the last three; for example {', '.join(WAYS)}")

    seen = rig.run([sys.executable, __file__, "--alone"], rig.READY_S)
    if seen.code != 0:
        sys.exit(f"the functions alone: status {seen.code}\n{seen.err[-1500:]}")
    services = json.loads(seen.out)
    heavy, light = map(float, options.targets.split(","))
    targets = [one * (heavy if which < len(HEAVY) else light) for which, one in enumerate(services)]
    loads = [0.0 if options.offline else options.load / 2, options.load if options.offline else options.load / 2]
    rates = [loads[0] / len(HEAVY) / one if which < len(HEAVY) else loads[1] / len(LIGHT) / one
             for which, one in enumerate(services)]
    results, record = [], Record(options.out)
    for way in options.ways.split(","):
        results.append(measure(way, rates, targets, options))
        seen = {key: value for key, value in results[-1].items() if key != "functions"}
        missed = [f"{one['function']} {one['mean_ms']}/{one['target_ms']} ms" for one in results[-1].get("functions", [])
                  if not one["is_met"]]
        print(json.dumps(seen), "missed:", "; ".join(missed) or "none", flush=True)
        record.write({
            **origin(commit=options.commit), "load": options.load, "swing": options.swing, "phase": options.phase,
            "tide": options.tide, "offline": options.offline, "targets": options.targets, "seconds": options.seconds,
            "alone_ms": [round(one * 1e3, 3) for one in services], "rates": [round(one, 3) for one in rates],
            "ways": results})
    best, ours = best_static(results), next((one for one in results if one["way"] == "ours" and "goodput" in one), None)
    if best and ours:
        print(f"goodput: ours {ours['goodput']}, best static MPS ({best['way']}) {best['goodput']}: "
              f"{ours['goodput'] / max(best['goodput'], 1e-9):.3f}x; targets met: ours {ours['met']}, it {best['met']} "
              f"of {ours['of']}")


if __name__ == "__main__":
    main()
