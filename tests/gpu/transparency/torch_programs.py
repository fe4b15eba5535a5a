# SPDX-License-Identifier: Apache-2.0
"""Small PyTorch programs whose outputs run.py compares: torch_programs.py NAME

Every kernel of a program bears on the numbers that it prints. Weights and data are random with a fixed seed, the
algorithms are deterministic, and losses are printed to the last bit.
"""
import argparse
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn
from torch.nn import functional

device = torch.device("cuda")


def digest(tensor):
    """A hash of all bits of a tensor, of any type and layout."""
    import hashlib
    flat = tensor.detach().contiguous().cpu().flatten().view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def train(model, batch_of, loss_of, steps, rate=0.01):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch_of())
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print(digest(torch.cat([p.flatten() for p in model.parameters()])))


def resnet50():
    import torchvision
    model = torchvision.models.resnet50(weights=None).to(device)

    def batch():
        images = torch.randn(16, 3, 160, 160).pin_memory().to(device, non_blocking=True)
        return images, torch.randint(0, 1000, (16,)).to(device)

    train(model, batch, lambda m, b: functional.cross_entropy(m(b[0]), b[1]), 15)


def encoder(layers=6, width=512):
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True), layers,
        enable_nested_tensor=False)


def transformer():
    """Training in mixed precision, with dropout and a scaler that looks whether gradients overflowed."""
    model = nn.Sequential(nn.Embedding(8192, 512), encoder(), nn.Linear(512, 8192)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(15):
        words = torch.randint(0, 8192, (8, 128), device=device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16), \
                nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            loss = functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(step, loss.item().hex())


class LowRank(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def lora():
    body = nn.Sequential(*[LowRank(nn.Linear(1024, 1024)) for _ in range(12)]).to(device)
    train(body, lambda: torch.randn(64, 1024, device=device), lambda m, b: (m(b) - b).square().mean(), 60)


def decode():
    """A decoder with a key-value cache that answers eight requests: a prompt, then a token at a time."""
    import transformers
    configuration = transformers.GPT2Config(n_layer=8, n_embd=512, n_head=8, vocab_size=8192)
    model = transformers.GPT2LMHeadModel(configuration).to(device).eval()
    for request in range(8):
        prompt = torch.randint(0, 8192, (1, 32 + 16 * request), device=device)
        with torch.no_grad():
            answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                    max_new_tokens=24, pad_token_id=0)
        print(request, answer[0, -24:].tolist())


def cublas():
    for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for rows, inner, columns in ((64, 4096, 4096), (1000, 1000, 1000), (4096, 2048, 4096), (1, 8192, 8192)):
            a = torch.randn(rows, inner, device=device).to(kind)
            b = torch.randn(inner, columns, device=device).to(kind)
            print(kind, rows, inner, columns, digest(a @ b))
    batch = torch.randn(64, 128, 128, device=device)
    print(digest(torch.bmm(batch, batch)), digest(torch.linalg.solve(batch, batch)))


def cudnn():
    for channels, size, stride in ((64, 56, 1), (128, 28, 2), (256, 14, 1)):
        x = torch.randn(16, channels, size, size, device=device, requires_grad=True)
        layers = nn.Sequential(nn.Conv2d(channels, channels, 3, stride, 1), nn.BatchNorm2d(channels), nn.ReLU(),
                               nn.Conv2d(channels, channels, 1), nn.MaxPool2d(2)).to(device)
        y = layers(x)
        y.square().mean().backward()
        print(digest(y), digest(x.grad))
    lstm = nn.LSTM(128, 256, 2).to(device)
    y, _ = lstm(torch.randn(50, 16, 128, device=device))
    y.mean().backward()
    print(digest(y), digest(lstm.weight_hh_l0.grad))


def cufft():
    for shape in ((1 << 20,), (1024, 1024), (128, 128, 128), (1000, 999)):
        x = torch.randn(*shape, dtype=torch.complex64, device=device)
        y = torch.fft.fftn(x)
        print(shape, digest(torch.view_as_real(y)), digest(torch.view_as_real(torch.fft.ifftn(y))))


def graphs():
    """A captured training step that is replayed on new inputs, with steps without a graph in between."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    data = torch.randn(256, 512, device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(warm)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = step()
    for i in range(200):
        data.copy_(torch.randn(256, 512), non_blocking=True)
        captured.replay()
        if i % 20 == 0:
            print(i, loss.item().hex(), step().item().hex())


def replays():
    """What a graph has copied to pinned memory is read after a wait for all of the GPU's work, and its memory freed."""
    weight = torch.randn(1024, 1024, device=device) / 32
    state, host = torch.randn(1024, 1024, device=device), torch.empty(1024, 1024, pin_memory=True)
    captured = torch.cuda.CUDAGraph()
    torch.tanh(state @ weight)  # makes what the library needs
    with torch.cuda.graph(captured):
        now = state
        for _ in range(20):
            now = torch.tanh(now @ weight)
        state.copy_(now)
        host.copy_(now, non_blocking=True)
    for i in range(300):
        spare = torch.full((1 << 20,), float(i), device=device)
        captured.replay()
        torch.cuda.synchronize()
        seen = digest(host)
        if i % 10 == 0:
            print(i, seen, digest(spare))
        captured.replay()
        del spare
        torch.cuda.empty_cache()


def streams():
    """Work on streams of both priorities at once, which wait for each other by events."""
    ways = [torch.cuda.Stream(priority=-(i % 2)) for i in range(6)]
    state = [torch.randn(256, 256, device=device) / 16 for _ in ways]
    torch.cuda.synchronize()
    events = [torch.cuda.Event() for _ in ways]
    for turn in range(300):
        before = list(state)
        for i, way in enumerate(ways):
            with torch.cuda.stream(way):
                other = (i + turn) % len(ways)
                if turn > 0:
                    way.wait_event(events[other])
                copy = before[other].clone()
                copy.record_stream(way)
                state[i] = torch.tanh(state[i] @ copy + 0.01)
                state[i].record_stream(way)
        for i, way in enumerate(ways):
            events[i].record(way)
        if turn % 50 == 49:
            torch.cuda.synchronize()
            print(turn, [digest(s) for s in state])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((256,), float(index)).sin()


def dataloader():
    """Data that is loaded by processes which were forked from one with a CUDA context."""
    weight = torch.randn(256, 256, device=device) / 16
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=4, pin_memory=True)
    for epoch in range(2):
        for batch in loader:
            weight = torch.tanh(weight + batch.to(device, non_blocking=True).mean(0) / 100)
        print(epoch, digest(weight))


def allocate():
    """Memory of the GPU, and pinned memory, that is allocated and freed while copies are on their way."""
    kept = []
    for i in range(64):
        kept.append(torch.full((1 << (12 + i % 12),), float(i), device=device))
        if i % 3 == 2:
            del kept[0]
            torch.cuda.empty_cache()
        host = torch.empty(1 << 12, pin_memory=True)
        host.copy_(kept[-1][: 1 << 12], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        print(i, float(host.sum()))


PROGRAMS = {f.__name__: f for f in (resnet50, transformer, lora, decode, cublas, cudnn, cufft, graphs, replays,
                                    streams, dataloader, allocate)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    name = parser.parse_args().name
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    PROGRAMS[name]()
    torch.cuda.synchronize()
