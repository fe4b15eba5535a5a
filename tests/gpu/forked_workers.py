#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether programs keep their weights whose forked children hold the driver open, when the agent comes later.

    forked_workers.py BUILD [--weights 900,100] [--seconds 10] [--out FILE]

Two PyTorch trainings with DataLoader workers (programs/torch_dataloader.py) run before the agent starts. RM answers a
forked child about its parent's channels, so that a search finds each channel group as often as there are workers. The
agent must find one owner of each, and keep the weights of the two programs to within 3 points."""
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import record  # noqa: E402
import rig  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/torch_dataloader.py"
MOST_ERROR = 3.0  # points
SETTLE_S = 3


def children_of(pid):
    return [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]


def used_ns(agent, tenants):
    uses = agent.uses()
    return [uses.get(tenant, {}).get("gpu_time_ns", 0) for tenant in tenants]


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--weights", type=lambda text: [int(part) for part in text.split(",")], default=[900, 100])
    parser.add_argument("--seconds", type=float, default=10, help="how long shares are measured")
    options = parser.parse_args()
    tenants = [f"t{i}" for i in range(len(options.weights))]
    config = "".join(f"[tenant.{name}]\nweight = {weight}\n" for name, weight in zip(tenants, options.weights))

    programs = [rig.Program([sys.executable, PROGRAM]) for _ in tenants]
    try:
        for program in programs:
            if not (program.take(rig.READY_S) or {}).get("ready"):
                sys.exit("a training did not start:\n" + program.errors()[-1500:])
        workers = [len(children_of(program.process.pid)) for program in programs]
        with rig.Agent(options.build, config) as agent:
            for tenant, program in zip(tenants, programs):
                told = agent.ask("attach", str(program.process.pid), tenant)
                if told.returncode != 0:
                    sys.exit("attach: " + told.stderr)
            time.sleep(SETTLE_S)
            before = used_ns(agent, tenants)
            time.sleep(options.seconds)
            spent = [after - earlier for after, earlier in zip(used_ns(agent, tenants), before)]
            status, log = agent.ask("status").stdout, agent.log()
    finally:
        for program in programs:
            program.__exit__()

    total, due = sum(spent) or 1, sum(options.weights)
    shares = [100 * part / total for part in spent]
    targets = [100 * weight / due for weight in options.weights]
    is_right = max(abs(share - target) for share, target in zip(shares, targets)) <= MOST_ERROR
    print(status)
    print("\n".join(line for line in log.splitlines() if "observed" in line or "MPS" in line))
    for tenant, share, target, forked in zip(tenants, shares, targets, workers):
        print(f"{tenant}: {share:.1f} % of {target:.1f} %, {forked} children")
    print("ok" if is_right else f"NOT within {MOST_ERROR:g} points")
    record.Record(options.out).write({**record.origin(commit=options.commit), "weights": options.weights,
                                      "children": workers, "shares_percent": [round(share, 2) for share in shares],
                                      "due_percent": targets, "is_right": is_right})
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
