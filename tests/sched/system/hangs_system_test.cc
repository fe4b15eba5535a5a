// SPDX-License-Identifier: Apache-2.0
// One GPU of several does not answer, or nobody can open the driver: with real processes on the
// simulated GPUs in real time. Nobody else is kept frozen or waiting, and what could not be done is
// done when the driver answers.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "shmctl/base/last_threads.h"
#include "tests/sched/system/system_rig.h"
#include "tests/support/sanitized.h"

namespace gpushare::test {
namespace {

// A program on each of two GPUs, both of them frozen by the user. GPU 0 is the one that hangs.
class Hangs : public ::testing::Test {
 protected:
  void start() {
    rig_.start_agent();
    for (const std::string device : {"0", "1"}) {
      std::vector<std::string> arguments = kSaturating;
      arguments.insert(arguments.end(), {"--devices", device});
      programs_.push_back(rig_.start("spin", arguments));
    }
    ASSERT_TRUE(eventually([&] { return is_known(0) && is_known(1); }));
    for (const auto& program : programs_)
      ASSERT_TRUE(rig_.answers("{\"op\":\"freeze\",\"pid\":" + std::to_string(program->pid()) + "}",
                               "\"ok\":true"));
    ASSERT_TRUE(eventually([&] { return is_frozen(0) && is_frozen(1); }));
    agent_ = rig_.agent_pid();
  }
  bool is_known(uint32_t gpu) const { return rig_.record(programs_.at(gpu)->pid(), gpu).pid != 0; }
  bool is_frozen(uint32_t gpu) const {
    return rig_.record(programs_.at(gpu)->pid(), gpu).state == ProcessState::kFrozenUser;
  }
  // In the ledger.
  bool is_listed(uint32_t gpu) const {
    return std::ranges::any_of(rig_.snapshot().ledger, [&](const LedgerRecord& one) {
      return one.gpu == gpu && one.freezes > 0;
    });
  }
  bool has_ended() const {
    return eventually([&] { return rig_.gpushared->has_ended(); });
  }
  std::string log() const { return rig_.output("agent.log"); }

  SystemRig rig_{"", 2};
  std::vector<std::unique_ptr<Child>> programs_;  // by GPU
  pid_t agent_ = 0;
};

// No other agent can be started, so that only the supervisor undoes.
TEST_F(Hangs, KeepNobodyElseFrozenWhenTheAgentDies) {
  if (GS_IS_SANITIZED) GTEST_SKIP() << "a sanitizer's own fork() comes before the preloaded one";
  const std::string no_forks = rig_.folder + "/no-forks";
  rig_.agent_launcher = {"env", "LD_PRELOAD=" + build_folder() + "/lib/tests/libno_forks.so",
                         "GPUSHARE_TEST_NO_FORKS=" + no_forks};
  start();
  rig_.set_hang(0);
  std::ofstream(no_forks) << "1";
  ::kill(agent_, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_listed(1); })) << log();
  EXPECT_TRUE(eventually([&] { return log().contains("was not started"); }))
      << "the supervisor goes on: " << log();
  EXPECT_TRUE(eventually([&] { return log().contains("GPU 0 does not answer"); })) << log();
  EXPECT_TRUE(is_listed(0)) << "it is not thawed";
  rig_.set_hang(0, false);
  EXPECT_TRUE(eventually([&] { return !is_listed(0); })) << log();
  std::filesystem::remove(no_forks);
}

TEST_F(Hangs, LetTheNextAgentDriveTheOthersAndComeBackByThemselves) {
  start();
  rig_.set_hang(0);
  ::kill(agent_, SIGKILL);
  ASSERT_TRUE(eventually([&] {
    return rig_.agent_pid() != agent_ && rig_.agent_pid() != 0 && is_known(1) && is_frozen(1);
  })) << log();
  EXPECT_TRUE(is_listed(0)) << "it is not thawed";
  EXPECT_TRUE(eventually([&] {
    const std::string said = rig_.snapshot().agent.observe_only_reason;
    return said.starts_with("GPU 0 is not open: wait for an earlier call") &&
           said.contains(", for ");
  })) << "the supervisor's, too";
  const pid_t next = rig_.agent_pid();
  rig_.set_hang(0, false);
  EXPECT_TRUE(eventually([&] {
    return is_known(0) && is_frozen(0) && *rig_.snapshot().agent.observe_only_reason == '\0';
  })) << log();
  for (const auto& program : programs_)
    ASSERT_TRUE(rig_.answers("{\"op\":\"thaw\",\"pid\":" + std::to_string(program->pid()) + "}",
                             "\"ok\":true"));
  EXPECT_TRUE(eventually([&] { return rig_.frozen_groups() == 0; }));
  EXPECT_EQ(rig_.agent_pid(), next);
}

