// SPDX-License-Identifier: Apache-2.0
// gpushared with a stand-in for nvidia-cuda-mps-control (fake_mps_control.sh), on the simulated
// GPU: which daemon is started, which one stays, and which programs are told of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "sched/mps/plan.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/shim/credit.h"
#include "tests/sched/system/system_rig.h"
#include "tests/support/given.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

const std::string kProgram =
    (std::filesystem::current_path() / "tests/sched/mps/fake_mps_control.sh").string();

std::string config(const std::string& sharing, const std::string& program = kProgram) {
  return "[agent]\nlog_level = \"debug\"\n[gpu.0]\nsharing = \"" + sharing +
         "\"\n[mps]\nprogram = \"" + program + R"("
[tenant.a]
sm_percent = 50
match = [{command="spin"}, {command="shim_probe"}]
[tenant.b]
sm_percent = 25
match = [{command="endless"}]
)";
}

// Puts other text in place of the first that is `what`.
void put(std::string& text, const std::string& what, const std::string& other) {
  text.replace(text.find(what), what.size(), other);
}

class MpsSystem : public ::testing::Test {
 protected:
  ~MpsSystem() override {
    if (const pid_t pid = daemon(); pid > 0) ::kill(pid, SIGKILL);
  }
  std::string in_pipe(const std::string& name) const { return rig_.folder + "/mps/" + name; }
  pid_t daemon() const {
    pid_t pid = 0;
    std::ifstream(in_pipe("nvidia-cuda-mps-control.pid")) >> pid;
    return pid > 0 && ::kill(pid, 0) == 0 ? pid : 0;
  }
  void say(const std::string& file, const std::string& text) const {
    std::ofstream(in_pipe(file) + ".new") << text;
    std::filesystem::rename(in_pipe(file) + ".new", in_pipe(file));
  }
  bool has_logged(const std::string& text, std::size_t times = 1) const {
    const std::string log = rig_.output("agent.log");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++count;
    return count >= times;
  }
  pid_t start_and_wait() {
    rig_.start_agent();
    // Started; or taken up, where a slow machine lets it come after the agent has waited.
    EXPECT_TRUE(eventually([&] { return daemon() != 0 && has_logged("MPS: control daemon "); }))
        << rig_.output("agent.log");
    return daemon();
  }
  void end_agent() { EXPECT_EQ(ended_by(*rig_.gpushared, SIGTERM), 0); }
  // Makes these processes the clients of a server, which is this one.
  void have_clients(const std::vector<pid_t>& clients) const {
    say("servers", std::to_string(::getpid()) + "\n");
    std::string list;
    for (const pid_t pid : clients) list += std::to_string(pid) + "\n";
    say("clients", list);
    EXPECT_TRUE(knows_of(clients.size())) << rig_.ask(R"({"op":"doctor"})");
  }
  bool knows_of(std::size_t clients) const {
    return eventually(
        [&] { return rig_.answers(R"({"op":"doctor"})", std::to_string(clients) + " clients"); },
        2 * MpsPlan::kAskIdle);  // it may have been asked just before they came
  }
  // Returns what cuInit of a program of the tenant `a` is told: the folder of the pipes, or "none".
  std::string told() const {
    const std::string build = build_folder();
    const auto probe =
        started(Launch{.command = {build + "/bin/tests/shim_probe", "init", "1"},
                       .environment = {"LD_PRELOAD=" + build + "/lib/libgpushare.so",
                                       "GPUSHARE_SHIM_SOCKET=" + rig_.folder + "/shim.sock",
                                       "LD_LIBRARY_PATH=" + build + "/lib/fake"}});
    EXPECT_EQ(status_of(*probe), 0) << probe->errors();
    const std::string text = probe->output();
    return text.substr(0, text.find('\n'));
  }

  explicit MpsSystem(unsigned gpus = 1) : rig_(config("spatial"), gpus) {}
  SystemRig rig_;
};

