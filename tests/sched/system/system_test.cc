// SPDX-License-Identifier: Apache-2.0
// The promises, with real processes on the simulated GPU in real time. GPUSHARE_TEST_KILLS and
// GPUSHARE_TEST_PROGRAMS make the two long ones longer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "shmctl/base/fd.h"
#include "tests/sched/system/system_rig.h"
#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::status_of;
using test::SystemRig;

// One capped program, two idle-class ones that take turns: something is frozen at almost any time.
constexpr const char* kCapsAndTurns = R"(
[tenant.capped]
max = "30%"
match = [{command="endless"}]
[tenant.batch]
priority = "idle"
match = [{command="spin"}]
)";

// Kernels of 2 ms without a pause. The length of a unit is the simulated GPU's: measuring it beside
// other programs takes long.
const std::vector<std::string> kSaturating{"--seconds", "1000", "--ns-per-unit", "129.293"};

int count_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct CapsAndTurns {
  explicit CapsAndTurns(SystemRig& rig)
      : capped(rig.start("endless", {"--seconds", "1000"})),
        first(rig.start("spin", kSaturating)),
        second(rig.start("spin", kSaturating)) {}
  bool are_known(const SystemRig& rig) const {
    return std::ranges::all_of(
        std::initializer_list<const Child*>{capped.get(), first.get(), second.get()},
        [&](const Child* child) { return rig.record(child->pid()).pid != 0; });
  }
  // All are known, and some are frozen at this moment.
  bool have_begun(const SystemRig& rig) const {
    return eventually([&] { return are_known(rig) && rig.frozen_groups() > 0; });
  }
  bool comes_to_its_cap(const SystemRig& rig) const {
    return eventually([&] {
      const uint32_t share = share_of_capped(rig);
      return share > 270 && share < 330;
    });
  }
  uint32_t share_of_capped(const SystemRig& rig) const {
    return rig.record(capped->pid()).share_permille;
  }
  std::unique_ptr<Child> capped, first, second;
};

// The first one's part of what both had of a saturated GPU in the last second; 0 until it is known.
double share_beside(const SystemRig& rig, const Child& first, const Child& other,
                    uint32_t gpu = 0) {
  const ProcessRecord a = rig.record(first.pid(), gpu), b = rig.record(other.pid(), gpu);
  if (a.share_permille > 1000 || b.share_permille > 1000) return 0;
  const double sum = a.share_permille + b.share_permille;
  return sum > 900 ? a.share_permille / sum : 0;
}

bool is_near(double share, double wanted) { return std::abs(share - wanted) < 0.02; }

bool is_alive(pid_t pid) { return pid > 0 && ::kill(pid, 0) == 0; }