TEST_F(Hangs, KeepNobodyElseFrozenAtAStop) {
  start();
  rig_.set_hang(0);
  rig_.gpushared->signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return !is_listed(1); })) << log();
  ASSERT_TRUE(has_ended()) << log();
  EXPECT_NE(rig_.gpushared->status(), 0) << "not all is undone";
  EXPECT_TRUE(log().contains("GPU 0 does not answer")) << log();
  EXPECT_TRUE(is_listed(0)) << "it is not thawed";
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0);
  EXPECT_TRUE(is_listed(0)) << "it is not thawed";
  rig_.set_hang(0, false);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_TRUE(rig_.snapshot().ledger.empty());
}

// The thread of a process that asks a GPU, which stands where it is to end until it is let go, with
// all that the process has open, as one does that a call of the driver holds.
class HeldThread {
 public:
  explicit HeldThread(pid_t tid)
      : tid_(tid),
        is_traced_(tid > 0 && ::ptrace(PTRACE_SEIZE, tid, nullptr, PTRACE_O_TRACEEXIT) == 0) {}
  ~HeldThread() { let_go(); }
  bool is_traced() const { return is_traced_; }
  // Whether it stands at its end.
  bool stands() {
    int status = 0;
    if (!stands_ && ::waitpid(tid_, &status, __WALL | WNOHANG) == tid_)
      stands_ = status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8));
    return stands_;
  }
  void let_go() {
    if (is_traced_) ::ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
    is_traced_ = false;
  }

 private:
  const pid_t tid_;
  bool is_traced_, stands_ = false;
};

// 0: there is none.
pid_t thread_of(pid_t process, const std::string& name) {
  const auto threads = threads_of(process).value_or(std::vector<LastThread>());
  const auto at = std::ranges::find(threads, name, &LastThread::name);
  return at == threads.end() ? 0 : at->tid;
}

