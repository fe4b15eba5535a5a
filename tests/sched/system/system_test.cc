// SPDX-License-Identifier: Apache-2.0
// gpushared with real processes on the simulated GPU, in real time: shares, SM partitions, programs
// that come and go, and the control socket. What holds when something dies is in
// deaths_system_test.cc. GPUSHARE_TEST_PROGRAMS is how many programs come and go (20).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/sched/system/system_rig.h"
#include "tests/shmctl/settings/plain_sysfs.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::ended_by;
using test::kSaturating;
using test::status_of;
using test::SystemRig;

bool is_near(double share, double wanted) { return std::abs(share - wanted) < 0.02; }

std::size_t descriptors(pid_t pid) {
  const std::filesystem::directory_iterator list("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

TEST(System, WeightsHold) {
  SystemRig rig("[tenant.a]\nweight = 300\nmatch = [{command=\"endless\"}]\n");
  rig.start_agent();
  const auto heavy = rig.start("endless", {"--seconds", "1000"});
  const auto light = rig.start("spin", kSaturating);
  EXPECT_TRUE(eventually([&] { return is_near(rig.share_beside(*heavy, *light), 0.75); }))
      << rig.share_beside(*heavy, *light);
}

// As a gang (gangs_system_test.cc) it would have the least of them on both.
TEST(System, AProgramOnTwoGpusHasItsShareOfEach) {
  SystemRig rig(
      "[tenant.both]\nweight = 100\ngang = false\n[tenant.a]\nweight = 300\n[tenant.b]\nweight = "
      "50\n",
      2);
  rig.start_agent();
  const auto start = [&](const std::string& devices, const std::string& tenant) {
    std::vector<std::string> arguments = kSaturating;
    arguments.insert(arguments.end(), {"--devices", devices});
    auto program = rig.start("spin", arguments);
    EXPECT_TRUE(rig.answers("{\"op\":\"attach\",\"pid\":" + std::to_string(program->pid()) +
                                ",\"tenant\":\"" + tenant + "\"}",
                            "\"ok\":true"));
    return program;
  };
  const auto both = start("0,1", "both"), first = start("0", "a"), second = start("1", "b");
  // One after the other: on a busy machine the queue of a program on one of them may run dry.
  EXPECT_TRUE(eventually([&] { return is_near(rig.share_beside(*both, *first, 0), 1.0 / 4); }))
      << rig.share_beside(*both, *first, 0);
  EXPECT_TRUE(eventually([&] { return is_near(rig.share_beside(*both, *second, 1), 2.0 / 3); }))
      << rig.share_beside(*both, *second, 1);
  EXPECT_EQ(rig.record(first->pid(), 1).pid, 0);
  EXPECT_EQ(rig.record(second->pid(), 0).pid, 0);
}

// Checked by the SMs that the kernels of each tenant themselves see.
TEST(System, TenantsOfASpatialGpuRunOnDisjointPartsOfItsSms) {
  SystemRig rig(R"(
[gpu.0]
sharing = "spatial"
[tenant.half]
sm_percent = 50
match = [{command="sms"}]
[tenant.quarter]
sm_percent = 25
match = [{command="spin"}]
)");
  rig.start_agent();
  const auto part = [&](const char* name) { return rig.tenant(name).gpu[0]; };
  const auto beside = rig.start_with_shim("spin", kSaturating);
  EXPECT_TRUE(eventually([&] { return part("quarter").sms_in_use == 132; })) << "alone it has all";
  const auto sms = rig.start_with_shim("sms", {"--launches", "100000", "--units", "50"});
  EXPECT_TRUE(eventually([&] {
    const TenantGpuUse half = part("half"), quarter = part("quarter");
    return half.sms_entitled == 64 && quarter.sms_entitled == 32 && half.sms_in_use >= 64 &&
           quarter.sms_in_use >= 32 && half.sms_in_use + quarter.sms_in_use == 132;
  })) << part("half").sms_in_use
      << " + " << part("quarter").sms_in_use << "\n"
      << rig.output("agent.log");
  // What the program sees of the GPU does not change; where its kernels run does.
  const auto last_seen = [&] {
    const std::string text = rig.output("sms.log");
    const std::size_t at = text.rfind("\"sms\":");
    return at == std::string::npos ? 0U : static_cast<uint32_t>(std::atoi(text.c_str() + at + 6));
  };
  EXPECT_TRUE(eventually([&] { return last_seen() == part("half").sms_in_use; })) << last_seen();
  // It takes back, and gives, while both run.
  ASSERT_TRUE(
      rig.answers(R"({"op":"set","tenant":"half","settings":{"sm_percent":"10"}})", "true"));
  EXPECT_TRUE(eventually([&] { return part("half").sms_entitled == 16 && last_seen() < 64; }));
  beside->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return part("half").sms_in_use == 132 && last_seen() == 132; }));
}

