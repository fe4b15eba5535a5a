// SPDX-License-Identifier: Apache-2.0
// Tests what the probe says when it cannot be loaded, and where it finds tracepoints.
#include "intercept/bpf/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "intercept/bpf/tracepoint.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

// Runs `body` in a child with mounts and a user of its own, and returns the child's exit status.
template <class Body>
int in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Probe, SaysThatItNeedsRoot) {
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) GTEST_SKIP() << "needs a kernel with BTF";
  EXPECT_EQ(in_child([] {
              if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
              const Result<Probe> probe = Probe::load({});
              if (probe) return 3;
              return probe.error().message().find("needs root") == std::string::npos ? 4 : 0;
            }),
            0);
}

TEST(Tracepoint, IsFoundWithoutAMountedTracefs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(in_child([] {
              if (::unshare(CLONE_NEWNS) != 0) return 2;
              if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 2;
              ::umount2("/sys/kernel/debug/tracing", MNT_DETACH);
              ::umount2("/sys/kernel/tracing", MNT_DETACH);
              if (::access("/sys/kernel/tracing/events", F_OK) == 0) return 2;
              return open_tracepoint("sched/sched_process_exit") ? 0 : 3;
            }),
            0);
}

TEST(Tracepoint, NamesTheOneThatIsNotThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result<Fd> event = open_tracepoint("sched/no_such_tracepoint");
  ASSERT_FALSE(event);
  EXPECT_EQ(event.error().code, std::errc::no_such_file_or_directory);
  EXPECT_THAT(event.error().message(), HasSubstr("sched/no_such_tracepoint"));
}

}  // namespace
}  // namespace gpushare
