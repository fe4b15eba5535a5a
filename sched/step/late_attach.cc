// SPDX-License-Identifier: Apache-2.0
#include "sched/step/late_attach.h"

#include <algorithm>
#include <set>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
// A process that makes and frees objects without an end is believed at last.
constexpr int kMostRepeats = 3;

}  // namespace

void LateAttach::look_at_all() {
  current_.is_outdated = true;  // what is being found may be older than what was missed
  wants_all_ = true;
}

void LateAttach::advance_users(Nanos budget) {
  if (const Time now = clock_.now(); wants_all_ && now >= next_all_) {
    users_ = gpu_.find_users();  // also instead of one under way, which may be older
    wants_all_ = false;
    is_of_all_ = true;
    const bool was_calm = now - next_all_ >= kLongestBetweenAll;
    between_all_ = was_calm ? kShortestBetweenAll
                            : std::clamp(2 * between_all_, kShortestBetweenAll, kLongestBetweenAll);
    next_all_ = now + between_all_;
  }
  if (!users_) return;
  const auto found = users_->advance(budget);
  if (!found) return;
  users_.reset();
  if (!is_of_all_) return look_at(*found);
  for (const pid_t pid : *found) add(pid);
}

void LateAttach::add(pid_t pid) {
  const bool is_in_line =
      std::ranges::find(line_, pid) != line_.end() || (current_.search && current_.pid == pid);
  if (!is_in_line) line_.push_back(pid);
}

void LateAttach::look_around() {
  if (observer_ == nullptr) {
    if (users_) return;
    users_ = gpu_.find_users();
    is_of_all_ = false;
    return;
  }
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : registry_.processes())
    if (process.holders.empty()) pids.push_back(pid);
  look_at(pids);
}

// At those of which no event told. `unseen`: all of them.
void LateAttach::look_at(const std::vector<pid_t>& unseen) {
  const Time now = clock_.now();
  std::set<pid_t> there(unseen.begin(), unseen.end());
  there.insert(asked_.begin(), asked_.end());
  std::erase_if(looks_, [&](const auto& entry) {
    const auto& [pid, look] = entry;
    return !there.contains(pid) && now >= look.next + look.pause;
  });
  for (const pid_t pid : there) {
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
  advance_users(budget);
  while (clock_.now() < until && (current_.search || !line_.empty())) {
    if (!current_.search) {
      current_ = {.pid = line_.front(), .search = gpu_.attach(line_.front())};
      line_.pop_front();
    }
    advance_current(std::max(Nanos(until - clock_.now()), Nanos::zero()));
  }
  return users_ || current_.search || !line_.empty();
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
