#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two jobs take turns by the agent, on a real GPU: turns.py BUILD [--only ROW...] [--out FILE].

iterations two programs of 10 ms an iteration whose host side takes no time (bin/bench/iterations), turns of 100 ms: the
           gap between two turns by the GPU's own clock, and what a turn costs
steps      the same with two PyTorch programs
torch      ResNet-50 and a transformer, the same, and their losses against those alone; how long an iteration takes
           alone and within a turn
presence   how long an iteration of the transformer takes alone, with what programs have of the shim where jobs take
           turns, beside another program that has a context and rests, and alone with pauses as long as its turns
endless    a program of short iterations beside one kernel that never ends: how long its first kernel waits
no-shim    the same beside a program without the shim
nccl       a job of two ranks on two GPUs (ddp.py), whose ranks meet in each step, takes turns with a program on each:
           how many turns, and its losses against those alone; it needs two GPUs

A gap is from the last stamp of one program's turn to the first of the other's. The cost of a turn is (time of both in
turns - time of one after the other) / turns. A training of PyTorch whose launches are what takes long makes an iteration
in 31 ms in one process and in 39 in the next one, alone or not (row `presence`), so of each process it is measured in the
same one: alone, in turns, and alone again; the mean of the two is the time of one after the other. Needs root, torch and a GPU that nobody else uses;
with --sim `iterations` takes a simulated one, to try the script and not to measure: there are no stamps.
"""
import bisect
import contextlib
import itertools
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))
import record
import rig

TENANTS = "[tenant.a]\n[tenant.b]\n"
CONFIG = """[gpu.0]
policy = "turns"
turn_ms = {turn_ms}
""" + TENANTS


def words(kind, *options):
    return [sys.executable, HERE / "program.py", kind, *options]


def begin(agent, tenant, command, shim=True):
    program = rig.Program(agent.command(tenant, command, shim))
    return program


def ready(program):
    if not (program.take(rig.READY_S) or {}).get("ready"):
        sys.exit(program.errors()[-1500:])


def losses(said):
    """What is to be equal bit by bit, alone and in turns."""
    return said.get("losses") or said["checksum"]


def go(program):
    program.tell("go")
    return program.take(300)


def alone(build, command, rounds=1):
    """What it says of its last round but one, or of the only one."""
    with rig.Agent(build, TENANTS) as agent, begin(agent, "a", command) as program:
        ready(program)
        return [go(program) for _ in range(rounds)][max(rounds - 2, 0)]


def gaps_ns(*stamps):
    """Of all hand-overs between programs, by the GPU's clock: when it was, and how long."""
    all_of = sorted((instant, who) for who, list_ in enumerate(stamps) for instant in list_)
    return [(earlier[0], later[0] - earlier[0]) for earlier, later in itertools.pairwise(all_of)
            if earlier[1] != later[1]]


def periods_ns(stamps, others, iterations):
    """From the begin of each iteration to that of the next, by the GPU's clock, in three lists: of those within a turn
    that are not its first, of the first ones, and of those that another program's stamps lie in. All iterations have as
    many stamps."""
    size = len(stamps) // iterations
    begins = [stamps[i * size] for i in range(iterations)]
    within, first, cut, is_first = [], [], [], True
    for begin, end in itertools.pairwise(begins):
        at = bisect.bisect(others, begin)
        is_cut = at < len(others) and others[at] < end
        (cut if is_cut else first if is_first else within).append(end - begin)
        is_first = is_cut
    return within, first, cut


def mean_ms(times):
    return sum(times) / len(times) / 1e6 if times else None


def period_row(alone_before, said, alone_after, others):
    """Of one process: its iterations alone and in turns, in milliseconds."""
    iterations = len(said["losses"])
    within, first, cut = periods_ns(said["stamps"], others, iterations)
    return {"alone_ms": [mean_ms(periods_ns(one["stamps"], [], iterations)[0]) for one in (alone_before, alone_after)],
            "within_turns_ms": mean_ms(within), "within_turns_p50_ms": record.quantile(within, 0.5) / 1e6,
            "first_of_turns_ms": mean_ms(first), "cut": len(cut)}


