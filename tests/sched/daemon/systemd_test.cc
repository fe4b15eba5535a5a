// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/systemd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class SystemdTest : public ::testing::Test {
 protected:
  ~SystemdTest() override {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
    ::unlink(path_.c_str());
  }
  // Returns what systemd would have read; empty: nothing came.
  std::string receive() {
    char bytes[256];
    const ssize_t n = ::recv(systemd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return n < 0 ? "" : std::string(bytes, static_cast<std::size_t>(n));
  }

  const std::string path_ = ::testing::TempDir() + "notify-" + std::to_string(::getpid());
  const Fd systemd_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST_F(SystemdTest, SendsOneDatagramToTheSocket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(systemd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  notify_systemd("READY=1");
  EXPECT_EQ(receive(), "READY=1");
}

TEST_F(SystemdTest, KnowsAbstractNames) {
  const std::string name = "gpushare-notify-" + std::to_string(::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(systemd_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  notify_systemd("WATCHDOG=1");
  EXPECT_EQ(receive(), "WATCHDOG=1");
}

TEST_F(SystemdTest, WithoutSystemdNothingHappens) {
  ::unsetenv("NOTIFY_SOCKET");
  notify_systemd("READY=1");
  ::setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
  notify_systemd("READY=1");
  ::setenv("NOTIFY_SOCKET", std::string(300, 'x').c_str(), 1);
  notify_systemd("READY=1");
}

TEST_F(SystemdTest, TheWatchdogHearsTwiceInItsTime) {
  EXPECT_EQ(watchdog_interval(), std::nullopt);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(watchdog_interval(), 15s);
  for (const char* malformed : {"", "x", "-1", "0", "5s"}) {
    ::setenv("WATCHDOG_USEC", malformed, 1);
    EXPECT_EQ(watchdog_interval(), std::nullopt) << malformed;
  }
}

}  // namespace
}  // namespace gpushare
