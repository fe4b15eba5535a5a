# SPDX-License-Identifier: Apache-2.0
"""The programs that table.py compares: programs.py WHAT [--rate R]. They need torch and a GPU.

decoder   a transformer of 7 G parameters answers requests: it reads 256 words and writes 24, bf16, random weights
resnet    ResNet-50 is trained, 128 images a step, bf16
small     20 small products, one after the other, every 5 ms: its latency is what matters
heavy     products that fill the GPU: bound by its arithmetic
copier    copies that fill the bandwidth of the GPU's memory
gemm      512 x 8192 x 28672 in bf16, each of which is timed by the GPU

A program prints {"ready": true}, waits for a line with a number of seconds, works for that long and prints what it
measured. Requests arrive at random, R a second; with R = 0 each one comes as soon as the one before is done.
"""
import argparse
import itertools
import json
import pathlib
import random
import sys
import time

import torch
from torch.nn import functional

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))
from arrivals import arrivals
from record import quantile

torch.manual_seed(1)
device, half = torch.device("cuda"), torch.bfloat16


def weight(*shape):
    return torch.randn(*shape, device=device, dtype=half) / shape[-1] ** 0.5


class Decoder:
    LAYERS, WIDTH, HEADS, KEYS, INNER, WORDS, LONGEST = 32, 4096, 32, 8, 14336, 32000, 512

    def __init__(self):
        size = self.WIDTH // self.HEADS
        self.size = size
        self.embedding = weight(self.WORDS, self.WIDTH)
        self.layers = [{
            "qkv": weight((self.HEADS + 2 * self.KEYS) * size, self.WIDTH), "out": weight(self.WIDTH, self.WIDTH),
            "up": weight(2 * self.INNER, self.WIDTH), "down": weight(self.WIDTH, self.INNER),
            "cache": torch.zeros(2, 1, self.KEYS, self.LONGEST, size, device=device, dtype=half),
        } for _ in range(self.LAYERS)]

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


def small():
    a, x = weight(512, 512), weight(64, 512)

    def request():
        y = x
        for _ in range(20):
            y = torch.tanh(y @ a)
        y[0, 0].item()

    return request


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
    parser.add_argument("what", choices=["decoder", "resnet", "small", "heavy", "copier", "gemm"])
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
    for _ in range(8):
        work()
    torch.cuda.synchronize()
    seconds = seconds_of()
    if options.what == "small":
        times = serve(work, seconds, every(0.005))
    elif options.rate > 0:
        times = serve(work, seconds, poisson(options.rate))
    else:
        times, begin = [], time.monotonic()
        while (now := time.monotonic()) - begin < seconds:
            work()
            times.append((time.monotonic() - now) * 1e3)
    print(json.dumps({"what": options.what, "rate": options.rate, "count": len(times),
                      "per_s": round(len(times) / seconds, 3), "p50_ms": at(times, 0.5), "p99_ms": at(times, 0.99)}),
          flush=True)


if __name__ == "__main__":
    main()
