// SPDX-License-Identifier: Apache-2.0
// Tests which process the observer names for a call, and when it reports the end of a process.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/intercept/bpf/observer_fixture.h"

namespace gpushare {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST_F(BpfObserverTest, NamesProcessAsProcAndCgroupDo) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  // The identity compared here, pid and start ticks, comes from /proc/PID/stat.
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(1));
  const ProcessOpened opened = all<ProcessOpened>()[0];
  EXPECT_EQ(opened.ns_pid, child.process().pid);
  EXPECT_EQ(opened.uid, 0u);
  std::string comm;
  std::getline(std::ifstream("/proc/self/comm") >> std::ws, comm);
  EXPECT_EQ(opened.command, comm);
  const Time now = MonotonicClock().now();
  EXPECT_LE(events_.front().time, now);
  EXPECT_GT(events_.front().time, now - std::chrono::seconds(60));
}

// As wait(2) gives it, also where a thread of many ends the process, or a signal.
TEST_F(BpfObserverTest, KnowsWithWhatStatusAProcessEnds) {
  const auto status_of = [&](const std::function<void()>& end) -> std::optional<int> {
    const Fd file = driver_->open();
    HeldChild child([fd = file.get(), &end] {
      rm_alloc(fd, 0, 0, GS_CLASS_ROOT);
      end();
    });
    child.finish();
    EXPECT_TRUE(drain_until_closed(child.process()));
    for (const DriverEvent& event : events_)
      if (const auto* closed = std::get_if<ProcessClosed>(&event.what);
          closed != nullptr && event.process == child.process())
        return closed->status;
    return std::nullopt;
  };
  EXPECT_EQ(status_of([] { ::_exit(0); }), 0);
  EXPECT_EQ(status_of([] { ::_exit(3); }), 3 << 8);
  EXPECT_EQ(status_of([] { ::raise(SIGKILL); }), SIGKILL);
  EXPECT_EQ(status_of([] {
              std::thread([] { ::_exit(5); }).detach();
              for (;;) ::pause();
            }),
            5 << 8);
}

// Inode of this process's cgroup v2 directory; 0 where there is none.
uint64_t own_cgroup_id() {
  std::string mount_point;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, where, type, rest; mounts >> device >> where >> type;) {
    std::getline(mounts, rest);
    if (type == "cgroup2") mount_point = where;
  }
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    struct stat info{};
    if (line.starts_with("0::") && ::stat((mount_point + line.substr(3)).c_str(), &info) == 0)
      return info.st_ino;
  }
  return 0;
}

TEST_F(BpfObserverTest, NamesTheCgroup) {
  const uint64_t expected = own_cgroup_id();
  if (expected == 0) GTEST_SKIP() << "needs cgroup v2";
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(1));
  EXPECT_EQ(all<ProcessOpened>()[0].cgroup_id, expected);
}

TEST_F(BpfObserverTest, GivesBothPidsOfAContainersProcess) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t inner = ::fork();
    if (inner == 0) {
      if (::getpid() != 1) ::_exit(1);
      // The handle carries the inner process's pid in our namespace to the test.
      rm_alloc(fd, 0, 0, GS_CLASS_ROOT);
      ::_exit(0);
    }
    int status = 1;
    ::waitpid(inner, &status, 0);
    rm_free(fd, static_cast<uint32_t>(inner), 1);
    ::_exit(status);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ObjectFreed>(), SizeIs(1));
  const auto inner_pid = static_cast<pid_t>(all<ObjectFreed>()[0].client);
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(2));
  EXPECT_EQ(all<ProcessOpened>()[0].ns_pid, 1);
  EXPECT_EQ(events_[0].process.pid, inner_pid);
  EXPECT_THAT(from(events_[0].process), SizeIs(3)) << "opened, client, closed";
}

TEST_F(BpfObserverTest, ExecClosesAProcessAndItsExitIsThenNews) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    rm_free(fd, 1, 1);
    ::execl("/bin/true", "true", nullptr);
    ::_exit(1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  drain();
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "freed 1", "closed by exec"));
}

// Returns when the main thread of this process has ended (state Z) and others go on.
void wait_for_end_of_main_thread() {
  for (std::string text; text.find(") Z ") == std::string::npos; std::this_thread::yield()) {
    text.clear();
    std::getline(std::ifstream("/proc/self/stat") >> std::ws, text);
  }
}

TEST_F(BpfObserverTest, AProcessLivesUntilItsLastThreadEnds) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    rm_free(fd, 1, 1);
    std::thread([fd] {
      wait_for_end_of_main_thread();
      rm_free(fd, 1, 2);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // this thread only
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  drain();
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "freed 1", "freed 2", "closed"));
}

TEST_F(BpfObserverTest, WatchedProcessesAreClosedWithoutBeingOpened) {
  HeldChild child([] {});
  ASSERT_TRUE(observer_->watch(child.process()));
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("closed"));

  const Result<> late = observer_->watch(child.process());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::no_such_process);
}

}  // namespace
}  // namespace gpushare
