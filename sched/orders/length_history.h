// SPDX-License-Identifier: Apache-2.0
// LengthHistory: the GPU time of jobs that have finished on this machine, of all of them and by
// command line. Policies and views read it; the scheduler, which sees jobs end, writes it; what
// keeps it on disk is sched/policies/length_store. One thread, the agent's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sched/orders/length_mix.h"

namespace gpushare {

class LengthHistory {
 public:
  // Of more the oldest goes if it is kOld, and otherwise the oldest of the user who has most of
  // them, so that nobody's many short jobs drive out what is known of another one's. A user that is
  // not known counts as one.
  static constexpr size_t kMost = 512;
  static constexpr Nanos kOld = std::chrono::hours(24) * 30;  // than the newest
  // Of each command only so many of the newest count: it may do more, or less, than last year.
  static constexpr size_t kMostOfCommand = 31;

  struct Finished {
    std::string command{};  // command_signature(); empty: unknown
    Nanos length{};         // above 0
    // For people, and for the replay of these jobs.
    std::string name{};
    Nanos arrived{};  // since 1970
    uint64_t iterations = 0;
    uint64_t memory_bytes = 0;
    uint32_t gpus = 1;
    std::optional<uint32_t> user{};  // who ran it

    bool operator==(const Finished&) const = default;
  };

  // A job has ended by itself. One that had no GPU time is forgotten.
  void add(Finished job);
  void add(std::string_view command, Nanos length) {
    add({.command = std::string(command), .length = length});
  }
  // The median of the lengths of this command; none: it has not finished yet.
  std::optional<Nanos> median(std::string_view command) const;
  const LengthMix& mix() const { return mix_; }

  // The oldest first.
  const std::deque<Finished>& all() const { return finished_; }
  // Rises with each add().
  uint64_t generation() const { return generation_; }

 private:
  void count_median(const std::string& command);
  void forget_one();

  std::deque<Finished> finished_;
  std::map<std::string, Nanos, std::less<>> medians_;  // by command
  std::map<std::optional<uint32_t>, size_t> counts_;   // by user
  LengthMix mix_;
  uint64_t generation_ = 0;
};

}  // namespace gpushare
