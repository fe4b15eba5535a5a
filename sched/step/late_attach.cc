// SPDX-License-Identifier: Apache-2.0
#include "sched/step/late_attach.h"

#include <algorithm>
#include <iterator>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
// A process that makes and frees objects without an end is believed at last.
constexpr int kMostRepeats = 3;

}  // namespace

void LateAttach::look_at_all() {
  current_.is_outdated = true;  // what is being found may be older than what was missed
  for (const pid_t pid : gpu_.users()) add(pid);
}

void LateAttach::add(pid_t pid) {
  const bool is_in_line =
      std::ranges::find(line_, pid) != line_.end() || (current_.search && current_.pid == pid);
  if (!is_in_line) line_.push_back(pid);
}

std::vector<pid_t> LateAttach::unseen() const {
  if (observer_ == nullptr) return gpu_.users();
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : registry_.processes())
    if (process.holders.empty()) pids.push_back(pid);
  return pids;
}

void LateAttach::look_around() {
  const Time now = clock_.now();
  std::vector<pid_t> pids = unseen();
  std::ranges::copy(asked_, std::back_inserter(pids));
  std::erase_if(looks_, [&](const auto& entry) {
    const auto& [pid, look] = entry;
    return std::ranges::find(pids, pid) == pids.end() && now >= look.next + look.pause;
  });
  for (const pid_t pid : pids) {
    const Process* known = registry_.find(pid);
    Look& look = looks_[pid];
    const bool is_known = known != nullptr && !known->holders.empty();
    if ((is_known && !asked_.contains(pid)) || now < look.next) continue;
    asked_.erase(pid);
    add(pid);
    look.pause = std::clamp(2 * look.pause, kFirstPause, kLongestPause);
    look.next = now + look.pause;
  }
}

void LateAttach::note(const DriverEvent& event) {
  if (current_.search && event.process.pid == current_.pid) current_.is_outdated = true;
}

bool LateAttach::advance(Nanos budget) {
  const Time until = clock_.now() + budget;
  while (current_.search || !line_.empty()) {
    if (!current_.search) {
      current_ = {.pid = line_.front(), .search = gpu_.attach(line_.front())};
      line_.pop_front();
    }
    advance_current(std::max(Nanos(until - clock_.now()), Nanos::zero()));
    if (clock_.now() >= until) break;
  }
  return current_.search || !line_.empty();
}

void LateAttach::advance_current(Nanos budget) {
  const auto found = current_.search->advance(budget);
  if (!found) {
    if (found.error().code != std::errc::no_such_process)
      log_warning("process {} is not managed: {}", current_.pid, found.error().message());
    current_ = {};
  } else if (const std::optional<ObjectSearch::Found>& objects = *found) {
    if (current_.is_outdated && current_.repeats < kMostRepeats) {
      current_ = {.pid = current_.pid,
                  .search = gpu_.attach(current_.pid),
                  .is_outdated = false,
                  .repeats = current_.repeats + 1};
      return;
    }
    current_ = {};
    take(*objects);
  }
}

void LateAttach::take(const ObjectSearch::Found& found) {
  if (found.empty()) return;
  const ProcessId process = found.front().process;
  registry_.reconcile(process, found);
  if (observer_ == nullptr) return;
  if (const auto watched = observer_->watch(process); !watched)
    registry_.close(process);  // it ended meanwhile, and nobody would tell
}

}  // namespace gpushare
