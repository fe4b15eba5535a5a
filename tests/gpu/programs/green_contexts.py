# SPDX-License-Identifier: Apache-2.0
"""Makes two green contexts of 8 SMs with a stream in each, and uses them, by the driver's API alone."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
SM = 1  # CU_DEV_RESOURCE_TYPE_SM
DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


def check(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        sys.exit(f"{name}: CUDA error {code}")


class Resource(ctypes.Structure):  # CUdevResource of CUDA 12.4 to 13: 144 bytes
    _fields_ = [("type", ctypes.c_uint), ("pad", ctypes.c_ubyte * 92), ("body", ctypes.c_ubyte * 48)]


check("cuInit", 0)
device = ctypes.c_int()
check("cuDeviceGet", ctypes.byref(device), 0)
context = ctypes.c_void_p()
check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
check("cuCtxSetCurrent", context)
whole, rest = Resource(), Resource()
groups = (Resource * 16)()
count = ctypes.c_uint(16)
check("cuDeviceGetDevResource", device, ctypes.byref(whole), SM)
check("cuDevSmResourceSplitByCount", groups, ctypes.byref(count), ctypes.byref(whole), ctypes.byref(rest), 0, 8)
memory = ctypes.c_ulonglong()
check("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
streams = []
for i in range(2):
    description, green, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check("cuDevResourceGenerateDesc", ctypes.byref(description), ctypes.byref(groups[i]), 1)
    check("cuGreenCtxCreate", ctypes.byref(green), description, device, DEFAULT_STREAM)
    check("cuGreenCtxStreamCreate", ctypes.byref(stream), green, NON_BLOCKING, 0)
    streams.append((green, stream))
for green, stream in streams:
    check("cuMemsetD32Async", memory, 7, ctypes.c_size_t(1 << 18), stream)
    check("cuStreamSynchronize", stream)
for green, stream in streams:
    check("cuStreamDestroy_v2", stream)
    check("cuGreenCtxDestroy", green)
print(f"{count.value} groups, 2 green contexts used")
