#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two programs at once on one GPU, shared in each way that there is: table.py BUILD [--out FILE] [--only ROW,...]

Ways: alone; time: the driver's own time slices; mps: NVIDIA's MPS; mps P Q: the same with
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; ours P Q: gpushared with sharing = "spatial", sm_percent P and Q; lend P Q: the same
with lend_after_ms = 4 and gate = "credit"; shared: overlap = true instead, so that both have all SMs; weights P Q,
high: the same with gate = "credit" and these weights, or priority = "high" for the first; part: one program under the
shim, which moves every quarter of a second into a partition of all SMs and back, because two processes differ by more
than the partition costs (outside of partitions a stream is the driver's own; in one, a launch takes 0.1 us longer).
Each way is measured for --seconds, after both programs are warm. It needs root, python3 with torch and torchvision, and
a GPU that nothing else uses.
"""
import contextlib
import json
import pathlib
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from record import Record, origin, quantile
from rig import READY_S, TWO_PARTITIONS, Agent, Mps, Native, Program, begin_together, json_lines, parser, shim_drive

ALL_SMS = "ffff"  # the groups of an H200: 15 of 8 SMs and one of 12
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs.py"
SHARED = '[gpu.0]\nsharing = "spatial"\noverlap = true\n{}[tenant.a]\n{}\n[tenant.b]\n{}\n'
CREDIT = 'gate = "credit"\n'
CONFIGS = {"ours": TWO_PARTITIONS,
           "lend": TWO_PARTITIONS.replace('"spatial"\n', '"spatial"\nlend_after_ms = 4\n' + CREDIT, 1),
           "shared": SHARED.format("", "", ""),
           "high": SHARED.format(CREDIT, 'priority = "high"', ""),
           "weights": SHARED.format(CREDIT, "weight = {}", "weight = {}")}
# Each row has the first program, the one beside it, and the ways.
ROWS = {
    "gemm": (["gemm"], None, ["alone", "part", "ours 100 100", "alone"]),
    "small beside heavy": (["small"], ["heavy"], ["alone", "time", "mps", "mps 25 75", "ours 25 75"]),
    "small beside copier": (["small"], ["copier"], ["alone", "time", "mps", "mps 25 75", "ours 25 75"]),
    "decoder beside training": (["decoder"], ["resnet"],
                                ["alone", "time", "mps", "mps 40 60", "ours 30 70", "ours 40 60", "ours 50 50",
                                 "lend 40 60", "high"]),
    "burst beside products": (["burst"], ["products"], ["alone", "mps", "shared", "high"]),
    "tokens beside huge": (["tokens"], ["huge"], ["alone", "mps", "shared", "ours 50 50", "high"]),
    **{f"{one} beside {other}": ([one], [other], ["mps", "shared"])
       for one, other in (("resnet", "resnet"), ("bert", "bert"), ("bert", "resnet"), ("lstm", "lstm"), ("lora", "lora"))},
}


def measure(way, programs, seconds, build):
    """{"programs": [what each said], "parts": the SMs that each tenant used, where there is an agent}"""
    kind, *shares = way.split()
    server = Agent(build, CONFIGS[kind].format(*shares)) if kind in CONFIGS else {"mps": Mps}.get(kind, Native)()
    with server, contextlib.ExitStack() as stack:
        running = []
        for i, words in enumerate(programs):
            limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": shares[i]} if kind == "mps" and shares else {}
            command = server.command("ab"[i], [sys.executable, PROGRAMS, *words])
            running.append(stack.enter_context(Program(command, server.environment | limit)))
        if failed := begin_together(running, str(seconds)):
            return {"failed": failed}
        result = {}
        if kind in CONFIGS:
            time.sleep(seconds / 2)
            result["parts"] = {name: [use.get("sms_in_use")] for name, use in server.uses().items() if name in "ab"}
        return result | {"programs": [program.take(seconds + READY_S) or {} for program in running]}


def between(build, seconds):
    """The times of one process in a partition of all SMs, and outside of partitions."""
    command = [*shim_drive(build, "--features", "gate,partitions,iterations", "--sets", f"{ALL_SMS},0", "--move-us",
                           "250000"), sys.executable, PROGRAMS, "gemm", "--rounds"]
    with Program(command) as program:
        if failed := begin_together([program], str(seconds)):
            return {"failed": failed}
        rounds = (program.take(seconds + READY_S) or {}).get("rounds", [])
        program.process.wait(60)
        lines = json_lines(program.errors())
    moves = [(line["at_ns"], line["set"]) for line in lines if "set" in line]
    times = {ALL_SMS: [], "0": []}
    for (begin, which), (end, _) in zip(moves, moves[1:]):
        for (began, one), (ended, _) in zip(rounds, rounds[1:]):
            if begin + 20_000_000 < began and ended < end:  # it has moved, and does not move again meanwhile
                times[which] += one
    return {"programs": [{"what": name, "count": len(seen), **{f"p{round(part * 100)}_ms": quantile(seen, part)
                                                               for part in (0.5, 0.95)}}
                         for name, seen in (("whole GPU", times["0"]), ("partition of all SMs", times[ALL_SMS]))]}


def main():
    options = parser(__doc__)
    options.add_argument("--only", default=",".join(ROWS), help="the rows, separated by commas: " + ", ".join(ROWS))
    options.add_argument("--ways", help="the ways, separated by commas, instead of the row's own")
    options.add_argument("--seconds", type=float, default=10, help="how long each way is measured (default: 10)")
    options = options.parse_args()
    rows, record = {}, Record(options.out)

    def keep(row, way, label, seen):
        rows[row].append({"way": way, **seen})
        print(f"{row:26} {label:14}", json.dumps(seen), flush=True)
        record.write({**origin(commit=options.commit), "seconds": options.seconds, "rows": rows})

    for row in options.only.split(","):
        first, second, ways = ROWS[row]
        if first == ["decoder"]:  # half of what it can answer alone
            full = measure("alone", [first], options.seconds, options.build)["programs"][0]
            first = [*first, "--rate", str(round(full["per_s"] / 2, 2))]
            print(row, "flat out alone", json.dumps(full), flush=True)
        rows[row] = []
        for way in options.ways.split(",") if options.ways else ways:
            both = [first] if way == "alone" or second is None else [first, second]
            keep(row, way, way, between(options.build, options.seconds) if way == "part" else
                 measure(way, both, options.seconds, options.build))
        if second is not None and not options.ways:
            keep(row, "alone, the other", "other alone", measure("alone", [second], options.seconds, options.build))


if __name__ == "__main__":
    main()
