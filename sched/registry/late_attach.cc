// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/late_attach.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sched/registry/ended.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
// Between looks at one that runs while it is frozen. A search takes 5 ms on an H200.
constexpr Nanos kFirstOfEscape = std::chrono::milliseconds(100),
                kLongestOfEscape = std::chrono::seconds(1);
// Between looks at all for who holds what has ended, which is a search for each.
constexpr Nanos kFirstOfHeirs = std::chrono::seconds(10), kLongestOfHeirs = std::chrono::minutes(5);
// A process that makes and frees objects without an end is believed at last.
constexpr int kMostRepeats = 3;

}  // namespace

void LateAttach::look_at_all() {
  for (Current& current : current_) current.is_outdated = true;  // older than what was missed
  wants_all_ = true;
}

void LateAttach::advance_users(Nanos budget) {
  if (const Time now = clock_.now(); wants_all_ && now >= next_all_) {
    registry_.doubt_all();
    // Also at those that have closed the driver meanwhile.
    for (const auto& [pid, process] : registry_.processes()) add(pid);
    find_users(UsersFor::kAll);  // also instead of one under way, which may be older
    wants_all_ = false;
    const bool was_calm = now - next_all_ >= kLongestBetweenAll;
    between_all_ = was_calm ? kShortestBetweenAll
                            : std::clamp(2 * between_all_, kShortestBetweenAll, kLongestBetweenAll);
    next_all_ = now + between_all_;
  }
  if (!users_ && std::exchange(has_missed_heirs_, false)) find_users(UsersFor::kHeirs);
  if (!users_) return;
  const auto advanced = users_->advance(budget);
  if (!advanced) {
    if (!std::exchange(cannot_list_, true))
      log_warning("the processes on the GPUs are not known, which is tried again: {}",
                  advanced.error().message());
    users_.reset();
    wants_all_ |= users_for_ == UsersFor::kAll;
    has_missed_heirs_ |= users_for_ == UsersFor::kHeirs;
    return;
  }
  const std::optional<std::vector<pid_t>>& found = *advanced;
  if (!found) return;
  cannot_list_ = false;
  users_.reset();
  if (users_for_ == UsersFor::kAround) return look_at(*found);
  for (const pid_t pid : *found) add(pid);
}

void LateAttach::find_users(UsersFor what) {
  users_ = gpu_.find_users();
  users_for_ = what;
}

void LateAttach::add(pid_t pid) {
  if (!is_current(pid) && std::ranges::find(line_, pid) == line_.end()) line_.push_back(pid);
}

void LateAttach::put_off(Look& look) const {
  look.pause = std::clamp(2 * look.pause, kFirstPause, kLongestPause);
  look.next = clock_.now() + look.pause;
}

void LateAttach::look_despite_freeze(pid_t pid) {
  const Time now = clock_.now();
  Look& look = escapes_[pid];
  if (now < look.next) return;
  look.pause = std::clamp(2 * look.pause, kFirstOfEscape, kLongestOfEscape);
  look.next = now + look.pause;
  add(pid);
}

// What has failed, and who held what others had.
void LateAttach::look_again() {
  const Time now = clock_.now();
  for (const auto& [pid, look] : failed_)
    if (now >= look.next) add(pid);
  std::erase_if(escapes_, [&](const auto& escape) {
    return now >= escape.second.next + 2 * kLongestOfEscape;
  });
  std::erase_if(heirs_, [&](const auto& heirs) {
    if (registry_.owns(heirs.first)) return false;
    for (const pid_t pid : heirs.second) add(pid);
    return true;
  });
  for (const ProcessId& process : std::set<ProcessId>(unwatched_)) watch(process);
}

void LateAttach::look_around() {
  look_again();
  look_for_heirs();
  if (observer_ == nullptr) {
    if (!users_) find_users(UsersFor::kAround);
    return;
  }
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : registry_.processes())
    if (process.holders.empty()) pids.push_back(pid);
  look_at(pids);
}

