// SPDX-License-Identifier: Apache-2.0
// Agents that die at random while GPUs hang, refuse and answer late, with calls of the driver that
// come back after the next agent has started. The supervisor's undoing, the opening of GPUs and
// what is left to the next agent are the real ones; an agent is its GPUs and its enforcer, whose
// calls are made in virtual time (queued_line.h).
//
// Always: what is frozen is listed; nobody asks a GPU's driver while a call of another is under
// way there; no GPU is asked for what another one has. In the end, when all GPUs answer: each is
// open, and what is to be frozen is, once, and nothing else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sched/daemon/gpus/joining_gpus.h"
#include "sched/daemon/gpus/predecessors.h"
#include "sched/daemon/undoing.h"
#include "sched/enforce/enforcer.h"
#include "sched/registry/registry.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/program/wait.h"
#include "tests/sched/enforce/connection.h"
#include "tests/sched/enforce/queued_line.h"
#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"
#include "tests/support/membership.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGpus = 3, kPrograms = 6;
constexpr Micros kOwnSlice{2048};

struct Program {
  ProcessId process;
  uint32_t gpu = 0;
  test::Handles handles{};
  bool is_to_be_frozen = false;

  LedgerKey key() const {
    return {process.pid, process.start_ticks, gpu, handles.client, handles.group};
  }
};

Program program(uint32_t number) {
  const uint32_t gpu = number % kGpus;
  return {.process = {static_cast<pid_t>(100 + number), 1100 + number},
          .gpu = gpu,
          .handles = {.client = 0x100 * (gpu + 1) + number,
                      .device = 1,
                      .group = 0x10,
                      .first_channel = 0x20,
                      .channels = 2}};
}

uint32_t gpu_of(uint32_t client) { return client / 0x100 - 1; }

GpuInfo info(uint32_t gpu, uint32_t instance) {
  GpuInfo made;
  made.index = gpu;
  made.instance = instance;
  return made;
}

// A driver that several threads ask. The model's own, on which all agents call, never waits: it
// lets no call take effect while the GPU hangs.
class Machine final : public test::FakeGpu {
 public:
  Machine() : FakeGpu(kGpus) {
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) unopened_.push_back(info(gpu, kNoInstance));
  }
  void set_hang(uint32_t gpu, bool hangs) { set(hanging_, gpu, hangs); }
  void set_refusal(uint32_t gpu, bool refuses) { set(refusing_, gpu, refuses); }
  int freezes_of(const Program& one, uint32_t channel) const {
    const std::lock_guard lock(mutex_);
    return freezes({one.handles.client, one.handles.first_channel + channel});
  }
  Micros slice_of(const Program& one) const {
    const std::lock_guard lock(mutex_);
    return FakeGpu::slice_of(one.handles.client, one.handles.group);
  }

  std::span<const GpuInfo> gpus() const override { return unopened_; }
  Result<OpenedGpu> open(uint32_t gpu) override {
    std::unique_lock lock(mutex_);
    wait(lock, gpu);
    if (refusing_.contains(gpu)) return make_error(std::errc::io_error, "open a GPU");
    return OpenedGpu{.info = info(gpu, gpu)};
  }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    std::unique_lock lock(mutex_);
    wait(lock, gpu);
    expect_there(gpu, channels);
    return FakeGpu::freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    std::unique_lock lock(mutex_);
    wait(lock, gpu);
    expect_there(gpu, channels);
    return FakeGpu::thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    std::unique_lock lock(mutex_);
    wait(lock, gpu_of(group.client));
    return FakeGpu::set_slice(group, slice);
  }
  Result<Micros> slice(const GroupRef& group) override {
    std::unique_lock lock(mutex_);
    wait(lock, gpu_of(group.client));
    return FakeGpu::slice(group);
  }

 private:
  void set(std::set<uint32_t>& gpus, uint32_t gpu, bool is_in) {
    const std::lock_guard lock(mutex_);
    test::set_member(gpus, gpu, is_in);
    changed_.notify_all();
  }
  void wait(std::unique_lock<std::mutex>& lock, uint32_t gpu) {
    if (std::this_thread::get_id() != model_)
      changed_.wait(lock, [&] { return !hanging_.contains(gpu); });
  }
  static void expect_there(uint32_t gpu, std::span<const ChannelRef> channels) {
    for (const ChannelRef& channel : channels)
      EXPECT_EQ(gpu_of(channel.client), gpu) << "the GPUs' numbers have moved";
  }

  const std::thread::id model_ = std::this_thread::get_id();
  std::vector<GpuInfo> unopened_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint32_t> hanging_, refusing_;
};

