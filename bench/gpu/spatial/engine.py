#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model is served on one GPU, in several ways: engine.py BUILD [--out FILE] [--ways WAY,...]

one     one process with one queue: a prompt is read whole, then the tokens of all running answers are written, step by
        step; prompts go first
chunks  the same, with a step of tokens after every 512 tokens of a prompt
native  two processes: one reads prompts, in chunks of 512, and one writes tokens from the keys and values that the first
        has put into a pool that they share (CUDA IPC); the driver's time slices
mps     the same as clients of NVIDIA's MPS
shares  the same under gpushared, sharing = "spatial", with half of the SMs each
tpot    the same under the policy tpot, with --ttft and --tpot as targets

Weights are random, output is greedy, and each answer has exactly its length. Tokens are written by CUDA graphs, for 1, 2,
4 .. 64 places and 512, 1024 .. positions. Requests are the same in every way, from SplitMix64: --stream chat has prompts
of 1,631 words on average (log-normal, sigma 1) and answers of 115 (sigma 0.8), at random; burst has 10 s at half of the
rate and 2 s at four times of it in turn; long has prompts of 18,000 (deviation 4,000) and answers of 50. First it is
measured how many a second way `chunks` answers at most; --loads are parts of that. A request counts if it arrives in the
--seconds of the run. Late are first tokens that took longer than --ttft, and other tokens that came longer than --tpot
after the one before. With --eager they are written without graphs in every way, slower. It needs root, python3 with torch, and a GPU that
nothing else uses; with --dry nothing of that: the ways one, chunks and native then run with a model that only sleeps.
"""
import argparse
import contextlib
import json
import math
import multiprocessing.connection
import pathlib
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[1:1] = [str(ROOT / "bench"), str(ROOT / "intercept/api")]
import gpushare
import rig
from record import Record, origin, quantile

WAYS = ("one", "chunks", "native", "mps", "shares", "tpot")
STREAMS = ("chat", "burst", "long")
CHUNK, WORDS = 512, 32000
# Of a model: layers, width, heads, heads of keys and values, inner width. G of parameters: about 0.1, 1.1 and 8.
SIZES = {"0.1": (8, 1024, 8, 4, 2816), "1": (20, 2048, 16, 8, 5632), "8": (36, 4096, 32, 8, 14336)}
LONGEST = {"chat": 8192, "burst": 8192, "long": 32768}  # words of a prompt and its answer
SLOTS = {"chat": 64, "burst": 64, "long": 16}  # answers that are written at the same time


# --- the requests ------------------------------------------------------------------------------------

class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        """Above 0, at most 1."""
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (((z ^ (z >> 31)) >> 11) + 1) / 2**53

    def normal(self):
        radius = math.sqrt(-2 * math.log(self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def log_normal(self, mean, sigma):
        return mean * math.exp(sigma * self.normal() - sigma * sigma / 2)


def requests(stream, rate, seconds, seed):
    """(arrival in seconds, words of the prompt, words of the answer) of each request."""
    random, at, made = SplitMix(seed), 0.0, []
    longest = LONGEST[stream] - 2
    while True:
        level = 1 if stream != "burst" else 0.5 if at % 12 < 10 else 4
        at += -math.log(random.uniform()) / (rate * level)
        if at >= seconds:
            return made
        if stream == "long":
            prompt, answer = max(1000, round(18000 + 4000 * random.normal())), 50
        else:
            prompt, answer = max(16, round(random.log_normal(1631, 1))), 1 + round(random.log_normal(115, 0.8))
        answer = min(answer, longest // 2)
        made.append((at, min(prompt, longest - answer), answer))


# --- the model -----------------------------------------------------------------------------------------

class Sleeper:
    """In place of a model, for --dry: it takes time, and nothing else."""

    def __init__(self, *_):
        pass

    def share(self):
        return None

    def read(self, slot, begin, count):
        time.sleep(count * 2e-6)

    def first(self):
        return 1

    def write(self, places, positions):
        time.sleep(0.001)


class Model:
    device, precision = "cuda", "bfloat16"

    def __init__(self, options, pool=None):
        import torch
        from torch.nn import functional
        self.torch, self.functional, self.dtype = torch, functional, getattr(torch, self.precision)
        self.layers_count, self.width, self.heads, self.keys, inner = SIZES[options.size]
        self.size = self.width // self.heads
        self.longest, self.slots, self.is_eager = LONGEST[options.stream], SLOTS[options.stream], options.eager
        torch.manual_seed(1)

        def weight(*shape):
            return torch.randn(*shape, device=self.device, dtype=self.dtype) / shape[-1] ** 0.5

        self.embedding = weight(WORDS, self.width)
        self.layers = [{"qkv": weight((self.heads + 2 * self.keys) * self.size, self.width),
                        "out": weight(self.width, self.width), "up": weight(2 * inner, self.width),
                        "down": weight(self.width, inner)} for _ in range(self.layers_count)]
        # The last position of each slot is nobody's: places without an answer write there.
        if pool is None:
            pool = torch.zeros(self.layers_count, 2, self.slots, self.keys, self.longest, self.size, device=self.device,
                               dtype=self.dtype)
        self.pool, self.graphs, self.last = pool, {}, None
        self.words = torch.zeros(self.slots, dtype=torch.long, device=self.device)
        self.positions = torch.full((self.slots,), self.longest - 1, dtype=torch.long, device=self.device)
        self.rows = torch.arange(self.slots, device=self.device)
        self.columns = torch.arange(self.longest, device=self.device)

    def share(self):
        """What another process makes the same pool of."""
        from torch.multiprocessing.reductions import reduce_tensor
        return reduce_tensor(self.pool)

    def _norm(self, x):
        return self.functional.rms_norm(x, (self.width,))

    def _after(self, x, layer, attended):
        x = x + self.functional.linear(attended, layer["out"])
        gate, up = self.functional.linear(self._norm(x), layer["up"]).chunk(2, dim=-1)
        return x + self.functional.linear(self.functional.silu(gate) * up, layer["down"])

    def _qkv(self, x, layer):
        parts = self.functional.linear(self._norm(x), layer["qkv"])
        return parts.view(-1, self.heads + 2 * self.keys, self.size).split([self.heads, self.keys, self.keys], dim=1)

    def read(self, slot, begin, count):
        """Reads `count` words of a prompt, of which `begin` were read before."""
        torch = self.torch
        with torch.no_grad():
            end = begin + count
            words = torch.arange(begin, end, device=self.device) * 7919 % WORDS
            x = self.functional.embedding(words, self.embedding)
            mask = self.columns[None, :end] <= torch.arange(begin, end, device=self.device)[:, None]
            for number, layer in enumerate(self.layers):
                q, k, v = self._qkv(x, layer)
                own = self.pool[number, :, slot]
                own[0, :, begin:end] = k.transpose(0, 1)
                own[1, :, begin:end] = v.transpose(0, 1)
                seen = own[:, :, :end].repeat_interleave(self.heads // self.keys, dim=1)
                attended = self.functional.scaled_dot_product_attention(q.transpose(0, 1)[None], seen[0][None],
                                                                        seen[1][None], attn_mask=mask)
                x = self._after(x, layer, attended[0].transpose(0, 1).reshape(count, self.width))
            self.last = self.functional.linear(self._norm(x[-1:]), self.embedding)

    def first(self):
        """The first word of the answer to what was read last; waits for it."""
        return self.last.argmax(-1).item()

    def _step(self, count, length):
        torch = self.torch
        x = self.functional.embedding(self.words[:count], self.embedding)
        positions, rows = self.positions[:count], self.rows[:count]
        hidden = self.columns[None, :length] > positions[:, None]
        group = self.heads // self.keys
        for number, layer in enumerate(self.layers):
            q, k, v = self._qkv(x, layer)
            keys, values = self.pool[number, 0], self.pool[number, 1]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            q = q.reshape(count * self.keys, group, self.size)
            keys = keys[:count, :, :length].flatten(0, 1)
            values = values[:count, :, :length].flatten(0, 1)
            scores = torch.bmm(q, keys.transpose(1, 2)).view(count, self.keys, group, length) / self.size ** 0.5
            scores = scores.masked_fill(hidden[:, None, None, :], float("-inf")).softmax(-1, dtype=torch.float32)
            attended = torch.bmm(scores.to(self.dtype).view(count * self.keys, group, length), values)
            x = self._after(x, layer, attended.reshape(count, self.width))
        self.words[:count] = self.functional.linear(self._norm(x), self.embedding).argmax(-1)

    def prepare(self):
        """Makes all graphs, so that none is made while it is measured."""
        torch = self.torch
        with torch.no_grad():
            length, memory = 512, None if self.is_eager else torch.cuda.graph_pool_handle()
            while length <= self.longest:
                for count in (2 ** n for n in range(self.slots.bit_length())):
                    if self.is_eager:
                        self._step(count, length)
                        continue
                    stream = torch.cuda.Stream()
                    stream.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(stream):
                        self._step(count, length)
                    torch.cuda.current_stream().wait_stream(stream)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=memory):
                        self._step(count, length)
                    self.graphs[count, length] = graph
                length *= 2
        torch.cuda.synchronize()

    def write(self, words, positions):
        """A step: `words` and `positions` of the first places; a position of None is a place without an answer."""
        torch = self.torch
        used = [position for position in positions if position is not None]
        count, length = 1, 512
        while count < len(positions):
            count *= 2
        while length < max(used) + 1:
            length *= 2
        told = [self.longest - 1 if position is None else position for position in positions]
        told += [self.longest - 1] * (count - len(told))
        self.positions[:count].copy_(torch.tensor(told), non_blocking=True)
        for place, word in words.items():  # of answers that begin; the others' are there
            self.words[place] = word
        if self.is_eager:
            with torch.no_grad():
                self._step(count, length)
        else:
            self.graphs[count, length].replay()
        self.words[:count].cpu()


def make_model(options, pool=None):
    return Sleeper() if options.dry else Model(options, pool)


# --- the two kinds of work -----------------------------------------------------------------------------

class Answers:
    """The answers that are being written, each in its slot of the pool."""

    def __init__(self, model):
        self.model, self.running, self.new, self.gaps, self.done = model, {}, {}, [], 0

    def begin(self, slot, word, length, answer, now):
        if answer <= 1:
            return False
        self.running[slot] = [length, answer - 1, now]
        self.new[slot] = word
        return True

    def step(self, counts):
        """Writes a token of each; returns the slots that are free again. `counts`: whether its gaps are counted."""
        places = max(self.running) + 1
        positions = [self.running[slot][0] if slot in self.running else None for slot in range(places)]
        self.model.write(self.new, positions)
        self.new, now, free = {}, time.monotonic(), []
        for slot, one in list(self.running.items()):
            if counts:
                self.gaps.append(now - one[2])
            one[0], one[1], one[2] = one[0] + 1, one[1] - 1, now
            if one[1] == 0:
                del self.running[slot]
                free.append(slot)
                self.done += 1
        return free


class Arrivals:
    """The requests of a run, each when its time has come; it says so to the agent where `announces`."""

    def __init__(self, start, made, announces=False):
        self.waiting, self.is_over, self._changed = [], False, threading.Condition()

        def arrive():
            for at, prompt, answer in made:
                time.sleep(max(0.0, start + at - time.monotonic()))
                told = gpushare.arrive() if announces else None
                with self._changed:
                    self.waiting.append((start + at, prompt, answer, told))
                    self._changed.notify_all()
            with self._changed:
                self.is_over = True
                self._changed.notify_all()

        threading.Thread(target=arrive, daemon=True).start()

    def take(self, limit):
        """The next one, or None when none comes in `limit` seconds, or none comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.waiting or self.is_over, limit)
            return self.waiting.pop(0) if self.waiting else None

    def has_ended(self):
        with self._changed:
            return self.is_over and not self.waiting


