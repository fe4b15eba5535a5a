// SPDX-License-Identifier: Apache-2.0
// Keeps going what must go on while the program makes no call: the counters and stop flags of
// endless kernels in memory, and host functions in streams. A thread that looks every millisecond,
// started by the first such work, asleep while there is none.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "intercept/cuda/cuda_api.h"
#include "intercept/sim/libcuda/memory/kernels.h"
#include "intercept/sim/wire/client.h"

namespace gpushare::standin {

class Watcher {
 public:
  explicit Watcher(sim::Client& client) : client_(client) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // A kernel that counts a turn in each of `blocks` counters every `turn_ns` of its progress.
  struct Endless {
    uint64_t sequence = 0;
    EndlessMemory memory;
    uint64_t blocks = 0;
    uint64_t turn_ns = 1;
  };
  // REQUIRES: it is submitted, or about to be.
  void watch(const Endless& kernel);
  // From the completion on: its memory is not touched any more.
  void forget(uint64_t sequence);

  // A host function whose turn is announced by due(), and which ends with the stop of `gate`.
  void expect_host_function();
  void due(CUhostFn function, void* data, uint64_t gate);

 private:
  struct HostFunction {
    CUhostFn function = nullptr;
    void* data = nullptr;
    uint64_t gate = 0;
  };

  void start(std::unique_lock<std::mutex>& lock);
  [[noreturn]] void run();
  void update_counters();

  sim::Client& client_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  bool is_running_ = false;
  std::vector<Endless> kernels_;
  std::vector<HostFunction> due_;
  uint64_t expected_functions_ = 0;
};

}  // namespace gpushare::standin
