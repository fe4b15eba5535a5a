// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "shmctl/base/fd.h"

namespace gpushare {

void notify_systemd(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the name of an abstract socket
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return;
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

std::optional<Micros> watchdog_interval() {
  const char* text = std::getenv("WATCHDOG_USEC");
  if (text == nullptr) return std::nullopt;
  long long microseconds = 0;
  const char* end = text + std::strlen(text);
  if (std::from_chars(text, end, microseconds).ptr != end || microseconds <= 0) return std::nullopt;
  return Micros(microseconds / 2);
}

}  // namespace gpushare
