// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/file_watch.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>

namespace gpushare {

Result<FileWatch> FileWatch::start(const std::string& path, int signal) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  Fd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd.is_open()) return errno_error("watch folder", folder);
  const bool has_signal = ::fcntl(fd.get(), F_SETOWN, ::getpid()) == 0 &&
                          ::fcntl(fd.get(), F_SETSIG, signal) == 0 &&
                          ::fcntl(fd.get(), F_SETFL, O_NONBLOCK | O_ASYNC) == 0;
  // The folder is added last, so that no event comes before the signal is set.
  const uint32_t what = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;
  if (!has_signal || ::inotify_add_watch(fd.get(), folder.c_str(), what) < 0)
    return errno_error("watch folder", folder);
  return FileWatch(std::move(fd));
}

void FileWatch::drain() {
  alignas(inotify_event) char events[4096];
  while (::read(fd_.get(), events, sizeof events) > 0) {
  }
}

}  // namespace gpushare