def say(**what):
    print(json.dumps(what), flush=True)


def told():
    """The line by which the script begins the run: when, and what comes."""
    line = json.loads(sys.stdin.readline())
    return line["start"], requests(line["stream"], line["rate"], line["seconds"], line["seed"]), line


def serve_alone(options):
    """Ways one and chunks."""
    model = make_model(options)
    if not options.dry:
        model.prepare()
        model.read(0, 0, CHUNK)
        model.first()
    say(ready=True)
    start, made, line = told()
    end = start + line["seconds"] + line["drain"]
    arrivals, answers, free = Arrivals(start, made), Answers(model), list(range(SLOTS[options.stream]))
    took, reading, words, ended = [], None, 0, None
    while time.monotonic() < end:
        if reading is None and free:
            one = arrivals.take(0 if answers.running else 0.05)
            if one is not None:
                reading = [one, free.pop(0), 0]
        if reading is None and not answers.running:
            if arrivals.has_ended():
                break
            continue
        while reading is not None:
            (at, prompt, answer, _), slot, begin = reading
            count = min(CHUNK, prompt - begin)
            model.read(slot, begin, count)
            reading[2] += count
            words += count
            if reading[2] == prompt:
                word, now = model.first(), time.monotonic()
                took.append(now - at)
                if not answers.begin(slot, word, prompt, answer, now):
                    free.append(slot)
                reading = None
            if options.way == "chunks":
                break
        if answers.running:
            free = sorted(free + answers.step(True))
        ended = time.monotonic()
    say(first=took, gaps=answers.gaps, words=words, answered=answers.done, seconds=(ended or start) - start)


