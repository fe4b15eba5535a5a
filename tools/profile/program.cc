// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/program.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "shmctl/shim/protocol.h"
#include "tools/base/preload.h"

namespace gpushare {
namespace {

constexpr Nanos kPoll{20'000'000};

}  // namespace

Result<std::unique_ptr<ProfiledProgram>> ProfiledProgram::start(
    const std::vector<std::string>& command, const std::string& library, const std::string& pci) {
  auto folder = TempFolder::make("gpushare-profile");
  if (!folder) return std::unexpected(folder.error());
  std::unique_ptr<ProfiledProgram> program(new ProfiledProgram(std::move(*folder), pci));
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
  auto child = Child::start(
      {.command = command,
       .environment = {"LD_PRELOAD=" + list, std::string(kShimSocketVariable) + "=" + socket()},
       .is_shown = true,
       .leads_group = true,
       .keeps_number = true});
  if (!child) return std::unexpected(child.error());
  child_.emplace(std::move(*child));
  return {};
}

ProfiledProgram::~ProfiledProgram() {
  if (child_ && !ended()) end(Nanos{});
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
  const timespec limit = timespec_of(at_most);
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

std::optional<int> ProfiledProgram::ended() const {
  return child_->has_ended() ? std::optional(child_->status()) : std::nullopt;
}

int ProfiledProgram::end(Nanos patience) {
  ::kill(-child_->pid(), SIGTERM);
  for (const Time limit = clock_.now() + patience; !ended() && clock_.now() < limit;) serve(kPoll);
  ::kill(-child_->pid(), SIGKILL);  // and what it has started
  while (!ended()) serve(kPoll);
  return *ended();
}

}  // namespace gpushare
