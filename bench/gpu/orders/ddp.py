# SPDX-License-Identifier: Apache-2.0
"""A data-parallel job for gangs.py: ddp.py --gpus 0,1 --port N. It needs torch, NCCL and as many GPUs.

Each rank trains a model of linear layers on its GPU, and all ranks add their gradients at each step. When all are warm,
{"ready": true} is printed; at a line the job takes steps until --seconds are over, and prints how long each took (ms), how
many there were, and the losses of the first --compared of them as hexadecimal floats.
"""
import json
import os
import time

import torch
from torch import distributed, nn

import ranks

WARM = 20


def step(model, data, optimizer):
    optimizer.zero_grad()
    loss = model(data).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss


def rank(number, options, gate, gpus):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    torch.cuda.set_device(gpus[number])
    distributed.init_process_group("nccl", rank=number, world_size=len(gpus))
    torch.manual_seed(7)
    layers = [nn.Linear(options.width, options.width, dtype=torch.bfloat16) for _ in range(options.layers)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[gpus[number]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(options.batch, options.width, dtype=torch.bfloat16, device="cuda")
    losses = [step(model, data, optimizer).item() for _ in range(WARM)]
    distributed.barrier()
    if number == 0:
        print(json.dumps({"ready": True}), flush=True)
    gate.wait()
    times, end = [], time.monotonic() + options.seconds
    goes_on = torch.ones(1, device="cuda")
    while goes_on.item():
        begun = time.monotonic()
        losses.append(step(model, data, optimizer).item())
        times.append((time.monotonic() - begun) * 1e3)
        # The first rank says when it is over, so that none waits for one that has ended.
        goes_on.fill_(time.monotonic() < end)
        distributed.broadcast(goes_on, 0)
    if number == 0:
        print(json.dumps({"steps": len(times), "ms": times,
                          "losses": [loss.hex() for loss in losses[:options.compared]]}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    ranks.run(rank, ranks.parser(__doc__, layers=24, width=4096, batch=8192, compared=60).parse_args())
