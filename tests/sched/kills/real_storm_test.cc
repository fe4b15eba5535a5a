// SPDX-License-Identifier: Apache-2.0
// SIGKILL for agent, supervisor or both, at random instants and again 20 to 700 ms after a new
// agent has answered, while requests go on: real processes on the simulated GPU in real time.
// GPUSHARE_TEST_REAL_KILLS is how often (100), GPUSHARE_TEST_SEED the random numbers, and
// GPUSHARE_TEST_SECONDS, if it is not 0, the time after which none is killed any more. storm.sh
// runs many of these at once. With an odd seed jobs take turns, and one of them is a program with
// the shim that is held at its boundary; otherwise the GPU is shared by slices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "shmctl/base/proc_stat.h"
#include "shmctl/plane/ledger.h"
#include "tests/sched/kills/acknowledged.h"
#include "tests/sched/support/policies.h"
#include "tests/sched/system/system_rig.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::Acknowledged;
using Json = nlohmann::json;

std::string config_of(uint32_t seed) {
  const std::string web = "[tenant.web]\nweight = 70\n";
  return seed % 2 == 0 ? web : "[gpu.0]\npolicy = \"turns\"\nturn_ms = 20\n" + web;
}

bool is_there(pid_t pid) { return pid > 0 && ::kill(pid, 0) == 0; }

class RealTimeStorm : public ::testing::Test {
 protected:
  // As on the machine where this was seen: everything by `gpushare run`.
  void SetUp() override {
    rig_.start_agent();
    told_.make("default");
    told_.set("web", {{"weight", "70"}});
    std::vector<std::string> spin{test::build_folder() + "/bin/workloads/spin"};
    spin.insert(spin.end(), test::kSaturating.begin(), test::kSaturating.end());
    spin.insert(spin.end(), {"--seconds", "1000000"});
    run({{"weight", "300"}}, spin);
    run({{"max", "20%"}}, spin);
    run({{"priority", "idle"}}, spin);
    run({{"priority", "idle"}, {"weight", "40"}}, spin);
    run({{"weight", "50"}}, {"/bin/sleep", "100000"});  // a shell, as it were: on no GPU
    if (seed_ % 2 == 0)
      run({}, spin);
    else
      run({}, {test::build_folder() + "/bin/workloads/steps", "--mode", "decode", "--tokens",
               "1000000", "--iterations", "10000000"});
    ASSERT_TRUE(eventually([&] { return rig_.snapshot().processes.size() == 5; }, 60s));
    expect_what_was_acknowledged("before the first kill");
  }

  // With settings in a tenant of its own, otherwise in `web`.
  void run(const std::vector<Setting>& settings, const std::vector<std::string>& command) {
    std::vector<std::string> options;
    for (const Setting& setting : settings)
      options.push_back("--" + setting.key + "=" + setting.value);
    if (settings.empty()) options = {"--tenant=web"};
    auto& program = programs_.emplace_back(rig_.run(options, command));
    const pid_t pid = program->pid();
    const std::string name = settings.empty() ? "web" : fmt::format("run-{}", pid);
    ASSERT_TRUE(eventually([&] {
      const auto now = seen();
      return now.attached.contains(pid);
    })) << rig_.output("gpushare.log");
    told_.make(name, /*is_transient=*/!settings.empty());
    told_.set(name, settings);
    told_.attach(pid, name);
    alive_.insert({pid, start_ticks_of(pid)});
  }

  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  // What the next agent would have, whether one lives or not. Nothing in the region is changed.
  Acknowledged seen() {
    auto plane = ControlPlane::open_existing(rig_.region).value();
    const Roster theirs(plane.region());
    const auto copy = std::make_unique<Region>();
    Roster roster(*copy);
    theirs.for_each_tenant(
        [&](uint32_t slot, const RosterTenant& tenant) { roster.put_tenant(slot, tenant); });
    theirs.for_each_process(
        [&](const RosterProcess& process) { EXPECT_TRUE(roster.put_process(process)); });
    Tenants tenants(&roster);
    EXPECT_TRUE(tenants.start(test::parse(config_of(seed_)).value()));
    std::set<ProcessId> alive = alive_;
    for (const auto& program : programs_)
      alive.insert({program->pid(), start_ticks_of(program->pid())});
    return test::seen_in(tenants, alive);
  }
  void expect_what_was_acknowledged(const std::string& when) {
    const Acknowledged now = seen();
    if (maybe_ && now == *maybe_) told_ = *maybe_;
    maybe_.reset();
    if (now == told_) return;
    ++lost_;
    ADD_FAILURE() << when << ", seed " << seed_ << ": the roster has\n"
                  << test::text_of(now) << "and the agents were told\n"
                  << test::text_of(told_);
    told_ = now;
  }

