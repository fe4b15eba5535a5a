// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/host.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/base/pidfd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr const char* kStart = "start MPS";
constexpr const char* kAsk = "ask MPS";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogs = "CUDA_MPS_LOG_DIRECTORY";
constexpr std::size_t kMostBytes = 1 << 20;

std::string read_whole(const Fd& file) {
  std::string text;
  char part[4096];
  ssize_t n = 0;
  while (text.size() < kMostBytes && (n = ::read(file.get(), part, sizeof part)) > 0)
    text.append(part, static_cast<std::size_t>(n));
  return text;
}

std::string read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.is_open() ? read_whole(file) : "";
}

// Of the environment that it was started with; nullopt: it has none of that name.
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

// Anybody could say that he is the daemon.
bool is_of_our_user(pid_t pid) {
  struct stat status{};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &status) == 0 &&
         status.st_uid == ::geteuid();
}

// The daemon notes every question that it is asked; the folder may be in memory.
void keep_small(const std::string& path) {
  constexpr off_t kLargest = 8 << 20;
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || status.st_size <= kLargest) return;
  const Fd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
}

// Listening sockets and locks among them must not live on in a daemon.
void close_all_else(posix_spawn_file_actions_t& files) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > 2) posix_spawn_file_actions_addclose(&files, fd);
  }
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

// A service's children end with it, and have its limits: systemd gives the daemon a unit of its
// own.
bool is_service() {
  return std::getenv("INVOCATION_ID") != nullptr && ::access("/run/systemd/system", F_OK) == 0;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

class SystemMpsHost final : public MpsHost {
 public:
  explicit SystemMpsHost(const MpsPaths& paths) : paths_(paths) {}
  ~SystemMpsHost() override {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  const std::string& pipe_directory() const override { return paths_.pipe_directory; }
  bool has_program() const override { return is_on_path(paths_.program); }

  std::optional<MpsDaemon> daemon() override {
    const std::string file = paths_.pipe_directory + "/nvidia-cuda-mps-control.pid";
    const std::string text = read_file(file);
    const auto process = bearer(std::atoi(text.c_str()));
    if (!process || has_ended(*process)) return std::nullopt;
    if (known_ && known_->process == *process) return known_;
    if (!is_of_our_user(process->pid) || variable(process->pid, kPipes) != paths_.pipe_directory)
      return std::nullopt;
    ::chmod(file.c_str(), 0644);  // it makes it for everybody to write
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
    return run(kStart, std::move(words), std::move(own), "");
  }

  Result<> ask(const std::string& commands) override {
    for (const char* log : {"/control.log", "/server.log"}) keep_small(paths_.log_directory + log);
    return run(kAsk, {paths_.program}, own_variables(), commands);
  }

  std::optional<Result<std::string>> finished(Time now) override {
    if (pid_ == 0) return std::nullopt;
    if (began_ == Time{}) began_ = now;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (now - began_ < kPatience) return std::nullopt;
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = 0;
      return make_error(std::errc::timed_out, step_, paths_.program);
    }
    pid_ = 0;
    ::lseek(output_.get(), 0, SEEK_SET);
    std::string text = read_whole(output_);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return make_error(std::errc::io_error, step_, paths_.program + " said: " + text);
  }

  std::optional<std::string> visible(pid_t pid) override { return variable(pid, kVisible); }

  std::optional<ProcessId> bearer(pid_t pid) override {
    if (pid <= 0) return std::nullopt;
    const uint64_t started = start_ticks_of(pid);
    if (started == 0) return std::nullopt;
    return ProcessId{pid, started};
  }

  bool has_ended(const ProcessId& process) override {
    auto at = watched_.find(process);
    if (at == watched_.end()) {
      auto opened = open_pidfd(process.pid, process.start_ticks, "watch a process");
      if (!opened) return true;
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

  // With our environment, but for CUDA's variables: `own` instead.
  Result<> run(const char* step, std::vector<std::string> words, std::vector<std::string> own,
               const std::string& input) {
    const Fd commands(::memfd_create("gpushare-mps-in", MFD_CLOEXEC));
    output_.reset(::memfd_create("gpushare-mps-out", MFD_CLOEXEC));
    if (!commands.is_open() || !output_.is_open()) return errno_error(step);
    if (::pwrite(commands.get(), input.data(), input.size(), 0) !=
        static_cast<ssize_t>(input.size()))
      return errno_error(step);
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!std::string_view(*entry).starts_with("CUDA_")) own.emplace_back(*entry);

    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, commands.get(), 0);
    posix_spawn_file_actions_adddup2(&files, output_.get(), 1);
    posix_spawn_file_actions_adddup2(&files, output_.get(), 2);
    close_all_else(files);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    // A session of its own: what interrupts our terminal is not meant for it.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    const int error = ::posix_spawnp(&pid_, words.front().c_str(), &files, &attributes,
                                     pointers(words).data(), pointers(own).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    step_ = step;
    began_ = Time{};
    if (error == 0) return {};
    pid_ = 0;
    return make_error(static_cast<std::errc>(error), step, words.front());
  }

  const MpsPaths paths_;
  std::optional<MpsDaemon> known_;
  std::map<ProcessId, Fd> watched_;
  // The run that is under way.
  pid_t pid_ = 0;  // 0: none
  const char* step_ = "";
  Fd output_;
  Time began_{};
};

}  // namespace

std::unique_ptr<MpsHost> make_mps_host(const MpsPaths& paths) {
  return std::make_unique<SystemMpsHost>(paths);
}

}  // namespace gpushare