// What an agent does to GPUs, and what is left of one that has died: the calls under way.
class Agent {
 public:
  Agent(const std::shared_ptr<Machine>& machine, Region& region, const ProcReader& processes,
        const Clock& clock, std::span<const test::QueuePace> paces,
        const std::vector<Program>& programs, std::function<Result<>(uint32_t gpu)> may_ask)
      : machine_(machine),
        processes_(processes),
        paces_(paces),
        programs_(programs),
        may_ask_(std::move(may_ask)),
        gpus_(machine, clock, may_ask_, [] {}),
        registry_(gpus_.gpus()),
        ledger_(region),
        enforcer_(gpus_, ledger_, clock, nullptr,
                  [this](Gpu& gpu, uint32_t index, const Clock& at) {
                    auto line = std::make_unique<test::QueuedLine>(gpu, index, at, paces_[index]);
                    lines_.push_back(line.get());
                    return line;
                  }) {
    for (const Program& one : programs_)
      for (const DriverEvent& event : test::program(one.process, one.handles, one.gpu))
        registry_.apply(event);
  }

  void step() {
    for (const uint32_t gpu : gpus_.look()) {
      EXPECT_EQ(gpus_.gpus()[gpu].index, gpu);
      registry_.learn(gpus_.gpus()[gpu]);
    }
    enforcer_.collect();
    enforcer_.undo_leftovers(processes_);
    enforcer_.begin_step();
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      if (enforcer_.is_stuck(gpu)) continue;
      std::vector<Enforcer::Target> targets;
      for (const Program& one : programs_)
        if (const Holder* const holder = registry_.holder(one.process, gpu))
          targets.push_back({holder, Micros(5000), one.is_to_be_frozen});
      EXPECT_TRUE(targets.empty() || is_open(gpu));
      enforcer_.apply(gpu, targets);
      EXPECT_TRUE(!has_call(gpu) || may_ask_(gpu)) << "GPU " << gpu << " is asked by two";
    }
  }
  void stop() {
    enforcer_.undo_all();
    enforcer_.undo_leftovers(processes_, /*at_once=*/true);
  }
  bool is_open(uint32_t gpu) const { return gpus_.closed_because(gpu).empty(); }

  bool has_call(uint32_t gpu) const { return lines_[gpu]->has_call(); }
  bool has_call() const {
    return std::ranges::any_of(lines_, [](const auto* line) { return line->has_call(); });
  }
  void come_back(uint32_t gpu) { lines_[gpu]->come_back(); }

 private:
  const std::shared_ptr<Machine> machine_;
  const ProcReader& processes_;
  const std::span<const test::QueuePace> paces_;
  const std::vector<Program>& programs_;
  const std::function<Result<>(uint32_t gpu)> may_ask_;
  std::vector<test::QueuedLine*> lines_;  // by GPU; the enforcer's
  JoiningGpus gpus_;
  Registry registry_;
  Ledger ledger_;
  Enforcer enforcer_;
};

