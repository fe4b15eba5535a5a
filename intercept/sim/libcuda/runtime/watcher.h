// SPDX-License-Identifier: Apache-2.0
// Watcher: does what must happen while the program makes no call: it updates the counters and reads
// the stop flags of endless kernels, runs host functions, and looks at words of memory for which a
// stream waits. It has a thread that looks every millisecond; the first such work starts it, and it
// sleeps while there is none. Any thread may call.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
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

  // A kernel that increments each of `blocks` counters after every `turn_ns` of its progress.
  struct Endless {
    uint64_t sequence = 0;
    EndlessMemory memory;
    uint64_t blocks = 0;
    uint64_t turn_ns = 1;
  };
  // Call it when the kernel is submitted, or about to be.
  void watch(const Endless& kernel);
  // Call it at the kernel's completion: its memory is not touched any more.
  void forget(uint64_t sequence);

  // Announces work that must have its effect although the program makes no call; due() follows for
  // a host function, and done() or stop_when() for anything else.
  void expect();
  // An expected host function must run now; when it has returned, the Watcher stops `gate`.
  void due(CUhostFn function, void* data, uint64_t gate);
  void done();
  // Announced work has come to its turn: `gate` is stopped as soon as `is_fulfilled`, at once or at
  // a later look. done() follows from here.
  void stop_when(std::function<bool()> is_fulfilled, uint64_t gate);

 private:
  struct HostFunction {
    CUhostFn function = nullptr;
    void* data = nullptr;
    uint64_t gate = 0;
  };
  struct Condition {
    std::function<bool()> is_fulfilled;
    uint64_t gate = 0;
  };

  void start(std::unique_lock<std::mutex>& lock);
  [[noreturn]] void run();
  void update_counters();
  void look_at_conditions();

  sim::Client& client_;
  std::mutex mutex_;  // protects the members that follow
  std::condition_variable changed_;
  bool is_running_ = false;
  std::vector<Endless> kernels_;
  std::vector<HostFunction> due_;
  std::vector<Condition> conditions_;
  uint64_t expected_ = 0;  // host functions and other announced work
};

}  // namespace gpushare::standin
