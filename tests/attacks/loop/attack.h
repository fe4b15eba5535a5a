// SPDX-License-Identifier: Apache-2.0
// What programs that attack the agent's sockets share. Each runs until its time is over, and then
// prints how often it did what it does, so that a test knows that it was an attack at all.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shmctl/base/fd.h"
#include "shmctl/base/unix_socket.h"

namespace gpushare::attack {

// The agent's sockets, by the variables that name them.
inline std::string path_of(const char* variable) {
  const char* path = std::getenv(variable);
  return path == nullptr ? "" : path;
}

// Not open if it is refused.
inline Fd connect_to(const std::string& path) {
  return connect_to_socket(path, "attack").value_or(Fd());
}

// One connection of many, and what is still to be sent on it.
struct Client {
  Fd fd;
  std::string unsent;

  // Connects where it is not connected. False: it was refused.
  bool is_connected(const std::string& path) {
    if (fd.is_open()) return true;
    fd = connect_to(path);
    unsent.clear();
    return fd.is_open();
  }
  // Sends as much as the socket takes at once, and returns what send() does.
  ssize_t send() {
    const ssize_t sent =
        ::send(fd.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) unsent.erase(0, static_cast<std::size_t>(sent));
    return sent;
  }
};

// Arguments: SECONDS [UID]. Becomes that user where it may, and says when to end.
struct Attack {
  Attack(int argc, char** argv) {
    const int seconds = argc > 1 ? std::atoi(argv[1]) : 3;
    end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    const auto user = static_cast<uid_t>(argc > 2 ? std::atoi(argv[2]) : 0);
    if (user != 0 && ::setuid(user) != 0) std::exit(2);
  }
  bool goes_on() const { return std::chrono::steady_clock::now() < end; }
  static int say(unsigned long long count) {
    std::printf("{\"count\":%llu}\n", count);
    return 0;
  }
  std::chrono::steady_clock::time_point end;
};

}  // namespace gpushare::attack
