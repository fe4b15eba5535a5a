// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/program.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "shmctl/shim/protocol.h"
#include "tools/base/preload.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kPoll{20'000'000};

// Ours, but for `changes` ("NAME=value").
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view own(*entry);
    const std::string_view name = own.substr(0, own.find('=') + 1);
    if (std::ranges::none_of(changes,
                             [&](const std::string& one) { return one.starts_with(name); }))
      all.emplace_back(own);
  }
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

Result<std::unique_ptr<ProfiledProgram>> ProfiledProgram::start(
    const std::vector<std::string>& command, const std::string& library, const std::string& pci) {
  std::error_code none;
  std::string folder = (fs::temp_directory_path(none) / "gpushare-profile-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return errno_error("make a private folder", folder);
  std::unique_ptr<ProfiledProgram> program(new ProfiledProgram(folder, pci));
  auto host = ShimHost::listen(program->socket(), [own = program.get()](const ProcessId&, uid_t) {
    return ShimRequest{.features = kShimPartitions | kShimIterations,
                       .is_closed = false,
                       .gpus = {{.pci = own->pci_, .groups = own->set_}}};
  });
  if (!host) return std::unexpected(host.error());
  program->host_ = std::move(*host);
  if (auto spawned = program->spawn(command, library); !spawned)
    return std::unexpected(spawned.error());
  return program;
}

Result<> ProfiledProgram::spawn(const std::vector<std::string>& command,
                                const std::string& library) {
  const char* before = std::getenv("LD_PRELOAD");
  const std::string list = before == nullptr || *before == '\0' ? library : library + ":" + before;
  const auto environment =
      environment_with({"LD_PRELOAD=" + list, std::string(kShimSocketVariable) + "=" + socket()});
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;  // what we block to read it, the program does not
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  const int failure = ::posix_spawnp(&pid_, command[0].c_str(), &actions, &attributes,
                                     pointers(command).data(), pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure == 0) return {};
  pid_ = 0;
  return make_error(static_cast<std::errc>(failure), "start the program", command[0]);
}

ProfiledProgram::~ProfiledProgram() {
  if (pid_ > 0) {
    if (!ended()) end(Nanos(0));
    ::waitpid(pid_, nullptr, 0);
  }
  host_.reset();
  std::error_code none;
  fs::remove_all(folder_, none);
}

void ProfiledProgram::give(uint32_t groups) {
  set_ = groups >= 64 ? ~uint64_t{0} : (uint64_t{1} << groups) - 1;
  for (const ProcessId& process : host_->processes())
    host_->find(process)->gpus[0].wanted.store(set_, std::memory_order_relaxed);
}

bool ProfiledProgram::is_there() const {
  const Time now = clock_.now();
  for (const auto& [process, launches] : launches_) {
    const ShimSlot* const slot = host_->find(process);
    if (slot == nullptr || launches.count == 0 || now - launches.last >= kQuiet) continue;
    if (slot->gpus[0].applied.load(std::memory_order_acquire) != set_) return false;
  }
  return has_launched();
}

void ProfiledProgram::watch() {
  std::erase_if(launches_, [this](const auto& one) { return host_->find(one.first) == nullptr; });
  for (const ProcessId& process : host_->processes()) {
    Launches& known = launches_[process];
    const uint64_t count = launches_of(*host_->find(process));
    if (count != known.count) known = {.count = count, .last = clock_.now()};
  }
}

void ProfiledProgram::serve(Nanos at_most) {
  pollfd waiting{.fd = host_->fd(), .events = POLLIN, .revents = 0};
  const timespec limit{.tv_sec = at_most.count() / 1'000'000'000,
                       .tv_nsec = at_most.count() % 1'000'000'000};
  ::ppoll(&waiting, 1, &limit, nullptr);
  host_->serve();
  host_->beat(clock_.now());
  watch();
}

std::vector<ProcessView> ProfiledProgram::processes() const {
  std::vector<ProcessView> all;
  for (const ProcessId& process : host_->processes())
    all.push_back({.process = process, .iterations = read_slot(*host_->find(process)).iterations});
  return all;
}

bool ProfiledProgram::has_launched() const {
  return std::ranges::any_of(launches_, [](const auto& one) { return one.second.count > 0; });
}

// Left a zombie until we go, so that the number of its group stays its own.
std::optional<int> ProfiledProgram::ended() {
  siginfo_t info{};
  if (!code_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid_)
    code_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  return code_;
}

void ProfiledProgram::signal(int number) const { ::kill(-pid_, number); }

int ProfiledProgram::end(Nanos patience) {
  signal(SIGTERM);
  for (const Time limit = clock_.now() + patience; !ended() && clock_.now() < limit;) serve(kPoll);
  signal(SIGKILL);  // and what it has started
  while (!ended()) serve(kPoll);
  return *code_;
}

}  // namespace gpushare