TEST_F(MpsSystem, ProgramsOfASpatialGpuBecomeClientsUntold) {
  start_and_wait();
  EXPECT_TRUE(eventually([&] { return told() == rig_.folder + "/mps"; }));
  std::ifstream calls(in_pipe("calls"));
  std::string first;
  std::getline(calls, first);
  EXPECT_EQ(first, "-d -multiuser-server GPUS=");
}

// The tenant has no sm_percent: it would take turns otherwise.
TEST_F(MpsSystem, WithOverlapProgramsWithoutAPartAreClientsToo) {
  std::string text = config("spatial");
  put(text, "sm_percent = 50\n", "");
  rig_.write_config(text);
  start_and_wait();
  EXPECT_EQ(told(), "none");
  put(text, "[mps]", "overlap = true\n[mps]");
  rig_.write_config(text);
  rig_.gpushared->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return told() == rig_.folder + "/mps"; }));
}

class MpsOfTwoGpus : public MpsSystem {
 protected:
  MpsOfTwoGpus() : MpsSystem(2) {
    rig_.write_config(config("spatial") + "[gpu.1]\nsharing = \"spatial\"\n");
  }
  // What each daemon was started for, so far.
  std::vector<std::string> started_for() const {
    std::vector<std::string> all;
    std::ifstream calls(in_pipe("calls"));
    for (std::string line; std::getline(calls, line);)
      if (line.starts_with("-d ")) all.push_back(line.substr(line.find("GPUS=")));
    return all;
  }
};

TEST_F(MpsOfTwoGpus, ServesTheOneThatIsSlowToOpenFromTheBegin) {
  rig_.set_hang(1);
  rig_.start_agent();
  ASSERT_TRUE(eventually([&] { return !started_for().empty(); }));
  const std::string log = rig_.output("agent.log");
  const bool was_given_up = log.find("GPU 1 does not answer") < log.find("MPS: control daemon");
  if (!was_given_up) EXPECT_EQ(started_for()[0], "GPUS=") << "this machine is not that slow";
  EXPECT_TRUE(eventually([&] { return started_for().back().starts_with("GPUS=GPU-"); }))
      << "one that hangs keeps the other from nothing: " << rig_.output("agent.log");
  rig_.set_hang(1, false);
  EXPECT_TRUE(eventually([&] { return started_for().back() == "GPUS="; }))
      << rig_.output("agent.log");
}

TEST_F(MpsSystem, OutlivesTheAgentAndIsTakenUpByTheNext) {
  const pid_t before = start_and_wait();
  const pid_t first = rig_.agent_pid();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] { return has_logged("MPS: control daemon taken up"); }))
      << rig_.output("agent.log");
  EXPECT_EQ(daemon(), before) << rig_.output("agent.log");
  EXPECT_TRUE(eventually([&] { return told() == rig_.folder + "/mps"; }));
}

// Two clients of one server, of which a user has frozen one: its process is stopped, because they
// have one channel group. Supervisor and agent were killed then.
class MpsAfterAnUpgrade : public MpsSystem {
 protected:
  void SetUp() override {
    start_and_wait();
    ::setenv("GPUSHARE_SIM_MPS", "7", 1);
    client_ = rig_.start("spin", kSaturating);
    other_ = rig_.start("endless", {"--seconds", "1000"});
    ::unsetenv("GPUSHARE_SIM_MPS");
    have_clients({client_->pid(), other_->pid()});
    ASSERT_TRUE(rig_.answers(R"({"op":"freeze","tenant":"a"})", "true"));
    ASSERT_TRUE(eventually([&] { return is_stopped(); })) << rig_.output("agent.log");
    rig_.kill_both();
  }
  void TearDown() override {
    client_->signal(SIGCONT);
    std::filesystem::remove("/dev/shm" + rig_.region + ".unread");
  }
  bool is_stopped() const {
    const auto stat = read_proc_stat(client_->pid());
    return stat && stat->state == 'T';
  }
  std::unique_ptr<Child> client_, other_;
};

TEST_F(MpsAfterAnUpgrade, TheClientGoesOnThoughTheControlPlaneIsOfAnotherLayout) {
  rig_.set_layout_version(99);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_FALSE(is_stopped());
}