// The agent dies in a call of GPU 0's driver, of which its thread does not come back.
class LastThreads : public Hangs {
 protected:
  // The call is a freeze.
  void die(bool with_supervisor) {
    start();
    ASSERT_TRUE(asks("thaw"));
    ASSERT_TRUE(eventually([&] { return !is_listed(0); }));
    rig_.set_hang(0);
    ASSERT_TRUE(asks("freeze"));
    ASSERT_TRUE(eventually([&] { return is_listed(0); })) << "written ahead";
    thread_.emplace(thread_of(agent_, "gpushare-gpu0"));
    ASSERT_TRUE(thread_->is_traced()) << std::strerror(errno);
    if (with_supervisor) rig_.gpushared->signal(SIGKILL);
    ::kill(agent_, SIGKILL);
    ASSERT_TRUE(eventually([&] { return thread_->stands(); }));
  }
  bool asks(const std::string& what) const {
    return rig_.answers(
        "{\"op\":\"" + what + "\",\"pid\":" + std::to_string(programs_[0]->pid()) + "}",
        "\"ok\":true");
  }
  std::string said() const { return rig_.snapshot().agent.observe_only_reason; }
  bool next_drives_the_other() const {
    return eventually([&] {
      return rig_.agent_pid() != agent_ && rig_.agent_pid() != 0 && is_known(1) && is_frozen(1) &&
             said().starts_with("GPU 0 is not open") && said().contains(", for ");
    });
  }
  // The call takes effect after the next agent has started, and before the thread ends.
  void come_back() {
    EXPECT_FALSE(is_known(0));
    EXPECT_TRUE(is_listed(0));
    rig_.set_hang(0, false);
    const uint64_t then = rig_.snapshot().agent.published_ns;
    ASSERT_TRUE(
        eventually([&] { return rig_.snapshot().agent.published_ns > then + 1'000'000'000; }));
    EXPECT_TRUE(is_listed(0)) << "as long as the thread is left";
    thread_->let_go();
    ASSERT_TRUE(eventually([&] { return is_known(0) && is_frozen(0) && said().empty(); })) << log();
    ASSERT_TRUE(asks("thaw"));
    EXPECT_TRUE(eventually([&] { return !is_listed(0); })) << log();
    EXPECT_TRUE(eventually([&] {
      return rig_.record(programs_[0]->pid(), 0).switches_per_s != kUnknown32 &&
             rig_.record(programs_[0]->pid(), 0).share_permille <= 1000 &&
             rig_.record(programs_[0]->pid(), 0).share_permille > 900;
    })) << "it runs: it was frozen twice and thawed twice";
  }
  std::optional<HeldThread> thread_;
};

TEST_F(LastThreads, KeepTheNextAgentFromNothingButTheirGpu) {
  die(/*with_supervisor=*/false);
  ASSERT_TRUE(next_drives_the_other()) << log();
  EXPECT_TRUE(log().contains("a thread of it does not come back")) << log();
  come_back();
}

// Programs and tools still come to the sockets of the one that has died, and nobody takes them in.
TEST_F(LastThreads, WhoseSocketsAreFullKeepTheNextAgentFromNothingElse) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  die(/*with_supervisor=*/false);
  std::vector<Fd> waiting;
  for (const std::string& path : {rig_.socket, rig_.folder + "/shim.sock"}) do {
      waiting.push_back(connect_to(path, SOCK_NONBLOCK));
    } while (waiting.back().is_open());
  EXPECT_GT(waiting.size(), 100U);
  ASSERT_TRUE(next_drives_the_other()) << log();
  EXPECT_FALSE(log().contains("no SM partitions")) << log();
  come_back();
}

// The first thread, which may be in any call, and at whose end the supervisor would be told that
// its agent dies.
TEST_F(Hangs, OfADeadAgentsFirstThreadDoNothingToTheNextOne) {
  start();
  HeldThread first(agent_);
  ASSERT_TRUE(first.is_traced()) << std::strerror(errno);
  ::kill(agent_, SIGKILL);
  ASSERT_TRUE(eventually([&] { return first.stands(); }));
  ASSERT_TRUE(eventually([&] {
    return rig_.agent_pid() != agent_ && rig_.agent_pid() != 0 &&
           std::string(rig_.snapshot().agent.observe_only_reason).contains("is not open");
  })) << log();
  EXPECT_TRUE(is_listed(0) && is_listed(1));
  first.let_go();
  EXPECT_TRUE(eventually([&] {
    return is_known(0) && is_frozen(0) && is_known(1) && is_frozen(1);
  })) << log();
  EXPECT_FALSE(log().contains("process " + std::to_string(programs_[0]->pid()) + " thawed"))
      << "the supervisor undoes nothing: " << log();
}

TEST_F(LastThreads, KeepTheNextSupervisorFromNothingButTheirGpu) {
  die(/*with_supervisor=*/true);
  ASSERT_TRUE(has_ended());
  rig_.begin_agent();
  ASSERT_TRUE(next_drives_the_other()) << log();
  come_back();
}

TEST_F(LastThreads, KeepNobodyElseFrozenAndNoStopWaiting) {
  die(/*with_supervisor=*/false);
  ASSERT_TRUE(next_drives_the_other()) << log();
  rig_.gpushared->signal(SIGTERM);
  ASSERT_TRUE(has_ended()) << log();
  EXPECT_NE(rig_.gpushared->status(), 0) << "not all is undone";
  EXPECT_FALSE(is_listed(1));
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0);
  EXPECT_TRUE(is_listed(0)) << "as long as the thread is left";
  rig_.set_hang(0, false);
  thread_->let_go();
  EXPECT_TRUE(eventually([&] { return rig_.run_gpushared({"--recover"}) == 0; }))
      << rig_.output("other.log");
  EXPECT_TRUE(rig_.snapshot().ledger.empty());
}

class OneOpening : public Hangs {};

TEST_F(OneOpening, ThatHangsKeepsNoOtherGpuFromBeingShared) {
  rig_.set_hang(0);
  rig_.start_agent();
  for (const std::string device : {"0", "1"}) {
    std::vector<std::string> arguments = kSaturating;
    arguments.insert(arguments.end(), {"--devices", device});
    std::vector<std::string> command{build_folder() + "/bin/workloads/spin"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    programs_.push_back(rig_.run({"--weight=700"}, command));
  }
  ASSERT_TRUE(eventually([&] { return is_known(1); })) << log();
  const auto said = [&] { return std::string(rig_.snapshot().agent.observe_only_reason); };
  EXPECT_TRUE(eventually([&] {
    return said().starts_with("GPU 0 does not answer: it has been opened") &&
           said().contains(", for ");
  })) << said();
  EXPECT_TRUE(rig_.answers(R"({"op":"doctor"})", "GPU 0 does not answer")) << "so does doctor";
  EXPECT_TRUE(log().contains("GPU 0 does not answer")) << log();
  EXPECT_FALSE(is_known(0));
  for (const auto& program : programs_)
    EXPECT_TRUE(rig_.answers("{\"op\":\"freeze\",\"pid\":" + std::to_string(program->pid()) + "}",
                             "\"ok\":true"));
  EXPECT_TRUE(eventually([&] { return is_frozen(1); }));
  EXPECT_FALSE(is_listed(0));
  const pid_t agent = rig_.agent_pid();
  rig_.set_hang(0, false);
  EXPECT_TRUE(eventually([&] { return is_known(0) && is_frozen(0) && said().empty(); })) << log();
  EXPECT_EQ(rig_.agent_pid(), agent) << "by itself";
  const PlaneSnapshot now = rig_.snapshot();
  for (const uint32_t gpu : {0U, 1U}) {
    const uint32_t slot = rig_.record(programs_[gpu]->pid(), gpu).tenant;
    EXPECT_TRUE(std::ranges::any_of(
        now.tenants, [&](const auto& one) { return one.slot == slot && one.record.weight == 700; }))
        << "GPU " << gpu;
  }
  const auto gpus = rig_.snapshot().gpus;
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(std::string(gpus[0].name), gpus[1].name);
  EXPECT_EQ(gpus[0].sm_count, gpus[1].sm_count);
}

class Openings : public ::testing::Test {
 protected:
  bool is_waiting() const {
    const std::string said = rig_.snapshot().agent.observe_only_reason;
    return said.starts_with("the driver does not answer") && said.contains(" for ");
  }
  SystemRig rig_{""};
};

TEST_F(Openings, ThatHangKeepNoAgentFromAnsweringAndFromEnding) {
  rig_.set_hang(sim::kGreeting);
  rig_.start_agent();
  EXPECT_TRUE(eventually([&] { return is_waiting(); })) << rig_.output("agent.log");
  rig_.gpushared->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return rig_.gpushared->has_ended(); })) << rig_.output("agent.log");
  EXPECT_EQ(rig_.gpushared->status(), 0) << "nothing was frozen";
}