// Of what has ended and remains, and of what may remain of one whose pid another one has by now.
void LateAttach::look_for_heirs() {
  const Time now = clock_.now();
  std::set<pid_t> remaining;
  for (const pid_t pid : registry_.ended())
    if (EndedProcesses::remains(*registry_.find(pid), now)) remaining.insert(pid);
  // What nobody was found to have, and the driver has, may be held by one that was not there or did
  // not answer when it was looked for.
  const std::set<pid_t> unfound = is_first_ ? std::set<pid_t>{} : registry_.remembered();
  remaining.insert(unfound.begin(), unfound.end());
  const bool is_new = !std::ranges::includes(remaining_, remaining);
  remaining_ = std::move(remaining);
  wants_heirs_ |= registry_.take_heirs_request() || is_new;
  if (wants_heirs_) heirs_look_.pause = {};
  if ((!wants_heirs_ && remaining_.empty()) || now < heirs_look_.next) return;
  wants_heirs_ = false;
  const auto [first, longest] = unfound.empty() ? std::pair(kFirstOfHeirs, kLongestOfHeirs)
                                                : std::pair(kFirstPause, kLongestPause);
  heirs_look_.pause = std::clamp(2 * heirs_look_.pause, first, longest);
  heirs_look_.next = now + heirs_look_.pause;
  const bool is_of_all = users_ && users_for_ == UsersFor::kAll;  // which looks at them as well
  if (!is_of_all) find_users(UsersFor::kHeirs);
}

// At those of which no event told. `unseen`: all of them.
void LateAttach::look_at(const std::vector<pid_t>& unseen) {
  const Time now = clock_.now();
  std::erase_if(unknown_, [&](const auto& one) { return registry_.is_on(one.first, one.second); });
  std::set<pid_t> hidden;
  for (const auto& [pid, gpu] : unknown_) hidden.insert(pid);
  std::set<pid_t> there(unseen.begin(), unseen.end());
  there.insert(asked_.begin(), asked_.end());
  there.insert(hidden.begin(), hidden.end());
  std::erase_if(looks_, [&](const auto& entry) {
    const auto& [pid, look] = entry;
    return !there.contains(pid) && now >= look.next + look.pause;
  });
  for (const pid_t pid : there) {
    const Process* known = registry_.find(pid);
    Look& look = looks_[pid];
    const bool is_known = known != nullptr && !known->holders.empty();
    if (is_known && !asked_.contains(pid) && !hidden.contains(pid)) continue;
    if (now < look.next) continue;
    if (asked_.erase(pid) > 0) registry_.doubt(pid);
    if (std::erase_if(unknown_, [&](const auto& one) { return one.first == pid; }) > 0)
      unseen_.insert(pid);
    add(pid);
    put_off(look);
  }
}

LateAttach::~LateAttach() {
  for (const Current& current : current_)
    if (current.answer.valid()) current.answer.wait();
}

bool LateAttach::rest(Nanos patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  return std::ranges::all_of(current_, [&](const Current& current) {
    return !current.answer.valid() || current.answer.wait_until(until) == std::future_status::ready;
  });
}

void LateAttach::note(const DriverEvent& event) {
  for (Current& current : current_) current.is_outdated |= event.process.pid == current.pid;
}

bool LateAttach::is_current(pid_t pid) const {
  return std::ranges::find(current_, pid, &Current::pid) != current_.end();
}

LateAttach::Current LateAttach::begin(pid_t pid, int repeats) {
  Current current{.pid = pid,
                  .known = registry_.objects(pid),
                  .search = nullptr,
                  .answer = {},
                  .is_outdated = false,
                  .repeats = repeats};
  if (calls_ == DriverCalls::kOnThreads)
    current.answer = start_aside<Answer>([&gpu = gpu_, pid, known = current.known] {
      const auto search = gpu.attach(pid, known);
      auto found = search->finish();
      return Answer{std::move(found), search->is_complete()};
    });
  if (!current.answer.valid()) current.search = gpu_.attach(pid, current.known);
  return current;
}

