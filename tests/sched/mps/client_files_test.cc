// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/client_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kOne{70, 1}, kOther{80, 1}, kThird{90, 1};

// Gives each process two files, and counts which of them are open.
class FakeHost final : public MpsHost {
 public:
  const std::string& pipe_directory() const override { return pipe_; }
  bool has_program() const override { return true; }
  std::optional<MpsDaemon> daemon() override { return std::nullopt; }
  Result<> start(const std::string&, bool) override { return {}; }
  Result<> ask(const std::string&) override { return {}; }
  std::optional<Result<std::string>> finished(Time) override { return std::nullopt; }
  std::optional<std::string> visible(pid_t) override { return std::nullopt; }
  std::optional<ProcessId> bearer(pid_t pid) override { return ProcessId{pid, 1}; }
  bool has_ended(const ProcessId& process) override { return ended.contains(process); }
  Result<std::vector<Fd>> copy_memory_files(const ProcessId& process) override {
    ++copies;
    if (refusal) return std::unexpected(*refusal);
    std::vector<Fd> files;
    for (int i = 0; i < 2; ++i) {
      files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      open_[files.back().get()] = process;
    }
    return files;
  }
  void close_aside(std::vector<Fd> files) override {
    for (const Fd& file : files) open_.erase(file.get());
  }

  std::size_t kept(const ProcessId& process) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(open_, [&](const auto& one) { return one.second == process; }));
  }

  std::set<ProcessId> ended;
  int copies = 0;
  std::optional<Error> refusal;

 private:
  const std::string pipe_ = "/run/test/mps";
  std::map<int, ProcessId> open_;
};

class ClientFilesTest : public ::testing::Test {
 protected:
  void step() {
    files_.step(now_, [this](const ProcessId& process) { return host_.has_ended(process); });
  }
  void step_after(Nanos time) {
    now_ += time;
    step();
  }
  void end(const ProcessId& process) {
    gone_.insert(process);
    note();
    host_.ended.insert(process);
    step();
  }
  // One of two waits for its seven launches for three seconds, and ends with this as its last word.
  void end_after_waiting(const ClientFiles::Work& last) {
    files_.keep(kOne);
    files_.keep(kOther);
    files_.note_work(now_, kOne, {.launches = 7, .waits = true});
    now_ += 3s;
    files_.note_work(now_, kOne, last);
    end(kOne);
  }
  void expect_nothing_kept() {
    for (const ProcessId& process : {kOne, kOther, kThird}) EXPECT_EQ(host_.kept(process), 0u);
    EXPECT_TRUE(files_.is_empty());
  }
  void note() {
    files_.note_leaving(now_, [this](const ProcessId& one) { return !gone_.contains(one); });
  }

  Time now_{1000s};
  std::set<ProcessId> gone_;
  FakeHost host_;
  ClientFiles files_{host_};
};

TEST_F(ClientFilesTest, AreKeptWhileTheProcessLivesAndCopiedOnce) {
  files_.keep(kOne);
  files_.keep(kOne);
  for (int i = 0; i < 100; ++i, now_ += 100ms) note(), step();
  EXPECT_EQ(host_.copies, 1);
  EXPECT_EQ(host_.kept(kOne), 2u);
  EXPECT_EQ(files_.lingering(), 0u);
}

TEST_F(ClientFilesTest, AreLetGoAWhileAfterTheEnd) {
  files_.keep(kOne);
  files_.keep(kOther);
  end(kOne);
  EXPECT_EQ(host_.kept(kOne), 2u) << "a kernel may run on";
  EXPECT_EQ(files_.lingering(), 1u);
  step_after(ClientFiles::kLeastRest);
  EXPECT_EQ(host_.kept(kOne), 0u) << "its memory would stay";
  EXPECT_EQ(host_.kept(kOther), 2u);
  EXPECT_EQ(files_.lingering(), 0u);
}

TEST_F(ClientFilesTest, WhileItEndsNothingIsLetGo) {
  files_.keep(kOne);
  files_.keep(kOther);
  gone_.insert(kOne);
  for (int i = 0; i < 20; ++i, now_ += 100ms) {
    note();
    step();
    EXPECT_EQ(host_.kept(kOne), 2u) << i;
  }
}

TEST_F(ClientFilesTest, WhoHasWaitedForItsKernelIsGivenMoreTime) {
  end_after_waiting({.launches = 7, .waits = true});
  step_after(11s);
  EXPECT_EQ(host_.kept(kOne), 2u);
  step_after(1s);
  EXPECT_EQ(host_.kept(kOne), 0u);
}

// Its cap, a higher priority or a user holds it, for days; what it had waited for before goes on.
TEST_F(ClientFilesTest, WhoIsHeldWaitsForNoKernelMeanwhile) {
  for (const ProcessId& process : {kOne, kOther, kThird}) files_.keep(process);
  const auto pass = [&](const ProcessId& process, Nanos time, bool is_held) {
    for (const Time until = now_ + time; now_ < until; now_ += 100ms)
      files_.note_work(now_, process, {.launches = 1, .waits = true, .is_held = is_held});
    files_.note_work(now_, process, {.launches = 1, .waits = true, .is_held = is_held});
  };
  pass(kOne, 1h, true);
  end(kOne);
  step_after(ClientFiles::kLeastRest);
  EXPECT_EQ(host_.kept(kOne), 0u);
  pass(kOther, 6s, false);
  pass(kOther, 1h, true);
  pass(kOther, 6s, false);
  end(kOther);
  step_after(1h);
  EXPECT_EQ(host_.kept(kOther), 2u) << "its kernel may run for ever";
}