std::size_t descriptors(pid_t pid) {
  const std::filesystem::directory_iterator list("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

TEST(System, WeightsHold) {
  SystemRig rig("[tenant.a]\nweight = 300\nmatch = [{command=\"endless\"}]\n");
  rig.start_agent();
  const auto heavy = rig.start("endless", {"--seconds", "1000"});
  const auto light = rig.start("spin", kSaturating);
  EXPECT_TRUE(eventually([&] { return is_near(share_beside(rig, *heavy, *light), 0.75); }))
      << share_beside(rig, *heavy, *light);
}

TEST(System, AProgramOnTwoGpusHasItsShareOfEach) {
  SystemRig rig("[tenant.both]\nweight = 100\n[tenant.a]\nweight = 300\n[tenant.b]\nweight = 50\n",
                2);
  rig.start_agent();
  const auto start = [&](const std::string& devices, const std::string& tenant) {
    std::vector<std::string> arguments = kSaturating;
    arguments.insert(arguments.end(), {"--devices", devices});
    auto program = rig.start("spin", arguments);
    const std::string answer =
        rig.ask("{\"op\":\"attach\",\"pid\":" + std::to_string(program->pid()) + ",\"tenant\":\"" +
                tenant + "\"}");
    EXPECT_NE(answer.find("\"ok\":true"), std::string::npos) << answer;
    return program;
  };
  const auto both = start("0,1", "both"), first = start("0", "a"), second = start("1", "b");
  double on_first = 0, on_second = 0;
  EXPECT_TRUE(eventually([&] {
    on_first = share_beside(rig, *both, *first, 0);
    on_second = share_beside(rig, *both, *second, 1);
    return is_near(on_first, 1.0 / 4) && is_near(on_second, 2.0 / 3);
  })) << on_first
      << ", " << on_second;
  EXPECT_EQ(rig.record(first->pid(), 1).pid, 0);
  EXPECT_EQ(rig.record(second->pid(), 0).pid, 0);
}

TEST(System, WhateverKillsTheAgentNothingStaysFrozen) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  std::mt19937 random(static_cast<uint32_t>(::getpid()));
  std::vector<double> took_ms;
  const int kills = count_from("GPUSHARE_TEST_KILLS", 10);
  for (int i = 0; i < kills; ++i) {
    std::this_thread::sleep_for(300ms + std::chrono::microseconds(random() % 300'000));
    pid_t agent = 0;
    ASSERT_TRUE(eventually([&] { return is_alive(agent = rig.agent_pid()); })) << "kill " << i;
    ::kill(agent, SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    // The next agent may freeze before we look: it then has published itself.
    ASSERT_TRUE(eventually([&] { return rig.frozen_groups() == 0 || rig.agent_pid() != agent; }));
    took_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - killed)
            .count());
  }
  std::ranges::sort(took_ms);
  RecordProperty("median_thaw_us", static_cast<int>(took_ms[took_ms.size() / 2] * 1000));
  RecordProperty("worst_thaw_us", static_cast<int>(took_ms.back() * 1000));
  // The worst one depends on what else this machine does; the promise is 100 ms.
  EXPECT_LT(took_ms[took_ms.size() / 2], 100);

  EXPECT_TRUE(programs.comes_to_its_cap(rig)) << programs.share_of_capped(rig);
  EXPECT_EQ(rig.snapshot().agent.restarts, static_cast<uint64_t>(kills));
  for (const Child* child : {programs.first.get(), programs.second.get()})
    EXPECT_TRUE(eventually([&] {
      const ProcessRecord record = rig.record(child->pid());
      return record.share_permille > 200 && record.share_permille <= 1000;
    }));
}

// It lives, so nothing says that it does not thaw.
TEST(System, AnAgentThatHangsKeepsNothingFrozen) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  const pid_t agent = rig.agent_pid();
  ASSERT_TRUE(eventually([&] {
    ::kill(agent, SIGSTOP);
    if (rig.frozen_groups() > 0) return true;
    ::kill(agent, SIGCONT);
    return false;
  }));
  EXPECT_TRUE(eventually([&] { return rig.frozen_groups() == 0 || rig.agent_pid() != agent; }));
  EXPECT_TRUE(eventually([&] { return rig.agent_pid() != agent && is_alive(rig.agent_pid()); }));
  EXPECT_TRUE(rig.output("agent.log").contains("does nothing any more"));
  EXPECT_TRUE(programs.comes_to_its_cap(rig)) << programs.share_of_capped(rig);
}

TEST(System, SharesAreRightAgainTwoSecondsAfterTheAgentWasKilled) {
  struct Case {
    const char* setting;
    double share;
  };
  for (const Case& one : {Case{"weight = 300", 0.75}, Case{"max = \"30%\"", 0.30}}) {
    SCOPED_TRACE(one.setting);
    SystemRig rig(std::string("[tenant.a]\n") + one.setting +
                  "\nmatch = [{command=\"endless\"}]\n");
    rig.start_agent();
    const auto first = rig.start("endless", {"--seconds", "1000"});
    const auto other = rig.start("spin", kSaturating);
    const auto are_right = [&] { return is_near(share_beside(rig, *first, *other), one.share); };
    ASSERT_TRUE(eventually(are_right));
    std::vector<double> took_ms;
    for (int i = 0; i < 3; ++i) {
      const pid_t agent = rig.agent_pid();
      ::kill(agent, SIGKILL);
      const auto killed = std::chrono::steady_clock::now();
      // Until the next agent has published itself, the records are those of the dead one.
      ASSERT_TRUE(eventually([&] {
        const pid_t now = rig.agent_pid();
        return now != 0 && now != agent && are_right();
      })) << share_beside(rig, *first, *other);
      took_ms.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - killed)
              .count());
    }
    std::ranges::sort(took_ms);
    // The worst one depends on what else this machine does.
    EXPECT_LT(took_ms[1], 2000);
  }
}