  // One request; false when the agent died before it had answered.
  bool ask() {
    Acknowledged after = told_;
    Json request;
    const pid_t pid =
        programs_[static_cast<size_t>(pick(static_cast<int>(programs_.size())))]->pid();
    auto tenant = std::next(after.tenants.begin(), pick(static_cast<int>(after.tenants.size())));
    const std::string name = tenant->first;
    const bool is_frozen = pick(3) == 0;
    switch (pick(6)) {
      case 0:
      case 1:
      case 2: {
        const Setting setting = pick(2) == 0 ? Setting{"weight", std::to_string(1 + pick(900))}
                                             : Setting{"max", std::to_string(5 + pick(90)) + "%"};
        request = {{"op", "set"}, {"tenant", name}, {"settings", {{setting.key, setting.value}}}};
        after.set(name, {setting});
        break;
      }
      case 3:
        request = {{"op", is_frozen ? "freeze" : "thaw"}, {"pid", pid}};
        is_frozen ? (void)after.frozen.insert(pid) : (void)after.frozen.erase(pid);
        break;
      case 4:
        request = {{"op", is_frozen ? "freeze" : "thaw"}, {"tenant", name}};
        tenant->second.is_frozen = is_frozen;
        break;
      default:
        request = {{"op", "attach"}, {"pid", pid}, {"tenant", name}};
        after.attach(pid, name);
    }
    maybe_ = after;
    const std::string answer = rig_.ask(request.dump());
    if (answer.empty()) return false;
    maybe_.reset();
    if (Json::parse(answer)["ok"] == true) {
      told_ = after;
      ++answered_;
    }
    return true;
  }

