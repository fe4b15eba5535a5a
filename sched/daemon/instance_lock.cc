// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <thread>
#include <utility>

#include "shmctl/plane/region.h"

namespace gpushare {

Result<Fd> lock_instance(const std::string& region, Nanos patience) {
  constexpr const char* kStep = "lock the control plane";
  const std::string name = region + ".lock";
  // The lock is a file of its own: every user may open the region, and could then lock it.
  auto opened = ControlPlane::open_lock_file(region);
  if (!opened) return opened;
  Fd fd = std::move(*opened);
  // The agent, which the supervisor executes, must inherit it.
  if (::fcntl(fd.get(), F_SETFD, 0) != 0) return errno_error(kStep, name);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return errno_error(kStep, name);
  if (status.st_uid != ::geteuid())
    return make_error(std::errc::operation_not_permitted, kStep,
                      name + " belongs to another user; remove it");

  const MonotonicClock clock;
  const Time deadline = clock.now() + patience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_error(kStep, name);
    if (clock.now() >= deadline)
      return make_error(std::errc::device_or_resource_busy, kStep,
                        "another gpushared runs on the control plane " + region);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fd;
}

}  // namespace gpushare
