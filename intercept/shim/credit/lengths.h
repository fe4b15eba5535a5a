// SPDX-License-Identifier: Apache-2.0
// How long launches take on the GPU, from a few that lie between two events. Waits are put in line
// so far apart that they cost little, and that needs the length of what comes between them.
// Kernels and graphs have a mean each. Any thread; takes no lock that it waits for.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/credit/memory_driver.h"
#include "intercept/shim/link/spin_lock.h"

namespace gpushare::shim {

class Lengths {
 public:
  enum Class : uint8_t { kKernel, kGraph, kClasses };
  // A new sample changes the mean by one of so many parts of the difference; the first ones have
  // the same weight each.
  static constexpr uint64_t kParts = 8;

  // In ns; 0: not known yet.
  uint64_t mean_ns(Class of) const { return means_[of].load(std::memory_order_relaxed); }

  // Whether there are too few samples to rest on.
  bool is_young(Class of) const { return samples_[of].load(std::memory_order_relaxed) < kParts; }

  // Begins a sample in front of a launch into `stream`, which does not capture; `context` is
  // current. False: there is one under way already, of this thread or another. If true, end()
  // follows on the same thread.
  bool begin(const MemoryDriver& driver, CUcontext context, CUstream stream, Class of);
  void end(const MemoryDriver& driver, CUstream stream);

  // The context has ended, and its events with it.
  void forget(CUcontext context);

 private:
  void collect(const MemoryDriver& driver);

  std::atomic<uint64_t> means_[kClasses];
  std::atomic<uint32_t> samples_[kClasses];  // up to kParts
  SpinLock lock_;                            // held from begin() to end(); protects what follows
  CUcontext context_;
  CUevent first_, last_;
  bool is_on_its_way_;
  Class class_;
};

}  // namespace gpushare::shim
