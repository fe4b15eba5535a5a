// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/instance_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

constexpr const char* kStep = "lock out other agents";

// Who has the lock, as it wrote into the file; empty: unknown.
std::string holder_of(const Fd& file) {
  char text[16] = {};
  const ssize_t n = ::pread(file.get(), text, sizeof text - 1, 0);
  if (n <= 0) return "";
  return fmt::format(" (process {})", std::string_view(text, static_cast<std::size_t>(n)));
}

// `what` is locked by this open file, which `name` names to the user.
Result<Fd> lock(Fd file, const std::string& name, const std::string& what, Nanos patience) {
  // The agent, which the supervisor executes, must inherit it.
  if (::fcntl(file.get(), F_SETFD, 0) != 0) return errno_error(kStep, name);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return errno_error(kStep, name);
  if (status.st_uid != ::geteuid())
    return make_error(std::errc::operation_not_permitted, kStep,
                      name + " belongs to another user; remove it");
  const MonotonicClock clock;
  const Time deadline = clock.now() + patience;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_error(kStep, name);
    if (clock.now() >= deadline)
      return make_error(std::errc::device_or_resource_busy, kStep,
                        fmt::format("another gpushared{} runs on {}", holder_of(file), what));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), pid.data(), pid.size(), 0) < 0)
    return errno_error(kStep, name);
  return file;
}

}  // namespace

Result<Fd> lock_instance(const std::string& region, Nanos patience) {
  // The lock is a file of its own: every user may open the region, and could then lock it.
  auto file = ControlPlane::open_lock_file(region);
  if (!file) return file;
  return lock(std::move(*file), region + ".lock", "the control plane " + region, patience);
}

Result<Fd> lock_driver(const std::optional<std::string>& simulation) {
  const std::string path = simulation ? *simulation + ".lock" : kDriverLock;
  if (!simulation) {
    std::error_code ignored;  // open() says what is wrong
    std::filesystem::create_directory(std::filesystem::path(path).parent_path(), ignored);
  }
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return errno_error(kStep, path);
  return lock(std::move(file), path,
              simulation ? "the simulation " + *simulation : "the NVIDIA driver", Nanos{});
}

}  // namespace gpushare
