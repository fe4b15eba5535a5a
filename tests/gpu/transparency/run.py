#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does anything change for programs when we are there? run.py BUILD [--out FILE] [--only NAME,...] ...

Every program runs alone, twice, and then with us, in every way of WAYS; its exit code and all that it prints
must be the same to the last bit. Prints a table; status 0 only when nothing differed and something was
compared. The freezes need root: they are those of gpushared, which is started for them and stopped after.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
from record import Record, origin

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
WAYS = {
    "shim": "the shim is there with all its features, and everything stays in the whole GPU",
    "moves": "every process moves to another partition every millisecond",
    "gate": "the gate is closed for 2 of every 5 ms",
    "freezes": "no shim; frozen from outside and thawed at random, some 10 ms each",
}


def programs(build):
    work = build / "bin/workloads"
    native = {
        "hash": ["hash", "--rounds", "2000", "--words", "262144", "--streams", "8"],
        "order": ["order", "--seed", "1", "--steps", "20000"],
        "crowd": ["crowd", "--threads", "8", "--launches", "5000"],
        "copy": ["copy", "--rounds", "5"],
    }
    found = {name: [str(work / words[0]), *words[1:]] for name, words in native.items()}
    for script in ("torch_programs.py", "other_programs.py"):
        for name in re.search(r"for f in \(([a-z0-9_,\s]+)\)\}", (HERE / script).read_text())[1].split(","):
            found[name.strip()] = [sys.executable, str(HERE / script), name.strip()]
    return found


def verdict_of(output):
    """What must be equal. Our own programs also print times: of theirs only what was verified."""
    lines = [line for line in output.splitlines() if line.strip()]
    if lines and lines[-1].startswith("{"):
        last = json.loads(lines[-1])
        kept = {key: last[key] for key in ("verified", "checksum", "hash", "errors", "wrong") if key in last}
        return json.dumps(kept) if kept else output
    return "\n".join(lines)


class Run:
    def __init__(self, command, timeout, environment=None):
        # Into files: a pipe that a frozen program holds open would hold us.
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.err, stdin=subprocess.DEVNULL,
                                        start_new_session=True, env=environment)
        self.timeout = timeout

    def finish(self):
        try:
            code = self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            code = f"did not end in {self.timeout} s"
        seconds = time.monotonic() - self.began
        self.out.seek(0)
        self.err.seek(0)
        return {"code": code, "seconds": round(seconds, 1), "text": self.out.read(), "errors": self.err.read()}


class Freezer:
    """Freezes and thaws a tenant at random until it is told to end; thawed at the end in any case."""

    def __init__(self, tools, tenant, seed):
        self.tools, self.tenant, self.freezes = tools, tenant, 0
        self.random, self.is_ending = random.Random(seed), threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def tell(self, what):
        return subprocess.run([*self.tools, what, self.tenant], capture_output=True, timeout=20).returncode == 0

    def work(self):
        while not self.is_ending.wait(self.random.uniform(0.005, 0.05)):
            if self.tell("freeze"):
                self.freezes += 1
                self.is_ending.wait(self.random.uniform(0.002, 0.03))
            self.tell("thaw")

    def end(self):
        self.is_ending.set()
        self.thread.join()


def sum_of(member, text):
    return sum(int(n) for n in re.findall(rf'"{member}":\s*(\d+)', text))


def run_in(way, name, command, options):
    build, tools = options.build, options.tools
    drive = [str(build / "bin/tests/shim_drive")]
    if way == "alone":
        return Run(command, options.timeout).finish()
    if way == "freezes":
        tenant = "transparency-" + name.replace("_", "-")
        subprocess.run([*tools, "set", "--create", tenant, "weight=100"], check=True, capture_output=True, timeout=20)
        run = Run([*tools, "run", "--tenant", tenant, "--", *command], options.timeout)
        freezer = Freezer(tools, tenant, options.seed)
        seen = run.finish()
        freezer.end()
        seen["freezes"] = freezer.freezes
        return seen
    how = {
        "shim": ["--features", "gate,partitions,iterations"],
        "moves": ["--features", "gate,partitions,iterations", "--move-us", "1000", "--seed", str(options.seed)],
        "gate": ["--features", "gate", "--gate-us", "5000", "--closed-us", "2000"],
    }[way]
    seen = Run([*drive, *how, "--", *command], options.timeout).finish()
    seen["moves"] = sum_of("moves", seen["errors"])
    return seen


def examine(name, command, options):
    """One program in all ways, one after the other: {way: ...}."""
    alone = run_in("alone", name, command, options)
    result = {"alone": alone}
    if alone["code"] == SKIPPED:
        del alone["errors"]
        return result
    again = run_in("alone", name, command, options)
    result["again"] = again
    for way in options.ways:
        result[way] = run_in(way, name, command, options)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="where make has put what it built")
    parser.add_argument("--out", type=pathlib.Path, help="a file to add this run to, one line of JSON")
    parser.add_argument("--only", help="names of programs, with commas")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of " + ", ".join(WAYS))
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time (4)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run (180)")
    parser.add_argument("--seed", type=int, default=1, help="of moves and freezes (1)")
    parser.add_argument("--commit", help="what is measured; by default the repository's HEAD")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.ways = options.ways.split(",")
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"no way {way}: {', '.join(WAYS)}")
    all_programs = programs(options.build)
    chosen = options.only.split(",") if options.only else list(all_programs)
    for name in chosen:
        if name not in all_programs:
            parser.error(f"no program {name}: {', '.join(all_programs)}")

    agent = None
    folder = tempfile.TemporaryDirectory()
    if "freezes" in options.ways:
        socket, region = folder.name + "/agent.sock", f"/gpushare-transparency-{os.getpid()}"
        options.tools = [str(options.build / "bin/gpushare"), "--socket", socket, "--region", region]
        log = open(folder.name + "/agent.log", "w+")
        agent = subprocess.Popen([str(options.build / "bin/gpushared"), "--socket", socket, "--region", region,
                                  "--config", "/dev/null"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while subprocess.run([*options.tools, "thaw", "default"], capture_output=True).returncode != 0:
            if agent.poll() is not None or time.monotonic() > deadline:
                sys.exit("gpushared does not answer:\n" + open(log.name).read())
            time.sleep(0.1)
    else:
        options.tools = []

    results = {}
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            jobs = {pool.submit(examine, name, all_programs[name], options): name for name in chosen}
            for job in concurrent.futures.as_completed(jobs):
                results[jobs[job]] = job.result()
                print(f"  {len(results)}/{len(chosen)} {jobs[job]}", file=sys.stderr, flush=True)
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait(60)

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
    if options.out:
        Record(options.out).write({
            **origin(commit=options.commit), "ways": {way: WAYS[way] for way in options.ways}, "wrong": wrong,
            "programs": results})
    return 0 if wrong == 0 and compared > 0 else 1


sys.exit(main())
