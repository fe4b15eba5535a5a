// SPDX-License-Identifier: Apache-2.0
// Tests the machine's own driver calls, as far as a machine without the driver can.
#include "intercept/nvrm/driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "shmctl/base/proc_stat.h"

namespace gpushare::nvrm {
namespace {

TEST(SystemDriver, AMissingDeviceIsNoSuchDevice) {
  auto fd = system_driver().open(200);  // no machine has so many
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code, std::errc::no_such_device);
  EXPECT_NE(fd.error().message().find("/dev/nvidia200"), std::string::npos);
}

TEST(SystemDriver, TheMinorOfAGpuIsInItsInformation) {
  const auto minor = [](const char* text) {
    std::istringstream information(text);
    return minor_in(information);
  };
  EXPECT_EQ(minor("Model: \t\t NVIDIA H200\nBus Location: \t 0000:1b:00.0\nDevice Minor: \t 3\n"),
            3u);
  EXPECT_EQ(minor("Device Minor: 12"), 12u);
  EXPECT_EQ(minor("Device Minor: \t \n"), std::nullopt);
  EXPECT_EQ(minor("Device Minor: 3x\n"), std::nullopt);
  EXPECT_EQ(minor("Model: NVIDIA H200\n"), std::nullopt);
  EXPECT_EQ(system_driver().minor_of("ffff:ff:1f.7"), std::nullopt);
}

TEST(SystemDriver, ProcessesIncludeThisOne) {
  EXPECT_TRUE(std::ranges::count(system_driver().processes().value(), ::getpid()));
}

TEST(SystemDriver, OtherDescriptorsAreNotControlFiles) {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(std::ranges::count(system_driver().control_fds(::getpid()).value(), null.get()));
  EXPECT_TRUE(system_driver().control_fds(0x7FFFFFF0).value().empty());
}

TEST(SystemDriver, FetchRefusesWhatIsNoDriverFile) {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto copy = system_driver().fetch({::getpid(), start_ticks_of(::getpid())}, null.get());
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_device) << copy.error().message();
}

TEST(SystemDriver, FetchOfAClosedNumberIsABadDescriptor) {
  auto copy = system_driver().fetch({::getpid(), 0}, 100'000);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::bad_file_descriptor) << copy.error().message();
}

TEST(SystemDriver, FetchFromADeadProcessIsNoSuchProcess) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  const uint64_t ticks = start_ticks_of(pid);  // there until it is waited for
  ASSERT_GT(ticks, 0u);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  auto copy = system_driver().fetch({pid, ticks}, 0);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_process);
}

TEST(SystemDriver, FetchFromAnotherProcessUnderThePidIsNoSuchProcess) {
  auto copy = system_driver().fetch({::getpid(), start_ticks_of(::getpid()) + 1}, 0);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_process);
}

}  // namespace
}  // namespace gpushare::nvrm
