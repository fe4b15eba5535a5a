#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A graph with a conditional node (IF) whose body is captured: conditional.py captured|built.

"captured": the node is added to a graph while a stream captures it; "built": to a graph that is built by hand.
The driver wants the node, its handle and the kernels of the body in one context, and the program names its
primary one. Ends with status 0 and a line of JSON if each call succeeded and the sum is right. It needs a driver
of CUDA 12.4 or later and no package of Python.
"""
import ctypes
import json
import sys

POINTER, U32, U64, SIZE = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
RELAXED, NON_BLOCKING, ASSIGN_DEFAULT, CONDITIONAL, REPLACE = 2, 1, 1, 13, 1
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 to, .param .u32 value) {
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u64 %a, [to];
  ld.param.u32 %v, [value];
  red.global.add.u32 [%a], %v;
  ret;
}
"""


class Condition(ctypes.Structure):
    _fields_ = [("handle", U64), ("kind", U32), ("size", U32), ("graphs", ctypes.POINTER(POINTER)), ("context", POINTER)]


class NodeParameters(ctypes.Structure):
    _fields_ = [("type", U32), ("reserved", U32 * 3), ("condition", Condition),
                ("rest", ctypes.c_char * (256 - 16 - ctypes.sizeof(Condition)))]


cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f"conditional.py: {name}: {result}")


def made(name, kind, *arguments):
    """What a call writes into its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *arguments)
    return value


def main():
    if sys.argv[1:] not in (["captured"], ["built"]):
        sys.exit(__doc__)
    is_captured = sys.argv[1] == "captured"
    call("cuInit", 0)
    context = made("cuDevicePrimaryCtxRetain", POINTER, 0)
    call("cuCtxSetCurrent", context)
    module = made("cuModuleLoadData", POINTER, PTX)
    kernel = made("cuModuleGetFunction", POINTER, module, b"add")
    to = made("cuMemAlloc_v2", U64, SIZE(4))
    call("cuMemsetD32_v2", to, 0, SIZE(1))
    stream, of_body = (made("cuStreamCreate", POINTER, NON_BLOCKING) for _ in range(2))

    def launch(there, value):
        number = U32(value)
        pointers = (POINTER * 2)(ctypes.addressof(to), ctypes.addressof(number))
        call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, there, pointers, None)

    launch(stream, 0)
    call("cuStreamSynchronize", stream)
    graph, before, count = POINTER(), POINTER(), SIZE(0)
    if is_captured:
        call("cuStreamBeginCapture_v2", stream, RELAXED)
        launch(stream, 1)
        status, number = U32(), U64()
        call("cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph),
             ctypes.byref(before), ctypes.byref(count))
    else:
        graph = made("cuGraphCreate", POINTER, 0)
    handle = made("cuGraphConditionalHandleCreate", U64, graph, context, 1, ASSIGN_DEFAULT)
    parameters = NodeParameters(type=CONDITIONAL, condition=Condition(handle.value, 0, 1, None, context))
    node = made("cuGraphAddNode_v2", POINTER, graph, before if count.value else None, None, count,
                ctypes.byref(parameters))
    if parameters.condition.context != context.value:
        sys.exit("conditional.py: its parameters were changed")
    if is_captured:
        call("cuStreamUpdateCaptureDependencies_v2", stream, (POINTER * 1)(node.value), None, SIZE(1), REPLACE)
    call("cuStreamBeginCaptureToGraph", of_body, POINTER(parameters.condition.graphs[0]), None, None, SIZE(0), RELAXED)
    launch(of_body, 100)
    call("cuStreamEndCapture", of_body, ctypes.byref(POINTER()))
    if is_captured:
        call("cuStreamEndCapture", stream, ctypes.byref(graph))
    launches = made("cuGraphInstantiateWithFlags", POINTER, graph, U64(0))
    for _ in range(3):
        call("cuGraphLaunch", launches, stream)
    call("cuStreamSynchronize", stream)
    found = U32()
    call("cuMemcpyDtoH_v2", ctypes.byref(found), to, SIZE(4))
    due = 3 * (101 if is_captured else 100)
    print(json.dumps({"way": sys.argv[1], "sum": found.value, "due": due, "verified": found.value == due}))
    return 0 if found.value == due else 1


if __name__ == "__main__":
    sys.exit(main())
