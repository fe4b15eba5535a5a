#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether anything changes for programs when gpushare is there: run.py BUILD [--out FILE] [--only NAME,...] ...

Each program runs alone, twice, and then with gpushare in each of the ways; its exit code and everything that it prints
must be the same to the last bit. It prints a table; the exit status is 0 only when something was compared and nothing
differed. The freezes need root: they are made by a gpushared that is started for them and ended afterwards.
"""
import concurrent.futures
import contextlib
import hashlib
import json
import pathlib
import random
import re
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[2] / "bench"))
import rig
from record import Record, origin

SKIPPED = 77
WAYS = {
    "shim": "the shim is there with all its features, and everything stays in the whole GPU",
    "moves": "every process moves to another partition every millisecond",
    "gate": "the gate is closed for 2 of every 5 ms",
    "freezes": "there is no shim; the program is frozen from outside and thawed at random, for some 10 ms each time",
}


def programs(build):
    work = build / "bin/workloads"
    native = {
        "hash": ["hash", "--rounds", "2000", "--words", "262144", "--streams", "8"],
        "order": ["order", "--seed", "1", "--steps", "20000"],
        "crowd": ["crowd", "--threads", "8", "--launches", "5000"],
        "execs": ["execs", "--steps", "4000"],
        "copy": ["copy", "--rounds", "5"],
    }
    found = {name: [str(work / words[0]), *words[1:]] for name, words in native.items()}
    for script in ("torch_programs.py", "other_programs.py"):
        for name in re.search(r"for f in \(([a-z0-9_,\s]+)\)\}", (HERE / script).read_text())[1].split(","):
            found[name.strip()] = [sys.executable, str(HERE / script), name.strip()]
    return found


def verdict_of(output):
    """What must be equal. Our own programs also print times: of their output, only what was verified."""
    lines = [line for line in output.splitlines() if line.strip()]
    if lines and lines[-1].startswith("{"):
        last = json.loads(lines[-1])
        kept = {key: last[key] for key in ("verified", "checksum", "hash", "errors", "wrong") if key in last}
        return json.dumps(kept) if kept else output
    return "\n".join(lines)


class Freezer:
    """Freezes and thaws a tenant at random inside a `with` block, at whose end it is thawed."""

    def __init__(self, agent, tenant, seed):
        self.agent, self.tenant, self.freezes = agent, tenant, 0
        self.random, self.is_ending = random.Random(seed), threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.is_ending.wait(self.random.uniform(0.005, 0.05)):
            if self.agent.ask("freeze", self.tenant).returncode == 0:
                self.freezes += 1
                self.is_ending.wait(self.random.uniform(0.002, 0.03))
            self.agent.ask("thaw", self.tenant)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_ending.set()
        self.thread.join()
        self.agent.ask("thaw", self.tenant)


def sum_of(member, text):
    return sum(int(n) for n in re.findall(rf'"{member}":\s*(\d+)', text))


def run_in(way, name, command, options, agent):
    counted = {}
    if way == "freezes":
        tenant = "transparency-" + name.replace("_", "-")
        agent.ask("set", "--create", tenant, "weight=100").check_returncode()
        with Freezer(agent, tenant, options.seed) as freezer:
            seen = rig.run(agent.command(tenant, command, shim=False), options.timeout)
        counted = {"freezes": freezer.freezes}
    elif way == "alone":
        seen = rig.run(command, options.timeout)
    else:
        how = {
            "shim": ["--features", "gate,partitions,iterations"],
            "moves": ["--features", "gate,partitions,iterations", "--move-us", "1000", "--seed", options.seed],
            "gate": ["--features", "gate", "--gate-us", "5000", "--closed-us", "2000"],
        }[way]
        seen = rig.run([*rig.shim_drive(options.build, *how), *command], options.timeout)
        counted = {"moves": sum_of("moves", seen.err)}
    return {"code": seen.code, "seconds": round(seen.seconds, 1), "text": seen.out, "errors": seen.err, **counted}


def examine(name, command, options, agent):
    """{way: what was seen} of one program, in all ways, one after the other."""
    alone = run_in("alone", name, command, options, agent)
    result = {"alone": alone}
    if alone["code"] == SKIPPED:
        del alone["errors"]
        return result
    for label, way in {"again": "alone", **{way: way for way in options.ways}}.items():
        result[label] = run_in(way, name, command, options, agent)
    for seen in result.values():
        seen["digest"] = hashlib.sha256(verdict_of(seen.pop("text")).encode()).hexdigest()[:16]
        errors = seen.pop("errors")
        if seen["code"] != 0 or seen["digest"] != alone["digest"]:
            seen["stderr"] = errors[-2000:]
    return result


def cell(alone, seen):
    if seen is None:
        return "-"
    if seen["code"] != alone["code"]:
        return f"EXIT {seen['code']}"
    if seen["digest"] != alone["digest"]:
        return "DIFFERS"
    count = seen.get("moves") or seen.get("freezes")
    return f"equal ({count})" if count else "equal"


def main():
    parser = rig.parser(__doc__ + "\nThe ways:\n" + "".join(f"  {way:8} {WAYS[way]}\n" for way in WAYS))
    parser.add_argument("--only", help="the names of programs, separated by commas")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of the ways, separated by commas")
    parser.add_argument("--jobs", type=int, default=4, help="how many programs run at a time (default: 4)")
    parser.add_argument("--timeout", type=float, default=180, help="the limit of one run, in seconds (default: 180)")
    parser.add_argument("--seed", type=int, default=1, help="of moves and freezes (default: 1)")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    all_programs = programs(options.build)
    chosen = options.only.split(",") if options.only else list(all_programs)
    for kind, names, known in (("way", options.ways, WAYS), ("program", chosen, all_programs)):
        for name in names:
            if name not in known:
                parser.error(f"no {kind} {name}: {', '.join(known)}")

    results = {}
    with (rig.Agent(options.build) if "freezes" in options.ways else contextlib.nullcontext()) as agent, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = {pool.submit(examine, name, all_programs[name], options, agent): name for name in chosen}
        try:
            for job in concurrent.futures.as_completed(jobs):
                results[jobs[job]] = job.result()
                print(f"  {len(results)}/{len(chosen)} {jobs[job]}", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            rig.stop()
            raise

    columns = ["again", *options.ways]
    print(f"{'program':18}" + "".join(f"{c:>16}" for c in columns))
    wrong = compared = 0
    for name in chosen:
        result = results[name]
        alone = result["alone"]
        if alone["code"] == SKIPPED:
            print(f"{name:18}  not here: {alone['text'].strip().splitlines()[-1]}")
            continue
        cells = [cell(alone, result.get(c)) for c in columns]
        print(f"{name:18}" + "".join(f"{c:>16}" for c in cells))
        wrong += (alone["code"] != 0) + sum(c[0] in "ED" for c in cells)
        compared += alone["code"] == 0
    print(f"{compared} programs in {len(options.ways)} ways: {wrong} differ")
    Record(options.out).write({
        **origin(commit=options.commit), "ways": {way: WAYS[way] for way in options.ways}, "wrong": wrong,
        "programs": results})
    return 0 if wrong == 0 and compared > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