TEST(System, ASecondAgentIsRefused) {
  SystemRig rig("");
  rig.start_agent();
  EXPECT_EQ(rig.run_gpushared({}), 1);
  EXPECT_NE(rig.output("other.log").find("another gpushared (process "), std::string::npos);
  EXPECT_EQ(rig.run_gpushared({"--recover"}), 1) << "not while the agent works";
  EXPECT_FALSE(rig.ask(R"({"op":"hello"})").empty()) << "the first one is not disturbed";
}

TEST(System, ASecondAgentOnTheSameGpusIsRefusedWhateverItsControlPlane) {
  SystemRig rig("");
  rig.start_agent();
  const auto program = rig.start("endless", {"--seconds", "1000"});
  ASSERT_TRUE(eventually([&] { return rig.record(program->pid()).pid != 0; }));
  const auto second = test::started(
      {.command = {test::build_folder() + "/bin/gpushared", "--sim=" + rig.folder + "/sim.sock",
                   "--socket=" + rig.folder + "/second.sock", "--region=" + rig.region + "-second",
                   "--config=" + rig.folder + "/gpushare.toml"},
       .log = rig.folder + "/second.log"});
  EXPECT_EQ(test::status_of(*second), 1);
  (void)ControlPlane::remove(rig.region + "-second");
  ::shm_unlink((rig.region + "-second.lock").c_str());
  EXPECT_TRUE(rig.output("second.log")
                  .contains("another gpushared (process " + std::to_string(rig.gpushared->pid())))
      << rig.output("second.log");
  EXPECT_NE(rig.record(program->pid()).pid, 0) << "the first one is not disturbed";
}

TEST(System, AMistakeInTheFileEndsTheStartAndNotTheRun) {
  SystemRig rig("[tenant.a]\nweight = 100\n");
  rig.start_agent();
  rig.write_config("[tenant.a]\nweight = 0\n");
  EXPECT_TRUE(rig.answers(R"({"op":"reload"})", "gpushare.toml:2"));
  EXPECT_EQ(rig.run_gpushared({"--check-config"}), 2);
  rig.write_config("[tenant.a]\nweight = 300\n");
  rig.gpushared->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return rig.tenant("a").weight == 300; }));
  ended_by(*rig.gpushared, SIGTERM);
  rig.write_config("weight");
  EXPECT_EQ(rig.run_gpushared({}), 2) << "an agent that cannot start ends its supervisor";
}

TEST(System, AStartOnAMistakeGoesOnWithTheLastCorrectFile) {
  SystemRig rig("[tenant.a]\nweight = 300\n");
  const std::string kept = "--kept-config=" + rig.folder + "/kept.toml";
  rig.start_agent({kept});
  ended_by(*rig.gpushared, SIGTERM);
  rig.write_config("[tenant.a]\nweight = 0\n");
  rig.start_agent({kept});
  EXPECT_TRUE(eventually([&] { return rig.tenant("a").weight == 300; }));
  EXPECT_TRUE(rig.answers(R"({"op":"doctor"})", "gpushare.toml:2")) << "and says so";
  rig.write_config("[tenant.a]\nweight = 400\n");
  rig.gpushared->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return rig.tenant("a").weight == 400; }));
  ended_by(*rig.gpushared, SIGTERM);
  rig.write_config("weight");
  rig.start_agent({kept});
  EXPECT_TRUE(eventually([&] { return rig.tenant("a").weight == 400; }));
}

