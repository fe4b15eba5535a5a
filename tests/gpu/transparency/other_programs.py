# SPDX-License-Identifier: Apache-2.0
"""Small programs of other libraries whose outputs run.py compares: other_programs.py NAME. The exit status is 77 when
a library is not installed."""
import argparse
import importlib.util
import os
import sys

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            print(f"{module} is not installed")
            sys.exit(77)


def jax_training():
    needs("jax")
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        print("jax has no GPU")
        sys.exit(77)
    keys = jax.random.split(jax.random.key(1), 5)
    weights = [jax.random.normal(k, (512, 512)) / 23 for k in keys[:4]]
    data = jax.random.normal(keys[4], (256, 512))

    def loss_of(weights, data):
        x = data
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean((x - data) ** 2)

    @jax.jit
    def step(weights, data):
        loss, gradients = jax.value_and_grad(loss_of)(weights, data)
        return loss, [w - 0.1 * g for w, g in zip(weights, gradients)]

    for i in range(100):
        loss, weights = step(weights, data)
        if i % 10 == 0:
            print(i, float(loss).hex())
    print(float(jnp.fft.fft(data).real.sum()).hex(), jnp.argsort(data[0])[:16].tolist())


def triton_kernels():
    needs("triton", "torch")
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, c, size, block: tl.constexpr):
        row = tl.program_id(0) * block + tl.arange(0, block)
        column = tl.program_id(1) * block + tl.arange(0, block)
        total = tl.zeros((block, block), dtype=tl.float32)
        for k in range(0, size, block):
            inner = k + tl.arange(0, block)
            total += tl.dot(tl.load(a + row[:, None] * size + inner[None, :]),
                            tl.load(b + inner[:, None] * size + column[None, :]), input_precision="ieee")
        tl.store(c + row[:, None] * size + column[None, :], total)

    torch.manual_seed(1)
    a, b = (torch.randn(1024, 1024, device="cuda") for _ in range(2))
    for i in range(30):
        c = torch.empty_like(a)
        product[(16, 16)](a, b, c, 1024, 64)
        a = torch.tanh(c / 32)
        if i % 5 == 0:
            print(i, c.double().sum().item().hex())


def cupy_kernels():
    needs("cupy")
    import cupy

    cupy.random.seed(1)
    scale = cupy.RawKernel(r'extern "C" __global__ void scale(float* x, float by, int n) {'
                           r' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = sinf(x[i] * by); }',
                           "scale")
    x = cupy.arange(1 << 20, dtype=cupy.float32)
    for i in range(100):
        scale((4096,), (256,), (x, cupy.float32(1 + i / 100), 1 << 20))
        x = cupy.roll(x, i)
    print(float(cupy.sort(x)[::4096].astype(cupy.float64).sum()).hex(), int(cupy.argmax(x)))


def onnx_inference():
    needs("onnxruntime", "onnx", "numpy")
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        print("onnxruntime has no CUDA provider")
        sys.exit(77)
    random = numpy.random.default_rng(1)
    weights = [numpy_helper.from_array((random.standard_normal((256, 256)) / 16).astype("float32"), f"w{i}")
               for i in range(6)]
    nodes = []
    for i in range(6):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Tanh", [f"p{i}"], [f"x{i + 1}"]))
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x0", kind, [64, 256])],
                              [helper.make_tensor_value_info("x6", kind, [64, 256])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    x = random.standard_normal((64, 256)).astype("float32")
    for _ in range(200):
        x = session.run(None, {"x0": x})[0] + x
    print(float(x.astype("float64").sum()).hex())


def reduce_in_one(rank, ways, port):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ways)
    torch.manual_seed(1 + rank)
    state = torch.randn(1 << 20, device="cuda")
    for i in range(100):
        dist.all_reduce(state)
        state = torch.tanh(state / ways + 0.01 * rank)
        if i % 20 == 0 and rank == 0:
            print(i, state.double().sum().item().hex(), flush=True)
    dist.destroy_process_group()


def nccl():
    """An all-reduce between two GPUs, one process each."""
    needs("torch")
    import socket

    import torch
    import torch.multiprocessing as processes

    if torch.cuda.device_count() < 2:
        print("there is one GPU")
        sys.exit(77)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(reduce_in_one, (2, port), 2)


PROGRAMS = {f.__name__: f for f in (jax_training, triton_kernels, cupy_kernels, onnx_inference, nccl)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROGRAMS)
    PROGRAMS[parser.parse_args().name]()
