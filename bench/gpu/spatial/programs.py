# SPDX-License-Identifier: Apache-2.0
"""The programs that table.py compares: programs.py WHAT [--rate R]. They need torch and a GPU.

decoder   a transformer of 7 G parameters answers requests: it reads 256 words and writes 24, bf16, random weights
tokens    the same with 8 G parameters writes one word after another
resnet    ResNet-50 is trained, 128 images a step, bf16
bert      an encoder as large as BERT-large is trained, 16 sequences of 512, bf16
lstm      four layers of 1,024 are trained, 64 sequences of 128, bf16
lora      a decoder of 8 G parameters is trained by small products beside its own (LoRA), 1 sequence of 1,024, bf16
small     20 small products, one after the other, every 5 ms: its latency is what matters
burst     the same with 8 products, some 300 us
heavy     products that fill the GPU: bound by its arithmetic
products  products of some 400 us that fill the GPU, eight always queued
huge      16384 x 16384 x 16384 in bf16, one after the other
copier    copies that fill the bandwidth of the GPU's memory
gemm      512 x 8192 x 28672 in bf16, each of which is timed by the GPU

A program prints {"ready": true}, waits for a line with a number of seconds, works for that long and prints what it
measured. Requests arrive at random, R a second; with R = 0 each one comes as soon as the one before is done.
"""
import argparse
import collections
import itertools
import json
import pathlib
import random
import sys
import time

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from arrivals import arrivals
from record import quantile

torch.manual_seed(1)
device, half = torch.device("cuda"), torch.bfloat16


def weight(*shape):
    return torch.randn(*shape, device=device, dtype=half) / shape[-1] ** 0.5


class Decoder:
    LAYERS, WIDTH, HEADS, KEYS, INNER, WORDS, LONGEST = 32, 4096, 32, 8, 14336, 32000, 512

    def __init__(self, layers=LAYERS):
        size = self.WIDTH // self.HEADS
        self.size = size
        self.embedding = weight(self.WORDS, self.WIDTH)
        self.layers = [{
            "qkv": weight((self.HEADS + 2 * self.KEYS) * size, self.WIDTH), "out": weight(self.WIDTH, self.WIDTH),
            "up": weight(2 * self.INNER, self.WIDTH), "down": weight(self.WIDTH, self.INNER),
            "cache": torch.zeros(2, 1, self.KEYS, self.LONGEST, size, device=device, dtype=half),
        } for _ in range(layers)]

    def forward(self, words, begin):
        x = functional.embedding(words, self.embedding)
        count = words.shape[1]
        for layer in self.layers:
            qkv = functional.linear(functional.rms_norm(x, (self.WIDTH,)), layer["qkv"])
            q, k, v = qkv.view(1, count, -1, self.size).transpose(1, 2).split(
                [self.HEADS, self.KEYS, self.KEYS], dim=1)
            cache = layer["cache"]
            cache[0, :, :, begin:begin + count] = k
            cache[1, :, :, begin:begin + count] = v
            seen = functional.scaled_dot_product_attention(
                q, cache[0, :, :, :begin + count], cache[1, :, :, :begin + count], is_causal=count > 1, enable_gqa=True)
            x = x + functional.linear(seen.transpose(1, 2).reshape(1, count, self.WIDTH), layer["out"])
            gate, up = functional.linear(functional.rms_norm(x, (self.WIDTH,)), layer["up"]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        return functional.linear(x[:, -1:], self.embedding).argmax(-1)

    @torch.no_grad()
    def answer(self):
        word = self.forward(torch.randint(0, self.WORDS, (1, 256), device=device), 0)
        for i in range(24):
            word = self.forward(word, 256 + i)
        return word.item()


def decoder():
    return Decoder().answer


def resnet():
    import torchvision
    model = torchvision.models.resnet50(weights=None).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(128, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (128,), device=device)

    def step():
        with torch.autocast("cuda", dtype=half):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def encoder(width, layers):
    made = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(made, layers, enable_nested_tensor=False).to(device)


def trained(model, inputs):
    """A step of training that makes what the model says of the inputs small."""
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-5, fused=True)

    def step():
        with torch.autocast("cuda", dtype=half):
            loss = model(inputs).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def bert():
    return trained(encoder(1024, 24).train(), torch.randn(16, 512, 1024, device=device))


def lstm():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = torch.nn.LSTM(1024, 1024, num_layers=4, batch_first=True)

        def forward(self, inputs):
            return self.cells(inputs)[0]

    return trained(Network().to(device), torch.randn(64, 128, 1024, device=device))


class LowRank(torch.nn.Module):
    """A product with weights that stay as they are, and a small one beside it that learns (LoRA)."""
    RANK = 16

    def __init__(self, inner, outer):
        super().__init__()
        self.register_buffer("fixed", weight(outer, inner))
        self.down = torch.nn.Parameter(weight(self.RANK, inner).float())
        self.up = torch.nn.Parameter(torch.zeros(outer, self.RANK, device=device))

    def forward(self, x):
        return functional.linear(x, self.fixed) + functional.linear(functional.linear(x, self.down), self.up)


