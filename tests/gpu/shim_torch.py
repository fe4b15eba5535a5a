# SPDX-License-Identifier: Apache-2.0
"""Prints numbers that depend on every kernel of a small PyTorch program: shim_torch.py WHAT.

train     a convolutional and a transformer model, 60 steps, losses in full
generate  a transformer that decodes with a growing cache
graph     a captured step, replayed 200 times, between steps without one
"""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
device = torch.device("cuda")


def digest(tensor):
    return tensor.detach().double().cpu().flatten().sum().item().hex()


def train():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.BatchNorm2d(64),
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(64 * 32 * 32, 10)).to(device)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True).to(device)
    both = list(net.parameters()) + list(layer.parameters())
    optimizer = torch.optim.SGD(both, lr=0.01, momentum=0.9)
    side = torch.cuda.Stream()
    for step in range(60):
        images = torch.randn(64, 3, 32, 32).pin_memory().to(device, non_blocking=True)
        labels = torch.randint(0, 10, (64,)).to(device)
        words = torch.randn(16, 64, 256, device=device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = layer(words).square().mean()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad()
        (loss + other).backward()
        optimizer.step()
        print(step, loss.item().hex(), other.item().hex())


def generate():
    width, heads = 512, 8
    weights = [torch.randn(width, width, device=device) / width ** 0.5 for _ in range(8)]
    cache = torch.randn(1, heads, 16, width // heads, device=device)
    state = torch.randn(1, width, device=device)
    for step in range(200):
        for weight in weights:
            state = torch.nn.functional.layer_norm(torch.tanh(state @ weight), (width,))
        key = state.view(1, heads, 1, width // heads)
        cache = torch.cat([cache, key], dim=2)
        attended = torch.nn.functional.scaled_dot_product_attention(key, cache, cache)
        state = attended.reshape(1, width)
        if step % 10 == 0:
            print(step, digest(state))
    print(digest(cache))


def graph():
    weight = torch.randn(1024, 1024, device=device) / 32
    state = torch.randn(64, 1024, device=device)

    def step():
        state.copy_(torch.tanh(state @ weight))

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(warm)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    for i in range(200):
        captured.replay()
        if i % 20 == 0:
            step()
            print(i, digest(state))
    print(digest(state))


{"train": train, "generate": generate, "graph": graph}[sys.argv[1]]()