TEST_F(ClientFilesTest, WhoLaunchesOrDoesNotWaitHasNoKernelWithoutEnd) {
  files_.keep(kOne);
  files_.keep(kOther);
  for (uint64_t i = 0; i < 200; ++i, now_ += 100ms)
    files_.note_work(now_, kOne, {.launches = i, .waits = true});
  files_.note_work(now_, kOther, {.launches = 7, .waits = false});
  now_ += 1h;
  files_.note_work(now_, kOther, {.launches = 7, .waits = true});
  files_.keep(kThird);
  end(kOne);
  end(kOther);
  step_after(ClientFiles::kLeastRest);
  EXPECT_EQ(host_.kept(kOther), 0u);
}

TEST_F(ClientFilesTest, OneWithAKernelWithoutEndLingersUntilTheLastOtherHasEnded) {
  for (const ProcessId& process : {kOne, kOther, kThird}) files_.keep(process);
  files_.note_work(now_, kOne, {.launches = 1, .waits = true});
  now_ += ClientFiles::kEndless;
  files_.note_work(now_, kOne, {.launches = 1, .waits = true});
  end(kOne);
  end(kOther);
  step_after(1h);
  EXPECT_EQ(host_.kept(kOther), 0u);
  EXPECT_EQ(host_.kept(kOne), 2u) << "the third one would end";
  end(kThird);
  expect_nothing_kept();
}

// The next program of a script wants its memory at once.
TEST_F(ClientFilesTest, OfOneThatEndsInOrderTheyAreLetGoSoon) {
  end_after_waiting({.launches = 7, .is_done = true});
  step_after(ClientFiles::kDoneRest);
  EXPECT_EQ(host_.kept(kOne), 0u);
}

TEST_F(ClientFilesTest, TheLastOneHarmsNobody) {
  files_.keep(kOne);
  end(kOne);
  expect_nothing_kept();
}

TEST_F(ClientFilesTest, WhoIsSeenAgainIsNotForgotten) {
  files_.keep(kOne);
  gone_.insert(kOne);
  note();
  now_ += 5s;
  gone_.clear();
  note();
  step_after(6s);
  EXPECT_EQ(host_.kept(kOne), 2u);
}

TEST_F(ClientFilesTest, WhoBecomesAnotherProgramIsForgotten) {
  files_.keep(kOne);
  gone_.insert(kOne);
  note();
  step_after(ClientFiles::kForgotten);
  EXPECT_EQ(host_.kept(kOne), 0u);
  files_.keep(kOne);
  EXPECT_EQ(host_.copies, 2) << "it may come back";
}

TEST_F(ClientFilesTest, WhatCannotBeCopiedIsNotAskedForAgain) {
  host_.refusal = Error{std::make_error_code(std::errc::operation_not_permitted), "copy", ""};
  EXPECT_TRUE(files_.keep(kOne));
  EXPECT_FALSE(files_.keep(kOne));
  EXPECT_EQ(host_.copies, 1);
  end(kOne);
  EXPECT_TRUE(files_.is_empty());
}

// A process that has opened /dev/full, which stands for the memory manager here, twice.
class Holder {
 public:
  Holder() {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const char* path : {"/dev/full", "/dev/null", "/dev/full"}) ::open(path, O_RDONLY);
      [[maybe_unused]] const ssize_t told = ::write(ready[1], "1", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() { end(); }
  void end() {
    if (std::exchange(has_ended_, true)) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ProcessId process() const { return {pid_, start_ticks_of(pid_)}; }

 private:
  pid_t pid_ = -1;
  bool has_ended_ = false;
};

TEST(MpsHostTest, CopiesWhatAProcessHasOpenOfTheMemoryManager) {
  const auto host =
      make_mps_host({.pipe_directory = "", .log_directory = "", .memory_manager = "/dev/full"});
  Holder holder;
  const ProcessId process = holder.process();
  auto copies = host->copy_memory_files(process);
  ASSERT_TRUE(copies) << copies.error().message();
  ASSERT_EQ(copies->size(), 2u);
  struct stat device{}, file{};
  ASSERT_EQ(::stat("/dev/full", &device), 0);
  holder.end();
  for (const Fd& copy : *copies) {
    ASSERT_EQ(::fstat(copy.get(), &file), 0) << "it is open though the process is gone";
    EXPECT_EQ(file.st_rdev, device.st_rdev);
  }
  const auto gone = host->copy_memory_files(process);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, std::errc::no_such_process);
}

TEST(MpsHostTest, WithoutAMemoryManagerThereIsNothingToCopy) {
  const auto host =
      make_mps_host({.pipe_directory = "", .log_directory = "", .memory_manager = "/dev/nothing"});
  Holder holder;
  const auto copies = host->copy_memory_files(holder.process());
  ASSERT_TRUE(copies) << copies.error().message();
  EXPECT_TRUE(copies->empty());
}

}  // namespace
}  // namespace gpushare
