// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "intercept/nvrm/abi.h"
#include "shmctl/base/pidfd.h"

namespace gpushare::nvrm {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Dir = std::unique_ptr<DIR, DirCloser>;

// Calls `visit(number)` for the all-digit entries of a /proc directory, up to `most` entries from
// `place` on. Returns where to go on; nullopt: that was all.
template <class Visit>
Result<std::optional<long>> for_each_number(const std::string& path, long place, size_t most,
                                            Visit visit) {
  Dir dir(::opendir(path.c_str()));
  if (!dir && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    return errno_error("list a folder", path);
  if (!dir) return std::nullopt;  // the process has ended, or is not ours to look into
  if (place != 0) ::seekdir(dir.get(), place);
  for (; most > 0; --most) {
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) return std::nullopt;
    int number = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    auto [rest, error] = std::from_chars(entry->d_name, end, number);
    if (error == std::errc() && rest == end) visit(number);
  }
  return ::telldir(dir.get());
}

// Asks no file system, which may be a program's own and never answer.
bool is_control_file(const std::string& path) {
  struct statx info{};
  return ::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &info) == 0 &&
         S_ISCHR(info.stx_mode) && info.stx_rdev_major == GS_NV_MAJOR &&
         info.stx_rdev_minor == GS_NV_CTL_MINOR;
}

class SystemDriver final : public Driver {
 public:
  Result<Fd> open(unsigned minor) override {
    const std::string path = minor == GS_NV_CTL_MINOR ? std::string("/dev/nvidiactl")
                                                      : "/dev/nvidia" + std::to_string(minor);
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.is_open()) return fd;
    // There is no such file, or no driver or GPU behind it.
    if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
      return make_error(std::errc::no_such_device, "open the driver", path);
    return errno_error("open the driver", path);
  }

  // The driver tells it before the GPU is opened.
  std::optional<unsigned> minor_of(const std::string& pci) override {
    std::ifstream text("/proc/driver/nvidia/gpus/" + pci + "/information");
    return minor_in(text);
  }

  // The number of the folder's inode: the kernel gives another one each time that it makes it.
  uint64_t load() override {
    struct stat module{};
    return ::stat("/sys/module/nvidia", &module) == 0 ? module.st_ino : 0;
  }

  int ioctl(int fd, unsigned nr, void* argument, size_t bytes) override {
    const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, nr, bytes);
    int rc;
    do {
      rc = ::ioctl(fd, request, argument);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? errno : 0;
  }

  Result<const void*> map(int fd, size_t bytes) override {
    void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return errno_error("map driver memory");
    return address;
  }

  void unmap(const void* address, size_t bytes) override {
    ::munmap(const_cast<void*>(address), bytes);
  }

  Result<Fd> fetch(ProcessId process, int fd) override {
    const auto pidfd = open_pidfd(process.pid, process.start_ticks, "open process");
    if (!pidfd) return std::unexpected(pidfd.error());
    Fd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd->get(), fd, 0)));
    if (!copy.is_open())
      return errno_error("take descriptor of process", std::to_string(process.pid));
    struct stat info{};
    if (::fstat(copy.get(), &info) != 0) return errno_error("inspect descriptor");
    if (!S_ISCHR(info.st_mode) || major(info.st_rdev) != GS_NV_MAJOR)
      return make_error(std::errc::no_such_device, "take descriptor of process",
                        "it is no longer a driver file");
    return copy;
  }

  Result<std::vector<int>> control_fds(pid_t pid, size_t most) override {
    std::vector<int> found;
    const std::string base = fds_of(pid);
    const auto listed = for_each_number(base, 0, most, [&](int number) {
      if (is_control_file(base + std::to_string(number))) found.push_back(number);
    });
    if (!listed) return std::unexpected(listed.error());
    return found;
  }

  using Driver::control_fds;

  Result<Look> look_for_control_fd(pid_t pid, long place, size_t most) override {
    Look look;
    const std::string base = fds_of(pid);
    const auto next = for_each_number(base, place, most, [&](int number) {
      look.has_found = look.has_found || is_control_file(base + std::to_string(number));
    });
    if (!next) return std::unexpected(next.error());
    look.next = *next;
    return look;
  }

  Result<std::vector<pid_t>> processes() override {
    std::vector<pid_t> all;
    const auto listed = for_each_number("/proc", 0, kAll, [&](int pid) { all.push_back(pid); });
    if (!listed) return std::unexpected(listed.error());
    return all;
  }

 private:
  static constexpr size_t kAll = SIZE_MAX;
  static std::string fds_of(pid_t pid) { return "/proc/" + std::to_string(pid) + "/fd/"; }
};

}  // namespace

std::optional<unsigned> minor_in(std::istream& information) {
  constexpr std::string_view kKey = "Device Minor:";
  for (std::string line; std::getline(information, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::size_t at = line.find_first_not_of(" \t", kKey.size());
    if (at == std::string::npos) return std::nullopt;
    unsigned minor = 0;
    const char* const end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data() + at, end, minor);
    if (error == std::errc() && rest == end) return minor;
    return std::nullopt;
  }
  return std::nullopt;
}

Driver& system_driver() {
  static SystemDriver driver;
  return driver;
}

}  // namespace gpushare::nvrm
