// SPDX-License-Identifier: Apache-2.0
// Programs that behave unlike others take turns with one that behaves, on simulated GPUs in real
// time: neither keeps the other waiting, and what dies, hangs or leaves holds nobody.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

std::string config_of(const std::string& policy, unsigned gpus) {
  std::string text;
  for (unsigned gpu = 0; gpu < gpus; ++gpu)
    text += "[gpu." + std::to_string(gpu) + "]\npolicy = \"" + policy + "\"\ngrace_ms = 50\n" +
            (policy == "turns" ? "turn_ms = 70\n" : "");
  return text;
}

std::string program(const std::string& name) { return build_folder() + "/bin/" + name; }

std::vector<std::string> steps(uint64_t iterations, unsigned gpu = 0) {
  return {program("workloads/steps"),
          "--mode",
          "decode",
          "--tokens",
          "1000000",
          "--iterations",
          std::to_string(iterations),
          "--device",
          std::to_string(gpu)};
}
constexpr uint64_t kForEver = 10'000'000;

// A shell that starts this command so often, beside each other, and waits for all.
std::vector<std::string> many(int count, const std::string& command) {
  return {"sh", "-c",
          "i=0; while [ $i -lt " + std::to_string(count) + " ]; do " + command +
              " >/dev/null & i=$((i+1)); done; wait"};
}
std::vector<std::string> again_and_again(const std::string& command) {
  return {"sh", "-c", "while :; do " + command + " >/dev/null; done"};
}

class Hostile {
 public:
  explicit Hostile(const std::string& policy, unsigned gpus = 1)
      : rig(config_of(policy, gpus), gpus) {
    rig.start_agent();
  }
  // What is left of what was started, also of daemons.
  ~Hostile() {
    for (const auto& [slot, record] : rig.snapshot().processes)
      if (record.pid > 0) ::kill(record.pid, SIGKILL);
  }

  // By its iterations. On a busy machine the shim may have got no slot in time, and then nobody is
  // told of them; its GPU time stands for them.
  bool goes_on(const Child& one) const {
    const ProcessRecord before = rig.record(one.pid());
    return eventually([&] {
      const ProcessRecord now = rig.record(one.pid());
      return now.job_iterations > before.job_iterations + 3 ||
             (now.job_iterations == 0 && now.gpu_time_ns > before.gpu_time_ns + 3'000'000);
    });
  }
  // GPU time of all but this one, which lives, also of those that have ended: a tenant keeps what
  // they used.
  uint64_t others_time(const Child& one) const {
    const PlaneSnapshot seen = rig.snapshot();
    uint64_t all = 0, own = 0;
    for (const auto& [slot, tenant] : seen.tenants)
      for (const TenantGpuUse& use : tenant.gpu) all += use.gpu_time_ns;
    for (const auto& [slot, record] : seen.processes)
      if (record.pid == one.pid()) own += record.gpu_time_ns;
    return all - std::min(own, all);
  }
  bool others_receive_time(const Child& one) const {
    const uint64_t before = others_time(one);
    return eventually([&] { return others_time(one) > before; });
  }
  void kill_others(const Child& one) const {
    for (const auto& [slot, record] : rig.snapshot().processes)
      if (record.pid > 0 && record.pid != one.pid()) ::kill(record.pid, SIGKILL);
  }
  bool is_alone(const Child& one) const {
    return std::ranges::all_of(rig.snapshot().processes, [&](const auto& entry) {
      return entry.record.pid == 0 || entry.record.pid == one.pid();
    });
  }
  // Kills the one that misbehaves, with all that it has started: the other one has the GPU then.
  void end(Child& bad, const Child& good) const {
    bad.signal(SIGKILL);
    ASSERT_TRUE(eventually([&] {
      kill_others(good);
      return is_alone(good);
    })) << seen();
    EXPECT_TRUE(goes_on(good)) << seen();
    EXPECT_TRUE(eventually([&] { return rig.frozen_groups() == 0; })) << seen();
  }
  std::string seen() const {
    std::string text = rig.output("agent.log");
    for (const auto& [slot, record] : rig.snapshot().processes)
      text += "process " + std::to_string(record.pid) + " " + record.command + " on GPU " +
              std::to_string(record.gpu) + ": state " +
              std::to_string(static_cast<int>(record.state)) + ", turn " +
              std::to_string(static_cast<int>(record.turn)) + ", iterations " +
              std::to_string(record.job_iterations) + ", GPU time " +
              std::to_string(record.gpu_time_ns / 1000) + " us, freezes " +
              std::to_string(record.freezes) + ", " + record.note + "\n";
    return text;
  }

  SystemRig rig;
};

