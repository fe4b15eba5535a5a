#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two language models answer on one GPU, shared in each way that there is: decoders.py BUILD [--out FILE] [--ways WAY,...]

alone          one of them has the GPU: what the others are compared with
native         the driver's own time slices
mps; mps P Q   NVIDIA's MPS; the same with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
time P Q       gpushared on a GPU that is shared by time, with the weights P and Q
space P Q      gpushared with sharing = "spatial" and sm_percent P and Q

Each model has a user for each request that is answered at once (--at-once): as soon as one answer is whole, the next
prompt of 256 words is read, and 64 to 192 words are written, the lengths being the same in every way. Weights are
random. Of each way and number of users, for both models: tokens a second, and those as a part of what the model does
alone with as many users; the time of a token, and of the first one. Tokens are written by CUDA graphs; with --eager
they are written without in every way, slower. It needs root, python3 with torch, and a GPU that nothing else uses; with
--dry nothing of that: the ways alone and native then run with a model that only sleeps.
"""
import argparse
import contextlib
import json
import sys
import time

import engine
import rig
from record import Record, origin, quantile

# How many numbers may follow the name of a way.
PARTS = {"alone": (0,), "native": (0,), "mps": (0, 2), "time": (2,), "space": (2,)}
WAYS = "alone,native,mps,mps 50 50,mps 70 30,time 50 50,time 70 30,space 50 50,space 70 30"
PROMPT, SHORTEST, LONGEST_ANSWER, STREAM = 256, 64, 192, "fixed"
# Layers, width, heads, heads of keys and values, inner width: 4.1 G of parameters.
engine.SIZES["4"] = (36, 3072, 24, 8, 9216)
engine.LONGEST[STREAM], engine.SLOTS[STREAM] = 512, 32


class Users:
    """So many of them that each has an answer under way, or waits for its turn to be read."""

    def __init__(self, model, count, seed):
        self.answers, self.model, self.lengths = engine.Answers(model), model, engine.SplitMix(seed)
        self.waiting = {slot: time.monotonic() for slot in range(count)}
        self.first = []  # (when it came, how long it took) of each first token

    def turn(self):
        """Reads one prompt, if a user waits, and writes a token of each answer."""
        if self.waiting:
            slot = min(self.waiting)
            asked = self.waiting.pop(slot)
            self.model.read(slot, 0, PROMPT)
            word, now = self.model.first(), time.monotonic()
            self.first.append((now, now - asked))
            length = SHORTEST + int(self.lengths.uniform() * (LONGEST_ANSWER - SHORTEST))
            self.answers.begin(slot, word, PROMPT, length, now)
        if self.answers.running:
            free = self.answers.step(True)
            now = time.monotonic()
            self.waiting |= {slot: now for slot in free}


def serve(options):
    """Answers until its input ends: each line says when to begin, how long, and how many users there are."""
    options.stream = STREAM
    model = engine.make_model(options)
    if not options.dry:
        model.prepare()
        model.read(0, 0, PROMPT)
        model.first()
    engine.say(ready=True)
    for line in sys.stdin:
        told = json.loads(line)
        users = Users(model, told["at_once"], told["seed"])
        begin = told["start"]
        end = begin + told["seconds"]
        while users.waiting and time.monotonic() < end:  # all have begun before the clock runs
            users.turn()
        if time.monotonic() > begin:
            begin, end = time.monotonic(), time.monotonic() + told["seconds"]
        while time.monotonic() < begin:
            users.turn()
        users.answers.gaps.clear()
        users.first.clear()
        began = time.monotonic()
        while time.monotonic() < end:
            users.turn()
        seconds, gaps, first = time.monotonic() - began, users.answers.gaps, [took for _, took in users.first]
        engine.say(at_once=told["at_once"], tokens_per_s=(len(gaps) + len(first)) / seconds,
                   token_p50_ms=ms(quantile(gaps, 0.5)), token_p99_ms=ms(quantile(gaps, 0.99)),
                   first_p50_ms=ms(quantile(first, 0.5)), first_p99_ms=ms(quantile(first, 0.99)))


def ms(seconds):
    return None if seconds is None else round(seconds * 1e3, 2)


def server_of(kind, parts, build):
    if kind == "time":
        weights = "".join(f"[tenant.{name}]\nweight = {part}\n" for name, part in zip("ab", parts))
        return rig.Agent(build, weights)
    if kind == "space":
        return rig.Agent(build, rig.TWO_PARTITIONS.format(*parts))
    return rig.Mps() if kind == "mps" else rig.Native()


def command_of(server, kind, tenant, options):
    words = ["timeout", "-k", "5", str(options.limit), sys.executable, __file__, "--serve", "--size", options.size,
             *["--dry"] * options.dry, *["--eager"] * options.eager]
    return server.command(tenant, words, False) if kind == "time" else server.command(tenant, words)


def measure(way, options):
    """What each model says for each number of users, or why there is nothing."""
    kind, *parts = way.split()
    with server_of(kind, parts, options.build) as server, contextlib.ExitStack() as stack:
        running = []
        for i, tenant in enumerate("a" if kind == "alone" else "ab"):
            limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": parts[i]} if kind == "mps" and parts else {}
            running.append(stack.enter_context(
                rig.Program(command_of(server, kind, tenant, options), server.environment | limit)))
        for program in running:
            if not (program.take(rig.READY_S) or {}).get("ready"):
                return {"failed": program.errors()[-1500:] or "it ended before it was ready"}
        rows = []
        for at_once in options.at_once:
            line = json.dumps({"start": time.monotonic() + options.warm_up, "seconds": options.seconds,
                               "at_once": at_once, "seed": options.seed})
            for program in running:
                program.tell(line)
            said = [program.take(options.seconds + options.warm_up + 60) for program in running]
            if None in said:
                return {"failed": running[said.index(None)].errors()[-1500:], "rows": rows}
            rows.append(said)
        return {"rows": rows}


def numbers(text):
    most = engine.SLOTS[STREAM]
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1 or max(found) > most:
        raise argparse.ArgumentTypeError(f"'{text}' is none; allowed are numbers from 1 to {most}, separated by commas")
    return found


def ways_of(text, is_dry):
    allowed = {name: PARTS[name] for name in (("alone", "native") if is_dry else PARTS)}
    ways = text.split(",")
    for way in ways:
        name, *parts = way.split() or [""]
        are_parts = all(part.isdigit() and 1 <= int(part) <= 100 for part in parts)
        if len(parts) not in allowed.get(name, ()) or not are_parts:
            raise ValueError(f"--ways '{way}': allowed are {', '.join(allowed)}, and P and Q from 1 to 100")
    return ways


def main():
    parser = rig.parser(__doc__, nargs="?")
    parser.add_argument("--ways", default=WAYS, help=f"the ways, separated by commas (default: {WAYS})")
    parser.add_argument("--at-once", type=numbers, default="2,4,8,16,32",
                        help="users of each model, from 1 to 32, separated by commas (default: 2,4,8,16,32)")
    parser.add_argument("--size", choices=engine.SIZES, default="4", help="G of parameters (default: 4)")
    parser.add_argument("--seconds", type=float, default=4, help="how long each number is measured (default: 4)")
    parser.add_argument("--warm-up", type=float, default=1, help="seconds before that (default: 1)")
    parser.add_argument("--seed", type=int, default=5, help="of the lengths of answers (default: 5)")
    parser.add_argument("--limit", type=int, default=120, help="seconds after which a process is ended (default: 120)")
    engine.add_model_arguments(parser)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    try:
        ways = ways_of(options.ways, options.dry)
    except ValueError as error:
        parser.error(error)
    if options.build is None and not options.dry:
        parser.error("BUILD is missing: a folder with bin/gpushared in it")
    record, results, alone = Record(options.out), [], {}
    for way in ways:
        seen = measure(way, options)
        for said in seen.get("rows", []):
            if way == "alone":
                alone[said[0]["at_once"]] = said[0]["tokens_per_s"]
            for model in said:
                if full := alone.get(model["at_once"]):
                    model["of_alone_pct"] = round(100 * model["tokens_per_s"] / full, 1)
            print(f"{way:12} {said[0]['at_once']:3} at once", json.dumps(said), flush=True)
        if "failed" in seen:
            print(f"{way:12} failed: {seen['failed']}", flush=True)
        results.append({"way": way, **seen})
        record.write({**origin(commit=options.commit), "size": options.size, "eager": options.eager,
                      "seconds": options.seconds, "ways": results})
    return any("failed" in one for one in results)


if __name__ == "__main__":
    sys.exit(main())
