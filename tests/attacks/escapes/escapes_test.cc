// SPDX-License-Identifier: Apache-2.0
// Programs that try to leave their tenant, or to use more than it has:
// short_programs, daemonise and undumpable, beside a real agent on the simulated GPU.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "shmctl/base/cgroup.h"
#include "tests/sched/system/system_rig.h"
#include "tests/support/lateness.h"
#include "tests/workloads/common/output.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::kSaturating;
using test::Lateness;
using test::status_of;
using test::SystemRig;

constexpr const char* kUnit = "129.293";  // of the simulated GPU

double charged_ms(const SystemRig& rig, const std::string& tenant) {
  return static_cast<double>(rig.tenant(tenant).gpu[0].gpu_time_ns) / 1e6;
}

double ms_of(Nanos time) { return std::chrono::duration<double, std::milli>(time).count(); }

// How many programs it was, by what short_programs says at its end: finished, or killed on the way.
double programs_of(const std::string& said) {
  return number_in(said, "programs").value() + number_in(said, "fled").value();
}

// Empty while it is on no GPU.
std::string tenant_of(const SystemRig& rig, pid_t pid) {
  const ProcessRecord record = rig.record(pid);
  for (const auto& [slot, tenant] : rig.snapshot().tenants)
    if (record.pid != 0 && slot == record.tenant) return tenant.name;
  return "";
}

struct Cap {
  const char* description;
  double part;  // 1: none
  const char *program_ms, *lanes, *flee_ms;
  // What they may get and should get, of their part. A new program of a tenant that has used up
  // its time has the GPU until it is seen and frozen, which is late on a busy machine: that much is
  // allowed besides, and the longest time for which the agent may have stood still. And what is
  // killed when it stands still has done its work for nobody.
  double most = 1.1, least = 0.3;
  // In which they say that they launch nothing. That they do, the driver's samples tell, the first
  // one half a second late: the test is longer, so that its begin counts for less.
  bool has_slots = false;
};

class ShortPrograms : public ::testing::TestWithParam<Cap> {};

TEST_P(ShortPrograms, AreHeldToTheCapOfTheirTenant) {
  const Cap& cap = GetParam();
  // With a policy that orders jobs what they say counts.
  SystemRig rig((cap.has_slots ? "[gpu.0]\npolicy = \"fifo\"\n" : "") +
                std::string("[tenant.capped]\nmax = \"") +
                std::to_string(std::lround(cap.part * 100)) +
                "%\"\nmatch = [{command=\"short_programs\"}]\n");
  rig.start_agent();
  const Lateness lateness;
  const auto attack = rig.start_attack(
      "short_programs",
      {"--program-ms", cap.program_ms, "--lanes", cap.lanes, "--flee-ms", cap.flee_ms, "--seconds",
       cap.has_slots ? "15" : "5", "--ns-per-unit", kUnit, "--slots", cap.has_slots ? "1" : "0"});
  EXPECT_EQ(status_of(*attack), 0) << rig.output("short_programs.log");
  const std::string said = rig.output("short_programs.log");
  const double done = number_in(said, "done_ms").value(),
               elapsed = number_in(said, "elapsed_ms").value();
  const double late_ms = ms_of(lateness.mean()), longest_ms = ms_of(lateness.longest()),
               late_part = (programs_of(said) * late_ms + longest_ms) / elapsed;
  if (late_part > 0.3)
    GTEST_SKIP() << "threads of this machine come " << late_ms << " ms late, once " << longest_ms;
  EXPECT_LE(done / elapsed, cap.part * cap.most + late_part)
      << said << " each seen " << late_ms << " ms too late, and one " << longest_ms;
  // What a program is on the GPU for without work, at its start and end, counts too.
  EXPECT_GE(done / elapsed, cap.part * cap.least) << said << "it may have what is its own";
  if (cap.has_slots) return;
  EXPECT_TRUE(eventually([&] { return charged_ms(rig, "capped") >= 0.95 * done; }))
      << charged_ms(rig, "capped") << " ms charged of " << done;
}

// The cap believes a second's worth of itself at first, which is a fifth of what it is here.
INSTANTIATE_TEST_SUITE_P(
    Caps, ShortPrograms,
    ::testing::Values(Cap{"TenPercent", 0.10, "50", "1", "0"}, Cap{"Half", 0.50, "80", "1", "0"},
                      Cap{"AThird", 0.30, "30", "1", "0"},
                      Cap{"TenPercentFourAtOnce", 0.10, "50", "4", "0"},
                      Cap{"TenPercentTiny", 0.10, "8", "1", "0"},
                      Cap{"TenPercentCrowd", 0.10, "5", "16", "0", 3},
                      Cap{"TenPercentFleeing", 0.10, "50", "2", "20", 4, 0},
                      Cap{"TenPercentWithSlots", 0.10, "50", "1", "0", 1.4, 0.3, true}),
    [](const auto& row) { return row.param.description; });

