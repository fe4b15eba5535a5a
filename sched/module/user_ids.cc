// SPDX-License-Identifier: Apache-2.0
#include "sched/module/user_ids.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sched/module/kernel_rules.h"
#include "shmctl/base/aside.h"

namespace gpushare {
namespace {

constexpr Nanos kNamesPatience = std::chrono::milliseconds(20);

}  // namespace

void UserIds::begin(const std::vector<std::string>& names) {
  for (auto& [name, answer] : asked_) former_.push_back(std::move(answer));
  asked_.clear();
  known_.clear();
  waiting_.clear();
  std::ranges::copy_if(names, std::back_inserter(waiting_),
                       [](const std::string& name) { return !uid_in(name); });
  std::ranges::sort(waiting_, std::ranges::greater());
  const auto twice = std::ranges::unique(waiting_);
  waiting_.erase(twice.begin(), twice.end());
  const MonotonicClock clock;
  const Time until = clock.now() + kNamesPatience;
  do {
    ask_more();
    if (asked_.empty()) return;
  } while (collect(std::max(until - clock.now(), Nanos{})) && clock.now() < until);
}

std::optional<uid_t> UserIds::find(const std::string& name) const {
  if (const auto number = uid_in(name)) return number;
  const auto at = known_.find(name);
  return at == known_.end() ? std::nullopt : at->second;
}

bool UserIds::take_news() {
  const bool has_news = !asked_.empty() && collect({});
  ask_more();
  return has_news;
}

void UserIds::ask_more() {
  std::erase_if(former_, [](const Answer& answer) {
    return answer.wait_for(Nanos{}) == std::future_status::ready;
  });
  while (!waiting_.empty() && asked_.size() + former_.size() < kMostAsked) {
    const std::string name = waiting_.back();
    Answer answer =
        start_aside<std::optional<uid_t>>([ask = ask_, name] { return ask(name); }).share();
    if (!answer.valid()) return;  // no thread can be made now
    asked_.emplace(name, std::move(answer));
    waiting_.pop_back();
  }
}

// Waits for the first of them, and takes all that is there. Returns whether there was any.
bool UserIds::collect(Nanos patience) {
  asked_.begin()->second.wait_for(patience);
  return std::erase_if(asked_, [&](const auto& one) {
           if (one.second.wait_for(Nanos{}) != std::future_status::ready) return false;
           known_[one.first] = one.second.get();
           return true;
         }) > 0;
}

}  // namespace gpushare