class DeathsModel : public ::testing::TestWithParam<uint32_t> {
 protected:
  DeathsModel() {
    clock_.advance(100s);
    for (uint32_t number = 0; number < kPrograms; ++number) programs_.push_back(program(number));
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
      paces_.push_back({.below = [this](uint32_t n) { return below(n); }, .may_stall = false});
  }
  ~DeathsModel() override {
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) machine_->set_hang(gpu, false);
  }

  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }

  void set_hang(uint32_t gpu, bool hangs) {
    machine_->set_hang(gpu, hangs);
    paces_[gpu].answers = !hangs;
  }

  // As far as the dead ones are concerned.
  Result<> have_left(uint32_t gpu) const {
    const auto asks = [gpu](const auto& one) { return one->has_call(gpu); };
    if (std::ranges::any_of(dead_, asks) || (dying_ && dying_->has_call(gpu)))
      return make_error(std::errc::device_or_resource_busy, "wait for an earlier call");
    return {};
  }
  // Its threads are this process's.
  static Result<> has_supervisor_left(uint32_t gpu) {
    return Predecessors({{::getpid(), start_ticks_of(::getpid())}}).have_left(gpu);
  }
  Result<> may_ask(uint32_t gpu) const {
    const Result<> left = have_left(gpu);
    return left ? has_supervisor_left(gpu) : left;
  }
  // The supervisor's threads have the time that they need where the driver answers.
  void let_supervisor_go_on() {
    for (int rounds = 0; rounds < 3; ++rounds) {
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
        while (paces_[gpu].answers && !has_supervisor_left(gpu)) std::this_thread::yield();
      undoing_.advance();
    }
  }

  void start() {
    undoing_.call_off();
    agent_ = std::make_unique<Agent>(machine_, *region_, processes_, clock_, paces_, programs_,
                                     [this](uint32_t gpu) { return may_ask(gpu); });
  }
  void kill() {
    dying_ = std::move(agent_);
    undoing_.begin(Undoing::Writer::kDies);
  }
  // It has been reaped, or is given up with the calls that do not come back.
  void end() {
    if (dying_->has_call()) dead_.push_back(std::move(dying_));
    dying_.reset();
    undoing_.begin(Undoing::Writer::kHasEnded);
  }
  void come_back(Agent& dead) {
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
      if (dead.has_call(gpu) && paces_[gpu].answers && below(10) == 0) dead.come_back(gpu);
  }
  void go_on() {
    if (dying_) come_back(*dying_);
    for (const auto& one : dead_) come_back(*one);
    std::erase_if(dead_, [](const auto& one) { return !one->has_call(); });
    if (agent_) agent_->step();
    undoing_.advance();
    if (below(3) == 0) let_supervisor_go_on();
    (void)undoing_.take_report();
    expect_listed();
    clock_.advance(Nanos(below(20) == 0 ? 3s : 20ms));
  }
  void happen() {
    const uint32_t gpu = below(kGpus);
    switch (below(12)) {
      case 0:
        return set_hang(gpu, below(2) == 0);
      case 1:
        return machine_->set_refusal(gpu, below(3) == 0);
      case 2:
        broken_->store(below(3) == 0);
        return;
      case 3:
      case 4:
        if (agent_) return kill();
        return;
      case 5:
      case 6:
      case 7:
        if (dying_) return end();
        if (!agent_) start();
        return;
      default:
        programs_[below(kPrograms)].is_to_be_frozen = below(2) == 0;
    }
  }
  void expect_listed() {
    Ledger ledger(*region_);
    for (const Program& one : programs_)
      for (uint32_t channel = 0; channel < one.handles.channels; ++channel)
        if (machine_->freezes_of(one, channel) > 0)
          EXPECT_GT(ledger.freezes(one.key()), 0U) << one.process.pid;
  }
  bool is_all_as_it_is_to_be() const {
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
      if (!agent_->is_open(gpu)) return false;
    return std::ranges::all_of(programs_, [&](const Program& one) {
      for (uint32_t channel = 0; channel < one.handles.channels; ++channel)
        if (machine_->freezes_of(one, channel) != (one.is_to_be_frozen ? 1 : 0)) return false;
      return true;
    });
  }
  bool comes_to_rest() {
    return eventually([&] {
      for (int i = 0; i < 10; ++i) go_on();
      return is_all_as_it_is_to_be();
    });
  }

  std::mt19937 random_{GetParam()};
  const std::shared_ptr<Machine> machine_ = std::make_shared<Machine>();
  const std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  test::FakeProcReader processes_;
  ManualClock clock_;
  std::vector<test::QueuePace> paces_;
  std::vector<Program> programs_;
  std::unique_ptr<Agent> agent_, dying_;
  std::vector<std::unique_ptr<Agent>> dead_;
  Undoing undoing_{
      *region_,
      processes_,
      clock_,
      {.open = [machine = machine_, broken = broken_]() -> Result<std::unique_ptr<Gpu>> {
         return std::make_unique<test::Connection>(machine, broken->load());
       },
       .resume = [](const ProcessId&) { return Result<>(); },
       .is_free = [this](uint32_t gpu) { return have_left(gpu); }}};
};

TEST_P(DeathsModel, NothingStaysFrozenAndEachGpuThatAnswersIsSharedInTheEnd) {
  start();
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    happen();
    for (uint32_t steps = below(4); steps > 0; --steps) go_on();
  }
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    set_hang(gpu, false);
    machine_->set_refusal(gpu, false);
  }
  broken_->store(false);
  if (dying_) end();
  if (!agent_) start();
  EXPECT_TRUE(comes_to_rest());
  for (Program& one : programs_) one.is_to_be_frozen = false;
  EXPECT_TRUE(comes_to_rest());
  agent_->stop();
  EXPECT_TRUE(is_ledger_empty(*region_));
  for (const Program& one : programs_) EXPECT_EQ(machine_->slice_of(one), kOwnSlice);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeathsModel, ::testing::Range(1U, 21U));

}  // namespace
}  // namespace gpushare
