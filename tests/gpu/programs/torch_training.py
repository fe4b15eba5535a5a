# SPDX-License-Identifier: Apache-2.0
"""Makes some training steps on streams of two priorities, then the same steps in a CUDA graph."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
data = torch.randn(512, 256, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=False)
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    return loss


for priority in (0, -1):
    stream = torch.cuda.Stream(priority=priority)
    with torch.cuda.stream(stream):
        for _ in range(5):
            loss = step()
    torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(5):
    graph.replay()
torch.cuda.synchronize()
print(f"loss {loss.item():.4f}")