TEST(ShortPrograms, HaveNoMoreThanTheirWeight) {
  SystemRig rig(
      "[tenant.short]\nmatch = [{command=\"short_programs\"}]\n[tenant.long]\nweight = "
      "300\nmatch = [{command=\"spin\"}]\n");
  rig.start_agent();
  const auto other = rig.start("spin", kSaturating);
  ASSERT_TRUE(eventually([&] { return rig.record(other->pid()).pid != 0; }));
  for (const char* lanes : {"1", "4"}) {
    const double before = charged_ms(rig, "short");
    const Lateness lateness;
    const auto attack = rig.start_attack(
        "short_programs",
        {"--program-ms", "50", "--lanes", lanes, "--seconds", "4", "--ns-per-unit", kUnit});
    EXPECT_EQ(status_of(*attack), 0);
    const std::string said = rig.output("short_programs.log");
    const double done = number_in(said, "done_ms").value(),
                 elapsed = number_in(said, "elapsed_ms").value();
    // The agent may stand still for as long as a thread of this test did, and what has the GPU then
    // keeps it.
    const double longest_ms = ms_of(lateness.longest());
    EXPECT_LE(done / elapsed, 0.27 + longest_ms / elapsed) << said << " late: " << longest_ms;
    // They have their part of it, too; how much, depends on how soon this machine starts the next.
    EXPECT_GE(done / elapsed, 0.05) << said;
    EXPECT_TRUE(eventually([&] { return charged_ms(rig, "short") - before >= 0.95 * done; }));
  }
}

// Each does no more than a program may that starts, which is beside whoever has the turn. When that
// is used up, each has the GPU until it is seen and frozen.
TEST(ShortPrograms, InACrowdPassNoQueue) {
  SystemRig rig(
      "[gpu.0]\npolicy = \"fifo\"\n[tenant.crowd]\nmatch = [{command=\"short_programs\"}]\n");
  rig.start_agent();
  const auto first = rig.start("spin", kSaturating);
  ASSERT_TRUE(eventually([&] { return rig.record(first->pid()).pid != 0; }));
  const Lateness lateness;
  const auto attack = rig.start_attack(
      "short_programs", {"--program-ms", "8", "--kernel-us", "1000", "--lanes", "16", "--flee-ms",
                         "20", "--seconds", "6", "--ns-per-unit", kUnit});
  EXPECT_EQ(status_of(*attack), 0);
  const std::string said = rig.output("short_programs.log");
  const double elapsed = number_in(said, "elapsed_ms").value();
  const double late_ms = ms_of(lateness.mean());
  EXPECT_LE(charged_ms(rig, "crowd"), 1000 + 0.1 * elapsed + (3 + late_ms) * programs_of(said))
      << said;
}

// Where daemons stay in their tenant wherever they go.
class Daemons : public ::testing::Test {
 protected:
  static bool are_followed(const SystemRig& rig) {
    return rig.answers(R"({"op":"doctor"})", "they stay in the tenant");
  }
  // Waits for what does the work, and returns its pid.
  static pid_t daemon_of(const SystemRig& rig) {
    const auto pid = [&] {
      return static_cast<pid_t>(number_in(rig.output("run.log"), "pid").value_or(-1));
    };
    EXPECT_TRUE(eventually([&] { return rig.record(pid()).pid > 0; })) << rig.output("run.log");
    return pid();
  }
  // Of the GPU, in the next two seconds.
  static double use(const SystemRig& rig, pid_t pid) {
    const auto used = [&] { return static_cast<double>(rig.record(pid).gpu_time_ns); };
    const Time begin = MonotonicClock().now();
    const double before = used();
    EXPECT_TRUE(eventually([&] { return MonotonicClock().now() - begin > 2s; }));
    return (used() - before) /
           std::chrono::duration<double, std::nano>(MonotonicClock().now() - begin).count();
  }
  // False: whenever that is measured it has more than its 10 %, as one that has left its tenant has
  // nearly all of the GPU. While the agent is late, on a busy machine, others have more too.
  static bool comes_to_its_cap(const SystemRig& rig, pid_t pid) {
    return eventually([&] { return use(rig, pid) <= 0.11 && rig.record(pid).pid != 0; });
  }
};

class Ways : public Daemons, public ::testing::WithParamInterface<const char*> {};

TEST_P(Ways, OfDaemonsLeaveNoTenant) {
  SystemRig rig("");
  rig.start_agent();
  if (!are_followed(rig)) GTEST_SKIP() << "needs eBPF: " << rig.ask(R"({"op":"doctor"})");
  // Longer than the agent takes to notice that the first process has ended.
  const auto root = rig.start_run({"--max", "10%"}, "attacks/daemonise",
                                  {"--how", GetParam(), "--later-ms", "2500"});
  EXPECT_EQ(status_of(*root), 0) << "the daemon is on its own";
  const std::string tenant = "run-" + std::to_string(root->pid());
  const pid_t daemon = daemon_of(rig);
  ASSERT_NE(daemon, root->pid());
  EXPECT_EQ(tenant_of(rig, daemon), tenant);
  EXPECT_TRUE(comes_to_its_cap(rig, daemon));
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);  // a sibling of its parent is a child of ours
  EXPECT_TRUE(eventually([&] { return rig.tenant(tenant).name[0] == 0; }))
      << "a tenant goes with its last process";
}