struct Row {
  const char* name;
  std::vector<std::string> command;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const std::vector<Row>& rows() {
  static const std::string steady = " --seconds 1000 --ns-per-unit 129.293";
  static const std::vector<Row> kRows{
      {"never_waits", {program("workloads/spin"), "--seconds", "1000", "--ns-per-unit", "129.293"}},
      {"hundreds_of_streams",
       {program("workloads/spin"), "--seconds", "1000", "--ns-per-unit", "129.293", "--streams",
        "300", "--depth", "1"}},
      {"one_kernel_without_end", {program("workloads/endless"), "--seconds", "1000"}},
      {"counts_no_launch",
       {program("attacks/short_programs"), "--slots", "1", "--program-ms", "1000000", "--seconds",
        "1000", "--ns-per-unit", "129.293"}},
      {"a_daemon", {program("attacks/daemonise"), "--how", "double-fork"}},
      {"becomes_another", {program("attacks/daemonise"), "--how", "exec"}},
      {"becomes_another_by_a_thread", {program("attacks/daemonise"), "--how", "thread-exec"}},
      {"ends_at_once_again_and_again", again_and_again(program("workloads/churn"))},
      {"workers", many(4, program("workloads/spin") + steady)},
      {"ten_at_once", many(10, program("workloads/steps") +
                                   " --mode decode --tokens 1000000 --iterations 10000000")},
  };
  return kRows;
}

class HostileTurns : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(All, HostileTurns, ::testing::ValuesIn(rows()),
                         [](const auto& row) { return row.param.name; });

TEST_P(HostileTurns, TheOtherGoesOnAndIsHeldByNobodyWhoHasGone) {
  Hostile all("turns");
  const auto good = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(all.goes_on(*good)) << all.seen();
  const auto bad = all.rig.run({}, GetParam().command);
  ASSERT_TRUE(eventually([&] { return !all.is_alone(*good); })) << all.seen();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(all.others_receive_time(*good)) << all.seen();
    ASSERT_TRUE(all.goes_on(*good)) << all.seen();
  }
  all.end(*bad, *good);
}

// The one that behaves comes second, and has the GPU when the first one has gone.
class HostileFirst : public ::testing::TestWithParam<std::tuple<const char*, Row>> {};
INSTANTIATE_TEST_SUITE_P(All, HostileFirst,
                         ::testing::Combine(::testing::Values("fifo", "srtf"),
                                            ::testing::ValuesIn(rows())),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)) + "_" +
                                  std::get<1>(row.param).name;
                         });

TEST_P(HostileFirst, LeavesTheGpuWhenItIsKilled) {
  Hostile all(std::get<0>(GetParam()));
  const auto bad = all.rig.run({}, std::get<1>(GetParam()).command);
  ASSERT_TRUE(eventually([&] { return !all.rig.snapshot().processes.empty(); })) << all.seen();
  const auto good = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(eventually([&] { return all.rig.record(good->pid()).pid != 0; })) << all.seen();
  EXPECT_TRUE(eventually([&] { return all.others_time(*good) > 0; })) << all.seen();
  all.end(*bad, *good);
}

// It dies while it is held, by its own fault.
TEST(HeldJob, ThatCrashesKeepsNobodyWaiting) {
  Hostile all("fifo");
  const auto first = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(all.goes_on(*first)) << all.seen();
  const auto second = all.rig.run({}, steps(kForEver));
  const auto third = all.rig.run({}, steps(kForEver));
  for (const Child* one : {second.get(), third.get()})
    ASSERT_TRUE(eventually([&] { return all.rig.record(one->pid()).turn == TurnState::kHeld; }))
        << all.seen();
  second->signal(SIGSEGV);
  EXPECT_EQ(status_of(*second), 128 + SIGSEGV);
  EXPECT_TRUE(all.goes_on(*first)) << all.seen();
  first->signal(SIGKILL);
  EXPECT_TRUE(all.goes_on(*third)) << all.seen();
}

// Under `fifo` it would be waited for until it ends.
TEST(StoppedJob, WithTheTurnLendsItUntilItGoesOn) {
  Hostile all("fifo");
  const auto first = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(all.goes_on(*first)) << all.seen();
  const auto second = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(eventually([&] { return all.rig.record(second->pid()).turn == TurnState::kHeld; }))
      << all.seen();
  first->signal(SIGSTOP);
  EXPECT_TRUE(all.goes_on(*second)) << all.seen();
  first->signal(SIGCONT);
  EXPECT_TRUE(all.goes_on(*first)) << all.seen();
}

// None of them has a context before the last one is placed.
TEST(ProgramsStartedTogether, AreSpreadOverTheGpus) {
  Hostile all("turns", 2);
  std::vector<std::unique_ptr<Child>> programs;
  for (int i = 0; i < 6; ++i) programs.push_back(all.rig.run({"--gpu", "auto"}, steps(kForEver)));
  EXPECT_TRUE(eventually([&] {
    std::map<uint32_t, int> on;
    for (const auto& [slot, record] : all.rig.snapshot().processes) ++on[record.gpu];
    return on[0] + on[1] == 6 && on[0] >= 2 && on[1] >= 2;
  })) << all.seen();
}

// One of the two GPUs of a job answers nothing any more.
TEST(JobOnTwoGpus, OfWhichOneHangsKeepsNobodyWaitingOnTheOther) {
  Hostile all("turns", 2);
  const auto both = all.rig.run({}, {program("workloads/spin"), "--seconds", "1000",
                                     "--ns-per-unit", "129.293", "--devices", "0,1"});
  const auto good = all.rig.run({}, steps(kForEver));
  ASSERT_TRUE(all.goes_on(*good)) << all.seen();
  EXPECT_TRUE(all.others_receive_time(*good)) << all.seen();
  all.rig.set_hang(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(all.goes_on(*good)) << all.seen();
  both->signal(SIGKILL);
  EXPECT_TRUE(all.goes_on(*good)) << all.seen();
  all.rig.set_hang(1, false);
  EXPECT_TRUE(all.goes_on(*good)) << all.seen();
}

}  // namespace
}  // namespace gpushare::test
