// SPDX-License-Identifier: Apache-2.0
// The shim's credit gate over a driver whose GPU is a few lists: each stream runs what it has been
// given in order, as far as events, the legacy stream's rule and words of memory allow, whenever
// the test lets it. One thread; time stands still.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "intercept/shim/credit/credits.h"
#include "shmctl/shim/credit.h"

namespace gpushare::shim {

extern constinit Process the_process;
inline const CUcontext kContext = reinterpret_cast<CUcontext>(uintptr_t{0x500});

// What a stream has been given.
struct Given {
  enum class Kind : uint8_t { kLaunch, kWait, kWrite, kRecord, kWaitForEvent };
  Kind kind;
  size_t number;         // in the order in which the driver got them
  uint32_t value = 0;    // of a wait or a write; of a launch the last wait of the process
  CUdeviceptr word = 0;  // of a wait or a write
  uint64_t cost_ns = 0;  // of a launch
  CUevent event = nullptr;
  size_t awaited = SIZE_MAX;  // of kWaitForEvent: the recording that the event had
  bool has_run = false;
};

class FakeGpu {
 public:
  struct Queue {
    bool is_blocking = false, is_capturing = false;
    std::vector<Given> given{};
    size_t next = 0;  // the first that has not run
  };

  explicit FakeGpu(ShimSlot& slot) : slot_(slot) {}
  Queue& queue(CUstream stream) { return queues_[stream]; }
  std::map<CUstream, Queue>& queues() { return queues_; }
  CUstream create(bool is_blocking);
  void give(CUstream stream, Given given);
  void record(CUevent event, CUstream stream);
  void wait_for(CUstream stream, CUevent event);
  bool has_run(CUevent event);
  // Runs what can run; returns how many launches have begun.
  // `most`: launches.
  size_t run(size_t most = SIZE_MAX);
  uint64_t run_ns() const { return run_ns_; }  // of all launches

  CUcontext current = kContext;
  CUresult answer_to_waits = CUDA_SUCCESS;
  CUresult answer_to_writes = CUDA_SUCCESS;
  bool is_pinned = false;

 private:
  bool may_run(CUstream stream, const Given& given);

  ShimSlot& slot_;
  std::map<CUstream, Queue> queues_;
  std::map<CUevent, std::pair<CUstream, size_t>> recordings_;
  size_t next_number_ = 0;
  uintptr_t next_handle_ = 0x10000;
  uint64_t run_ns_ = 0;
};

// The GPU behind memory_driver(), and what a thread does that waits on the host. One at a time.
extern std::unique_ptr<FakeGpu> the_gpu;
extern std::function<void()> on_host_wait;
extern bool is_the_agent_alive;
extern int wakes;  // of the agent
extern bool has_memory_operations, can_be_watched;
extern uint64_t now_ns;                          // moves while a thread sleeps
extern std::map<CUfunction, std::string> names;  // of functions

class CreditsTest : public testing::Test {
 protected:
  CreditsTest() { start_over(); }
  ~CreditsTest() override { on_host_wait = {}; }

  // Begins with a new process and a GPU without work.
  void start_over();
  static Credits& credits() { return *Credits::get(); }
  // In the slot that the process has.
  static uint32_t last_in(CUstream stream) { return credits().last_in(slot(), stream); }
  static void note_run(uint32_t number) { credits().note_run(slot(), number); }
  ShimCredit& credit() { return slot_->credit; }
  // As the wrapper of a launch does. What captures goes into a graph.
  void launch(CUstream stream, uint64_t cost_ns, bool is_graph = false,
              CUfunction function = nullptr);
  size_t count(CUstream stream, Given::Kind kind) const;

  std::unique_ptr<ShimSlot> slot_;
  size_t launches_ = 0;  // that were not captured
};

}  // namespace gpushare::shim