TEST(System, RecoveryEndsAnAgentThatIsStopped) {
  SystemRig rig("");
  rig.start_agent();
  const auto program = rig.start("spin", kSaturating);
  ASSERT_TRUE(eventually([&] { return rig.record(program->pid()).pid != 0; }));
  ASSERT_TRUE(rig.answers(R"({"op":"freeze","tenant":"default"})", "true"));
  ASSERT_TRUE(eventually([&] { return rig.frozen_groups() > 0; }));
  ::kill(rig.agent_pid(), SIGSTOP);
  rig.gpushared->kill();
  EXPECT_EQ(rig.run_gpushared({"--recover"}), 0) << rig.output("other.log");
  EXPECT_EQ(rig.frozen_groups(), 0u);
}

TEST(System, ProgramsThatCameBeforeTheAgentAreFound) {
  SystemRig rig("[tenant.a]\nweight = 300\nmatch = [{command=\"endless\"}]\n");
  const auto heavy = rig.start("endless", {"--seconds", "1000"});
  const auto light = rig.start("spin", kSaturating);
  std::this_thread::sleep_for(500ms);
  rig.start_agent();
  EXPECT_TRUE(eventually([&] { return is_near(rig.share_beside(*heavy, *light), 0.75); }));
  EXPECT_EQ(rig.record(heavy->pid()).is_late_attach, 1u);
}

TEST(System, ServesWithoutAGpuAndFindsItLater) {
  SystemRig rig("");
  ended_by(*rig.simulation, SIGKILL);
  rig.start_agent();
  EXPECT_TRUE(rig.answers(R"({"op":"doctor"})", "\"fail\""));
  EXPECT_EQ(rig.snapshot().agent.gpu_count, 0u);
  rig.start_simulation();
  EXPECT_TRUE(eventually([&] { return rig.snapshot().agent.gpu_count == 1; }));
  const auto program = rig.start("endless", {"--seconds", "1000"});
  EXPECT_TRUE(eventually([&] { return rig.record(program->pid()).pid != 0; }));
}

TEST(System, AGpuThatGoesAwayIsLookedForAgain) {
  SystemRig rig("");
  rig.start_agent();
  const pid_t agent = rig.agent_pid();
  ended_by(*rig.simulation, SIGKILL);
  EXPECT_TRUE(eventually([&] { return rig.snapshot().agent.gpu_count == 0; }));
  rig.start_simulation();
  EXPECT_TRUE(eventually([&] { return rig.snapshot().agent.gpu_count == 1; }));
  EXPECT_EQ(rig.agent_pid(), agent) << "it was the same agent all along";
}

TEST(System, ProgramsThatEndedLeaveNothingBehind) {
  SystemRig rig("[tenant.capped]\nmax = \"20%\"\nmatch = [{command=\"churn\"}]\n");
  rig.start_agent();
  status_of(*rig.start("churn", {}));
  ASSERT_TRUE(eventually([&] { return rig.snapshot().processes.empty(); }));
  const pid_t agent = rig.agent_pid();
  const std::size_t before = descriptors(agent);
  for (int i = test::number_given("GPUSHARE_TEST_PROGRAMS", 20); i > 0; --i)
    EXPECT_EQ(status_of(*rig.start("churn", {})), 0) << rig.output("churn.log");
  EXPECT_TRUE(eventually([&] { return rig.snapshot().processes.empty(); }));
  EXPECT_TRUE(eventually([&] { return rig.snapshot().ledger.empty(); }));
  EXPECT_EQ(rig.agent_pid(), agent) << "it did not die in between";
  // What it opens for a moment, as it does to look at a process, may be open just then.
  EXPECT_TRUE(eventually([&] { return descriptors(agent) <= before; })) << descriptors(agent);
}