def read_prompts(options):
    """The process that reads: it has a slot of the pool for each prompt, and gives it to the one that writes."""
    with connect(options.socket) as peer:
        pool = None
        if (shared := peer.recv()) is not None:
            import torch
            torch.cuda.init()
            pool = shared[0](*shared[1])
        model = make_model(options, pool)
        if not options.dry:
            for count in (CHUNK, 100):
                model.read(SLOTS[options.stream] - 1, 0, count)
                model.first()
        say(ready=True)
        start, made, line = told()
        end = start + line["seconds"] + line["drain"]
        arrivals, free = Arrivals(start, made, announces=True), list(range(SLOTS[options.stream]))
        took, words = [], 0
        while time.monotonic() < end and not arrivals.has_ended():
            one = arrivals.take(0.05)
            if one is None:
                continue
            while peer.poll(0 if free else 0.05) or (not free and time.monotonic() < end):
                free += peer.recv() if peer.poll(0) else []
            if not free:
                break
            at, prompt, answer, arrived = one
            free.sort()
            slot = free.pop(0)
            with gpushare.iteration(phase="prefill", arrived=arrived):
                for begin in range(0, prompt, CHUNK):
                    model.read(slot, begin, min(CHUNK, prompt - begin))
                word = model.first()
            now = time.monotonic()
            took.append(now - at)
            words += prompt
            peer.send((slot, word, prompt, answer, now))
        peer.send(None)
        say(first=took, words=words)