def pair(build, first, second, turn_ms, is_torch=False):
    """`is_torch`: each process is measured alone as well."""
    if is_torch:
        first, second = [*first, "--rounds", "3"], [*second, "--rounds", "3"]
    singles = [alone(build, command, 3 if is_torch else 1) for command in (first, second)]
    rounds = [singles]
    with rig.Agent(build, CONFIG.format(turn_ms=turn_ms)) as agent, \
            begin(agent, "a", first) as one, begin(agent, "b", second) as two:
        for program in (one, two):
            ready(program)
        if is_torch:
            rounds = [[go(one), go(two)]]
        for program in (one, two):
            program.tell("go")
        both = [one.take(400), two.take(400)]
        if is_torch:
            rounds.append([go(one), go(two)])
        queue = agent.ask("queue", "--json").stdout
        log = agent.log()
    if None in both:
        sys.exit(f"a program ended early: {one.errors()[-800:]} {two.errors()[-800:]}\n{log[-2000:]}")
    # The last one of all is no turn's end: one program has no more work, and does not say so.
    both, *rounds = ([{**each, "stamps": each["stamps"] or [each["began_ns"], each["ended_ns"]]} for each in list_]
                     for list_ in (both, *rounds))
    *hand_overs, (_, last_gap) = gaps_ns(*(each["stamps"] for each in both))
    gaps = [gap / 1000 for _, gap in hand_overs]
    more = {"periods": [period_row(rounds[0][i], both[i], rounds[1][i], both[1 - i]["stamps"]) for i in (0, 1)]} \
        if is_torch else {}
    begin_ns = min(each["stamps"][0] for each in both)
    end_ns = max(each["stamps"][-1] for each in both)
    spans = [sum(each["stamps"][-1] - each["stamps"][0] for each in alone_) / 1e9 for alone_ in rounds]
    # While both have work: what comes after the first one's end is no turn.
    together = (end_ns - begin_ns) / 1e9
    one_after_the_other = sum(spans) / len(spans)
    turns = len(gaps)
    return {
        "turns": turns,
        "turn_ms": turn_ms,
        "gap_p50_us": record.quantile(gaps, 0.5),
        "gap_p99_us": record.quantile(gaps, 0.99),
        "gap_max_us": max(gaps, default=None),
        "gap_after_the_first_end_us": last_gap / 1000,
        # Those of more than a millisecond: seconds since the begin, and us.
        "long_gaps": [[(instant - begin_ns) / 1e9, gap / 1000] for instant, gap in hand_overs if gap > 1e6],
        "turn_p50_ms": record.quantile([(later[0] - earlier[0]) / 1e6 for earlier, later in
                                        itertools.pairwise(hand_overs)], 0.5),
        "seconds": together,
        "one_after_the_other_s": one_after_the_other,
        "one_after_the_other_each_s": spans,
        "ratio": together / one_after_the_other,
        "cost_us_a_turn": (together - one_after_the_other) * 1e6 / turns if turns else None,
        "losses_equal": [losses(single) == losses(each) for single, each in zip(singles, both)],
        "agent_says": queue,
    } | more