// A plain folder stands for the kernel module's files. No notices of changes in it come.
TEST(System, SysfsIsTheTruthWhereItIsThere) {
  test::PlainSysfs tree;
  SystemRig rig("[tenant.default]\nweight = 80\n");
  const std::vector<std::string> with_tree = {"--sysfs=" + tree.root()};
  const auto has_weight = [&](uint32_t weight) {
    return eventually([&] { return rig.tenant("default").weight == weight; });
  };
  rig.start_agent(with_tree);
  EXPECT_TRUE(has_weight(80));
  EXPECT_EQ(tree.get("default", "weight"), "80") << "the file was written into it";
  tree.put("tenants/default/weight", "300\n");
  tree.bump();
  EXPECT_TRUE(has_weight(300));
  EXPECT_EQ(ended_by(*rig.gpushared, SIGTERM), 0);
  rig.start_agent(with_tree);
  EXPECT_TRUE(has_weight(300)) << "what an operator wrote survives the agent";
  EXPECT_TRUE(
      rig.answers(R"({"op":"set","tenant":"default","settings":{"max":"30%"}})", R"("ok":true)"));
  EXPECT_EQ(tree.get("default", "max"), "30000 100000");
}

TEST(System, AFloodHurtsOnlyItsClient) {
  SystemRig rig("");
  rig.start_agent();
  EXPECT_TRUE(rig.answers(std::string(100'000, 'x'), "64 KiB"));

  const auto connect = [&] { return test::connect_to(rig.socket, SOCK_NONBLOCK); };
  // This client asks and never reads.
  const Fd deaf = connect();
  const std::string request = "{\"op\":\"status\"}\n";
  std::size_t sent = 0;
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i) {
      if (::send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL) >= 0)
        ++sent;
      else if (errno != EAGAIN)
        return true;  // the server has ended the connection
    }
    EXPECT_FALSE(rig.ask(R"({"op":"hello"})").empty());
    return false;
  })) << sent
      << " requests";
  // These are more clients than the server takes.
  std::vector<Fd> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(connect());
  EXPECT_TRUE(eventually([&] {
    crowd.pop_back();
    return !rig.ask(R"({"op":"hello"})").empty();
  }));
}

// One GPU of 4 GiB, of which 3 are taken.
TEST(System, ARunWaitsForMemoryAcrossTheAgentsRestart) {
  SystemRig rig("");
  rig.start_anew({"--memory", "4"});
  const auto holder = rig.start("memhog", {"--bytes", "3221225472", "--hold-ms", "1000000"});
  ASSERT_TRUE(eventually([&] { return rig.record(holder->pid()).memory_bytes > 3000000000; }));
  const std::vector<std::string> options{"--gpu", "auto", "--memory-max", "2G"};
  const auto waiting = rig.start_run(options, "workloads/endless", {"--seconds", "1000"});
  const auto is_first_in_line = [&] {
    const auto line = rig.snapshot().waiting;
    return line.size() == 1 && line[0].pid == waiting->pid() &&
           line[0].memory_bytes == uint64_t{2} << 30;
  };
  EXPECT_TRUE(eventually(is_first_in_line)) << rig.output("run.log");
  ended_by(*rig.gpushared, SIGTERM);
  rig.start_agent();
  EXPECT_TRUE(eventually(is_first_in_line)) << rig.output("run.log");
  EXPECT_EQ(rig.record(waiting->pid()).pid, 0);
  holder->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return rig.record(waiting->pid()).pid != 0; }))
      << rig.output("run.log");
  EXPECT_TRUE(rig.snapshot().waiting.empty());
  EXPECT_EQ(status_of(*rig.run({"--gpu", "auto", "--memory-max", "5G"}, {"true"})), 1)
      << "no GPU could hold it";
}

