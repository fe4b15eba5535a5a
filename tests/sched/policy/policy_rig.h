// SPDX-License-Identifier: Apache-2.0
// A closed loop in virtual time: programs on a simulated GPU, its switch log through the real
// accounting into real buckets and a policy, and the plan back onto the GPU at the driver's price.
// What the agent does, less everything that can fail.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "intercept/sim/gpu/sim_gpu.h"
#include "sched/account/accounting.h"
#include "shmctl/plane/token_bucket.h"
#include "shmctl/settings/tenant_settings.h"
#include "tests/intercept/sim/programs.h"
#include "tests/sched/support/policies.h"

namespace gpushare {

// Kernels of the given lengths, one after the other, on two streams that overlap: the GPU always
// finds work. On their own, all SMs each.
class BackToBack {
 public:
  BackToBack(sim::Program& program, std::vector<Nanos> lengths)
      : program_(program), lengths_(std::move(lengths)) {
    launch(0, lengths_[0] / 2);
    launch(1, lengths_[0]);
  }

 private:
  void launch(uint32_t stream, Nanos length) {
    const uint64_t sequence = program_.kernel(length, stream);
    program_.machine.then[sequence] = [this, stream](const sim::Completion&) {
      launch(stream, lengths_[next_++ % lengths_.size()]);
    };
  }

  sim::Program& program_;
  const std::vector<Nanos> lengths_;
  size_t next_ = 0;
};

class PolicyRig {
 public:
  explicit PolicyRig(std::string_view policy = "fair")
      : gpu_(machine), policy_(test::make_policy(policy)) {}

  // A tenant of its own, with one process.
  sim::Program& add(const TenantSettings& settings) {
    const auto id = static_cast<uint32_t>(members_.size());
    Member& member = *members_.emplace_back(std::make_unique<Member>());
    member.program = std::make_unique<sim::Program>(machine_, static_cast<pid_t>(100 + id));
    member.settings = settings;
    member.came = now();
    if (settings.cap) {
      member.bucket.configure(settings.cap->quota, settings.cap->period, settings.cap->quota,
                              now());
    }
    accounting_.add(member.program->process.pid, now());
    return *member.program;
  }

  // The same, and it always has work.
  sim::Program& add_endless(const TenantSettings& settings) {
    sim::Program& program = add(settings);
    members_.back()->kernel = program.endless();
    return program;
  }

  void run_for(Nanos time) {
    const Time end = now() + time;
    while (now() < end) {
      machine.advance_to(std::min(std::max(next_, now()), end));
      if (now() >= next_) step();
    }
  }

  Time now() const { return machine.now(); }
  // From here on: shares and counts below are since the last mark().
  void mark() {
    marked_ = now();
    for (auto& member : members_) {
      member->used = Nanos::zero();
      member->freezes = 0;
      if (member->kernel != 0) member->executed = member->program->executed(member->kernel);
    }
    steps_ = slice_changes_ = 0;
  }
  // By the log, of what everybody used, in percent.
  double percent_of_used(size_t i) const {
    Nanos all{};
    for (const auto& member : members_) all += member->used;
    return 100.0 * static_cast<double>(members_[i]->used.count()) /
           static_cast<double>(all.count());
  }
  // Likewise, of the time that has passed.
  double percent_of_time(size_t i) const {
    return 100.0 * static_cast<double>(members_[i]->used.count()) /
           static_cast<double>((now() - marked_).count());
  }
  // What an add_endless() program got done, of what it gets done alone, in percent.
  double percent_of_alone(size_t i) const {
    const Nanos done = members_[i]->program->executed(members_[i]->kernel) - members_[i]->executed;
    return 100.0 * static_cast<double>(done.count()) /
           static_cast<double>((now() - marked_).count());
  }
  uint64_t freezes(size_t i) const { return members_[i]->freezes; }
  uint64_t steps() const { return steps_; }
  uint64_t slice_changes() const { return slice_changes_; }
  Micros slice(size_t i) const { return members_[i]->slice; }
  double target(size_t i) const { return members_[i]->target; }
  bool is_frozen(size_t i) const { return members_[i]->is_frozen; }
  const std::string& reason(size_t i) const { return members_[i]->reason; }
  // Most processes that were thawed with a slice of 1 us at one time.
  size_t most_best_effort() const { return most_best_effort_; }