// Somebody else may have stopped it. The log says what a person can do.
TEST_F(MpsAfterAnUpgrade, TheClientIsNamedWhereTheControlPlaneIsDamaged) {
  std::filesystem::resize_file("/dev/shm" + rig_.region, 4096);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0);
  EXPECT_TRUE(rig_.output("other.log").contains("kill -CONT " + std::to_string(client_->pid())))
      << rig_.output("other.log");
  EXPECT_FALSE(rig_.output("other.log").contains("kill -CONT " + std::to_string(other_->pid())));
}

TEST_F(MpsSystem, ADaemonThatDiesIsStartedAgain) {
  const pid_t before = start_and_wait();
  ::kill(before, SIGKILL);
  EXPECT_TRUE(eventually([&] { return daemon() != 0 && daemon() != before; }));
  EXPECT_TRUE(eventually([&] { return has_logged("it is started again"); }));
}

TEST_F(MpsSystem, AReloadEndsItWhenItsClientsHaveEnded) {
  start_and_wait();
  const auto client = rig_.start("spin", kSaturating);
  have_clients({client->pid()});
  rig_.write_config(config("time"));
  EXPECT_TRUE(rig_.answers(R"({"op":"reload"})", "true"));
  EXPECT_EQ(told(), "none");
  EXPECT_NE(daemon(), 0);
  ended_by(*client, SIGKILL);
  say("clients", "");
  EXPECT_TRUE(eventually([&] { return daemon() == 0; }));
}

TEST_F(MpsSystem, WithoutTheProgramEverythingElseWorks) {
  rig_.write_config(config("spatial", rig_.folder + "/not-installed"));
  rig_.start_agent();
  EXPECT_TRUE(rig_.answers(R"({"op":"doctor"})", "is not found: parts of SMs take turns"));
  EXPECT_EQ(told(), "none");
}

TEST_F(MpsSystem, StopsWithTheAgentOnlyWithoutClients) {
  start_and_wait();
  EXPECT_TRUE(knows_of(0));
  EXPECT_TRUE(eventually([&] {
    std::ifstream calls(in_pipe("calls"));
    return std::string(std::istreambuf_iterator<char>(calls), {}).find("get_server_list") !=
           std::string::npos;
  }));
  // On a busy machine an agent that ends may wait in vain for the daemon's answer, which takes
  // longer than it may stay: then the daemon is left to the next one.
  EXPECT_TRUE(eventually([&] {
    end_agent();
    if (eventually([&] { return daemon() == 0; }, 10s)) return true;
    rig_.start_agent();
    (void)knows_of(0);
    return false;
  }));

  rig_.start_agent();
  EXPECT_TRUE(eventually([&] { return daemon() != 0; }));
  have_clients({::getpid()});
  end_agent();
  EXPECT_NE(daemon(), 0);
  EXPECT_FALSE(std::filesystem::exists(in_pipe("quit"))) << "it would take no more clients";
}

TEST_F(MpsSystem, SaysWhichTenantsLostProcessesByAFault) {
  start_and_wait();
  const auto spin = rig_.start("spin", kSaturating);
  const auto endless = rig_.start("endless", {"--seconds", "1000"});
  have_clients({spin->pid(), endless->pid()});
  say("state", "FAULT\n");
  EXPECT_TRUE(eventually([&] { return has_logged("a fatal fault of a client"); }))
      << rig_.output("agent.log");
  spin->signal(SIGKILL);
  endless->signal(SIGKILL);
  const std::string ended = "ended with it: tenant a: spin (pid " + std::to_string(spin->pid()) +
                            "), tenant b: endless (pid " + std::to_string(endless->pid()) + ")";
  EXPECT_TRUE(eventually([&] { return has_logged(ended); })) << rig_.output("agent.log");
}