def write_tokens(options):
    """The process that writes; the pool is its own."""
    model = make_model(options)
    if not options.dry:
        model.prepare()
    with listen(options.socket) as peer:
        peer.send(model.share())
        say(ready=True)
        start, _, line = told()
        end = start + line["seconds"] + line["drain"]
        answers, is_over = Answers(model), False
        while time.monotonic() < end and not (is_over and not answers.running):
            while not is_over and peer.poll(0 if answers.running else 0.05):
                one = peer.recv()
                is_over = one is None
                if one is not None and not answers.begin(*one):
                    peer.send([one[0]])
            if not answers.running:
                continue
            with gpushare.iteration(phase="decode"):
                free = answers.step(True)
            if free:
                with contextlib.suppress(OSError):  # it may have read its last prompt
                    peer.send(free)
        say(gaps=answers.gaps, answered=answers.done, seconds=time.monotonic() - start)


@contextlib.contextmanager
def listen(path):
    with multiprocessing.connection.Listener(path, "AF_UNIX") as listener, listener.accept() as peer:
        yield peer


@contextlib.contextmanager
def connect(path):
    end = time.monotonic() + rig.READY_S
    while True:
        try:
            peer = multiprocessing.connection.Client(path, "AF_UNIX")
            break
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    with peer:
        yield peer


# --- whether its phases are recognised -----------------------------------------------------------------

class PhaseJudge:
    """Compares what an iteration was with what gpushare says that it was, after the first LEARNING of them."""

    LEARNING = 500

    def __init__(self):
        self.count = self.phases = self.known = self.wrong = 0

    def end(self, phase):
        self.count += 1
        seen = gpushare.iterations()
        if seen is None or self.count <= self.LEARNING:
            return
        self.phases += 1
        self.known += seen.phase is not None
        self.wrong += seen.phase not in (None, phase)


