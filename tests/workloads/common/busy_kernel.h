// SPDX-License-Identifier: Apache-2.0
// BusyKernel: runs the kernel gs_spin, which does a given number of work units on the whole GPU and
// whose result shows that each was done exactly once. The length of a unit is measured at the
// start, while other programs may run: it is the smallest of many short samples, because sharing
// only makes a sample longer. The thread of the GpuSession calls.
#pragma once

#include <cstdint>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/gpu_session.h"

namespace gpushare::workloads {

class BusyKernel {
 public:
  // Launches blocks of 256 threads, `blocks_per_sm` on each SM.
  BusyKernel(const GpuSession& session, unsigned blocks_per_sm);

  // Measures ns_per_unit() on `stream`, in about 50 ms of GPU time, and resets the checksums.
  double calibrate(CUstream stream);
  void set_ns_per_unit(double ns) { ns_per_unit_ = ns; }
  // As an option of that name says: 0: it is measured.
  void use_ns_per_unit(double ns, CUstream stream) {
    if (ns > 0)
      set_ns_per_unit(ns);
    else
      calibrate(stream);
  }
  double ns_per_unit() const { return ns_per_unit_; }

  // How many units take `us`; at least 1. Requires calibrate() or set_ns_per_unit() before.
  uint32_t units_for_us(double us) const;
  // Queues a kernel whose sum of start values goes to the accumulator.
  void submit(CUstream stream, uint32_t seed, uint32_t units);

  LaunchShape shape() const { return shape_; }
  // The sum modulo 2^32 over all kernels that were submitted: what the GPU has added up (this waits
  // for the GPU's work), and what it must be. They depend on the seeds only, not on the lengths.
  uint32_t checksum() const;
  uint32_t expected_checksum() const { return expected_; }

 private:
  double sample_ns(CUstream stream, uint32_t units, CUevent start, CUevent end);

  const GpuSession& session_;
  const LaunchShape shape_;
  const CUfunction kernel_;
  const CUdeviceptr sum_;
  double ns_per_unit_ = 0;
  uint32_t expected_ = 0;
};

}  // namespace gpushare::workloads
