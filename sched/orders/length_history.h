// SPDX-License-Identifier: Apache-2.0
// LengthHistory: the GPU time of jobs that have finished on this machine, of all of them and by
// command line. Policies and views read it; whoever sees a job end writes it; what keeps it on disk
// is sched/orders/../policies. One thread, the agent's.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "sched/orders/length_mix.h"

namespace gpushare {

class LengthHistory {
 public:
  static constexpr size_t kMost = 512;  // the newest

  struct Finished {
    std::string command;  // command_signature(); empty: unknown
    Nanos length{};       // above 0

    bool operator==(const Finished&) const = default;
  };

  // A job has ended by itself, after so much GPU time. One that had none is forgotten.
  void add(std::string_view command, Nanos length);
  // The median of the lengths of this command; none: it has not finished yet.
  std::optional<Nanos> median(std::string_view command) const;
  const LengthMix& mix() const { return mix_; }

  // The oldest first.
  const std::deque<Finished>& all() const { return finished_; }
  // Rises with each add().
  uint64_t generation() const { return generation_; }

 private:
  std::deque<Finished> finished_;
  LengthMix mix_;
  uint64_t generation_ = 0;
};

}  // namespace gpushare