// Programs whose launches wait on the GPU itself, 64 of 2 ms always in line.
class CreditSystem : public MpsSystem {
 protected:
  std::unique_ptr<Child> start_queueing(const std::string& setting) {
    std::string text = config("spatial");
    const auto insert = [&](const std::string& before, const std::string& line) {
      text.insert(text.find(before), line + "\n");
    };
    insert("[mps]", "gate = \"credit\"");
    insert("[tenant.b]", setting);
    rig_.write_config(text);
    start_and_wait();
    auto program =
        rig_.start_with_shim("spin", {"--kernel-us", "2000", "--depth", "64", "--ns-per-unit",
                                      "129.293", "--seconds", "1000", "--report-ms", "10"});
    have_clients({program->pid()});
    return program;
  }
  // Kernels that have ended, by the program's last report.
  uint64_t kernels() const {
    const std::string text = rig_.output("spin.log");
    const std::size_t at = text.rfind("\"kernels\":");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 10, nullptr, 10);
  }
  // The part of the GPU that it has for a while.
  double share() const {
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t before = kernels();
    std::this_thread::sleep_for(3s);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(kernels() - before) * 2e-3 / passed.count();
  }
  bool stands() const {
    return eventually([&] {
      const uint64_t before = kernels();
      std::this_thread::sleep_for(300ms);
      return kernels() == before;
    });
  }
  struct Unmap {
    void operator()(ShimSlot* slot) const { ::munmap(slot, kShimSlotBytes); }
  };
  using MappedSlot = std::unique_ptr<ShimSlot, Unmap>;
  // As the program itself has it; nullptr: it has none. It asks for another one when the agent is
  // late for half a second, as on a busy machine: the one that was beaten last counts.
  static MappedSlot slot_of(const Child& program) {
    const std::string folder = "/proc/" + std::to_string(program.pid());
    std::ifstream maps(folder + "/maps");
    MappedSlot newest;
    for (std::string line; std::getline(maps, line);) {
      if (!line.contains("gpushare-shim")) continue;
      const Fd file(::open((folder + "/map_files/" + line.substr(0, line.find(' '))).c_str(),
                           O_RDWR | O_CLOEXEC));
      void* const slot =
          ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      if (slot == MAP_FAILED) continue;
      MappedSlot found(static_cast<ShimSlot*>(slot));
      if (newest == nullptr || found->beat_ns > newest->beat_ns) newest = std::move(found);
    }
    return newest;
  }
};

TEST_F(CreditSystem, ACapHoldsWhatIsQueued) {
  const auto program = start_queueing("weight = 100");
  ASSERT_TRUE(eventually([&] { return kernels() > 200; }));
  const double whole = share();
  ASSERT_TRUE(rig_.answers(R"({"op":"set","tenant":"a","settings":{"max":"30%"}})", "true"));
  double part = 0;
  EXPECT_TRUE(eventually([&] { return std::abs((part = share()) - 0.3 * whole) < 0.05; }, 30s))
      << part << " of " << whole;
}

// Both ask for all SMs, so that they share one partition; slices do not part clients of one server.
TEST_F(CreditSystem, WhereSmsAreSharedAHigherPriorityGoesFirst) {
  std::string text = config("spatial");
  put(text, "[mps]", "gate = \"credit\"\n[mps]");
  put(text, "[tenant.b]", "sm_min = 100\n[tenant.b]\nsm_min = 100");
  put(text, "{command=\"endless\"}", "{command=\"meet\"}");
  rig_.write_config(text);
  start_and_wait();
  const auto low = rig_.start_with_shim(
      "meet", {"--launches", "1000000000", "--blocks", "4", "--pause-us", "300"});
  const auto high =
      rig_.start_with_shim("spin", {"--kernel-us", "2000", "--depth", "64", "--ns-per-unit",
                                    "129.293", "--seconds", "1000", "--report-ms", "10"});
  have_clients({high->pid(), low->pid()});
  const auto launches = [&] {
    const MappedSlot slot = slot_of(*low);
    return slot == nullptr ? 0 : launches_of(*slot);
  };
  const auto goes_on = [&] {
    const uint64_t before = launches();
    return eventually([&] {
      const uint64_t now = launches();
      return now < before || now > before + 20;  // fewer: in another slot
    });
  };
  ASSERT_TRUE(eventually([&] { return launches() > 20; }));
  ASSERT_TRUE(eventually([&] { return kernels() > 200; }));
  ASSERT_TRUE(rig_.answers(R"({"op":"set","tenant":"a","settings":{"priority":"high"}})", "true"));
  // It stands at its gate, or waits for a kernel that waits on the GPU.
  EXPECT_TRUE(eventually([&] {
    const MappedSlot slot = slot_of(*low);
    return slot != nullptr && (slot->gate & 1) != 0 && (slot->waiting == 1 || slot->waits == 1);
  }));
  // While 100 kernels of the other one end it makes hardly any launch, and some hundreds otherwise.
  // Not none: where the host of the other one is late, that has nothing in line for a moment.
  EXPECT_TRUE(eventually([&] {
    const uint64_t before = launches(), kernels_before = kernels();
    EXPECT_TRUE(eventually([&] { return kernels() > kernels_before + 100; }));
    return launches() < before + 20;
  }));
  ASSERT_TRUE(
      rig_.answers(R"({"op":"set","tenant":"a","settings":{"priority":"normal"}})", "true"));
  EXPECT_TRUE(goes_on());
}

