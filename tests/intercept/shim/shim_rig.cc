// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/shim_rig.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>

namespace gpushare::test {

Outcome success_of(Child& program) {
  Outcome outcome = outcome_of(program);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome;
}

ShimRig::ShimRig(uint32_t features, std::vector<ShimRequest::Gpu> gpus)
    : features_(features),
      gpus_(std::move(gpus)),
      folder_(needed(TempFolder::make("gs-shim"))),
      socket_(folder_.at("shim.sock")) {
  come_back();
  thread_ = std::thread([this] { serve(); });
}

ShimRig::~ShimRig() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  thread_.join();
  host_.reset();
  dead_.reset();
}

void ShimRig::come_back() {
  auto host = ShimHost::listen(socket_, [this](const ProcessId& process, uid_t) {
    note_launches();
    launches_.try_emplace(process, 0);
    return ShimRequest{.features = features_, .gpus = gpus_, .mps_pipe = mps_pipe};
  });
  if (!host) {
    ADD_FAILURE() << host.error().message();
    return;
  }
  const std::lock_guard lock(mutex_);
  host_ = std::move(*host);
}

void ShimRig::die() {
  const std::lock_guard lock(mutex_);
  dead_ = std::move(host_);
  std::filesystem::remove(socket_);
}

void ShimRig::hang() {
  const std::lock_guard lock(mutex_);
  dead_ = std::move(host_);
}

uint64_t ShimRig::wakes(pid_t pid) {
  const std::lock_guard lock(mutex_);
  return wakes_[pid];
}

bool ShimRig::is_asked_in_vain() {
  const std::lock_guard lock(mutex_);
  pollfd asked{dead_->fd(), POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

void ShimRig::go_on() {
  const std::lock_guard lock(mutex_);
  host_ = std::move(dead_);
}

void ShimRig::serve() {
  while (true) {
    int fd = -1;
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
      if (host_) {
        host_->serve();
        note_launches();  // beat() forgets those that have ended
        for (const ProcessId& process : host_->take_wakes(MonotonicClock().now()))
          ++wakes_[process.pid];
        host_->beat(MonotonicClock().now());
        fd = host_->fd();
      }
    }
    pollfd waiting{fd, POLLIN, 0};
    ::poll(&waiting, 1, 2);
  }
}

// REQUIRES: mutex_ is held.
void ShimRig::note_launches() {
  if (!host_) return;
  for (const ProcessId& process : host_->processes())
    launches_[process] = std::max(launches_[process], launches_of(*host_->find(process)));
}

std::map<ProcessId, uint64_t> ShimRig::launches() {
  const std::lock_guard lock(mutex_);
  note_launches();
  return launches_;
}

uint64_t ShimRig::launches_of_all() {
  uint64_t sum = 0;
  for (const auto& [process, count] : launches()) sum += count;
  return sum;
}

bool ShimRig::launches_beyond(uint64_t count) {
  return eventually([&] { return launches_of_all() > count; });
}

bool ShimRig::with_slot(pid_t pid, const std::function<void(ShimSlot&)>& use) {
  const std::lock_guard lock(mutex_);
  for (const auto* host : {host_.get(), dead_.get()}) {
    if (host == nullptr) continue;
    for (const ProcessId& process : host->processes()) {
      if (process.pid != pid) continue;
      use(*host->find(process));
      return true;
    }
  }
  return false;
}

bool ShimRig::has_no_slot_after_kill(std::unique_ptr<Child> program) {
  const pid_t pid = program->pid();
  program.reset();
  return eventually([&] { return !with_slot(pid, [](ShimSlot&) {}); });
}

void ShimRig::with_all_slots(const std::function<void(ShimSlot&)>& use) {
  const std::lock_guard lock(mutex_);
  if (!host_) return;
  for (const ProcessId& process : host_->processes()) use(*host_->find(process));
}

std::vector<std::string> ShimRig::environment() const {
  return {"LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so",
          "LD_LIBRARY_PATH=" + build_folder() + "/lib/fake", "GPUSHARE_SHIM_SOCKET=" + socket_};
}

std::unique_ptr<Child> ShimRig::start(const std::string& name,
                                      const std::vector<std::string>& arguments) {
  std::vector<std::string> command{build_folder() + "/bin/tests/" + name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return started(std::move(command), environment());
}

Outcome ShimRig::run(const std::string& name, const std::vector<std::string>& arguments) {
  return outcome_of(*start(name, arguments));
}

Outcome ShimRig::succeed(const std::string& name, const std::vector<std::string>& arguments) {
  return success_of(*start(name, arguments));
}

}  // namespace gpushare::test
