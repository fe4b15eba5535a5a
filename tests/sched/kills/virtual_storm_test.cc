// SPDX-License-Identifier: Apache-2.0
// Agents that die one after the other at random calls, in virtual time, while requests change
// settings, memberships and freezes: none that was answered is ever lost, and nothing stays frozen,
// also where the next agent is of a version with another layout of the control plane.
// GPUSHARE_TEST_VIRTUAL_KILLS is how many die (300), GPUSHARE_TEST_SEED the random numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "sched/control/handler.h"
#include "sched/enforce/recovery.h"
#include "sched/kept/roster_store.h"
#include "sched/step/scheduler.h"
#include "sched/tenants/takeover.h"
#include "shmctl/program/temp_folder.h"
#include "tests/intercept/sim/programs.h"
#include "tests/sched/kills/acknowledged.h"
#include "tests/sched/kills/mortal_gpu.h"
#include "tests/sched/support/policies.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::Acknowledged;
using test::Killed;
using Json = nlohmann::json;

constexpr pid_t kShell = 50;  // and the two after it: attached, and never on a GPU
constexpr int kShells = 3, kPrograms = 5;
constexpr std::array<const char*, 7> kTenants{"lab",     "batch",     "web",          "default",
                                              "web/day", "lab/night", "lab/night/one"};
constexpr std::string_view kWebOnly = "[tenant.web]\nweight = 70\n";
// Some of the agents let the programs take turns, so that they die while most are held.
constexpr std::string_view kTurns =
    "[gpu.0]\npolicy = 'turns'\nturn_ms = 20\n[tenant.web]\nweight = 70\n";

ProcessId id_of(pid_t pid) { return {pid, static_cast<uint64_t>(1000 + pid)}; }

class VirtualStorm : public ::testing::Test {
 protected:
  // One agent, less its event loop and sockets. Made in the order in which the daemon makes it.
  struct Agent {
    explicit Agent(VirtualStorm& on)
        : roster(on.plane_.region()), tenants(&roster), control(tenants) {
      const Config config = test::parse(on.one_in(2) ? kTurns : kWebOnly).value();
      const std::set<ProcessId> may_remain = OwnerList::with_clients(on.plane_.region());
      end_the_dead(tenants, on.processes_,
                   [&](const ProcessId& process) { return may_remain.contains(process); });
      EXPECT_TRUE(tenants.start(config));
      on.expect_what_was_acknowledged(tenants);
      (void)on.observer_.drain([](DriverEvent&&) {});  // nobody was watching
      scheduler = std::make_unique<Scheduler>(Surroundings{.gpu = on.gpu_,
                                                           .observer = &on.observer_,
                                                           .region = on.plane_.region(),
                                                           .processes = on.processes_,
                                                           .clock = on.clock_,
                                                           .tenants = tenants},
                                              AgentIdentity{.agent_pid = 1}, config);
    }
    Roster roster;
    Tenants tenants;
    DirectControl control;
    std::unique_ptr<Scheduler> scheduler;
  };

  VirtualStorm()
      : plane_(ControlPlane::create("/gpushare-storm-" + std::to_string(::getpid())).value()),
        seed_(static_cast<uint32_t>(test::number_given("GPUSHARE_TEST_SEED", ::getpid()))),
        random_(seed_) {
    machine_.run_for(1s);
    told_ = {.tenants = {}, .attached = {}, .frozen = {}};
    told_.make("default");
    told_.set("web", {{"weight", "70"}});
    for (int i = 0; i < kShells; ++i) add_process(kShell + i, 1, "shell");
    for (int i = 0; i < kPrograms; ++i) add_program();
  }
  ~VirtualStorm() override { (void)ControlPlane::remove(plane_.name()); }

  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool one_in(int count) { return pick(count) == 0; }