def judge(options):
    """One process that reads and writes, and announces nothing: prompts come at random, up to 32 answers run."""
    model, random, judged = make_model(options), SplitMix(options.seed), PhaseJudge()
    if not options.dry:
        model.prepare()
    answers, free = Answers(model), list(range(32 if options.stream != "long" else 8))

    def read(slot, prompt):
        for begin in range(0, prompt, CHUNK):
            model.read(slot, begin, min(CHUNK, prompt - begin))
            if options.way == "chunks" and begin + CHUNK < prompt:
                model.first()
                judged.end("prefill")
                write()
        word = model.first()
        judged.end("prefill")
        if not answers.begin(slot, word, prompt, max(2, round(random.log_normal(60, 0.8))), time.monotonic()):
            free.append(slot)

    def write():
        if answers.running:
            free.extend(answers.step(False))
            free.sort()
            judged.end("decode")

    while judged.count < options.judge:
        if free and (not answers.running or random.uniform() < 0.08):
            read(free.pop(0), min(LONGEST[options.stream] // 2, max(16, round(random.log_normal(800, 0.8)))))
        else:
            write()
    say(way=options.way, size=options.size, eager=options.eager, attached=gpushare.is_attached(),
        iterations=judged.count, phases=judged.phases, known_phases=judged.known, wrong_phases=judged.wrong)


# --- the comparison ----------------------------------------------------------------------------------

def config(way, options):
    half = 'sm_percent = 50\n' if way == "shares" else ""
    return (f'[gpu.0]\nsharing = "spatial"\npolicy = "{"fair" if way == "shares" else "tpot"}"\n'
            f'[tenant.prefill]\nphase = "prefill"\nslo_us = {round(options.ttft * 1e6)}\n{half}'
            f'[tenant.decode]\nphase = "decode"\nslo_us = {round(options.tpot * 1e6)}\n{half}')


def server_of(way, options):
    if way == "mps":
        return rig.Mps()
    return rig.Agent(options.build, config(way, options)) if way in ("shares", "tpot") else rig.Native()


def words_of(role, way, options, socket=""):
    return [sys.executable, __file__, "--role", role, "--size", options.size, "--stream", options.stream, "--way", way,
            *(["--socket", socket] if socket else []), *["--dry"] * options.dry, *["--eager"] * options.eager]


def watch(server, seen, is_over):
    """What each tenant has, ten times a second."""
    while not is_over.wait(0.1):
        uses = server.uses()
        seen.append({name: {key: uses[name].get(key) for key in ("sms_in_use", "sms_entitled", "slo_state", "phase")}
                     for name in ("prefill", "decode") if name in uses})


def measure(way, rate, options):
    with server_of(way, options) as server, contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="engine-"))
        roles = ["alone"] if way in ("one", "chunks") else ["decode", "prefill"]
        running = [stack.enter_context(rig.Program(
            server.command(role, ["timeout", "-k", "5", str(options.limit),
                                  *words_of(role, way, options, "" if role == "alone" else f"{folder}/pool")]),
            server.environment)) for role in roles]
        line = {"start": 0, "stream": options.stream, "rate": rate, "seconds": options.seconds, "seed": options.seed,
                "drain": options.drain}
        for program in running:
            if not (program.take(rig.READY_S) or {}).get("ready"):
                return {"way": way, "failed": program.errors()[-1500:] or "it ended before it was ready"}
        line["start"] = time.monotonic() + 0.5
        for program in running:
            program.tell(json.dumps(line))
        seen, is_over = [], threading.Event()
        if way in ("shares", "tpot"):
            threading.Thread(target=watch, args=(server, seen, is_over), daemon=True).start()
        limit = options.seconds + options.drain + 60
        said = {}
        for program in running:
            said |= program.take(limit) or {"failed": program.errors()[-1500:]}
        is_over.set()
    return summary(way, said, seen, options)