TEST(System, RecoverThawsAfterBothWereKilled) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  const pid_t agent = rig.agent_pid();
  // Both stand still first, so that neither can see the other die.
  rig.gpushared->signal(SIGSTOP);
  ::kill(agent, SIGSTOP);
  rig.gpushared->signal(SIGKILL);
  ::kill(agent, SIGKILL);
  status_of(*rig.gpushared);
  ASSERT_TRUE(eventually([&] { return rig.run_gpushared({"--recover"}) == 0; }));
  EXPECT_EQ(rig.frozen_groups(), 0u);
  EXPECT_TRUE(rig.snapshot().ledger.empty());
  EXPECT_EQ(rig.run_gpushared({"--recover"}), 0) << "once more does no harm";
}

TEST(System, AnAgentWhoseSupervisorDiesStopsCleanly) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  const pid_t agent = rig.agent_pid();
  rig.gpushared->signal(SIGKILL);
  status_of(*rig.gpushared);
  EXPECT_TRUE(eventually([&] { return rig.snapshot().ledger.empty(); }));
  EXPECT_TRUE(eventually([&] { return rig.agent_pid() == 0; })) << agent;
}

TEST(System, ACleanStopLeavesNothingBehind) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  rig.gpushared->signal(SIGTERM);
  EXPECT_EQ(status_of(*rig.gpushared), 0) << rig.output("agent.log");
  EXPECT_TRUE(rig.snapshot().ledger.empty());
  EXPECT_FALSE(std::filesystem::exists(rig.socket));
}

// The SMs that each tenant's kernels run on, as they themselves see it.
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
  const auto part = [&](const char* name) {
    for (const auto& [slot, record] : rig.snapshot().tenants)
      if (std::string(record.name) == name) return record.gpu[0];
    return TenantGpuUse{};
  };
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
  ASSERT_NE(rig.ask(R"({"op":"set","tenant":"half","settings":{"sm_percent":"10"}})").find("true"),
            std::string::npos);
  EXPECT_TRUE(eventually([&] { return part("half").sms_entitled == 16 && last_seen() < 64; }));
  beside->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return part("half").sms_in_use == 132 && last_seen() == 132; }));
}

// As the supervisor asks it to when the kernel module has come.
TEST(System, AnAgentThatHandsOverThawsAndLeavesItsTenantsToTheNext) {
  SystemRig rig(kCapsAndTurns);
  rig.start_agent();
  const CapsAndTurns programs(rig);
  ASSERT_TRUE(programs.have_begun(rig));
  const std::string set =
      rig.ask(R"({"op":"set","tenant":"later","settings":{"weight":"70"},"create":true})");
  ASSERT_NE(set.find(R"("ok":true)"), std::string::npos) << set;
  const auto has_tenant = [&] {
    return std::ranges::any_of(rig.snapshot().tenants, [](const auto& tenant) {
      return std::string(tenant.record.name) == "later" && tenant.record.weight == 70;
    });
  };
  ASSERT_TRUE(eventually(has_tenant));
  const pid_t agent = rig.agent_pid();
  rig.gpushared->signal(SIGSTOP);  // nobody starts the next one, nobody else thaws
  ASSERT_EQ(::kill(agent, SIGUSR1), 0);
  EXPECT_TRUE(eventually([&] { return rig.snapshot().ledger.empty(); }));
  rig.gpushared->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return rig.agent_pid() != agent && has_tenant(); }));
  EXPECT_TRUE(eventually([&] { return rig.frozen_groups() > 0; })) << "the next one works";
}

TEST(System, ASecondAgentIsRefused) {
  SystemRig rig("");
  rig.start_agent();
  EXPECT_EQ(rig.run_gpushared({}), 1);
  EXPECT_NE(rig.output("other.log").find("another gpushared runs"), std::string::npos);
  EXPECT_EQ(rig.run_gpushared({"--recover"}), 1) << "not while the agent works";
  EXPECT_FALSE(rig.ask(R"({"op":"hello"})").empty()) << "the first one is not disturbed";
}

TEST(System, AMistakeInTheFileEndsTheStartAndNotTheRun) {
  SystemRig rig("[tenant.a]\nweight = 100\n");
  rig.start_agent();
  rig.write_config("[tenant.a]\nweight = 0\n");
  EXPECT_NE(rig.ask(R"({"op":"reload"})").find("gpushare.toml:2"), std::string::npos);
  EXPECT_EQ(rig.run_gpushared({"--check-config"}), 2);
  rig.write_config("[tenant.a]\nweight = 300\n");
  rig.gpushared->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] {
    for (const auto& [slot, tenant] : rig.snapshot().tenants)
      if (std::string_view(tenant.name) == "a") return tenant.weight == 300;
    return false;
  }));
  rig.gpushared->signal(SIGTERM);
  status_of(*rig.gpushared);
  rig.write_config("weight");
  EXPECT_EQ(rig.run_gpushared({}), 2) << "an agent that cannot start ends its supervisor";
}