def presence(build):
    """What is longer within a turn than alone: by which of a turn's circumstances."""
    transformer, turns = words("transformer", "--iterations", "300"), CONFIG.format(turn_ms=250)
    row = {}

    def measure(way, config, command, other=None):
        with contextlib.ExitStack() as stack:
            agent = stack.enter_context(rig.Agent(build, config))
            if other is not None:
                ready(stack.enter_context(begin(agent, "b", other)))
            program = stack.enter_context(begin(agent, "a", command))
            ready(program)
            before = agent.status()["gpus"][0].get("log_records")
            program.tell("go")
            said = program.take(300)
            seen = agent.status()["gpus"][0]
        begins = said["stamps"][::len(said["stamps"]) // len(said["losses"])]
        times = [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(begins)]
        usual = [time for time in times if time < 100]  # without pauses
        row.setdefault(way, []).append({"ms": sum(usual) / len(usual), "p50_ms": record.quantile(usual, 0.5),
                                        "switches": None if before is None else seen["log_records"] - before})
        print(way, row[way][-1], flush=True)

    for _ in range(2):
        measure("alone", TENANTS, transformer)
        measure("with the shim of turns", turns, transformer)
        measure("beside one that rests", turns, transformer, words("resnet50", "--iterations", "400"))
        measure("alone with pauses", TENANTS, [*transformer, "--pauses", "250"])
    return row


def beside(build, other, shim):
    """A program of short iterations comes while the other one has the GPU."""
    with rig.Agent(build, CONFIG.format(turn_ms=100)) as agent, begin(agent, "a", other, shim) as long, \
            begin(agent, "b", words("steps", "--iterations", "2000", "--products", "25")) as short:
        for program in (long, short):
            ready(program)
        long.tell("go")
        time.sleep(3)
        told = time.monotonic()
        short.tell("go")
        said = short.take(200)
        seconds = time.monotonic() - told
        is_alive = not long.has_ended()
        status = agent.ask("status").stdout
        queue = agent.ask("queue").stdout
    if said is None:
        sys.exit(short.errors()[-1500:])
    ended = said["ended"]
    times = [(later - earlier) * 1e3 for earlier, later in itertools.pairwise(ended)]
    usual = record.quantile(times, 0.5)
    return {"short_seconds": seconds, "iterations": len(ended), "iteration_p50_ms": usual,
            "first_iteration_ms": ended[0] * 1e3, "first_kernel_within_ms": ended[0] * 1e3 - usual,
            "longest_iteration_ms": max(times), "turns_of_the_other": sum(time > 3 * usual for time in times),
            "other_still_runs": is_alive, "status": status, "queue": queue}


def nccl(build):
    """A rank that is held while the other one spins in a collective would stop both for ever."""
    seconds = 60
    ddp = [sys.executable, HERE / "ddp.py", "--seconds", str(seconds)]
    with rig.Agent(build, TENANTS) as agent, rig.Program(agent.command("a", ddp, False)) as job:
        ready(job)
        job.tell("go")
        single = job.take(seconds + 120)
    config = "".join(f'[gpu.{gpu}]\npolicy = "turns"\nturn_ms = 100\n' for gpu in (0, 1)) + TENANTS
    spin = [build / "bin/workloads/spin", "--seconds", "1000", "--devices", "0,1"]
    with rig.Agent(build, config) as agent, rig.Program(agent.command("a", ddp)) as job:
        ready(job)
        with rig.Program(agent.command("b", spin)):
            time.sleep(5)  # until it has measured its kernels
            job.tell("go")
            said = job.take(4 * seconds + 120)
            queue = json.loads(agent.ask("queue", "--json").stdout or "{}")
            log = agent.log()
    if said is None:
        sys.exit(f"the job ended early: {job.errors()[-800:]}\n{log[-2000:]}")
    return {"steps": said["steps"], "steps_alone": single["steps"], "seconds": seconds,
            "step_p99_ms": record.quantile(said["ms"], 0.99), "step_max_ms": max(said["ms"]),
            "losses_equal": said["losses"] == single["losses"], "gpus": queue.get("gpus")}


def iterations(build):
    """Units of work are of one length in both programs, and alone."""
    program = [build / "bin/bench/iterations", *(["--clock", "0"] if "GPUSHARE_SIM" in os.environ else [])]
    with rig.Program(program) as first:
        unit_ns = (first.take(rig.READY_S) or sys.exit(first.errors()[-1500:]))["ns_per_unit"]
    command = [*program, "--iterations", "2500", "--ns-per-unit", str(unit_ns)]
    return pair(build, command, command, 100)


ROWS = {
    "iterations": iterations,
    "nccl": nccl,
    "steps": lambda build: pair(build, words("steps", "--iterations", "2500"),
                                words("steps", "--iterations", "2500"), 100, is_torch=True),
    "torch": lambda build: pair(build, words("resnet50", "--iterations", "400"),
                                words("transformer", "--iterations", "400"), 250, is_torch=True),
    "presence": presence,
    "endless": lambda build: beside(build, words("endless"), shim=True),
    "no-shim": lambda build: beside(build, words("steps", "--iterations", "4000", "--products", "25"), shim=False),
}


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), default=[row for row in ROWS if row not in ("nccl", "presence")])
    parser.add_argument("--sim", action="store_true", help="use a simulated GPU")
    options = parser.parse_args()
    with rig.Simulation(options.build) if options.sim else contextlib.nullcontext():
        for row in options.only:
            result = {"row": row} | ROWS[row](options.build)
            print({key: value for key, value in result.items() if key not in ("status", "queue", "agent_says")}, flush=True)
            command = f"bench/gpu/orders/turns.py build --only {row}{' --sim' * options.sim} --out FILE"
            record.Record(options.out).write(record.origin(command, options.commit) | result)


if __name__ == "__main__":
    main()
