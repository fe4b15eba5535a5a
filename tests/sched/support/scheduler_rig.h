// SPDX-License-Identifier: Apache-2.0
// The whole agent less its event loop, on a simulated machine in virtual time.
#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "intercept/sim/gpu/sim_gpu.h"
#include "sched/step/scheduler.h"
#include "tests/intercept/sim/programs.h"
#include "tests/sched/support/fake_proc_reader.h"
#include "tests/sched/support/policies.h"

namespace gpushare::test {

inline constexpr double kPoint = 0.01;  // one percent of a GPU, for comparing shares

// A scheduler and what it stands on, but for the machine.
class SchedulerParts {
 public:
  void start(Gpu& gpu, Observer* observer, const Clock& clock,
             const Config& config = Config(every_policy())) {
    start(gpu, observer, clock, processes, config);
  }
  void start(Gpu& gpu, Observer* observer, const Clock& clock, const ProcReader& reader,
             const Config& config = Config(every_policy())) {
    Surroundings around{gpu, observer, *region, reader, clock, tenants, shims, mps};
    around.lengths = lengths;
    around.make_line = make_line;
    scheduler = std::make_unique<Scheduler>(around, AgentIdentity{}, config);
  }
  // The agent died; whatever it did stays done.
  void kill() { scheduler.reset(); }

  std::unique_ptr<Region> region = std::make_unique<Region>();
  FakeProcReader processes;
  Tenants tenants;
  // Of the surroundings of the next start().
  ShimProcesses* shims = nullptr;
  const MpsServers* mps = nullptr;
  LengthHistory* lengths = nullptr;
  MakeDriverLine make_line = driver_lines(DriverCalls::kInStep);
  std::unique_ptr<Scheduler> scheduler;  // last: it uses all of the above
};

// On a fake driver, whose clock the test moves.
class FakeSchedulerRig : public SchedulerParts {
 public:
  FakeSchedulerRig() { clock.advance(std::chrono::seconds(1)); }  // no time is zero
  ~FakeSchedulerRig() { kill(); }                                 // before the clock
  void start(Gpu& gpu) { SchedulerParts::start(gpu, nullptr, clock); }
  void run_for(Nanos time, Nanos tick = std::chrono::milliseconds(100)) {
    for (const Time until = clock.now() + time; clock.now() < until; clock.advance(tick))
      scheduler->step();
  }
  ManualClock clock;
};

class SchedulerRig : public SchedulerParts {
 public:
  explicit SchedulerRig(uint32_t gpus = 1)
      : machine(gpus), gpu(machine.model), observer(machine.model), clock(machine.model) {
    machine.run_for(std::chrono::seconds(1));  // no time is zero
  }
  ~SchedulerRig() { kill(); }  // before the machine

  // `config`: as in the file. `shims` and `mps` of the surroundings as set before.
  void start(bool with_observer = true, std::string_view config = "") {
    SchedulerParts::start(gpu, with_observer ? &observer : nullptr, clock,
                          parse_config(config, "gpushare.toml", policies).value());
    is_observed_ = with_observer;
    next_ = machine.model.now();
  }

  // A program of a tenant.
  sim::Program& add(const std::string& tenant, std::vector<Setting> settings, uint32_t on = 0) {
    auto program = std::make_unique<sim::Program>(machine, next_pid_++, on);
    (void)tenants.set(tenant, settings, /*create=*/true).value();
    (void)tenants.attach(program->process, tenant).value();
    programs.push_back(std::move(program));
    work.push_back(0);
    return *programs.back();
  }
  // One that always has work.
  sim::Program& add_busy(const std::string& tenant, std::vector<Setting> settings,
                         uint32_t on = 0) {
    sim::Program& program = add(tenant, std::move(settings), on);
    work.back() = program.endless();
    return program;
  }

  // Starts the agent with a busy program for each tenant and its settings, and lets them run.
  void run_busy(const std::vector<std::pair<std::string, std::vector<Setting>>>& busy, Nanos time) {
    start();
    for (const auto& [tenant, settings] : busy) add_busy(tenant, settings);
    run_for(time);
  }

  void run_for(Nanos time) {
    const Time end = machine.model.now() + time;
    while (machine.model.now() < end) {
      const Time now = machine.model.now();
      machine.model.advance_to(std::min(end, now + std::chrono::milliseconds(1)));
      if (!scheduler) continue;
      pollfd events{.fd = observer.fd(), .events = POLLIN, .revents = 0};
      if (machine.model.now() >= next_ || (is_observed_ && ::poll(&events, 1, 0) > 0)) step();
    }
  }
  void step() {
    // As the event loop: never closer than 1 ms.
    const Time began = machine.model.now();
    ++steps;
    next_ = std::max(scheduler->step(), began + std::chrono::milliseconds(1));
  }

  // What each busy program got done in the next `time`, as a part of it.
  std::vector<double> measure(Nanos time) {
    const auto executed = [&] {
      std::vector<Nanos> list;
      for (std::size_t i = 0; i < programs.size(); ++i)
        list.push_back(work[i] == 0 ? Nanos{} : programs[i]->executed(work[i]));
      return list;
    };
    std::vector<Nanos> before = executed();
    run_for(time);
    const std::vector<Nanos> after = executed();
    before.resize(after.size());  // of one that came meanwhile all counts
    std::vector<double> shares;
    for (std::size_t i = 0; i < programs.size(); ++i)
      shares.push_back(std::chrono::duration<double>(after[i] - before[i]) / time);
    return shares;
  }

  ProcessRecord record(const sim::Program& program, uint32_t on = 0) {
    for (const ProcessSlot& slot : region->processes) {
      const auto found = read_record(slot.record);
      if (found && found->pid == program.process.pid && found->gpu == on) return *found;
    }
    return {};
  }
  TenantRecord tenant(std::string_view name) {
    return read_record(region->tenants[tenants.find(name).value()].record).value();
  }
  std::size_t records() {
    return static_cast<std::size_t>(std::ranges::count_if(
        region->processes, [](const auto& slot) { return read_record(slot.record)->pid != 0; }));
  }
  std::size_t ledger_entries() {
    std::size_t n = 0;
    for_each_entry(*region, [&](uint32_t, const LedgerRecord&) { ++n; });
    return n;
  }

  sim::Machine machine;
  sim::SimGpu gpu;
  sim::ModelObserver observer;
  sim::ModelClock clock;
  std::vector<PolicyEntry> policies = every_policy();  // that a configuration may name
  std::vector<std::unique_ptr<sim::Program>> programs;
  std::vector<uint64_t> work;  // of programs: the endless kernel, 0 none
  uint64_t steps = 0;

 private:
  Time next_{};
  bool is_observed_ = false;
  pid_t next_pid_ = 100;
};

}  // namespace gpushare::test