  void add_process(pid_t pid, pid_t parent, const std::string& command) {
    known_.add(id_of(pid), command).parent = parent;
    alive_.insert(id_of(pid));
  }
  void add_program() {
    const pid_t pid = next_pid_++;
    add_process(pid, 1, "program");
    auto& program = programs_.emplace_back(std::make_unique<sim::Program>(machine_, pid));
    program->endless();
  }
  void end_program() {
    const auto at = programs_.begin() + pick(static_cast<int>(programs_.size()));
    const pid_t pid = (*at)->process.pid;
    known_.dead[pid] = true;
    alive_.erase(id_of(pid));
    machine_.model.close_client((*at)->client);
    gpu_.forget((*at)->client);
    programs_.erase(at);
    told_.end(pid);
    if (maybe_) maybe_->end(pid);
  }

  // A program that an agent has seen ends, and a child that never calls the driver keeps what lies
  // in its stream: it is where it was until that ends.
  void leave_program() {
    const auto at = programs_.begin() + pick(static_cast<int>(programs_.size()));
    const ProcessId process = (*at)->process;
    if (!OwnerList::with_clients(plane_.region()).contains(process)) return;
    const pid_t child = next_pid_++;
    add_process(child, 1, "child");
    machine_.model.inherit((*at)->client, id_of(child));
    known_.dead[process.pid] = true;
    machine_.model.end_process(process, 0);
    left_.push_back({std::move(*at), child});
    programs_.erase(at);
    ++times_left_;
    add_program();
  }
  void end_child() {
    if (left_.empty()) return;
    const auto at = left_.begin() + pick(static_cast<int>(left_.size()));
    const sim::Program& program = *at->program;
    machine_.model.close_client(program.client);
    gpu_.forget(program.client);
    for (const pid_t pid : {program.process.pid, at->child}) {
      known_.dead[pid] = true;
      alive_.erase(id_of(pid));
      told_.end(pid);
      if (maybe_) maybe_->end(pid);
    }
    left_.erase(at);
  }

  // The agent has what was acknowledged, or with it what was being asked when the last one died.
  void expect_what_was_acknowledged(const Tenants& tenants) {
    const Acknowledged seen = test::seen_in(tenants, alive_);
    const bool took_the_last = maybe_ && seen == *maybe_;
    if (took_the_last) told_ = *maybe_;
    maybe_.reset();
    if (seen == told_) return;
    ++lost_;
    ADD_FAILURE() << "kill " << kills_ << ", seed " << seed_ << ": the agent has\n"
                  << test::text_of(seen) << "and it was told\n"
                  << test::text_of(told_);
    told_ = seen;
  }

  // Asks for something, and notes it when it was answered.
  void ask(Agent& agent) {
    Acknowledged after = told_;
    Json request;
    pid_t caller = pick_process();
    const std::string tenant = kTenants[static_cast<size_t>(pick(kTenants.size()))];
    switch (pick(8)) {
      case 0:
      case 1: {
        const std::vector<Setting> settings = some_settings();
        request = {{"op", "set"}, {"tenant", tenant}, {"create", true}};
        for (const Setting& setting : settings) request["settings"][setting.key] = setting.value;
        after.set(tenant, settings);
        break;
      }
      case 2: {
        const std::vector<Setting> settings = some_settings();
        request = {{"op", "run"}};
        for (const Setting& setting : settings) request["settings"][setting.key] = setting.value;
        const std::string name = agent.tenants.transient_name(id_of(caller));
        after.make(name, /*is_transient=*/true);
        after.set(name, settings);
        after.attach(caller, name);
        break;
      }
      case 3:
      case 4:
        request = {{"op", "attach"}, {"pid", caller}, {"tenant", tenant}};
        if (after.tenants.contains(tenant)) after.attach(caller, tenant);
        break;
      case 5: {
        const bool is_frozen = one_in(2);
        request = {{"op", is_frozen ? "freeze" : "thaw"}, {"pid", caller}};
        is_frozen ? (void)after.frozen.insert(caller) : (void)after.frozen.erase(caller);
        break;
      }
      case 6: {
        const bool is_frozen = one_in(2);
        request = {{"op", is_frozen ? "freeze" : "thaw"}, {"tenant", tenant}};
        if (after.tenants.contains(tenant)) after.tenants[tenant].is_frozen = is_frozen;
        break;
      }
      default:
        request = {{"op", "remove"}, {"tenant", tenant}};
        if (tenant == "web") return;  // it is in the file, and comes again
        if (tenant != "default") after.remove(tenant);
    }
    maybe_ = after;
    const Answer answer =
        handle_request(request.dump(), {.pid = caller, .uid = 0, .is_admin = true},
                       {.tenants = agent.tenants,
                        .control = agent.control,
                        .scheduler = agent.scheduler.get(),
                        .plane = plane_,
                        .processes = processes_,
                        .clock = clock_,
                        .reload = {},
                        .forget = {},
                        .diagnose = {}});
    maybe_.reset();
    const Json said = Json::parse(answer.line);
    if (said["ok"] == true) {
      told_ = after;
      ++answered_;
    }
  }
  pid_t pick_process() {
    const int which = pick(kShells + static_cast<int>(programs_.size()));
    return which < kShells ? kShell + which
                           : programs_[static_cast<size_t>(which - kShells)]->process.pid;
  }
  std::vector<Setting> some_settings() {
    std::vector<Setting> settings;
    if (one_in(2)) settings.push_back({"weight", std::to_string(1 + pick(900))});
    if (one_in(2))
      settings.push_back({"max", one_in(3) ? "max" : std::to_string(5 + pick(90)) + "%"});
    if (settings.empty() || one_in(2))
      settings.push_back(
          {"priority", std::array{"idle", "normal", "high"}[static_cast<size_t>(pick(3))]});
    return settings;
  }

