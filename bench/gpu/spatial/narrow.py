#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that need more SMs at once than their partition has: narrow.py BUILD [--out FILE] [--only ROW...]

too-narrow   264 blocks that wait for each other, in a partition of 25 %: such a kernel never ends. How soon is that said,
             and does the command get through when it is started again?
least        the same in a tenant with sm_min = 100
shown        the same program in a tenant with sm_shown, with two blocks for each SM that it is shown
own          the same program as in the first row, in a context of its own: what status says of it
cooperative  264 blocks of a cooperative launch in a partition of 25 %, which the driver refuses there
torch        what PyTorch takes for the number of SMs in a tenant with sm_shown, and whether its results are those without

In all but the last row another tenant keeps its 75 % at work, so that it lends none of them.
It needs root, a GPU that nothing else uses and, for the last row, python3 with torch.
"""
import contextlib
import json
import pathlib
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
import rig
from record import Record, origin

BARRIER = pathlib.Path(__file__).resolve().parents[3] / "tests/gpu/programs/barrier.py"
CONFIG = '[gpu.0]\nsharing = "spatial"\n[tenant.a]\nsm_percent = 25\n{}\n[tenant.b]\nsm_percent = 75\n'
BLOCKS = 264
TORCH = """
import json, torch
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
x = torch.randn(2048, 2048, device="cuda")
for _ in range(20):
    x = torch.nn.functional.layer_norm(x @ x, (2048,))
print(json.dumps({"sms": torch.cuda.get_device_properties(0).multi_processor_count,
                  "sum": x.double().sum().item().hex()}), flush=True)
"""


def barrier(*options):
    return [sys.executable, BARRIER, *options]


def note_of(agent, tenant):
    """What the agent says of the tenant's only process."""
    return next((one["note"] for one in agent.status().get("processes", []) if one["tenant"] == tenant), "")


def play(agent, words, limit):
    """What a program said before it ended or `limit` seconds were over."""
    with rig.Program(agent.command("a", words)) as program:
        said = {"says": program.take(rig.READY_S), "met": []}
        program.tell("go")
        try:
            while (one := program.take(limit)) is not None:
                said["met"].append(one)
        except TimeoutError:
            said["stuck"] = True
        said["errors"] = program.errors()[-300:]
    return said


@contextlib.contextmanager
def beside_others(build, settings):
    """An agent whose tenant b has work without end; tenant a has the settings."""
    with rig.Agent(build, CONFIG.format(settings)) as agent, \
            rig.Program(agent.command("b", [build / "bin/workloads/spin", "--seconds", 1000, "--report-ms", 100])) as other:
        if not other.take(60):
            sys.exit(other.errors()[-500:])
        yield agent


def too_narrow(build):
    with beside_others(build, "") as agent:
        with rig.Program(agent.command("a", barrier("--blocks", BLOCKS))) as program:
            program.take(rig.READY_S)
            program.tell("go")
            began, note = time.monotonic(), ""
            while "SMs" not in note and time.monotonic() < began + 40 and not program.has_ended():
                time.sleep(0.1)
                note = note_of(agent, "a")
            said = {"noticed_after_s": round(time.monotonic() - began, 1), "note": note, "met_at_first": list(program.said)}
        said["again"] = play(agent, barrier("--blocks", BLOCKS), 15) | {"uses": agent.uses().get("a")}
        said["log"] = [line for line in agent.log().splitlines() if "SMs" in line or "MPS" in line][-8:]
    return said


def one(build, settings, *options):
    with beside_others(build, settings) as agent:
        return play(agent, barrier(*options), 15) | {"uses": agent.uses().get("a")}


def torch(build):
    seen = {}
    for name, settings in (("plain", ""), ("shown", "sm_shown = true")):
        with rig.Agent(build, CONFIG.format(settings)) as agent, \
                rig.Program(agent.command("a", [sys.executable, "-c", TORCH])) as program:
            seen[name] = program.take(120) or program.errors()[-500:]
    seen["equal"] = seen["plain"]["sum"] == seen["shown"]["sum"]
    return seen


ROWS = {
    "too-narrow": too_narrow,
    "least": lambda build: one(build, "sm_min = 100", "--blocks", BLOCKS),
    "shown": lambda build: one(build, "sm_shown = true"),
    "own": lambda build: one(build, "", "--blocks", BLOCKS, "--own"),
    "cooperative": lambda build: one(build, "", "--blocks", BLOCKS, "--cooperative"),
    "torch": torch,
}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    for row in options.only:
        result = {"row": row} | ROWS[row](options.build)
        print(json.dumps(result), flush=True)
        Record(options.out).write(
            origin(f"bench/gpu/spatial/narrow.py build --only {row} --out FILE", options.commit) | result)


if __name__ == "__main__":
    main()
