// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/observer.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "intercept/kmod/calls.h"
#include "intercept/kmod/translate.h"
#include "shmctl/base/pidfd.h"

namespace gpushare {
namespace {

// Marks the device in epoll's data, where a watched process has its pid.
constexpr pid_t kTheDevice = 0;

Result<> wait_for(int epoll, int fd, pid_t pid) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = pid}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return errno_error("wait for the kernel module");
  return {};
}

}  // namespace

Result<std::unique_ptr<KmodObserver>> KmodObserver::start(kmod::Device& device) {
  const auto layout = kmod::query(device);
  if (!layout) return std::unexpected(layout.error());
  std::unique_ptr<KmodObserver> self(new KmodObserver(device, *layout));
  if (auto mapped = self->map(*layout); !mapped) return std::unexpected(mapped.error());
  self->waiting_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!self->waiting_.is_open()) return errno_error("wait for the kernel module");
  if (auto added = wait_for(self->waiting_.get(), device.fd(), kTheDevice); !added)
    return std::unexpected(added.error());
  return self;
}

Result<> KmodObserver::replay() { return kmod::replay(device_); }

Result<> KmodObserver::map(const gpushare_query& layout) {
  const bool fits = layout.producer_bytes >= sizeof(gpushare_producer) &&
                    layout.consumer_bytes >= sizeof(gpushare_consumer) &&
                    layout.records_bytes / sizeof(gpushare_event) >= count_;
  if (!fits) return make_error(std::errc::bad_message, "map the kernel module's event ring");
  auto producer = device_.map(layout.producer_offset, layout.producer_bytes, false);
  if (!producer) return std::unexpected(producer.error());
  auto consumer = device_.map(layout.consumer_offset, layout.consumer_bytes, true);
  if (!consumer) return std::unexpected(consumer.error());
  auto records = device_.map(layout.records_offset, layout.records_bytes, false);
  if (!records) return std::unexpected(records.error());
  producer_ = std::static_pointer_cast<const gpushare_producer>(*std::move(producer));
  consumer_ = std::static_pointer_cast<gpushare_consumer>(*std::move(consumer));
  records_ = {*records, static_cast<const gpushare_event*>(records->get())};

  lost_before_ = __atomic_load_n(&producer_->lost, __ATOMIC_RELAXED);
  tail_ = head();
  // Pairs with the module's acquire before it overwrites records; none was read so far.
  __atomic_store_n(&consumer_->tail, tail_, __ATOMIC_RELEASE);
  return {};
}

// Pairs with the module's release after it wrote the record before head.
uint64_t KmodObserver::head() const { return __atomic_load_n(&producer_->head, __ATOMIC_ACQUIRE); }

Result<uint64_t> KmodObserver::drain(const Sink& sink, uint64_t most) {
  handed_out_ = 0;
  uint64_t end = head();
  if (end - tail_ > count_)
    return make_error(std::errc::bad_message, "read the kernel module's event ring",
                      "it has more than it holds");
  // Each record is one event at most, and a record that is none counts all the same.
  const bool has_more = end - tail_ > most;
  if (has_more) end = tail_ + most;
  while (tail_ != end) {
    hand_out(sink, records_[static_cast<std::ptrdiff_t>(tail_ & (count_ - 1))]);
    ++tail_;
    // Pairs with the module's acquire before it overwrites the record that was just read.
    __atomic_store_n(&consumer_->tail, tail_, __ATOMIC_RELEASE);
  }
  if (!watched_.empty()) end_watched(sink);
  // The number only increases: the next drain() reports what a stale value misses.
  const uint64_t lost = __atomic_load_n(&producer_->lost, __ATOMIC_RELAXED) - lost_before_;
  if (lost != lost_) {
    const Time now = MonotonicClock().now();
    ++handed_out_;
    sink({now, {}, EventsLost{lost - std::exchange(lost_, lost)}});
    if (listener_) listener_({now, NoticesLost{}});
  }
  return has_more ? std::max(handed_out_, most) : handed_out_;
}

void KmodObserver::hand_out(const Sink& sink, const gpushare_event& record) {
  kmod::Translation said = kmod::translate(record);
  if (said.notice && listener_) listener_(*std::move(said.notice));
  if (!said.event) return;
  // From here on the module itself reports the process's end.
  if (std::holds_alternative<ProcessOpened>(said.event->what) ||
      std::holds_alternative<ProcessClosed>(said.event->what))
    watched_.erase(said.event->process);
  ++handed_out_;
  sink(*std::move(said.event));
}

// The module knows a process from its first call on, so it would not report the end of one that
// makes no more calls.
Result<> KmodObserver::watch(ProcessId process) {
  auto pidfd = open_pidfd(process.pid, process.start_ticks, "watch process");
  if (!pidfd) return std::unexpected(pidfd.error());
  const auto [at, is_new] = watched_.try_emplace(process, std::move(*pidfd));
  if (!is_new) return {};
  auto waits = wait_for(waiting_.get(), at->second.get(), process.pid);
  if (!waits) watched_.erase(at);
  return waits;
}

void KmodObserver::end_watched(const Sink& sink) {
  std::array<epoll_event, 64> ready;  // the next drain() finds any more
  const int found =
      ::epoll_wait(waiting_.get(), ready.data(), static_cast<int>(ready.size()), /*timeout=*/0);
  for (int i = 0; i < found; ++i) {
    const pid_t pid = ready[static_cast<std::size_t>(i)].data.fd;
    if (pid == kTheDevice) continue;
    const auto at = watched_.lower_bound({pid, 0});
    if (at == watched_.end() || at->first.pid != pid) continue;
    const ProcessId process = at->first;
    watched_.erase(at);
    ++handed_out_;
    sink({MonotonicClock().now(), process, ProcessClosed{}});
  }
}

}  // namespace gpushare
