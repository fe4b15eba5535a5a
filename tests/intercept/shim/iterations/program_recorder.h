// SPDX-License-Identifier: Apache-2.0
// Writes down what a modelled program does, and when. Time is the host's: each launch takes some
// microseconds, and a wait lasts until the GPU has caught up. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {

inline constexpr uint64_t kMain = 7;  // the handle of the stream that does the work

class Recorder {
 public:
  explicit Recorder(uint64_t seed) : random_(seed), salt_(random_()) {}

  // A kernel; `function` is a small number, of this program. About 30 ns of GPU time per block.
  void launch(uint32_t function, uint32_t blocks, uint64_t stream = kMain) {
    if (beside_ && stream == kMain && one_in(beside_every_)) beside_();
    now_ns_ += 4000 + below(2000);
    gpu_ns_ = std::max(gpu_ns_, now_ns_) + 2000 + 30ULL * blocks;
    add({.kind = ProgramEvent::Kind::kLaunch,
         .blocks = blocks,
         .function = address(function),
         .stream = stream});
  }
  void graph(uint32_t number, uint64_t gpu_ns, uint64_t stream = kMain) {
    now_ns_ += 8000 + below(2000);
    gpu_ns_ = std::max(gpu_ns_, now_ns_) + gpu_ns;
    add({.kind = ProgramEvent::Kind::kGraph, .function = address(number), .stream = stream});
  }
  void to_gpu(uint64_t bytes, uint64_t stream = kMain) {
    now_ns_ += 3000;
    add({.kind = ProgramEvent::Kind::kToGpu, .bytes = bytes, .stream = stream});
  }
  // As Tensor.item(): a copy, and a wait for it.
  void item(uint64_t bytes = 4, uint64_t stream = kMain) {
    now_ns_ += 3000;
    add({.kind = ProgramEvent::Kind::kFromGpu, .bytes = bytes, .stream = stream});
    wait(stream);
  }
  void wait(uint64_t stream = kMain) {
    now_ns_ = std::max(now_ns_ + 2000, gpu_ns_);
    add({.kind = ProgramEvent::Kind::kWait, .stream = stream});
  }
  void think(uint64_t ns) { now_ns_ += ns; }
  // The next launch on that stream is the first of an iteration.
  void iteration(uint64_t stream = kMain, Phase phase = Phase::kUnknown) {
    pending_[stream] = phase;
  }

  // What another thread of the program does at any moment: before one launch in `every`.
  void beside(uint32_t every, std::function<void()> what) {
    beside_every_ = every;
    beside_ = std::move(what);
  }

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  std::vector<ProgramEvent> take() { return std::move(events_); }
  size_t size() const { return events_.size(); }

 private:
  uint64_t address(uint32_t function) const {
    return 0x7F0000000000ULL + (salt_ % 0xFFFFF) * 4096 + function * 0x140ULL;
  }
  void add(ProgramEvent event) {
    event.at_ns = now_ns_;
    const bool is_launch =
        event.kind == ProgramEvent::Kind::kLaunch || event.kind == ProgramEvent::Kind::kGraph;
    if (const auto found = pending_.find(event.stream); is_launch && found != pending_.end()) {
      event.begins = true;
      event.phase = found->second;
      pending_.erase(found);
    }
    events_.push_back(event);
  }

  std::mt19937_64 random_;
  uint64_t salt_;
  uint64_t now_ns_ = 1'000'000'000, gpu_ns_ = 0;
  uint32_t beside_every_ = 0;
  std::function<void()> beside_;
  std::map<uint64_t, Phase> pending_;
  std::vector<ProgramEvent> events_;
};

}  // namespace gpushare::shim
