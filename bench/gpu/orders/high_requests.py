#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long requests of the class high take beside two busy programs, and what the GPU did meanwhile:
high_requests.py BUILD [--rounds N] [--kernel-us US] [--requests N] [--out FILE]

A service of the class `high` asks for 100 us of the GPU every 5 ms, N times in each round; two programs of the class
`normal` have kernels of --kernel-us and always work, so that they take turns in the background. Of each request that
takes longer than 400 us it prints what the log of context switches says of that time: the turns of the programs on the
GPU, freezes and thaws, in microseconds since the request. First it measures the service alone, without and with an
agent: what is long there, is this machine. It needs root and a GPU that nothing else uses.
"""
import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

PERIOD_MS, SLOW_US, BESIDE_US = 5, 400, 1500
CONFIG = '[tenant.service]\npriority = "high"\n[tenant.batch0]\n[tenant.batch1]\n'


def ask(options, agent, folder):
    """One round: when each request had its answer (ns) and how long it took (us), and the recording of the switches."""
    words = [options.build / "bin/workloads/periodic", "--kernel-us", "100", "--period-us", str(PERIOD_MS * 1000),
             "--samples", str(options.requests), "--report-ms", "1"]
    recording = folder / "switches.json"
    with rig.Program(agent.command("service", words, shim=False) if agent else words) as service:
        if agent:  # for a little longer than the service needs
            agent.ask("trace", "-d", f"{options.requests * PERIOD_MS / 1000 + 1.5:g}", "-o", str(recording))
        service.process.wait(options.requests * PERIOD_MS / 1000 + 60)
        while service.take(10) is not None:
            pass
        answers = [(line["t_ns"], line["latency_us"]) for line in service.said if "latency_us" in line]
    return answers, json.loads(recording.read_text()) if agent else None


def tell(recording, answered_ns, latency_us):
    """What the recording has of a request's time."""
    asked_us = (answered_ns - int(recording["otherData"]["start_monotonic_ns"])) / 1000 - latency_us
    print(f"  {latency_us:.0f} us:")
    for event in sorted(recording["traceEvents"], key=lambda event: event.get("ts", 0)):
        if event.get("ph") not in ("X", "i", "I"):
            continue
        at, length = event["ts"] - asked_us, event.get("dur", 0)
        if at + length >= -BESIDE_US and at <= latency_us + BESIDE_US:
            print(f"    {at:9.1f} +{length:8.1f}  {event['name']}")


def figures(answers):
    took = [latency_us for _, latency_us in answers]
    return {"requests": len(took), "p50_us": round(record.quantile(took, 0.5)), "p99_us": round(record.quantile(took, 0.99)),
            "max_us": round(max(took)), "slow_us": [round(one) for one in took if one > SLOW_US]}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often (default: 10)")
    parser.add_argument("--requests", type=int, default=600, help="in each round (default: 600)")
    parser.add_argument("--kernel-us", type=int, default=20_000, help="of the others' kernels (default: 20000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = {"kernel_us": options.kernel_us, "alone_native": figures(ask(options, None, folder)[0])}
        with rig.Agent(options.build, CONFIG) as agent:
            result["alone"] = figures(ask(options, agent, folder)[0])
            print(result, flush=True)
            busy = [options.build / "bin/workloads/spin", "--kernel-us", str(options.kernel_us), "--seconds", "100000"]
            with rig.Program(agent.command("batch0", busy, shim=False)), rig.Program(agent.command("batch1", busy, shim=False)):
                time.sleep(4)  # until they have measured their kernels
                rounds = []
                for _ in range(options.rounds):
                    answers, recording = ask(options, agent, folder)
                    rounds.append(figures(answers))
                    print(rounds[-1], flush=True)
                    for answered_ns, latency_us in answers:
                        if latency_us > SLOW_US:
                            tell(recording, answered_ns, latency_us)
    result["rounds"] = rounds
    record.Record(options.out).write(record.origin(commit=options.commit) | result)


if __name__ == "__main__":
    main()