  // Until it dies, or for this long.
  void live(Agent& agent, Nanos time, bool with_changes) {
    const Time end = clock_.now() + time;
    while (clock_.now() < end) {
      machine_.run_for(1ms);
      if (with_changes && one_in(8)) ask(agent);
      if (with_changes && one_in(200)) {
        end_program();
        add_program();
      }
      if (with_changes && one_in(200)) leave_program();
      if (with_changes && one_in(200)) end_child();
      agent.scheduler->step();
    }
  }

  // Somebody undoes what the dead agent did: its supervisor, or `gpushared --recover`.
  void undo() {
    const RecoveryReport report = recover(gpu_, plane_.region(), known_);
    EXPECT_TRUE(report.errors.empty()) << report.errors.front();
    if (gpu_.frozen_channels() == 0) return;
    ++left_frozen_;
    ADD_FAILURE() << "kill " << kills_ << ", seed " << seed_ << ": " << gpu_.frozen_channels()
                  << " channels are still frozen";
  }

  // The next agent is of a version with another layout: it has the ledger of the one before, and
  // the file of what was set at run time. That was written just before.
  void change_layout() {
    while (!left_.empty()) end_child();  // whose it was it does not know
    const std::string name = plane_.name(), beside = name + ".new", file = folder_.at("roster");
    ASSERT_TRUE(RosterStore::write(file, Roster(plane_.region()).copy()));
    plane_.region().header.version = kLayoutVersion + 1;
    auto next = ControlPlane::create(beside);
    ASSERT_TRUE(next) << next.error().message();
    EXPECT_TRUE(ControlPlane::copy_ledger(name, next->region()));
    Roster roster(next->region());
    EXPECT_TRUE(take_kept_roster(file, roster).value_or(false));
    const auto aside = ControlPlane::replace(name, beside);
    ASSERT_TRUE(aside) << aside.error().message();
    std::remove(aside->c_str());
    plane_ = ControlPlane::create(name).value();
  }

