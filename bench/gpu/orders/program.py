# SPDX-License-Identifier: Apache-2.0
"""A job for turns.py: program.py KIND --iterations N [--products P] [--rounds R] [--pauses MS]. It needs
torch and a GPU.

steps        P products an iteration, waited for each time
resnet50     ResNet-50 is trained, 64 images a step, bf16, its loss read each time
transformer  a transformer of 12 layers is trained, its loss read each time
endless      one kernel that runs until the program is killed
vgg11_25     any model of Salus' list at its batch (trace.py --models), trained likewise; it needs torchvision

A program prints {"ready": true} when it is warm. In each round it waits for a line, makes its iterations, and prints
stamps of the GPU's own clock (%globaltimer), its losses as hexadecimal floats, and when each iteration had ended. A
kernel of one thread before each product or layer and behind each gradient writes the clock, and another one at each
end; they are launched through the driver like all others. They are two, because one kernel at both places would hide
where the iteration begins: the step from the last kernel to the first would be one that also happens inside, where a
layer launches nothing.
"""
import argparse
import ctypes
import json
import sys
import time

import torch
from torch import nn

# Writes the GPU's clock; the names tell the begin of an iteration's layers from its end.
STAMP = rb"""
.visible .entry NAME(.param .u64 to)
{
    .reg .b64 %to, %now;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    mov.u64 %now, %globaltimer;
    st.global.u64 [%to], %now;
    ret;
}
"""
PTX = rb"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry gs_endless(.param .u64 to)
{
    .reg .pred %p;
    .reg .b64 %to, %x;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
again:
    ld.volatile.global.u64 %x, [%to];
    setp.ne.u64 %p, %x, 1;
    @%p bra again;
    ret;
}
""" + STAMP.replace(b"NAME", b"gs_clock") + STAMP.replace(b"NAME", b"gs_end")


def stamp():
    """Replaced by main()."""


class Kernels:
    """The kernels above, on PyTorch's stream."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        self._check(self.driver.cuModuleLoadData(ctypes.byref(self.module), ctypes.c_char_p(PTX)))

    @staticmethod
    def _check(code):
        if code != 0:
            sys.exit(f"the driver says {code}")

    def function(self, name):
        found = ctypes.c_void_p()
        self._check(self.driver.cuModuleGetFunction(ctypes.byref(found), self.module, name))
        return found

    def launch(self, function, address):
        argument = ctypes.c_uint64(address)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        self._check(self.driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0,
                                               ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), arguments,
                                               None))


class Steps:
    def __init__(self, count):
        self.count = count
        self.a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
        self.x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def step(self):
        x = self.x
        for _ in range(self.count):
            stamp()
            x = self.a @ x
        return x.float().abs().mean()


class Training:
    def __init__(self, model, inputs, targets):
        self.model, self.inputs, self.targets = model.cuda().to(torch.bfloat16), inputs, targets
        for part in self.model.modules():
            if not list(part.children()):
                part.register_forward_pre_hook(lambda *_: stamp())
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: stamp())
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self):
        self.optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(self.inputs).float(), self.targets)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def bottleneck(inside, width, stride=1):
    """A block of ResNet-50."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.way = nn.Sequential(
                nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
            self.beside = nn.Identity() if inside == 4 * width and stride == 1 else nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            return torch.relu(self.way(x) + self.beside(x))

    return Block()


def resnet50():
    layers, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32000, 768)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.out = nn.Linear(768, 1000)

    def forward(self, words):
        return self.out(self.layers(self.words(words)).mean(1))


def overfeat():
    layers, inside = [], 3
    for width, size, stride, pad, pools in ((96, 11, 4, 0, True), (256, 5, 1, 0, True), (512, 3, 1, 1, False),
                                            (1024, 3, 1, 1, False), (1024, 3, 1, 1, True)):
        layers += [nn.Conv2d(inside, width, size, stride, pad), nn.ReLU(), *([nn.MaxPool2d(2, 2)] * pools)]
        inside = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(1024 * 36, 3072), nn.ReLU(),
                         nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def of_salus(name):
    """A model of Salus' list, and the side of its images."""
    from torchvision import models
    if name == "overfeat":
        return overfeat(), 231
    if name == "googlenet":
        return models.googlenet(weights=None, aux_logits=False, init_weights=False), 224
    if name == "inception3":
        return models.inception_v3(weights=None, aux_logits=False, init_weights=False), 299
    if name == "inception4":  # torchvision has none; this one takes about as long
        return models.wide_resnet101_2(weights=None), 224
    return getattr(models, name)(weights=None), 224


def job(kind, products):
    if kind == "steps":
        return Steps(products)
    if "_" in kind:
        name, _, batch = kind.rpartition("_")
        model, side = of_salus(name)
        return Training(model, torch.randn(int(batch), 3, side, side, device="cuda", dtype=torch.bfloat16),
                        torch.randint(1000, (int(batch),), device="cuda"))
    if kind == "resnet50":
        return Training(resnet50(), torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.bfloat16),
                        torch.randint(1000, (64,), device="cuda"))
    return Training(Transformer(), torch.randint(32000, (32, 256), device="cuda"),
                    torch.randint(1000, (32,), device="cuda"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", help="steps, resnet50, transformer, endless, or MODEL_BATCH")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pauses", type=int, default=0, help="ms after which it sleeps for as long, again and again")
    parser.add_argument("--products", type=int, default=50, help="of 4096 x 4096 in an iteration of steps")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.zeros(1, device="cuda")
    kernels = Kernels()
    if options.kind == "endless":
        word = torch.zeros(1, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
        kernels.launch(kernels.function(b"gs_endless"), word.data_ptr())
        torch.cuda.synchronize()
        return
    work = job(options.kind, options.products)
    clock, end = kernels.function(b"gs_clock"), kernels.function(b"gs_end")
    stamps = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    base, losses = stamps.data_ptr(), []

    def next_stamp(kernel=clock):
        nonlocal count
        if count == len(stamps):
            sys.exit(f"more than {len(stamps)} stamps: fewer --iterations are needed")
        kernels.launch(kernel, base + 8 * count)
        count += 1

    def iterate():
        loss = work.step()
        next_stamp(end)
        losses.append(loss.item())

    global stamp
    stamp, count = next_stamp, 0
    warmed = time.monotonic_ns()
    for _ in range(30):
        iterate()
    print(json.dumps({"ready": True, "warm_ns": time.monotonic_ns() - warmed}), flush=True)
    for _ in range(options.rounds):
        losses.clear()
        count = 0
        sys.stdin.readline()
        began = resumed = time.monotonic()
        ended = []
        for _ in range(options.iterations):
            iterate()
            ended.append(time.monotonic() - began)
            if options.pauses and time.monotonic() - resumed > options.pauses / 1e3:
                time.sleep(options.pauses / 1e3)
                resumed = time.monotonic()
        seconds = ended[-1]
        print(json.dumps({"kind": options.kind, "seconds": seconds, "losses": [float(loss).hex() for loss in losses],
                          "ended": ended, "began_ns": int(began * 1e9), "ended_ns": int((began + seconds) * 1e9),
                          "stamps": stamps[:count].tolist()}), flush=True)


if __name__ == "__main__":
    main()
