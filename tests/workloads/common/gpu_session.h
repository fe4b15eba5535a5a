// SPDX-License-Identifier: Apache-2.0
// GpuSession: what every workload needs of CUDA: a context with the kernels of kernels.ptx.h, and
// calls that end the program with the CUDA error's name when they fail. There is one session per
// device; its context is current on the thread that made the session, which also ends it.
#pragma once

#include <cstdint>
#include <string>

#include "intercept/cuda/cuda_api.h"

namespace gpushare::workloads {

// Unless the call succeeded, ends the program with status 1 and
// "spin: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (...)" on standard error.
void check(CUresult result, const char* call);
// Ends the program with status 1 and "spin: WHAT".
[[noreturn]] void die(const std::string& what);

// The name that check() and die() print.
void set_program_name(const char* name);

// CLOCK_MONOTONIC in ns.
uint64_t now_ns();
// Sleeps until `instant`; returns at once when it is 0 or past.
void sleep_until_ns(uint64_t instant);

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  uint64_t total_threads() const { return uint64_t{blocks} * threads; }
};

class GpuSession {
 public:
  // Takes the device's primary context. `context_flags` is a CU_CTX_SCHED_...: a wait spins, for
  // low latency, or sleeps, which leaves the CPU to others.
  GpuSession(uint64_t device, unsigned context_flags);
  ~GpuSession();
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  CUdevice device() const { return device_; }
  unsigned sm_count() const { return sm_count_; }
  const std::string& device_name() const { return device_name_; }

  CUfunction kernel(const char* name) const;
  CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) const;
  CUevent new_event(unsigned flags) const;
  // Makes device memory that is filled with zeros, and freed with the context.
  CUdeviceptr new_zeroed(size_t bytes) const;
  uint32_t read_u32(CUdeviceptr from) const;

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  unsigned sm_count_ = 0;
  std::string device_name_;
};

// Launches a kernel. The parameters must have exactly the types of the kernel's.
template <class... Parameters>
CUresult try_launch(CUfunction kernel, LaunchShape shape, CUstream stream,
                    Parameters... parameters) {
  void* pointers[] = {&parameters..., nullptr};
  return cuLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, 0, stream, pointers,
                        nullptr);
}
// The same; ends the program if it fails.
template <class... Parameters>
void launch(CUfunction kernel, LaunchShape shape, CUstream stream, Parameters... parameters) {
  check(try_launch(kernel, shape, stream, parameters...), "cuLaunchKernel");
}

// A node of a graph that launches a kernel. `pointers` point to its parameters, as for
// cuLaunchKernel.
CUDA_KERNEL_NODE_PARAMS_v2 kernel_node(CUfunction kernel, LaunchShape shape, void** pointers);

}  // namespace gpushare::workloads