TEST(System, ProgramsThatCameBeforeTheAgentAreFound) {
  SystemRig rig("[tenant.a]\nweight = 300\nmatch = [{command=\"endless\"}]\n");
  const auto heavy = rig.start("endless", {"--seconds", "1000"});
  const auto light = rig.start("spin", kSaturating);
  std::this_thread::sleep_for(500ms);
  rig.start_agent();
  EXPECT_TRUE(eventually([&] { return is_near(share_beside(rig, *heavy, *light), 0.75); }));
  EXPECT_EQ(rig.record(heavy->pid()).is_late_attach, 1u);
}

TEST(System, ServesWithoutAGpuAndFindsItLater) {
  SystemRig rig("");
  rig.simulation->signal(SIGKILL);
  status_of(*rig.simulation);
  rig.start_agent();
  EXPECT_NE(rig.ask(R"({"op":"doctor"})").find("\"fail\""), std::string::npos);
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
  rig.simulation->signal(SIGKILL);
  status_of(*rig.simulation);
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
  for (int i = count_from("GPUSHARE_TEST_PROGRAMS", 20); i > 0; --i)
    EXPECT_EQ(status_of(*rig.start("churn", {})), 0) << rig.output("churn.log");
  EXPECT_TRUE(eventually([&] { return rig.snapshot().processes.empty(); }));
  EXPECT_TRUE(eventually([&] { return rig.snapshot().ledger.empty(); }));
  EXPECT_EQ(rig.agent_pid(), agent) << "it did not die in between";
  EXPECT_EQ(descriptors(agent), before);
}

// A plain directory stands for the kernel module's files; nobody tells of changes in it.
TEST(System, SysfsIsTheTruthWhereItIsThere) {
  test::PlainSysfs tree;
  SystemRig rig("[tenant.default]\nweight = 80\n");
  const std::vector<std::string> with_tree = {"--sysfs=" + tree.root()};
  const auto has_weight = [&](uint32_t weight) {
    return eventually([&] {
      const PlaneSnapshot now = rig.snapshot();
      return !now.tenants.empty() && now.tenants[0].record.weight == weight;
    });
  };
  rig.start_agent(with_tree);
  EXPECT_TRUE(has_weight(80));
  EXPECT_EQ(tree.get("default", "weight"), "80") << "the file was written into it";
  tree.put("tenants/default/weight", "300\n");
  tree.bump();
  EXPECT_TRUE(has_weight(300));
  rig.gpushared->signal(SIGTERM);
  EXPECT_EQ(status_of(*rig.gpushared), 0);
  rig.start_agent(with_tree);
  EXPECT_TRUE(has_weight(300)) << "what an operator wrote survives the agent";
  const std::string answer = rig.ask(R"({"op":"set","tenant":"default","settings":{"max":"30%"}})");
  EXPECT_NE(answer.find(R"("ok":true)"), std::string::npos) << answer;
  EXPECT_EQ(tree.get("default", "max"), "30000 100000");
}

TEST(System, FloodsHurtOnlyWhoMakesThem) {
  SystemRig rig("");
  rig.start_agent();
  const std::string line(100'000, 'x');
  EXPECT_NE(rig.ask(line).find("64 KiB"), std::string::npos);

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  rig.socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const auto connect = [&] {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return fd;
  };
  // Asks and never reads.
  const Fd deaf = connect();
  const std::string request = "{\"op\":\"status\"}\n";
  std::size_t sent = 0;
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i) {
      if (::send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL) >= 0)
        ++sent;
      else if (errno != EAGAIN)
        return true;  // thrown out
    }
    EXPECT_FALSE(rig.ask(R"({"op":"hello"})").empty());
    return false;
  })) << sent
      << " requests";
  // More than are taken.
  std::vector<Fd> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(connect());
  EXPECT_TRUE(eventually([&] {
    crowd.pop_back();
    return !rig.ask(R"({"op":"hello"})").empty();
  }));
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
