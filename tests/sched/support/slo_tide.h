// SPDX-License-Identifier: Apache-2.0
// Services whose load goes up and down together, and work without end beside them, on the SMs of
// one simulated GPU that the policy `slo` divides through the machinery that carries it out
// (sched/spatial/spatial.h). Every request for itself, in virtual time; deterministic.
//
// Who works on a set of SMs at the same moment shares it as kernels do: while all together have no
// more blocks than fit, none slows another; else all are slowed alike, and each kernel waits until
// one that fills the set and was there before has begun its last blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/sched/support/spatial_rig.h"

namespace gpushare {

struct TideService {
  double seconds = 0.001;  // of a request, alone on all SMs
  double serial = 0.3;     // part of that in which SMs are not what it waits for
  double width = 15;       // groups that its kernels fill
  double kernels = 20;     // of a request
  double slo = 0;          // seconds; 0: none, and it answers without end
  double rate = 0;         // requests a second, on average

  double alone(double groups) const {  // seconds of a request
    return seconds * (serial + (1 - serial) * std::max(width / groups, 1.0));
  }
};

class Tide {
 public:
  struct Answers {
    uint64_t count = 0;
    double seconds = 0;
    double mean() const { return count == 0 ? 0 : seconds / static_cast<double>(count); }
  };

  Tide(test::SpatialRig& rig, std::vector<TideService> services) : rig_(rig) {
    for (const TideService& service : services) {
      Program& program = *programs_.emplace_back(std::make_unique<Program>());
      program.work = service;
      program.random.seed(programs_.size());
      std::vector<Setting> settings;
      if (service.slo > 0)
        settings.push_back({"slo_us", std::to_string(static_cast<int64_t>(service.slo * 1e6))});
      program.tenant =
          rig_.tenants.set("f" + std::to_string(programs_.size()), settings, true).value();
      program.id = {static_cast<pid_t>(100 + programs_.size()), 1};
      program.slot->gpus[0].wanted = rig_.wish(program.tenant).gpus[0].groups;
      program.slot->iterations.source = ShimSource::kAnnounced;
      program.slot->iterations.confidence = 1000;
      if (service.slo == 0) program.queue.push_back(0);
    }
  }

  // `level`: of the rates, from now on.
  void run(double seconds, double level) {
    for (const auto& program : programs_)
      if (program->work.slo > 0) program->arrive_next(now_, level);
    for (const double end = now_ + seconds; now_ < end;) {
      until(std::min(end, now_ + kStep));
      obey();
    }
  }
  // Since the last call.
  Answers take_answers(size_t service) { return std::exchange(programs_[service]->answers, {}); }
  double slo(size_t service) const { return programs_[service]->work.slo; }
  TenantPartition partition(size_t service) const {
    return rig_.partition(programs_[service]->tenant);
  }

 private:
  static constexpr double kStep = 0.01;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Program {
    TideService work;
    uint32_t tenant = 0;
    ProcessId id{};
    std::unique_ptr<ShimSlot> slot = std::make_unique<ShimSlot>();
    std::mt19937_64 random;
    std::deque<double> queue;  // arrivals of what is not answered
    double next = kNever;      // arrival
    double level = 1;
    double left = 1;   // of the request that is worked on
    double begun = 0;  // it was
    Answers answers;

    void arrive_next(double now, double at_level) {
      level = at_level;
      next = now + std::exponential_distribution<double>(work.rate * level)(random);
    }
    uint64_t set() const { return slot->gpus[0].applied; }
    double groups(double all) const { return set() == 0 ? all : std::popcount(set()); }
  };

  static Time time_of(double seconds) {
    return Time{} + Nanos(static_cast<int64_t>((seconds + 1) * 1e9));
  }

  // How much of its request each gets done in a second.
  double speed(const Program& program) const {
    const double groups = program.groups(kGroups);
    double filled = 0, waits = 0;
    for (const auto& other : programs_) {
      if (other->queue.empty() || other->set() != program.set()) continue;
      const double part = std::min(other->work.width / groups, 1.0);
      filled += part;
      if (other.get() != &program)
        waits += part * other->work.alone(groups) / other->work.kernels / 2;
    }
    const TideService& work = program.work;
    const double alone = work.alone(groups);
    return 1 / std::max(alone * std::max(filled, 1.0), alone + waits * work.kernels);
  }

  void until(double end) {
    while (now_ < end) {
      double next = end;
      std::vector<double> speeds;
      for (const auto& program : programs_) {
        speeds.push_back(program->queue.empty() ? 0 : speed(*program));
        next = std::min(next, program->next);
        if (speeds.back() > 0) next = std::min(next, now_ + program->left / speeds.back());
      }
      for (size_t i = 0; i < programs_.size(); ++i) {
        Program& program = *programs_[i];
        program.left -= (next - now_) * speeds[i];
        if (speeds[i] > 0 && program.left <= 1e-9) answer(program, next);
        if (program.next <= next) arrive(program, next);
      }
      now_ = next;
    }
  }
  static void arrive(Program& program, double now) {
    if (program.queue.empty()) program.begun = now;
    program.queue.push_back(now);
    ++program.slot->iterations.arrivals;
    ++program.slot->iterations.begun;
    program.arrive_next(now, program.level);
  }
  static void answer(Program& program, double now) {
    const double took = now - program.queue.front();
    ++program.answers.count;
    program.answers.seconds += took;
    ShimIterations& own = program.slot->iterations;
    ++own.ended;
    program.slot->stripes[0].launches += static_cast<uint64_t>(program.work.kernels);
    own.latency_ns += static_cast<uint64_t>(took * 1e9);
    own.busy_ns += static_cast<uint64_t>((now - program.begun) * 1e9);
    own.p99_ns = static_cast<uint64_t>(took * 1e9);
    program.queue.pop_front();
    program.left = 1;
    program.begun = now;
    if (program.work.slo == 0) program.queue.push_back(now);
  }
  void obey() {
    std::vector<ShimClient> clients;
    for (const auto& program : programs_) {
      program->slot->gpus[0].applied = program->slot->gpus[0].wanted.load();
      clients.push_back({program->id, program->tenant, {0}, program->slot.get(), "serve"});
    }
    rig_.step(time_of(now_), std::move(clients));
  }

  static constexpr double kGroups = 15;

  test::SpatialRig& rig_;
  std::vector<std::unique_ptr<Program>> programs_;
  double now_ = 0;
};

}  // namespace gpushare