  // An agent that lives finds every program, where it belongs and as it was frozen.
  void expect_all_in_force() {
    fate_.die_at(0);
    Agent agent(*this);
    std::vector<pid_t> pids;
    for (const auto& program : programs_) pids.push_back(program->process.pid);
    for (const Left& left : left_) pids.push_back(left.program->process.pid);
    const auto is_known = [&](pid_t pid) { return record_of(agent, pid).pid == pid; };
    // It looks at one after the other, and at each child as well.
    const Time latest = clock_.now() + 30s;
    do live(agent, 4s, /*with_changes=*/false);
    while (!std::ranges::all_of(pids, is_known) && clock_.now() < latest);
    for (const pid_t pid : pids) {
      const auto attached = told_.attached.find(pid);
      const std::string wanted = attached == told_.attached.end() ? "default" : attached->second;
      const ProcessRecord record = record_of(agent, pid);
      EXPECT_EQ(record.pid, pid) << "it is not known, seed " << seed_;
      EXPECT_STREQ(agent.tenants.at(record.tenant)->name.c_str(), wanted.c_str());
      const bool is_frozen = told_.stands(pid, wanted);
      EXPECT_EQ(record.state == ProcessState::kFrozenUser, is_frozen)
          << "process " << pid << " in " << wanted << ", seed " << seed_;
    }
    agent.scheduler->stop();
    EXPECT_EQ(gpu_.frozen_channels(), 0u);
    const bool is_empty = std::ranges::none_of(
        plane_.region().ledger, [](const auto& entry) { return read_record(entry)->pid != 0; });
    EXPECT_TRUE(is_empty) << "the ledger";
  }
  ProcessRecord record_of(const Agent& agent, pid_t pid) {
    for (const auto& [key, member] : agent.scheduler->state().members)
      if (key.first.pid == pid) return *read_record(plane_.region().processes[member.slot].record);
    return {};
  }

  sim::Machine machine_;
  sim::SimGpu simulated_{machine_.model};
  test::Fate fate_;
  test::MortalGpu gpu_{simulated_, fate_};
  sim::ModelObserver observer_{machine_.model};
  sim::ModelClock clock_{machine_.model};
  test::FakeProcReader known_;
  test::MortalProcReader processes_{known_, fate_};
  ControlPlane plane_;
  const TempFolder folder_ = TempFolder::make("gpushare-storm").value();
  std::vector<std::unique_ptr<sim::Program>> programs_;
  // That have ended, and whose work goes on while that child lives.
  struct Left {
    std::unique_ptr<sim::Program> program;
    pid_t child;
  };
  std::vector<Left> left_;
  std::set<ProcessId> alive_;  // and those that are left
  pid_t next_pid_ = 100;

  Acknowledged told_;
  std::optional<Acknowledged> maybe_;  // what is being asked
  const uint32_t seed_;
  std::mt19937 random_;
  int kills_ = 0, answered_ = 0, lost_ = 0, left_frozen_ = 0, times_left_ = 0;
};

TEST_F(VirtualStorm, NothingThatWasAnsweredIsLostAndNothingStaysFrozen) {
  const int kills = test::number_given("GPUSHARE_TEST_VIRTUAL_KILLS", 300);
  const int report_every = std::max(1, kills / 10);
  while (kills_ < kills && !HasFailure()) {
    // Most die before they have found a single program again.
    fate_.die_at(1 + random_() % (one_in(10) ? 4000 : 120));
    try {
      Agent agent(*this);
      live(agent, 10s, /*with_changes=*/true);
    } catch (const Killed&) {
      ++kills_;
    }
    fate_.die_at(0);
    // What happens while there is no agent is found by the next one.
    machine_.run_for(std::chrono::milliseconds(pick(50)));
    if (one_in(10)) leave_program();
    if (one_in(10)) end_child();
    if (one_in(4)) change_layout();
    if (one_in(2)) undo();  // otherwise the supervisor was killed too
    if (kills_ % 100 == 0) expect_all_in_force();
    if (kills < 1000 || kills_ % report_every != 0) continue;
    std::printf("%d of %d kills, %d requests answered\n", kills_, kills, answered_);
    std::fflush(stdout);
  }
  expect_all_in_force();
  EXPECT_GT(times_left_, kills / 100);
  std::printf(
      "virtual time: %d kills, %d requests answered, %d times something lost, %d times "
      "something left frozen, seed %u\n",
      kills_, answered_, lost_, left_frozen_, seed_);
  RecordProperty("kills", kills_);
}

}  // namespace
}  // namespace gpushare
