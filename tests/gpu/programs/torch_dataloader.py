# SPDX-License-Identifier: Apache-2.0
"""Trains without an end, fed by DataLoader workers that are forked from a process with a CUDA context, and so hold its
descriptors of the driver. Prints {"ready": true} once the workers run and steps are made."""
import json

import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return torch.full((256,), float(index % 97))


torch.manual_seed(0)
weight = torch.randn(8192, 8192, device="cuda")
torch.cuda.synchronize()  # the context is there before the workers are
loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=3, pin_memory=True)
for step, batch in enumerate(loader):
    shift = batch.cuda(non_blocking=True).mean()
    for _ in range(8):
        weight = torch.tanh(weight @ weight / 8192 + shift / 100)
    if step == 10:
        torch.cuda.synchronize()
        print(json.dumps({"ready": True}), flush=True)
    if step % 4 == 0:
        torch.cuda.synchronize()