  enum class Victim { kAgent, kSupervisor, kBoth };
  // Kills at some instant from now, while requests go on.
  void kill_once(Victim victim) {
    const Json hello = Json::parse(rig_.ask(R"({"op":"hello"})"));
    const pid_t agent = hello["pid"], supervisor = rig_.gpushared->pid();
    const auto pause = std::chrono::microseconds(20'000 + pick(680'000));
    std::atomic<bool> is_over = false;
    std::thread killer([=, &is_over] {
      std::this_thread::sleep_for(pause);
      if (victim != Victim::kAgent) ::kill(supervisor, SIGKILL);
      if (victim != Victim::kSupervisor) ::kill(agent, SIGKILL);
      is_over = true;
    });
    // The next agent may answer before anybody has missed the one that died.
    while (ask() && !is_over) std::this_thread::sleep_for(std::chrono::microseconds(pick(20'000)));
    killer.join();
    if (victim != Victim::kAgent)
      EXPECT_TRUE(eventually([&] { return rig_.gpushared->has_ended(); }));
    EXPECT_TRUE(eventually([&] { return !is_there(agent); })) << "it outlives its supervisor";
    const std::string when = fmt::format("kill {}", ++kills_);
    if (victim == Victim::kBoth) expect_recovered(when);
    rig_.start_again();
    expect_what_was_acknowledged(when);
  }
  // As the unit's ExecStopPost does.
  void expect_recovered(const std::string& when) {
    EXPECT_TRUE(eventually([&] { return rig_.run_gpushared({"--recover"}) == 0; })) << when;
    const std::size_t frozen = rig_.frozen_groups();
    EXPECT_EQ(frozen, 0u) << when << ", seed " << seed_;
    if (frozen > 0) ++left_frozen_;
  }

  // An agent that lives finds every program, where it belongs and as it was frozen.
  void expect_all_in_force() {
    for (const auto& program : programs_) {
      const pid_t pid = program->pid();
      EXPECT_FALSE(program->has_ended()) << program->output();
      if (program == programs_[4]) continue;  // on no GPU
      const std::string wanted = told_.attached.at(pid);
      const bool is_frozen = told_.stands(pid, wanted);
      EXPECT_TRUE(eventually(
          [&] {
            const PlaneSnapshot all = rig_.snapshot();
            for (const auto& [slot, process] : all.processes)
              for (const auto& [of, tenant] : all.tenants)
                if (process.pid == pid && process.tenant == of)
                  return tenant.name == wanted &&
                         (process.state == ProcessState::kFrozenUser) == is_frozen;
            return false;
          },
          60s))
          << "process " << pid << " in " << wanted << (is_frozen ? ", frozen" : "");
    }
  }

  const uint32_t seed_ =
      static_cast<uint32_t>(test::number_given("GPUSHARE_TEST_SEED", ::getpid()));
  test::SystemRig rig_{config_of(seed_)};
  std::vector<std::unique_ptr<Child>> programs_;
  std::set<ProcessId> alive_;
  Acknowledged told_;
  std::optional<Acknowledged> maybe_;  // what is being asked
  std::mt19937 random_{seed_};
  int kills_ = 0, answered_ = 0, lost_ = 0, left_frozen_ = 0;
};

TEST_F(RealTimeStorm, NothingThatWasAnsweredIsLostAndNothingStaysFrozen) {
  const int kills = test::number_given("GPUSHARE_TEST_REAL_KILLS", 100);
  const int report_every = std::max(1, kills / 20);
  const int seconds = test::number_given("GPUSHARE_TEST_SECONDS", 0);
  const MonotonicClock clock;
  const Time end = clock.now() + std::chrono::seconds(seconds);
  while (kills_ < kills && !HasFailure() && (seconds == 0 || clock.now() < end)) {
    const int what = pick(8);
    kill_once(what < 6 ? Victim::kAgent : what == 6 ? Victim::kSupervisor : Victim::kBoth);
    if (kills_ % 50 == 0) expect_all_in_force();
    if (kills_ % report_every == 0) {
      std::printf("%d of %d kills, %d requests answered\n", kills_, kills, answered_);
      std::fflush(stdout);
    }
  }
  expect_all_in_force();
  EXPECT_TRUE(rig_.answers(R"({"op":"forget"})", R"("ok":true)"));
  // All are equal now, so that each has a share, unless it were still frozen.
  EXPECT_TRUE(eventually(
      [&] {
        const PlaneSnapshot all = rig_.snapshot();
        return all.processes.size() == 5 && std::ranges::all_of(all.processes, [](const auto& one) {
                 return one.record.share_permille > 50 && one.record.share_permille <= 1000;
               });
      },
      60s));
  EXPECT_EQ(test::ended_by(*rig_.gpushared, SIGTERM), 0);
  EXPECT_TRUE(rig_.snapshot().ledger.empty());
  EXPECT_EQ(rig_.snapshot().ending.kind, EndingKind::kStopped);
  std::printf(
      "real time: %d kills, %d requests answered, %d times something lost, %d times "
      "something left frozen, seed %u\n",
      kills_, answered_, lost_, left_frozen_, seed_);
  RecordProperty("kills", kills_);
}

}  // namespace
}  // namespace gpushare
