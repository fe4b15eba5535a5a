// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/gpu_session.h"

#include <fmt/core.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "tests/workloads/common/kernels.ptx.h"

namespace gpushare::workloads {
namespace {

const char* program_name = "workload";
constexpr uint64_t kNsPerSecond = 1'000'000'000;

}  // namespace

void set_program_name(const char* name) { program_name = name; }

void die(const std::string& what) {
  fmt::print(stderr, "{}: {}\n", program_name, what);
  std::exit(1);
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  die(fmt::format("{}: {} ({})", call, name != nullptr ? name : std::to_string(result).c_str(),
                  text != nullptr ? text : "no description"));
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_until_ns(uint64_t instant) {
  const timespec until{static_cast<time_t>(instant / kNsPerSecond),
                       static_cast<long>(instant % kNsPerSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

GpuSession::GpuSession(uint64_t device, unsigned context_flags) {
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device_, static_cast<int>(device)), "cuDeviceGet");
  int count = 0;
  check(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
        "cuDeviceGetAttribute");
  sm_count_ = static_cast<unsigned>(count);
  char name[128] = {};
  check(cuDeviceGetName(name, sizeof name, device_), "cuDeviceGetName");
  device_name_ = name;
  check(cuDevicePrimaryCtxSetFlags_v2(device_, context_flags), "cuDevicePrimaryCtxSetFlags_v2");
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  check(cuModuleLoadData(&module_, kKernels), "cuModuleLoadData");
}

GpuSession::~GpuSession() {
  check(cuModuleUnload(module_), "cuModuleUnload");
  check(cuDevicePrimaryCtxRelease_v2(device_), "cuDevicePrimaryCtxRelease_v2");
}

CUfunction GpuSession::kernel(const char* name) const {
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
  return function;
}

CUstream GpuSession::new_stream(unsigned flags) const {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, flags), "cuStreamCreate");
  return stream;
}

CUevent GpuSession::new_event(unsigned flags) const {
  CUevent event = nullptr;
  check(cuEventCreate(&event, flags), "cuEventCreate");
  return event;
}

CUdeviceptr GpuSession::new_zeroed(size_t bytes) const {
  CUdeviceptr pointer = 0;
  check(cuMemAlloc_v2(&pointer, bytes), "cuMemAlloc_v2");
  check(cuMemsetD8_v2(pointer, 0, bytes), "cuMemsetD8_v2");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  return pointer;
}

uint32_t GpuSession::read_u32(CUdeviceptr from) const {
  uint32_t value = 0;
  check(cuMemcpyDtoH_v2(&value, from, sizeof value), "cuMemcpyDtoH_v2");
  return value;
}

CUDA_KERNEL_NODE_PARAMS_v2 kernel_node(CUfunction kernel, LaunchShape shape, void** pointers) {
  CUDA_KERNEL_NODE_PARAMS_v2 node{};
  node.func = kernel;
  node.gridDimX = shape.blocks, node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = shape.threads, node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = pointers;
  return node;
}

}  // namespace gpushare::workloads