// The agent takes 64 connections of a user, and root's 272 at most.
TEST(System, HundredsOfRunsWaitAndTheAgentTakesOrdersAllTheSame) {
  SystemRig rig("");
  rig.start_anew({"--memory", "4"});
  const auto holder = rig.start("memhog", {"--bytes", "3221225472", "--hold-ms", "1000000"});
  ASSERT_TRUE(eventually([&] { return rig.record(holder->pid()).memory_bytes > 3000000000; }));
  std::vector<std::unique_ptr<Child>> waiting;
  for (int i = 0; i < 300; ++i)
    waiting.push_back(rig.start_run({"--gpu", "auto", "--memory-max", "2G"}, "workloads/endless",
                                    {"--seconds", "1000"}));
  EXPECT_TRUE(eventually([&] {
    const std::string said = rig.output("run.log");
    std::size_t waits = 0;
    for (auto at = said.find("waits"); at != std::string::npos; at = said.find("waits", at + 1))
      ++waits;
    return waits == waiting.size();
  })) << rig.output("run.log");
  EXPECT_EQ(rig.snapshot().waiting.size(), 16U);
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(rig.answers(R"({"op":"set","tenant":"default","settings":{"weight":")" +
                                std::to_string(100 + i) + "\"}}",
                            "true"));
  std::ptrdiff_t over = std::ranges::count_if(waiting, [](auto& run) { return run->has_ended(); });
  EXPECT_EQ(over, 0) << rig.output("run.log");
}

// Each start holds the driver's lock six times for 60 ms, and with eight of them at once each call
// of the driver waits for half a second.
TEST(System, TheAgentAnswersWhileManyProgramsStart) {
  SystemRig rig("");
  rig.start_anew({"--start-ms", "60"});
  std::vector<std::unique_ptr<Child>> programs;
  for (int i = 0; i < 8; ++i) programs.push_back(rig.start("spin", kSaturating));
  std::vector<Nanos> answers;
  const auto are_there = [&] {
    return std::ranges::all_of(programs,
                               [&](const auto& one) { return rig.record(one->pid()).pid != 0; });
  };
  ASSERT_TRUE(eventually([&] {
    const Time asked = MonotonicClock().now();
    EXPECT_FALSE(rig.ask(R"({"op":"thaw","tenant":"default"})").empty());
    answers.push_back(MonotonicClock().now() - asked);
    return are_there();
  }));
  ASSERT_GT(answers.size(), 5u);
  std::ranges::sort(answers);
  EXPECT_LT(answers[answers.size() / 2], 250ms) << "as long as half a call";
}

// Six programs that start at once hold the GPU one after the other for two seconds, and run next to
// nothing.
TEST(System, AStartIsNotChargedWhatItIsResidentForIfItHasTheShim) {
  SystemRig rig("");
  rig.start_anew({"--start-ms", "60"});
  const auto charged = [&] {
    return std::chrono::duration<double>(Nanos(rig.tenant("default").gpu[0].gpu_time_ns)).count();
  };
  std::vector<std::unique_ptr<Child>> programs;
  const Time began = MonotonicClock().now();
  for (int i = 0; i < 6; ++i)
    programs.push_back(rig.start_with_shim(
        "periodic", {"--period-us", "500000", "--samples", "1000", "--ns-per-unit", "129.293"}));
  ASSERT_TRUE(eventually([&] {
    return std::ranges::all_of(programs,
                               [&](const auto& one) { return rig.record(one->pid()).pid != 0; }) &&
           MonotonicClock().now() - began > 3s;
  }));
  const double elapsed = std::chrono::duration<double>(MonotonicClock().now() - began).count();
  EXPECT_LT(charged(), elapsed / 2);
}

TEST(System, TheSocketIsForRootAndTheGroup) {
  SystemRig rig("");
  rig.start_agent();
  struct stat status{};
  ASSERT_EQ(::stat(rig.socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
}

}  // namespace
}  // namespace gpushare
