// SPDX-License-Identifier: Apache-2.0
// Calls that may block for long, or for ever, on threads of their own, for callers that may not:
// the name service, disks, and files in /proc whose reading waits for the lock of a process's
// memory. A thread whose call never returns stays behind.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "shmctl/base/clock.h"

namespace gpushare {

// A thread that takes no signal: they are those threads' that wait for them. Throws
// std::system_error when none can be made.
inline std::thread start_quietly(std::function<void()> work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    const sigset_t& before;
  } const restore{before};
  return std::thread(std::move(work));
}

// The answer of `work`, once it is there. Unlike that of std::async(), the future may be dropped at
// any time. `work` must own all that it uses, and so must `told`, which is called on that thread
// when the answer is there. Error: no thread can be made; the future is invalid.
template <class T>
std::future<T> start_aside(std::function<T()> work, std::function<void()> told = {}) {
  std::packaged_task<T()> task(std::move(work));
  std::future<T> answer = task.get_future();
  try {
    std::thread([task = std::move(task), told = std::move(told)]() mutable {
      task();
      if (told) told();
    }).detach();
  } catch (const std::system_error&) {
    return {};
  }
  return answer;
}

// Waits for such calls, but not longer than told, and bounds how many threads stay behind. Each
// call is on behalf of a user, whose calls that hang keep nobody else's from being made. Any thread
// may call.
class BoundedCalls {
 public:
  static constexpr int kMostHanging = 32, kMostHangingOfUser = 2;

  // nullopt: there is no answer within `patience`, or too many calls hang.
  template <class T>
  std::optional<T> call(uid_t user, Nanos patience, std::function<T()> work) {
    if (!hanging_->enter(user)) return std::nullopt;
    auto answer = start_aside<T>([hanging = hanging_, user, work = std::move(work)] {
      const Leave leave{*hanging, user};
      return work();
    });
    if (!answer.valid()) {
      hanging_->leave(user);
      return std::nullopt;
    }
    if (answer.wait_for(patience) != std::future_status::ready) return std::nullopt;
    return answer.get();
  }

 private:
  class Hanging {
   public:
    bool enter(uid_t user) {
      const std::lock_guard lock(mutex_);
      int& own = of_[user];
      if (all_ >= kMostHanging || own >= kMostHangingOfUser) return false;
      ++own;
      ++all_;
      return true;
    }
    void leave(uid_t user) {
      const std::lock_guard lock(mutex_);
      if (--of_[user] == 0) of_.erase(user);
      --all_;
    }

   private:
    std::mutex mutex_;
    std::map<uid_t, int> of_;
    int all_ = 0;
  };
  struct Leave {
    ~Leave() { hanging.leave(user); }
    Hanging& hanging;
    const uid_t user;
  };

  const std::shared_ptr<Hanging> hanging_ = std::make_shared<Hanging>();
};

// Remembers answers of such calls, by what was asked. Each is waited for once; later calls only
// look whether it has come. Who cannot say yet (nullopt) is asked again by the next call. Not
// thread-safe.
template <class Key, class Value>
class Answers {
 public:
  // `most_kept`: answers, of which the known ones go when there are more; `most_asked`: at once.
  Answers(Nanos patience, std::size_t most_kept, std::size_t most_asked)
      : patience_(patience), most_kept_(most_kept), most_asked_(most_asked) {}

  // nullopt: it is not known now. `ask` must own all that it uses.
  std::optional<Value> of(const Key& key, std::function<std::optional<Value>()> ask) {
    auto at = answers_.find(key);
    if (at == answers_.end()) {
      if (!may_ask()) return std::nullopt;
      auto answer = start_aside<std::optional<Value>>(std::move(ask));
      if (!answer.valid()) return std::nullopt;
      at = answers_.emplace(key, answer.share()).first;
      at->second.wait_for(patience_);
    }
    if (!is_known(at->second)) return std::nullopt;
    std::optional<Value> value = at->second.get();
    if (!value) answers_.erase(at);
    return value;
  }

 private:
  using Answer = std::shared_future<std::optional<Value>>;

  static bool is_known(const Answer& answer) {
    return answer.wait_for(Nanos{}) == std::future_status::ready;
  }
  bool may_ask() {
    if (answers_.size() >= most_kept_)
      std::erase_if(answers_, [](const auto& one) { return is_known(one.second); });
    return std::ranges::count_if(answers_, [](const auto& one) { return !is_known(one.second); }) <
           static_cast<std::ptrdiff_t>(most_asked_);
  }

  const Nanos patience_;
  const std::size_t most_kept_, most_asked_;
  std::map<Key, Answer> answers_;
};

}  // namespace gpushare