bool LateAttach::advance(Nanos budget) {
  const Time until = clock_.now() + budget;
  const auto left = [&] { return std::max(Nanos(until - clock_.now()), Nanos::zero()); };
  advance_users(budget);
  const bool is_many = calls_ == DriverCalls::kOnThreads && is_first_;
  bool is_moving = true;
  while (is_moving && clock_.now() < until) {
    while (!line_.empty() && current_.size() < (is_many ? kAtOnce : 1)) {
      const pid_t pid = line_.front();
      line_.pop_front();
      current_.push_back(begin(pid, 0));
    }
    is_moving = false;
    std::erase_if(current_, [&](Current& current) {
      const std::optional<Answer> answer = advance(current, left());
      is_moving |= answer.has_value() || current.search;
      return answer && end(current, *answer);
    });
  }
  const bool is_done = !users_ && current_.empty() && line_.empty();
  if (is_done) is_first_ = false;
  return !is_done;
}

// nullopt: it is not over.
std::optional<LateAttach::Answer> LateAttach::advance(Current& current, Nanos budget) {
  if (current.answer.valid()) {
    if (current.answer.wait_for(Nanos{}) != std::future_status::ready) return std::nullopt;
    return current.answer.get();
  }
  const auto found = current.search->advance(budget);
  if (!found) return Answer{std::unexpected(found.error())};
  const std::optional<ObjectSearch::Found>& objects = *found;
  if (!objects) return std::nullopt;
  return Answer{*objects, current.search->is_complete()};
}

// Takes the answer. Returns false when the search begins anew.
bool LateAttach::end(Current& current, const Answer& answer) {
  const pid_t pid = current.pid;
  if (!answer.found) {
    const Error& error = answer.found.error();
    const bool is_first = !failed_.contains(pid);
    if (is_gone(error)) {
      failed_.erase(pid);
      unseen_.erase(pid);
    } else {
      put_off(failed_[pid]);
      if (is_first)
        log_about(pid, LogLevel::kWarning,
                  "process {} cannot be looked at, which is tried again: {}", pid, error.message());
    }
    return true;
  }
  if (current.is_outdated && current.repeats < kMostRepeats) {
    current = begin(pid, current.repeats + 1);
    return false;
  }
  // An answer that is not the whole truth, or of a moment that has passed, proves nothing of what
  // is not in it, and is asked for again.
  const bool is_whole = answer.is_complete && !current.is_outdated;
  if (is_whole)
    failed_.erase(pid);
  else
    put_off(failed_[pid]);
  take(current, *answer.found, is_whole);
  return true;
}

void LateAttach::take(const Current& current, const ObjectSearch::Found& found, bool is_whole) {
  if (found.empty()) {
    const Process* known = registry_.find(current.pid);
    // What has ended has no descriptors: that does not say what became of its objects.
    if (known != nullptr && is_whole && !known->ended)
      registry_.reconcile(known->id, {}, current.known);
    return;
  }
  const ProcessId process = found.front().process;
  const auto of_others =
      registry_.reconcile(process, found, is_whole ? current.known : std::vector<ObjectRef>{},
                          unseen_.erase(process.pid) > 0);
  for (const Registry::Owned& owned : of_others) heirs_[owned].insert(process.pid);
  if (registry_.find(process) != nullptr) watch(process);
}

// What fails for another reason than the process's end is tried again.
void LateAttach::watch(const ProcessId& process) {
  if (observer_ == nullptr) return;
  const auto watched = observer_->watch(process);
  if (!watched && !is_gone(watched.error())) {
    if (unwatched_.insert(process).second)
      log_about(process.pid, LogLevel::kWarning, "the end of process {} may be seen late: {}",
                process.pid, watched.error().message());
    return;
  }
  unwatched_.erase(process);
  if (!watched) registry_.end(process, clock_.now());  // meanwhile, and nobody would tell
}

}  // namespace gpushare