// It waits for each of its launches and rests for 3 ms then; a kernel of 20 ms that is let in
// meanwhile would delay each of them by as much.
TEST_F(CreditSystem, NoLongKernelIsLetInBetweenTwoLaunchesOfAHigherPriority) {
  std::string text = config("spatial");
  put(text, "[mps]", "gate = \"credit\"\noverlap = true\n[mps]");
  put(text, "sm_percent = 50\n", "");
  put(text, "sm_percent = 25\n", "priority = \"high\"\n");
  put(text, "{command=\"endless\"}", "{command=\"meet\"}");
  rig_.write_config(text);
  start_and_wait();
  const auto low =
      rig_.start_with_shim("spin", {"--kernel-us", "20000", "--depth", "2", "--ns-per-unit",
                                    "129.293", "--seconds", "1000", "--report-ms", "10"});
  const auto high = rig_.start_with_shim(
      "meet", {"--launches", "1000000000", "--blocks", "4", "--pause-us", "3000"});
  have_clients({high->pid(), low->pid()});
  const auto launches = [&] {
    const MappedSlot slot = slot_of(*high);
    return slot == nullptr ? 0 : launches_of(*slot);
  };
  ASSERT_TRUE(eventually([&] { return kernels() > 10; }));
  EXPECT_TRUE(eventually([&] {
    const uint64_t before = launches(), kernels_before = kernels();
    EXPECT_TRUE(eventually([&] {
      const uint64_t now = launches();
      return now < before || now > before + 100;  // fewer: in another slot
    }));
    return kernels() < kernels_before + 4;  // seven otherwise
  }));
}

