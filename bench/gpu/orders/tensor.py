# SPDX-License-Identifier: Apache-2.0
"""A model that is served by two GPUs together, for gangs.py: tensor.py --gpus 0,1 --port N. It needs torch, NCCL and as
many GPUs.

Each rank has a part of every layer, and all ranks add what their parts give, once for each layer and token (tensor
parallelism). When all are warm, {"ready": true} is printed; at a line tokens are written until --seconds are over, and
what each took (ms), how many there were, and a number that follows from each of the first --compared, as hexadecimal
floats, are printed.
"""
import json
import os
import time

import torch
from torch import distributed

import ranks

WARM = 20


class Layer:
    def __init__(self, width, inner, generator):
        def weight(rows, columns):
            made = torch.randn(rows, columns, generator=generator, device="cuda", dtype=torch.float32)
            return (made / rows ** 0.5).bfloat16()

        self.up, self.down = weight(width, inner), weight(inner, width)

    def __call__(self, x):
        part = torch.nn.functional.gelu(x @ self.up) @ self.down
        distributed.all_reduce(part)
        return torch.nn.functional.layer_norm(x + part, x.shape[-1:])


@torch.no_grad()
def token(layers, x):
    for layer in layers:
        x = layer(x)
    return x


@torch.no_grad()
def rank(number, options, gate, gpus):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    torch.cuda.set_device(gpus[number])
    distributed.init_process_group("nccl", rank=number, world_size=len(gpus))
    own = torch.Generator("cuda").manual_seed(number)
    layers = [Layer(options.width, 4 * options.width // len(gpus), own) for _ in range(options.layers)]
    x = torch.randn(options.batch, options.width, device="cuda",
                    generator=torch.Generator("cuda").manual_seed(99)).bfloat16()
    for _ in range(WARM):
        token(layers, x)
    torch.cuda.synchronize()
    distributed.barrier()
    if number == 0:
        print(json.dumps({"ready": True}), flush=True)
    gate.wait()
    times, begins, found, end = [], [], [], time.monotonic() + options.seconds
    goes_on = torch.ones(1, device="cuda")
    while goes_on.item():
        begins.append(time.time_ns())
        begun = time.monotonic()
        x = token(layers, x)
        value = x.float().sum().item()
        times.append((time.monotonic() - begun) * 1e3)
        if len(found) < options.compared:
            found.append(value.hex())
        # The first rank says when it is over, so that none waits for one that has ended.
        goes_on.fill_(time.monotonic() < end)
        distributed.broadcast(goes_on, 0)
    if number == 0:
        print(json.dumps({"steps": len(times), "ms": times, "begun_ns": begins, "losses": found}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    ranks.run(rank, ranks.parser(__doc__, layers=40, width=8192, batch=32, compared=200).parse_args())