INSTANTIATE_TEST_SUITE_P(Daemons, Ways,
                         ::testing::Values("setsid", "double-fork", "clone-parent", "exec",
                                           "vfork-exec", "thread-exec", "namespaces"),
                         [](const auto& way) {
                           std::string name = way.param;
                           std::erase(name, '-');
                           return name;
                         });

// Where systemd runs the machine the BPF file system is there; here the test mounts it for itself.
TEST_F(Daemons, StayInTheTenantThoughTheAgentIsKilledBeforeTheyTouchAGpu) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", "/sys/fs/bpf", "bpf", 0, nullptr) != 0)
    GTEST_SKIP() << "needs root, to mount the BPF file system";
  {
    SystemRig rig("");
    rig.start_agent();
    if (!are_followed(rig)) GTEST_SKIP() << "needs eBPF";
    const auto root = rig.start_run({"--max", "10%"}, "attacks/daemonise",
                                    {"--how", "double-fork", "--later-ms", "4000"});
    EXPECT_EQ(status_of(*root), 0);
    const pid_t agent = rig.agent_pid();
    ::kill(agent, SIGKILL);
    EXPECT_TRUE(eventually([&] { return rig.agent_pid() != agent && rig.agent_pid() != 0; }));
    const pid_t daemon = daemon_of(rig);
    EXPECT_EQ(tenant_of(rig, daemon), "run-" + std::to_string(root->pid()));
    EXPECT_TRUE(comes_to_its_cap(rig, daemon));
    ::kill(daemon, SIGKILL);
  }
  ::umount2("/sys/fs/bpf", MNT_DETACH);
}

class FallenBackOn : public Ways {};

// Without eBPF the program that `gpushare run` becomes adopts them, as long as it lives.
TEST_P(FallenBackOn, TheirFirstAncestorWhereForksAreNotFollowed) {
  SystemRig rig("");
  rig.agent_launcher = {"setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon"};
  rig.start_agent();
  EXPECT_FALSE(are_followed(rig));
  const auto root = rig.start_run({"--max", "10%"}, "attacks/daemonise",
                                  {"--how", GetParam(), "--later-ms", "100", "--stays", "1"});
  const pid_t daemon = daemon_of(rig);
  EXPECT_EQ(tenant_of(rig, daemon), "run-" + std::to_string(root->pid()));
}

INSTANTIATE_TEST_SUITE_P(Ways, FallenBackOn, ::testing::Values("setsid", "double-fork"),
                         [](const auto& way) {
                           std::string name = way.param;
                           std::erase(name, '-');
                           return name;
                         });

class Scope : public Ways {};

TEST_P(Scope, HoldsWhatItsProgramStartsWhereForksAreNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  if (!cgroup2_root()) GTEST_SKIP() << "needs cgroups of version 2";
  if (std::filesystem::exists("/run/systemd/system"))
    GTEST_SKIP() << "needs a machine without systemd";
  SystemRig rig("");
  rig.agent_launcher = {"setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon"};
  rig.start_agent();
  const auto root = rig.start_run({"--scope", "--max", "10%"}, "attacks/daemonise",
                                  {"--how", GetParam(), "--later-ms", "2500"});
  EXPECT_EQ(status_of(*root), 0) << rig.output("run.log");
  const std::string tenant = "run-" + std::to_string(root->pid());
  const pid_t daemon = daemon_of(rig);
  EXPECT_EQ(tenant_of(rig, daemon), tenant);
  EXPECT_TRUE(comes_to_its_cap(rig, daemon));
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return rig.tenant(tenant).name[0] == 0; }));
  EXPECT_TRUE(eventually([&] {
    return !std::filesystem::exists(*cgroup2_root() + std::string(kScopePrefix) +
                                    std::to_string(root->pid()) + ".scope");
  })) << "nobody else removes it";
}

INSTANTIATE_TEST_SUITE_P(Ways, Scope, ::testing::Values("double-fork", "clone-parent"),
                         [](const auto& way) {
                           std::string name = way.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Undumpable, ProgramsAreTheirUsersAfterARestartToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  SystemRig rig("[tenant.user]\nmax = \"10%\"\nmatch = [{user=4321}]\n");
  ASSERT_EQ(::chmod(rig.folder.c_str(), 0755), 0);
  const auto attack = rig.start_attack("undumpable", {"--uid", "4321"});
  rig.start_agent();
  EXPECT_TRUE(eventually([&] { return tenant_of(rig, attack->pid()) == "user"; }))
      << "it was there before the agent";
  const auto late = rig.record(attack->pid());
  EXPECT_EQ(late.is_late_attach, 1U);
  EXPECT_NE(late.uid, 0U) << "nobody said that it is root's";
}

}  // namespace
}  // namespace gpushare