// The program can open its gate itself, as this does for it, and runs nothing all the same.
TEST_F(CreditSystem, AFreezeHoldsAProgramThatOpensItsOwnGate) {
  const auto program = start_queueing("weight = 100");
  ASSERT_TRUE(eventually([&] { return kernels() > 200; }));
  ASSERT_TRUE(rig_.answers(R"({"op":"freeze","tenant":"a"})", "true"));
  EXPECT_TRUE(stands());
  const uint64_t frozen_at = kernels();
  for (int i = 0; i < 100; ++i) {
    const MappedSlot slot = slot_of(*program);
    ASSERT_NE(slot, nullptr);
    if ((slot->gate & 1) != 0) slot->gate.fetch_add(1);
    open_credit(*slot);
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_LT(kernels(), frozen_at + 100)
      << "it says now what had ended before, at most the 64 in line; 250 are due";
  ASSERT_TRUE(rig_.answers(R"({"op":"thaw","tenant":"a"})", "true"));
  const uint64_t before = kernels();
  EXPECT_TRUE(eventually([&] { return kernels() > before + 100; }));
}

// What is in line runs before the next agent freezes the program again.
TEST_F(CreditSystem, AFrozenProgramGoesOnWhenTheAgentIsKilledOrHangs) {
  const auto program = start_queueing("weight = 100");
  for (const int signal : {SIGKILL, SIGSTOP}) {
    ASSERT_TRUE(eventually([&] {
      const uint64_t before = kernels();
      std::this_thread::sleep_for(100ms);
      return kernels() > before;
    }));
    if (signal == SIGSTOP) have_clients({program->pid()});
    ASSERT_TRUE(rig_.answers(R"({"op":"freeze","tenant":"a"})", "true"));
    ASSERT_TRUE(stands());
    const uint64_t before = kernels();
    const pid_t agent = rig_.agent_pid();
    ::kill(agent, signal);
    EXPECT_TRUE(eventually([&] { return kernels() > before; }));
    ::kill(agent, SIGCONT);
    ASSERT_TRUE(eventually([&] { return rig_.answers(R"({"op":"thaw","tenant":"a"})", "true"); }));
  }
}

// Nobody is left but itself, and its threads wait for the GPU.
TEST_F(CreditSystem, AProgramThatIsHeldByItsCapGoesOnWhenAgentAndSupervisorAreKilled) {
  const auto program = start_queueing("weight = 100");
  ASSERT_TRUE(eventually([&] { return kernels() > 200; }));
  ASSERT_TRUE(
      rig_.answers(R"({"op":"set","tenant":"a","settings":{"max":"1000 1000000"}})", "true"));
  EXPECT_TRUE(stands());
  const pid_t agent = rig_.agent_pid();
  rig_.gpushared->signal(SIGSTOP);
  ::kill(agent, SIGKILL);
  rig_.gpushared->signal(SIGKILL);
  const uint64_t before = kernels();
  EXPECT_TRUE(eventually([&] { return kernels() > before + 100; }));
}

// An agent that does not know yet that the program is a client of MPS freezes its channels, which
// only an agent, a supervisor or --recover thaws; so at the end there is an agent.
// Requests that hold the program, and a death a random time after each. GPUSHARE_TEST_CREDIT_KILLS
// is how many (5), GPUSHARE_TEST_SEED the random numbers.
TEST_F(CreditSystem, NoStormOfKillsLeavesItHeld) {
  const int seed = test::number_given("GPUSHARE_TEST_SEED", ::getpid()),
            kills = test::number_given("GPUSHARE_TEST_CREDIT_KILLS", 5);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  const auto program = start_queueing("weight = 100");
  const char* const kRequests[] = {R"({"op":"freeze","tenant":"a"})",
                                   R"({"op":"set","tenant":"a","settings":{"max":"10%"}})",
                                   R"({"op":"thaw","tenant":"a"})",
                                   R"({"op":"set","tenant":"a","settings":{"sm_percent":"20"}})"};
  for (int i = 0; i < kills; ++i) {
    (void)rig_.ask(kRequests[random() % std::size(kRequests)]);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    const pid_t agent = rig_.agent_pid();
    const bool is_supervisor_hit = random() % 2 == 0;
    if (is_supervisor_hit) rig_.gpushared->signal(SIGKILL);
    if (agent > 0 && (!is_supervisor_hit || random() % 2 == 0)) ::kill(agent, SIGKILL);
    // The agent of a supervisor that was killed may answer once more, and keep the next one out.
    EXPECT_TRUE(eventually([&] {
      if (rig_.gpushared->has_ended()) rig_.start_again();
      return rig_.answers(R"({"op":"hello"})", "true");
    })) << i;
  }
  EXPECT_TRUE(eventually([&] {
    if (rig_.gpushared->has_ended()) rig_.start_again();
    return rig_.answers(R"({"op":"thaw","tenant":"a"})", "true");
  }));
  EXPECT_TRUE(eventually([&] {
    if (rig_.gpushared->has_ended()) rig_.start_again();
    return rig_.answers(R"({"op":"set","tenant":"a","settings":{"max":"max"}})", "true");
  }));
  const uint64_t before = kernels();
  EXPECT_TRUE(eventually([&] { return kernels() > before + 200; }));
}

}  // namespace
}  // namespace gpushare::test
