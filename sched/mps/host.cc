// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "sched/mps/command_run.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/pidfd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr const char* kStart = "start MPS";
constexpr const char* kAsk = "ask MPS";
constexpr const char* kCopy = "copy the files of an MPS client";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogs = "CUDA_MPS_LOG_DIRECTORY";
std::string read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.is_open() ? read_whole(file) : "";
}

// The variable in the environment that a process was started with; nullopt: it has no such
// variable.
std::optional<std::string> variable(pid_t pid, std::string_view name) {
  const std::string all = read_file("/proc/" + std::to_string(pid) + "/environ");
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return std::string(entry.substr(name.size() + 1));
  }
  return std::nullopt;
}

// The number of a character device; nullopt: it is none. Asks no file system, which may be a
// program's own, or a server's that is away, and never answer.
std::optional<std::pair<uint32_t, uint32_t>> device_at(const std::string& path) {
  struct statx info{};
  if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0 ||
      !S_ISCHR(info.stx_mode))
    return std::nullopt;
  return std::pair(info.stx_rdev_major, info.stx_rdev_minor);
}

// The names in a folder of descriptors. A process can have a million: what is looked through of
// them on the agent's thread is bounded, and what CUDA opens comes early.
std::vector<int> numbers_of(const std::string& folder) {
  constexpr std::size_t kMostLooked = 4096;
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (numbers.size() == kMostLooked) break;
    numbers.push_back(std::atoi(at->path().filename().c_str()));
  }
  return numbers;
}

// A process of another user could pretend to be the daemon.
bool is_of_our_user(pid_t pid) {
  struct stat status{};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &status) == 0 &&
         status.st_uid == ::geteuid();
}

// The daemon logs every question that it is asked, and its folder may be in memory.
void keep_small(const std::string& path) {
  constexpr off_t kLargest = 8 << 20;
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || status.st_size <= kLargest) return;
  const Fd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
}

bool is_executable(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

bool is_on_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.empty() && is_executable(std::string(folder) + "/" + program)) return true;
  }
  return false;
}

// Returns true in a systemd service, whose children end with it and share its limits. The daemon is
// then started in a unit of its own.
bool is_service() {
  return std::getenv("INVOCATION_ID") != nullptr && ::access("/run/systemd/system", F_OK) == 0;
}

class SystemMpsHost final : public MpsHost {
 public:
  explicit SystemMpsHost(const MpsPaths& paths) : paths_(paths) {}
  const std::string& pipe_directory() const override { return paths_.pipe_directory; }
  bool has_program() const override { return is_on_path(paths_.program); }

  std::optional<MpsDaemon> daemon() override {
    const std::string file = paths_.pipe_directory + "/nvidia-cuda-mps-control.pid";
    const std::string text = read_file(file);
    const auto process = bearer(std::atoi(text.c_str()));
    // What cannot be read now has not ended for that.
    if (!process && known_ && !has_ended(known_->process)) return known_;
    if (!process || has_ended(*process)) return std::nullopt;
    if (known_ && known_->process == *process) return known_;
    if (!is_of_our_user(process->pid) || variable(process->pid, kPipes) != paths_.pipe_directory)
      return std::nullopt;
    ::chmod(file.c_str(), 0644);  // the daemon makes it writable for all users
    known_ = MpsDaemon{*process, variable(process->pid, kVisible).value_or("")};
    return known_;
  }

  Result<> start(const std::string& gpus, bool has_all_users) override {
    for (const std::string& folder : {paths_.pipe_directory, paths_.log_directory})
      if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return errno_error(kStart, folder);
    std::vector<std::string> own = own_variables();
    if (!gpus.empty()) own.push_back(std::string(kVisible) + "=" + gpus);
    std::vector<std::string> words;
    if (is_service()) {
      words = {"systemd-run",
               "--quiet",
               "--collect",
               "--unit=gpushare-mps",
               "--description=MPS of the GPUs that gpushare shares spatially",
               "--property=Type=forking",
               "--property=PIDFile=" + paths_.pipe_directory + "/nvidia-cuda-mps-control.pid"};
      for (const std::string& variable : own) words.push_back("--setenv=" + variable);
    }
    words.insert(words.end(), {paths_.program, "-d"});
    if (has_all_users) words.emplace_back("-multiuser-server");
    return run_.start(kStart, std::move(words), environment(std::move(own)), "");
  }

