# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs that know where their iterations begin, and what gpushare makes of them.

    shim_drive --features iterations -- python3 tests/gpu/iterations.py MODE [ITERATIONS]

conv         a residual net is trained, in mixed precision with a loss scaler, with a loader that has workers and with
             evaluation in between
transformer  a language model is trained, in bf16
lora         the same model is trained, of which only adapters learn
decode       text is generated with a KV cache: prompts of random lengths, and steps of one token

A boundary is right when exactly one was seen in the iteration, between its begin and the end of the first layer's
launches. The first 16 iterations are not judged. The last line that is printed is one JSON object.
"""

import argparse
import json
import pathlib
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "intercept" / "api"))
import gpushare  # noqa: E402

LEARNING, LEARNING_PHASES = 16, 500
device = torch.device("cuda")


class Judge:
    """Compares the iterations of a program, as it announces them here, with those that gpushare has recognised."""

    def __init__(self):
        self.times, self.offsets = [], []
        self.right = self.missed = self.invented = self.begun = 0
        self.phases = self.known_phases = self.wrong_phases = 0
        self.wrong = []

    def begin(self):
        self.began, self.launched = time.monotonic_ns(), None

    def first(self, *_):  # this is also a hook of the first layer
        if self.launched is None:
            self.launched = time.monotonic_ns()

    def end(self, phase=None):
        self.times.append(self.began)
        seen = gpushare.iterations()
        if seen is None:
            return
        count, self.begun = seen.begun - self.begun, seen.begun
        if len(self.times) <= LEARNING:
            return
        is_right = count == 1 and self.began <= seen.began_ns <= self.launched
        if is_right:
            self.right += 1
        else:
            self.missed += 1
            self.invented += count
            if len(self.wrong) < 20:
                self.wrong.append([len(self.times) - 1, count,
                                   (seen.began_ns - self.began) // 1000 if count else None])
        if phase is None or len(self.times) <= LEARNING_PHASES:
            return
        self.phases += 1
        self.known_phases += seen.phase is not None
        self.wrong_phases += seen.phase not in (None, phase)

    def report(self, mode):
        seen = gpushare.iterations()
        judged = self.right + self.missed + self.invented
        periods = sorted(b - a for a, b in zip(self.times, self.times[1:]))
        return {
            "mode": mode, "attached": gpushare.is_attached(), "iterations": len(self.times),
            "begun": self.begun, "source": seen and seen.source,
            "confidence": seen and seen.confidence, "right": self.right, "missed": self.missed,
            "invented": self.invented, "accuracy": self.right / judged if judged else None,
            "phases": self.phases, "known_phases": self.known_phases,
            "wrong_phases": self.wrong_phases, "mean_us": seen and seen.period_ns // 1000,
            "true_mean_us": sum(periods) // max(1, len(periods)) // 1000,
            "true_p50_us": periods[len(periods) // 2] // 1000 if periods else None,
            "wrong": self.wrong,
        }


class Residual(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        inner = width // 2 if stride == 2 else width
        self.one = nn.Conv2d(inner, width, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.short = nn.Conv2d(inner, width, 1, stride, bias=False) if stride == 2 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norms[0](self.one(x)))
        return F.relu(self.norms[1](self.two(y)) + self.short(x))


def conv(judge, iterations):
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        *[Residual(width, 2 if i == 0 and width > 64 else 1)
          for width in (64, 128, 256, 512) for i in range(2)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).to(device)
    net[0].register_forward_hook(judge.first)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 3, 128, 128),
                                          torch.randint(1000, (2048,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=2,
                                         pin_memory=True, persistent_workers=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")

    def run(batch, is_training):
        judge.begin()
        images = batch[0].to(device, non_blocking=True)
        labels = batch[1].to(device, non_blocking=True)
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(net(images), labels)
        if is_training:
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss

    done = 0
    while done < iterations:
        net.train()
        for batch in loader:
            loss = run(batch, True)
            if done % 10 == 9:
                loss.item()
            judge.end()
            done += 1
        net.eval()
        with torch.no_grad():
            for batch, _ in zip(loader, range(16)):
                run(batch, False).item()
                judge.end()
                done += 1


class Adapted(nn.Module):
    """A linear layer that does not learn, and the small layers beside it that do."""

    def __init__(self, inner, rank=8):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        is_first = cache is None or not cache
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
            cache[:] = [key, value]
        attended = F.scaled_dot_product_attention(query, key, value,
                                                  is_causal=is_first and length > 1)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Language(nn.Module):
    def __init__(self, width=768, layers=12, words=32000):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x, caches=None):
        x = self.words(x)
        for i, block in enumerate(self.blocks):
            x = block(x, caches and caches[i])
        return self.head(self.norm(x))


def train_language(judge, iterations, net, parameters):
    net.words.register_forward_hook(judge.first)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    for i in range(iterations):
        words = torch.randint(32000, (8, 257)).pin_memory()
        judge.begin()
        words = words.to(device, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(net(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if i % 20 == 19:
            loss.item()
        judge.end()


def transformer(judge, iterations):
    net = Language().to(device)
    train_language(judge, iterations, net, list(net.parameters()))


def lora(judge, iterations):
    net = Language()
    net.requires_grad_(False)
    for block in net.blocks:
        block.qkv, block.out = Adapted(block.qkv), Adapted(block.out)
    net.to(device)
    train_language(judge, iterations, net, [p for p in net.parameters() if p.requires_grad])


@torch.no_grad()
def decode(judge, iterations):
    net = Language().to(device, torch.bfloat16).eval()
    net.words.register_forward_hook(judge.first)
    choose = random.Random(1)
    done = 0
    while done < iterations:
        caches = [[] for _ in net.blocks]
        words = torch.randint(32000, (4, choose.randint(32, 512)))
        for step in range(choose.randint(32, 96)):
            judge.begin()
            words = words.to(device)
            logits = net(words, caches)[:, -1]
            words = logits.float().softmax(-1).multinomial(1)
            if (words == 0).all().item():  # every text has ended
                break
            judge.end("prefill" if step == 0 else "decode")
            done += 1


MODES = {"conv": conv, "transformer": transformer, "lora": lora, "decode": decode}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("iterations", type=int, nargs="?", default=400, help="how many it makes (default: 400)")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    judge = Judge()
    MODES[options.mode](judge, options.iterations)
    torch.cuda.synchronize()
    print(json.dumps(judge.report(options.mode)), flush=True)
