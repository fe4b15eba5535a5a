// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/wakes.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

// Takes the writes so far; false: there are none. The process has the same open file: it may have
// taken them itself, after epoll_wait() saw them, and may have made reads wait for the next one.
bool take_writes(const Fd& event) {
  uint64_t writes = 0;
  const iovec part{.iov_base = &writes, .iov_len = sizeof writes};
  return ::preadv2(event.get(), &part, 1, -1, RWF_NOWAIT) == sizeof writes;
}

}  // namespace

Wakes::Wakes() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

int Wakes::add(const ProcessId& process) {
  remove(process);
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.is_open() || !event.is_open()) return -1;
  const uint64_t number = next_++;
  const Ear& ear =
      ears_.try_emplace(number, Ear{.process = process, .event = std::move(event)}).first->second;
  numbers_[process] = number;
  hear(number, ear);
  return ear.event.get();
}

void Wakes::hear(uint64_t number, const Ear& ear) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ear.event.get(), &event);
}

// The process keeps the eventfd open, so closing ours would not end the watch.
void Wakes::remove(const ProcessId& process) {
  const auto number = numbers_.extract(process);
  if (number.empty()) return;
  const auto ear = ears_.extract(number.mapped());
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, ear.mapped().event.get(), nullptr);
  unheard_.erase(number.mapped());
}

void Wakes::hear_again(Time now) {
  std::erase_if(unheard_, [&](const auto& entry) {
    if (now < entry.second) return false;
    hear(entry.first, ears_.at(entry.first));
    return true;
  });
}

std::vector<ProcessId> Wakes::take(Time now) {
  if (!unheard_.empty()) hear_again(now);
  std::vector<ProcessId> woken;
  epoll_event events[kMostTaken];
  const int count = ::epoll_wait(epoll_.get(), events, kMostTaken, 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t number = events[i].data.u64;
    Ear& ear = ears_.at(number);
    if (!take_writes(ear.event)) continue;
    if (now - ear.second >= std::chrono::seconds(1)) {
      ear.second = now;
      ear.count = 0;
    }
    if (++ear.count > kMostPerSecond) {
      ear.count = 0;
      unheard_[number] = now + kUnheard;
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, ear.event.get(), nullptr);
    }
    woken.push_back(ear.process);
  }
  std::ranges::sort(woken);
  return woken;
}

bool Wakes::is_unheard(const ProcessId& process) const {
  const auto number = numbers_.find(process);
  return number != numbers_.end() && unheard_.contains(number->second);
}

}  // namespace gpushare