  Result<> ask(const std::string& commands) override {
    for (const char* log : {"/control.log", "/server.log"}) keep_small(paths_.log_directory + log);
    return run_.start(kAsk, {paths_.program}, environment(own_variables()), commands);
  }

  std::optional<Result<std::string>> finished(Time now) override {
    return run_.finished(now, kPatience);
  }

  std::optional<std::string> visible(pid_t pid) override { return variable(pid, kVisible); }

  std::optional<ProcessId> bearer(pid_t pid) override {
    if (pid <= 0) return std::nullopt;
    const uint64_t started = start_ticks_of(pid);
    if (started == 0) return std::nullopt;
    return ProcessId{pid, started};
  }

  Result<std::vector<Fd>> copy_memory_files(const ProcessId& process) override {
    auto pidfd = open_pidfd(process.pid, process.start_ticks, kCopy);
    if (!pidfd) return std::unexpected(pidfd.error());
    std::vector<Fd> copies;
    const auto device = device_at(paths_.memory_manager);
    if (!device) return copies;
    const std::string folder = "/proc/" + std::to_string(process.pid) + "/fd";
    for (const int number : numbers_of(folder)) {
      if (copies.size() == kMostFiles) break;
      // The device tells, not the name, which is the process's own to choose.
      if (device_at(folder + "/" + std::to_string(number)) != device) continue;
      Fd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd->get(), number, 0)));
      if (!copy.is_open() && errno == EBADF) continue;  // it was closed meanwhile
      if (!copy.is_open()) return errno_error(kCopy, std::to_string(process.pid));
      // Another file may have come in its place meanwhile.
      if (device_at("/proc/self/fd/" + std::to_string(copy.get())) == device)
        copies.push_back(std::move(copy));
    }
    return copies;
  }

  void close_aside(std::vector<Fd> files) override {
    if (files.empty()) return;
    // A std::function can be copied, files cannot.
    const auto shared = std::make_shared<std::vector<Fd>>(std::move(files));
    start_aside<bool>([shared] {
      shared->clear();
      return true;
    });
  }

  bool has_ended(const ProcessId& process) override {
    auto at = watched_.find(process);
    if (at == watched_.end()) {
      auto opened = open_pidfd(process.pid, process.start_ticks, "watch a process");
      if (!opened) return opened.error().code == std::errc::no_such_process;
      at = watched_.emplace(process, std::move(*opened)).first;
    }
    pollfd end{.fd = at->second.get(), .events = POLLIN, .revents = 0};
    if (::poll(&end, 1, 0) <= 0) return false;
    watched_.erase(at);
    return true;
  }

 private:
  std::vector<std::string> own_variables() const {
    return {std::string(kPipes) + "=" + paths_.pipe_directory,
            std::string(kLogs) + "=" + paths_.log_directory};
  }

  // Our environment with `own` instead of CUDA's variables.
  static std::vector<std::string> environment(std::vector<std::string> own) {
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!std::string_view(*entry).starts_with("CUDA_")) own.emplace_back(*entry);
    return own;
  }

  const MpsPaths paths_;
  std::optional<MpsDaemon> known_;
  std::map<ProcessId, Fd> watched_;
  CommandRun run_{paths_.program};
};

}  // namespace

std::unique_ptr<MpsHost> make_mps_host(const MpsPaths& paths) {
  return std::make_unique<SystemMpsHost>(paths);
}

}  // namespace gpushare
