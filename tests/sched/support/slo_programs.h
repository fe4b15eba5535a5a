// SPDX-License-Identifier: Apache-2.0
// Programs in virtual time that do what the shim does in real ones: obey their slots and tell of
// their iterations. Each is one queue and one server, whose speed follows the groups it is on by a
// curve of slo_world.h.
#pragma once

#include <bit>
#include <deque>
#include <memory>
#include <random>

#include "shmctl/base/clock.h"
#include "shmctl/shim/slot.h"
#include "tests/sched/support/slo_world.h"

namespace gpushare {

class SloProgram {
 public:
  SloProgram(pid_t pid, uint32_t of_tenant, const WorldTenant& work)
      : id{pid, 1}, tenant(of_tenant), work_(work), random_(static_cast<uint64_t>(pid)) {
    ShimIterations& own = slot->iterations;
    own.source = ShimSource::kAnnounced;
    own.confidence = 1000;
  }

  // Does what it would have done until then.
  void run_until(Time now) {
    const bool is_closed = (slot->gate & 1) != 0;
    // A launch is counted before it comes to the gate, where its thread stays.
    if (!is_closed || slot->stripes[0].launches == 0) ++slot->stripes[0].launches;
    if (is_closed) return;
    slot->gpus[0].applied = slot->gpus[0].wanted.load();
    if (is_stuck) return;
    arrive_until(now);
    while (!queue_.empty()) {
      const Time begin = std::max(queue_.front(), clock_);
      const Nanos service = service_time();
      if (begin + service > now) break;
      clock_ = begin + service;
      finish(clock_ - queue_.front(), service);
      queue_.pop_front();
      if (work_.arrivals < 0) queue_.push_back(clock_);
    }
  }

  uint32_t groups() const {
    const auto groups = static_cast<uint32_t>(std::popcount(slot->gpus[0].wanted.load()));
    return groups == 0 ? 15 : groups;
  }
  // Part of the time in which it works, if alone on its groups.
  double load() const {
    return work_.arrivals < 0 ? 1 : work_.arrivals * work_.full_speed * work_.shape.at(groups());
  }
  void set_arrivals(double rate) { work_.arrivals = rate; }
  void set_full_speed(double seconds) { work_.full_speed = seconds; }
  WorldTenant& work() { return work_; }
  // Mean latency since the last call; < 0: nothing ended.
  double latency() {
    const double mean = count_ == 0 ? -1 : sum_ / count_;
    sum_ = count_ = 0;
    return mean;
  }

  ProcessId id;
  uint32_t tenant;
  bool is_stuck = false;  // launches, but nothing ends
  double others = 0;      // part of the time in which others on its SMs work
  std::unique_ptr<ShimSlot> slot = std::make_unique<ShimSlot>();

 private:
  Nanos service_time() const {
    const double alone = work_.full_speed * work_.shape.at(groups());
    return Nanos(static_cast<int64_t>(alone / (1 - std::min(others, 0.95)) * 1e9));
  }
  void arrive_until(Time now) {
    if (clock_ == Time{}) clock_ = next_arrival_ = now;
    if (work_.arrivals < 0) {
      if (queue_.empty()) queue_.push_back(clock_);
      return;
    }
    std::exponential_distribution<double> gap(work_.arrivals);
    for (; next_arrival_ <= now; next_arrival_ += Nanos(static_cast<int64_t>(gap(random_) * 1e9))) {
      queue_.push_back(next_arrival_);
      ++slot->iterations.arrivals;
    }
  }
  void finish(Nanos latency, Nanos service) {
    ShimIterations& own = slot->iterations;
    ++own.sequence;
    ++own.begun;
    ++own.ended;
    own.latency_ns += static_cast<uint64_t>(latency.count());
    own.busy_ns += static_cast<uint64_t>(service.count());
    own.p99_ns = static_cast<uint64_t>(latency.count());
    ++own.sequence;
    sum_ += static_cast<double>(latency.count()) * 1e-9;
    ++count_;
  }

  WorldTenant work_;
  std::mt19937_64 random_;
  Time clock_{}, next_arrival_{};
  std::deque<Time> queue_;
  double sum_ = 0, count_ = 0;
};

}  // namespace gpushare
