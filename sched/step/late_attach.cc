// SPDX-License-Identifier: Apache-2.0
#include "sched/step/late_attach.h"

#include <algorithm>
#include <set>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
// A process that makes and frees objects without an end is believed at last.
constexpr int kMostRepeats = 3;

bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

}  // namespace

void LateAttach::look_at_all() {
  current_.is_outdated = true;  // what is being found may be older than what was missed
  wants_all_ = true;
}

void LateAttach::advance_users(Nanos budget) {
  if (const Time now = clock_.now(); wants_all_ && now >= next_all_) {
    // Also at those that have closed the driver meanwhile.
    for (const auto& [pid, process] : registry_.processes()) add(pid);
    users_ = gpu_.find_users();  // also instead of one under way, which may be older
    wants_all_ = false;
    is_of_all_ = true;
    const bool was_calm = now - next_all_ >= kLongestBetweenAll;
    between_all_ = was_calm ? kShortestBetweenAll
                            : std::clamp(2 * between_all_, kShortestBetweenAll, kLongestBetweenAll);
    next_all_ = now + between_all_;
  }
  if (!users_) return;
  const auto advanced = users_->advance(budget);
  if (!advanced) {
    if (!std::exchange(cannot_list_, true))
      log_warning("the processes on the GPUs are not known, which is tried again: {}",
                  advanced.error().message());
    users_.reset();
    wants_all_ |= is_of_all_;
    return;
  }
  const std::optional<std::vector<pid_t>>& found = *advanced;
  if (!found) return;
  cannot_list_ = false;
  users_.reset();
  if (!is_of_all_) return look_at(*found);
  for (const pid_t pid : *found) add(pid);
}

void LateAttach::add(pid_t pid) {
  const bool is_in_line =
      std::ranges::find(line_, pid) != line_.end() || (current_.search && current_.pid == pid);
  if (!is_in_line) line_.push_back(pid);
}

void LateAttach::put_off(Look& look) const {
  look.pause = std::clamp(2 * look.pause, kFirstPause, kLongestPause);
  look.next = clock_.now() + look.pause;
}

// What has failed, and who held what others had.
void LateAttach::look_again() {
  const Time now = clock_.now();
  for (const auto& [pid, look] : failed_)
    if (now >= look.next) add(pid);
  std::erase_if(heirs_, [&](const auto& heirs) {
    if (registry_.owns(heirs.first)) return false;
    for (const pid_t pid : heirs.second) add(pid);
    return true;
  });
  for (const ProcessId& process : std::set<ProcessId>(unwatched_)) watch(process);
}

void LateAttach::look_around() {
  look_again();
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
    put_off(look);
  }
}

void LateAttach::note(const DriverEvent& event) {
  if (current_.search && event.process.pid == current_.pid) current_.is_outdated = true;
}

void LateAttach::begin(pid_t pid, int repeats) {
  current_ = {.pid = pid,
              .known = registry_.objects(pid),
              .search = nullptr,
              .is_outdated = false,
              .repeats = repeats};
  current_.search = gpu_.attach(pid, current_.known);
}

bool LateAttach::advance(Nanos budget) {
  const Time until = clock_.now() + budget;
  advance_users(budget);
  while (clock_.now() < until && (current_.search || !line_.empty())) {
    if (!current_.search) {
      const pid_t pid = line_.front();
      line_.pop_front();
      begin(pid, 0);
    }
    advance_current(std::max(Nanos(until - clock_.now()), Nanos::zero()));
  }
  return users_ || current_.search || !line_.empty();
}

void LateAttach::advance_current(Nanos budget) {
  const auto found = current_.search->advance(budget);
  const pid_t pid = current_.pid;
  if (!found) {
    const bool is_first = !failed_.contains(pid);
    if (is_gone(found.error())) {
      failed_.erase(pid);
    } else {
      put_off(failed_[pid]);
      if (is_first)
        log_warning("process {} cannot be looked at, which is tried again: {}", pid,
                    found.error().message());
    }
    current_ = {};
  } else if (const std::optional<ObjectSearch::Found>& objects = *found) {
    if (current_.is_outdated && current_.repeats < kMostRepeats) {
      begin(pid, current_.repeats + 1);
      return;
    }
    // An answer that is not the whole truth, or of a moment that has passed, proves nothing of what
    // is not in it, and is asked for again.
    const bool is_whole = current_.search->is_complete() && !current_.is_outdated;
    if (is_whole)
      failed_.erase(pid);
    else
      put_off(failed_[pid]);
    take(*objects, is_whole);
    current_ = {};
  }
}

void LateAttach::take(const ObjectSearch::Found& found, bool is_whole) {
  if (found.empty()) {
    const Process* known = registry_.find(current_.pid);
    if (known != nullptr && is_whole) registry_.reconcile(known->id, {}, current_.known);
    return;
  }
  const ProcessId process = found.front().process;
  const auto of_others =
      registry_.reconcile(process, found, is_whole ? current_.known : std::vector<ObjectRef>{});
  for (const Registry::Owned& owned : of_others) heirs_[owned].insert(process.pid);
  if (const Process* known = registry_.find(process.pid); known != nullptr && known->id == process)
    watch(process);
}

// What fails for another reason than the process's end is tried again.
void LateAttach::watch(const ProcessId& process) {
  if (observer_ == nullptr) return;
  const auto watched = observer_->watch(process);
  if (!watched && !is_gone(watched.error())) {
    if (unwatched_.insert(process).second)
      log_warning("the end of process {} may be seen late: {}", process.pid,
                  watched.error().message());
    return;
  }
  unwatched_.erase(process);
  if (!watched) registry_.close(process);  // it ended meanwhile, and nobody would tell
}

}  // namespace gpushare
