// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/instance_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "sched/daemon/lock_holders.h"
#include "shmctl/base/last_threads.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

constexpr const char* kLockOut = "lock out other agents";

// So long whoever has died is waited for: most take some tenths of a second to end.
constexpr Nanos kToEnd = std::chrono::seconds(1);

// Stands in the file of whoever could not lock it, because one that has died still has.
constexpr std::string_view kWithoutLock = "\nwithout lock";

std::string text_of(const Fd& file) {
  char text[64] = {};
  const ssize_t n = ::pread(file.get(), text, sizeof text - 1, 0);
  return n <= 0 ? "" : std::string(text, static_cast<std::size_t>(n));
}

// Who has the lock, as it wrote into the file; empty: unknown.
std::string holder_of(const Fd& file) {
  const std::string text = text_of(file);
  if (text.empty()) return "";
  return fmt::format(" (process {})", text.substr(0, text.find('\n')));
}

enum class Others { kNone, kAllDead, kLiving };

// Of those that have the file open, as far as they can be seen. Whoever wants it opens it first and
// then looks who else has: of two at once at least one sees the other.
Others look_at_others(const Fd& file, std::vector<ProcessId>& dead) {
  dead = others_that_hold(file);
  const auto lives = [](const ProcessId& one) { return one.start_ticks == 0 || !has_died(one); };
  if (std::ranges::any_of(dead, lives)) return Others::kLiving;
  return dead.empty() ? Others::kNone : Others::kAllDead;
}

// `what` is locked by this open file, which `name` names to the user.
Result<InstanceLock> lock(Fd file, const std::string& name, const std::string& what,
                          Nanos patience) {
  // The agent, which the supervisor executes, must inherit it.
  if (::fcntl(file.get(), F_SETFD, 0) != 0) return errno_error(kLockOut, name);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return errno_error(kLockOut, name);
  if (status.st_uid != ::geteuid())
    return make_error(std::errc::operation_not_permitted, kLockOut,
                      name + " belongs to another user; remove it");
  const MonotonicClock clock;
  const Time began = clock.now(), deadline = began + patience;
  InstanceLock taken;
  bool is_locked = false;
  while (true) {
    is_locked = is_locked || ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_locked && errno != EWOULDBLOCK) return errno_error(kLockOut, name);
    taken.left.clear();
    if (is_locked && !text_of(file).ends_with(kWithoutLock)) break;
    const Others others = look_at_others(file, taken.left);
    if (is_locked && others == Others::kNone) break;
    const Time now = clock.now();
    if (others == Others::kAllDead && now >= began + kToEnd) break;
    // Where nobody is seen who has it, that may have ended just now, or live where we cannot look.
    const Time until = others == Others::kNone ? std::max(deadline, began + kToEnd) : deadline;
    if (others != Others::kAllDead && now >= until)
      return make_error(std::errc::device_or_resource_busy, kLockOut,
                        fmt::format("another gpushared{} runs on {}", holder_of(file), what));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::string pid = std::to_string(::getpid());
  if (!is_locked) pid += kWithoutLock;
  if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), pid.data(), pid.size(), 0) < 0)
    return errno_error(kLockOut, name);
  taken.file = std::move(file);
  return taken;
}

}  // namespace

Result<InstanceLock> lock_instance(const std::string& region, Nanos patience) {
  // The lock is a file of its own: every user may open the region, and could then lock it.
  auto file = ControlPlane::open_lock_file(region);
  if (!file) return std::unexpected(file.error());
  return lock(std::move(*file), region + ".lock", "the control plane " + region, patience);
}

Result<InstanceLock> lock_driver(const std::optional<std::string>& simulation) {
  const std::string path = simulation ? *simulation + ".lock" : kDriverLock;
  if (!simulation) {
    std::error_code ignored;  // open() says what is wrong
    std::filesystem::create_directory(std::filesystem::path(path).parent_path(), ignored);
  }
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return errno_error(kLockOut, path);
  return lock(std::move(file), path,
              simulation ? "the simulation " + *simulation : "the NVIDIA driver", Nanos{});
}

}  // namespace gpushare