class LowRankDecoder(torch.nn.Module):
    LAYERS = 36

    def __init__(self):
        super().__init__()
        self.size = Decoder.WIDTH // Decoder.HEADS
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({
            "qkv": LowRank(Decoder.WIDTH, (Decoder.HEADS + 2 * Decoder.KEYS) * self.size),
            "out": LowRank(Decoder.WIDTH, Decoder.WIDTH), "up": LowRank(Decoder.WIDTH, 2 * Decoder.INNER),
            "down": LowRank(Decoder.INNER, Decoder.WIDTH)}) for _ in range(self.LAYERS))

    def one_layer(self, layer, x):
        count = x.shape[1]
        q, k, v = layer["qkv"](functional.rms_norm(x, (Decoder.WIDTH,))).view(1, count, -1, self.size).transpose(
            1, 2).split([Decoder.HEADS, Decoder.KEYS, Decoder.KEYS], dim=1)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + layer["out"](seen.transpose(1, 2).reshape(1, count, Decoder.WIDTH))
        gate, up = layer["up"](functional.rms_norm(x, (Decoder.WIDTH,))).chunk(2, dim=-1)
        return x + layer["down"](functional.silu(gate) * up)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(self.one_layer, layer, x, use_reentrant=False)
        return x


def lora():
    return trained(LowRankDecoder(), torch.randn(1, 1024, Decoder.WIDTH, device=device, dtype=half))


def tokens():
    model, words = Decoder(layers=36), itertools.cycle(range(24))
    word = torch.zeros(1, 1, device=device, dtype=torch.long)

    @torch.no_grad()
    def step():
        nonlocal word
        word = model.forward(word, 256 + next(words))
        word.item()

    return step


def request_of(rounds):
    a, x = weight(512, 512), weight(64, 512)

    def request():
        y = x
        for _ in range(rounds):
            y = torch.tanh(y @ a)
        y[0, 0].item()

    return request


def small():
    return request_of(20)


def burst():
    return request_of(8)


def products():
    a, b, ends = weight(512, 8192), weight(8192, 28672), collections.deque()

    def step():
        torch.mm(a, b)
        ends.append(torch.cuda.Event())
        ends[-1].record()
        if len(ends) > 8:
            ends.popleft().synchronize()

    return step


def huge():
    a, b = weight(16384, 16384), weight(16384, 16384)

    def step():
        torch.mm(a, b)
        torch.cuda.current_stream().synchronize()

    return step


def heavy():
    a, b = weight(8192, 8192), weight(8192, 8192)

    def step():
        for _ in range(4):
            torch.mm(a, b)
        torch.cuda.current_stream().synchronize()

    return step


def copier():
    a = torch.empty(1 << 30, device=device, dtype=torch.uint8)
    b = torch.empty_like(a)

    def step():
        for _ in range(4):
            b.copy_(a)
        torch.cuda.current_stream().synchronize()

    return step


def gemm(seconds_of):
    a, b = weight(512, 8192), weight(8192, 28672)
    out = torch.empty(512, 28672, device=device, dtype=half)
    for _ in range(50):
        torch.mm(a, b, out=out)
    torch.cuda.synchronize()
    seconds, begin, rounds = seconds_of(), time.monotonic(), []
    while time.monotonic() - begin < seconds:
        began_ns = time.monotonic_ns()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(51)]
        for mark in marks[:-1]:
            mark.record()
            torch.mm(a, b, out=out)
        marks[-1].record()
        torch.cuda.synchronize()
        rounds.append((began_ns, [round(first.elapsed_time(second), 5) for first, second in zip(marks, marks[1:])]))
    return rounds


def at(times, part):
    value = quantile(times, part)
    return None if value is None else round(value, 4)


def serve(work, seconds, due_times):
    """The latencies in ms of those requests that arrived in that time."""
    latencies, begin = [], time.monotonic()
    for due, _ in arrivals(begin + due for due in itertools.takewhile(lambda due: due <= seconds, due_times)):
        work()
        latencies.append((time.monotonic() - due) * 1e3)
    return latencies


def poisson(rate):
    draw, due = random.Random(7), 0.0
    while True:
        due += draw.expovariate(rate)
        yield due


def every(period):
    due = 0.0
    while True:
        due += period
        yield due


def seconds_of():
    print(json.dumps({"ready": True}), flush=True)
    return float(sys.stdin.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["decoder", "tokens", "resnet", "bert", "lstm", "lora", "small", "burst", "heavy",
                                         "products", "huge", "copier", "gemm"])
    parser.add_argument("--rate", type=float, default=0, help="requests a second; 0: without a pause (default)")
    parser.add_argument("--rounds", action="store_true", help="with gemm: print each time, and when its round began")
    options = parser.parse_args()
    if options.what == "gemm":
        rounds = gemm(seconds_of)
        times = [one for _, times in rounds for one in times]
        return print(json.dumps({"what": "gemm", "count": len(times), "p50_ms": at(times, 0.5),
                                 "p95_ms": at(times, 0.95), **({"rounds": rounds} if options.rounds else {})}),
                     flush=True)
    work = globals()[options.what]()
    for _ in range(24):  # every length of a decoder's cache is prepared once
        work()
    torch.cuda.synchronize()
    seconds = seconds_of()
    if options.what in ("small", "burst"):
        times = serve(work, seconds, every(0.005))
    elif options.rate > 0:
        times = serve(work, seconds, poisson(options.rate))
    else:
        times, begin = [], time.monotonic()
        while (now := time.monotonic()) - begin < seconds:
            work()
            times.append((time.monotonic() - now) * 1e3)
        seconds = time.monotonic() - begin
    print(json.dumps({"what": options.what, "rate": options.rate, "count": len(times),
                      "per_s": round(len(times) / seconds, 3), "p50_ms": at(times, 0.5), "p99_ms": at(times, 0.99),
                      "max_ms": at(times, 1)}), flush=True)


if __name__ == "__main__":
    main()