def summary(way, said, seen, options):
    if "failed" in said or "gaps" not in said or "first" not in said:
        return {"way": way, "failed": said.get("failed", "a process said nothing")}
    first, gaps = said["first"], said["gaps"]

    def ms(value):
        return round(value * 1e3, 2) if value is not None else None

    result = {"way": way, "prompts": len(first), "answered": said["answered"], "words_read": said["words"],
              "tokens": len(gaps), "late_first": sum(one > options.ttft for one in first),
              "late_tokens": sum(one > options.tpot for one in gaps),
              "ttft_mean_ms": ms(sum(first) / len(first)) if first else None, "ttft_p99_ms": ms(quantile(first, 0.99)),
              "tpot_mean_ms": ms(sum(gaps) / len(gaps)) if gaps else None, "tpot_p50_ms": ms(quantile(gaps, 0.5)),
              "tpot_p99_ms": ms(quantile(gaps, 0.99)), "seconds": round(said["seconds"], 2)}
    if seen:
        result["seen"] = seen[:: max(1, len(seen) // 50)]
    return result


def capacity(options):
    """Requests a second that way `chunks` answers when all of them are there at once."""
    crowd = argparse.Namespace(**{**vars(options), "seconds": 1.0, "drain": options.capacity_s, "dry": options.dry})
    result = measure("chunks", 400 if options.stream != "long" else 40, crowd)
    if "failed" in result:
        sys.exit("capacity: " + result["failed"])
    return max(result["answered"], 1) / result["seconds"], result


def add_model_arguments(parser):
    parser.add_argument("--eager", action="store_true", help="write tokens without CUDA graphs")
    parser.add_argument("--dry", action="store_true", help="without a GPU and torch: a model that sleeps")


def main():
    parser = rig.parser(__doc__, nargs="?")
    parser.add_argument("--ways", default="one,chunks,shares,tpot", help="the ways, separated by commas")
    parser.add_argument("--size", choices=SIZES, default="8", help="G of parameters (default: 8)")
    parser.add_argument("--stream", choices=STREAMS, default="chat", help="the requests (default: chat)")
    parser.add_argument("--loads", default="0.6,0.8,0.9",
                        help="parts of what one process answers (default: 0.6,0.8,0.9)")
    parser.add_argument("--rate", type=float, help="requests a second, in place of --loads and without measuring them")
    parser.add_argument("--seconds", type=float, default=30, help="how long requests come (default: 30)")
    parser.add_argument("--drain", type=float, default=15, help="seconds for what is under way then (default: 15)")
    parser.add_argument("--capacity-s", type=float, default=20, help="seconds of the measurement of it (default: 20)")
    parser.add_argument("--seed", type=int, default=11, help="of the requests (default: 11)")
    parser.add_argument("--ttft", type=float, default=1.0, help="seconds until the first token is late (default: 1)")
    parser.add_argument("--tpot", type=float, default=0.1, help="seconds until the next one is late (default: 0.1)")
    parser.add_argument("--limit", type=int, default=300, help="seconds after which a process is ended (default: 300)")
    add_model_arguments(parser)
    parser.add_argument("--judge", type=int, metavar="N",
                        help="say how many phases of N iterations are recognised (way one, or chunks with --way chunks), "
                        "under shim_drive --features iterations")
    parser.add_argument("--role", choices=("alone", "prefill", "decode"), help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, default="one", help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        return judge(options)
    if options.role:
        return {"alone": serve_alone, "prefill": read_prompts, "decode": write_tokens}[options.role](options)
    ways = options.ways.split(",")
    for way in ways:
        if way not in WAYS:
            parser.error(f"--ways {way}: allowed are {', '.join(WAYS)}")
        if options.dry and way not in ("one", "chunks", "native"):
            parser.error(f"--dry: {way} needs a GPU; allowed are one, chunks, native")
    if options.build is None and not options.dry:
        parser.error("BUILD is missing: a folder with bin/gpushared in it")
    record, results, most = Record(options.out), [], None
    if options.rate is None:
        rate, most = capacity(options)
        print(f"one process answers {rate:.2f} requests a second at most", flush=True)
        cells = [(float(load), float(load) * rate) for load in options.loads.split(",")]
    else:
        cells = [(None, options.rate)]
    for load, rate in cells:
        for way in ways:
            result = {"load": load, "rate": round(rate, 3), **measure(way, rate, options)}
            results.append(result)
            print(json.dumps({key: value for key, value in result.items() if key != "seen"}), flush=True)
            record.write({**origin(commit=options.commit), "size": options.size, "stream": options.stream,
                          "eager": options.eager, "seconds": options.seconds, "ttft": options.ttft,
                          "tpot": options.tpot, "capacity": most, "ways": results})
    compare(results)
    return any("failed" in one for one in results)


def compare(results):
    for load in dict.fromkeys(one["load"] for one in results):
        by = {one["way"]: one for one in results if one["load"] == load and "failed" not in one}
        if "shares" in by and "tpot" in by:
            shares, tpot = by["shares"], by["tpot"]
            fewer = 100 * (1 - tpot["late_tokens"] / shares["late_tokens"]) if shares["late_tokens"] else None
            print(f"load {load}: late tokens {shares['late_tokens']} -> {tpot['late_tokens']}"
                  f"{'' if fewer is None else f' ({fewer:.0f} % fewer)'}, late first tokens {shares['late_first']} -> "
                  f"{tpot['late_first']}")
        for other in ("one", "chunks"):
            if other in by and "tpot" in by:
                ours, theirs = by["tpot"], by[other]
                print(f"load {load}: against {other}: TTFT mean {ours['ttft_mean_ms']} / {theirs['ttft_mean_ms']} ms, "
                      f"TPOT p99 {ours['tpot_p99_ms']} / {theirs['tpot_p99_ms']} ms")


if __name__ == "__main__":
    sys.exit(main())