// Where systemd would listen.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  // How often this has come so far.
  int count(const std::string& state) {
    char text[256];
    for (ssize_t n = 0; (n = ::recv(fd_.get(), text, sizeof text, 0)) >= 0;)
      ++counts_[std::string(text, static_cast<std::size_t>(n))];
    return counts_[state];
  }

 private:
  const Fd fd_;
  std::map<std::string, int> counts_;
};

TEST_F(Openings, ThatHangKeepSystemdFromNothing) {
  NotifySocket systemd(rig_.folder + "/notify");
  rig_.agent_launcher = {"env", "NOTIFY_SOCKET=" + rig_.folder + "/notify", "WATCHDOG_USEC=100000"};
  rig_.set_hang(sim::kGreeting);
  rig_.start_agent();
  EXPECT_TRUE(eventually([&] { return systemd.count("READY=1") == 1; }));
  EXPECT_TRUE(eventually([&] { return is_waiting(); }));
  const int before = systemd.count("WATCHDOG=1");
  EXPECT_TRUE(eventually([&] { return systemd.count("WATCHDOG=1") > before + 3; }));
  EXPECT_TRUE(is_waiting());
}

TEST_F(Openings, ThatHangAreOverAsSoonAsTheDriverAnswers) {
  rig_.set_hang(sim::kGreeting);
  rig_.start_agent();
  ASSERT_TRUE(eventually([&] { return is_waiting(); })) << rig_.output("agent.log");
  const pid_t agent = rig_.agent_pid();
  rig_.set_hang(sim::kGreeting, false);
  EXPECT_TRUE(eventually([&] { return rig_.snapshot().agent.gpu_count == 1; }));
  EXPECT_EQ(rig_.agent_pid(), agent) << "by itself";
}

TEST_F(Openings, ThatHangKeepNoNextAgentFromStarting) {
  rig_.start_agent();
  const pid_t agent = rig_.agent_pid();
  rig_.set_hang(sim::kGreeting);
  ::kill(agent, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    return rig_.agent_pid() != agent && rig_.agent_pid() != 0 && is_waiting() &&
           !rig_.ask(R"({"op":"hello"})").empty();
  })) << rig_.output("agent.log");
  rig_.set_hang(sim::kGreeting, false);
  EXPECT_TRUE(eventually([&] { return rig_.snapshot().agent.gpu_count == 1; }));
}

}  // namespace
}  // namespace gpushare::test
