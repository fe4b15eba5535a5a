# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel that Triton has compiled."""
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


x = torch.arange(10_000, device="cuda", dtype=torch.float32)
out = torch.empty_like(x)
add[(10,)](x, x, out, x.numel(), BLOCK=1024)
assert torch.equal(out, 2 * x)
print("equal")