 private:
  struct Member {
    std::unique_ptr<sim::Program> program;
    TenantSettings settings;
    TokenBucket bucket{};
    bool is_frozen = false;
    Micros slice{2048};
    double target = -1;
    std::string reason;
    Time came{};
    Nanos used{};
    uint64_t kernel = 0;  // of add_endless(); 0: none
    Nanos executed{};     // of it at the last mark()
    uint64_t freezes = 0;
  };

  void step() {
    const Time began = now();
    ++steps_;
    accounting_.consume(*gpu_.read_switches(0));
    if (began >= next_sample_) {
      accounting_.sample(*gpu_.utilisation(0), began);
      next_sample_ = began + std::chrono::milliseconds(200);
    }
    std::vector<TenantView> tenants;
    std::vector<ProcessView> processes;
    for (size_t i = 0; i < members_.size(); ++i)
      view(static_cast<uint32_t>(i), began, tenants, processes);
    GpuView gpu;
    gpu.switching = accounting_.switching();
    const Plan plan =
        policy_->plan({.now = began, .tenants = tenants, .processes = processes, .gpu = gpu});
    enforce(plan);
    const Nanos tick(plan.needs_fast_tick ? 2'000'000 : 100'000'000);
    next_ = std::min(plan.next, began + tick);
  }

  void view(uint32_t id, Time at, std::vector<TenantView>& tenants,
            std::vector<ProcessView>& processes) {
    Member& member = *members_[id];
    const pid_t pid = member.program->process.pid;
    const Accounting::Charge charge = accounting_.take_charge(pid);
    member.used += charge.net();
    TenantView& tenant = tenants.emplace_back();
    tenant.id = id;
    tenant.weight = member.settings.weight;
    tenant.priority = member.settings.priority;
    if (member.settings.cap) {
      member.bucket.refill(at);
      member.bucket.charge(charge.net());
      tenant.cap = CapView{.fraction = member.settings.cap->fraction(),
                           .period = member.settings.cap->period,
                           .burst = member.settings.cap->quota,
                           .tokens = member.bucket.tokens()};
    }
    ProcessView& process = processes.emplace_back();
    process.id = process.tenant = id;
    process.process = member.program->process;
    process.came = member.came;
    process.wants_gpu = accounting_.wants_gpu(pid, at);
    process.is_frozen = member.is_frozen;
    process.slice = member.slice;
    process.used = charge.gross();
    process.returned = charge.returned;
    process.turns = charge.turns;
  }

  void enforce(const Plan& plan) {
    for (const Decision& decision : plan.decisions) {
      Member& member = *members_[decision.process];
      member.target = decision.target;
      member.reason = decision.reason;
      if (decision.freeze != FreezeReason::kNone && !member.is_frozen) {
        (void)gpu_.freeze(0, member.program->channels());
        set_frozen(member, true);
        ++member.freezes;
      }
    }
    for (const Decision& decision : plan.decisions) {
      Member& member = *members_[decision.process];
      if (decision.slice.count() == 0 || decision.slice == member.slice) continue;
      (void)gpu_.set_slice(member.program->group(), decision.slice);
      accounting_.set_slice(member.program->process.pid, decision.slice);
      member.slice = decision.slice;
      ++slice_changes_;
    }
    for (const Decision& decision : plan.decisions) {
      Member& member = *members_[decision.process];
      if (decision.freeze != FreezeReason::kNone || !member.is_frozen) continue;
      (void)gpu_.thaw(0, member.program->channels());
      set_frozen(member, false);
    }
    const auto is_best_effort = [](const auto& member) {
      return !member->is_frozen && member->slice == Micros(1);
    };
    most_best_effort_ =
        std::max<size_t>(most_best_effort_, std::ranges::count_if(members_, is_best_effort));
  }

  void set_frozen(Member& member, bool is_frozen) {
    member.is_frozen = is_frozen;
    accounting_.set_frozen(member.program->process.pid, is_frozen, now());
  }

  sim::Machine machine_;

 public:
  sim::Model& machine = machine_.model;

 private:
  sim::SimGpu gpu_;
  Accounting accounting_{true};
  std::unique_ptr<Policy> policy_;
  std::vector<std::unique_ptr<Member>> members_;
  Time next_{}, next_sample_{}, marked_{};
  uint64_t steps_ = 0, slice_changes_ = 0;
  size_t most_best_effort_ = 0;
};

}  // namespace gpushare
