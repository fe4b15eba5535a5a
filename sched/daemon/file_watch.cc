// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/file_watch.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>

namespace gpushare {

Result<Arrival> Arrival::watch(const std::string& path, int signal) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  Fd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd.is_open()) return errno_error("watch folder", folder);
  const bool is_told = ::fcntl(fd.get(), F_SETOWN, ::getpid()) == 0 &&
                       ::fcntl(fd.get(), F_SETSIG, signal) == 0 &&
                       ::fcntl(fd.get(), F_SETFL, O_NONBLOCK | O_ASYNC) == 0;
  // Last, so that nothing comes before its signal is set.
  const uint32_t what = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;
  if (!is_told || ::inotify_add_watch(fd.get(), folder.c_str(), what) < 0)
    return errno_error("watch folder", folder);
  return Arrival(std::move(fd));
}

void Arrival::drain() {
  alignas(inotify_event) char events[4096];
  while (::read(fd_.get(), events, sizeof events) > 0) {
  }
}

}  // namespace gpushare
