// SPDX-License-Identifier: Apache-2.0
// Turns: what users wait for, in the order in which it is their turn: one of each user, then again,
// so that a user with many connections waits for itself. Each user's own come in their order. Pure;
// not thread-safe.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace gpushare {

template <class T>
class Turns {
 public:
  void add(uid_t user, T what) { waiting_[user].push_back(std::move(what)); }
  bool is_empty() const { return waiting_.empty(); }
  void clear() { waiting_.clear(); }

  // nullopt: nothing waits.
  std::optional<T> take() {
    if (waiting_.empty()) return std::nullopt;
    auto at = waiting_.upper_bound(last_);
    if (at == waiting_.end()) at = waiting_.begin();
    last_ = at->first;
    std::optional<T> next(std::move(at->second.front()));
    at->second.pop_front();
    if (at->second.empty()) waiting_.erase(at);
    return next;
  }

 private:
  std::map<uid_t, std::deque<T>> waiting_;  // none is empty
  uid_t last_ = 0;                          // whose turn it was
};

}  // namespace gpushare
