// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

#include "shmctl/base/last_threads.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

Result<sockaddr_un> address_of(const std::string& path, const char* step) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return make_error(std::errc::filename_too_long, step, path);
  path.copy(address.sun_path, path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Whether whoever listens at the other end of this connection has died: its socket is there for as
// long as a thread of it is in a call of the kernel that does not come back (last_threads.h). Where
// that process is gone, another one has the socket from it.
bool has_dead_listener(const Fd& connected) {
  ucred listener{};
  socklen_t bytes = sizeof listener;
  if (::getsockopt(connected.get(), SOL_SOCKET, SO_PEERCRED, &listener, &bytes) != 0) return false;
  const uint64_t start_ticks = listener.pid > 0 ? start_ticks_of(listener.pid) : 0;
  return start_ticks != 0 && has_died({listener.pid, start_ticks});
}

// The name is taken over with a rename(2), which would replace any file.
bool is_something_else(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode);
}

}  // namespace

Result<Fd> connect_to_socket(const std::string& path, const char* step) {
  const auto address = address_of(path, step);
  if (!address) return std::unexpected(address.error());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return errno_error(step, path);
  if (::connect(socket.get(), generic(*address), sizeof *address) != 0)
    return errno_error(step, path);
  return socket;
}

Result<Fd> listen_on_socket(const std::string& path, mode_t mode, const char* step) {
  const auto address = address_of(path, step);
  if (!address) return std::unexpected(address.error());
  if (is_something_else(path))
    return make_error(std::errc::file_exists, step, path + " is no socket");
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.is_open()) return errno_error(step, path);
  const bool is_taken = ::connect(probe.get(), generic(*address), sizeof *address) == 0;
  // EAGAIN means that a process listens there and its queue is full.
  if (is_taken ? !has_dead_listener(probe) : errno == EAGAIN)
    return make_error(std::errc::address_in_use, step, path + ": another process listens there");
  const bool is_free = is_taken || errno == ECONNREFUSED || errno == ENOENT;
  if (!is_free) return errno_error(step, path);

  // Whoever finds the name finds a listener with the right permissions.
  const std::string unready = path + "~";
  const auto before = address_of(unready, step);
  if (!before) return std::unexpected(before.error());
  ::unlink(unready.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return errno_error(step, path);
  if (::bind(socket.get(), generic(*before), sizeof *before) != 0 ||
      ::chmod(unready.c_str(), mode) != 0 || ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::rename(unready.c_str(), path.c_str()) != 0)
    return errno_error(step, path);
  return socket;
}

}  // namespace gpushare
