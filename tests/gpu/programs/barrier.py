# SPDX-License-Identifier: Apache-2.0
"""A kernel whose blocks wait for each other: barrier.py [--blocks N] [--cooperative] [--own] [--times N]. It needs the CUDA
driver.

An SM takes two of its blocks. Without --blocks there are two for each SM that the driver says the GPU has. Where not all
of them are on the GPU at once the kernel never ends. {"ready": true} is printed first, and how many SMs the driver names;
then {"met": N} for each kernel that has ended, in N blocks, and how long it took.
"""
import argparse
import ctypes
import json
import sys
import time

PTX = rb"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry gs_barrier(.param .u64 at, .param .u32 blocks)
{
    .reg .pred %p;
    .reg .b64 %at;
    .reg .b32 %n, %all, %thread;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %p, %thread, 0;
    @%p bra done;
    ld.param.u64 %at, [at];
    ld.param.u32 %all, [blocks];
    cvta.to.global.u64 %at, %at;
    atom.global.add.u32 %n, [%at], 1;
again:
    ld.volatile.global.u32 %n, [%at];
    setp.lt.u32 %p, %n, %all;
    @%p bra again;
done:
    bar.sync 0;
    ret;
}
"""
SMS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h
THREADS = 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--cooperative", action="store_true")
    parser.add_argument("--own", action="store_true", help="in a context of its own, not the device's primary one")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        if code := getattr(driver, name)(*arguments):
            sys.exit(f"{name}: the driver says {code}")

    def made(name, kind, *arguments):
        value = kind()
        call(name, ctypes.byref(value), *arguments)
        return value

    call("cuInit", 0)
    if options.own:
        made("cuCtxCreate_v2", ctypes.c_void_p, 0, 0)
    else:
        call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", ctypes.c_void_p, 0))
    sms = made("cuDeviceGetAttribute", ctypes.c_int, SMS, 0).value
    module = made("cuModuleLoadData", ctypes.c_void_p, ctypes.c_char_p(PTX))
    kernel = made("cuModuleGetFunction", ctypes.c_void_p, module, b"gs_barrier")
    counter = made("cuMemAlloc_v2", ctypes.c_uint64, ctypes.c_size_t(4))
    stream = made("cuStreamCreate", ctypes.c_void_p, 1)
    blocks = options.blocks or 2 * sms
    print(json.dumps({"ready": True, "sms": sms, "blocks": blocks}), flush=True)
    sys.stdin.readline()
    launch = driver.cuLaunchCooperativeKernel if options.cooperative else driver.cuLaunchKernel
    number = ctypes.c_uint32(blocks)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(counter), ctypes.addressof(number))
    for _ in range(options.times):
        call("cuMemsetD32_v2", counter, 0, ctypes.c_size_t(1))
        began = time.monotonic()
        rest = () if options.cooperative else (None,)
        code = launch(kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, *rest)
        if code:
            sys.exit(f"the launch: the driver says {code}")
        call("cuStreamSynchronize", stream)
        print(json.dumps({"met": blocks, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
