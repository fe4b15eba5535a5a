// SPDX-License-Identifier: Apache-2.0
#include "intercept/bpf/observer.h"

#include <bpf/libbpf.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {
// Asking for the number of losses is a system call (25 us under a tracer, otherwise a tenth of a
// fast tick), and the number only grows when there are events.
constexpr Nanos kLossInterval = 100ms;
// Events that wait for the driver's answers. Records beyond stay in the ring, which loses what it
// has no room for: then all processes are looked at again.
constexpr std::size_t kMostWaiting = 8192;
}  // namespace

void BpfObserver::DestroyRing::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

Result<std::unique_ptr<BpfObserver>> BpfObserver::start(const ProbeOptions& options,
                                                        nvrm::Driver* driver) {
  Result<Probe> probe = Probe::load(options);
  if (!probe) return std::unexpected(probe.error());
  std::unique_ptr<BpfObserver> self(new BpfObserver(std::move(*probe)));
  self->ring_.reset(ring_buffer__new(self->probe_.ring_fd(), on_record, self.get(), nullptr));
  if (self->ring_ == nullptr) return errno_error("map the probe's ring buffer");
  if (driver == nullptr) return self;
  auto claims = nvrm::ClaimLine::start(*driver);
  if (!claims) return std::unexpected(claims.error());
  self->claims_ = std::move(*claims);
  self->ready_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {ring_buffer__epoll_fd(self->ring_.get()), self->claims_->fd()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(self->ready_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return errno_error("wait for the probe's records");
  }
  return self;
}

int BpfObserver::fd() const { return claims_ ? ready_.get() : ring_buffer__epoll_fd(ring_.get()); }

// libbpf has taken the record when a callback's error ends its round.
int BpfObserver::on_record(void* self, void* data, size_t bytes) {
  auto& observer = *static_cast<BpfObserver*>(self);
  if (auto sighting = nvrm::decode({static_cast<const std::byte*>(data), bytes}))
    observer.take(std::move(*sighting));
  return ++observer.taken_ < observer.most_ ? 0 : -EOVERFLOW;
}

void BpfObserver::take(nvrm::Sighting&& sighting) {
  const bool is_end = sighting.event && std::holds_alternative<ProcessClosed>(sighting.event->what);
  if (is_end) {
    if (known_.erase(sighting.process) == 0) return;
  } else if (known_.insert(sighting.process).second) {
    hand_out({sighting.time, sighting.process, std::move(sighting.opened)});
  }
  if (!sighting.event) return;
  if (auto* unread = std::get_if<EventsLost>(&sighting.event->what))
    unread->count = probe_.take_unread(sighting.process.pid);
  hand_out(std::move(*sighting.event), sighting.fd);
}

Result<uint64_t> BpfObserver::drain(const Sink& sink, uint64_t most) {
  sink_ = &sink;
  most_ = most;
  taken_ = handed_out_ = 0;
  const bool has_room = !claims_ || claims_->waiting() < kMostWaiting;
  if (has_room != calls_for_records_) call_for_records(has_room);
  const int status = has_room ? ring_buffer__consume(ring_.get()) : 0;
  const Time now = MonotonicClock().now();
  if (now >= look_for_losses_at_ || taken_ > 0) {
    look_for_losses_at_ = now + kLossInterval;
    lost_ = probe_.dropped();
    if (lost_ != reported_lost_) {
      close_the_dead();
      hand_out({now, {}, EventsLost{lost_ - reported_lost_}});
      reported_lost_ = lost_;
    }
  }
  if (claims_) handed_out_ += claims_->take(sink, most);
  sink_ = nullptr;
  if (status < 0 && status != -EOVERFLOW) {
    errno = -status;
    return errno_error("read the probe's ring buffer");
  }
  const uint64_t left = status == -EOVERFLOW ? most : 0;  // as the result: there may be more
  return std::max(handed_out_, left);
}

Result<> BpfObserver::watch(ProcessId process) {
  if (Result<> added = probe_.add_user(process.pid); !added) return added;
  known_.insert(process);
  if (life_of(process) != Life::kEnded) return {};
  // It ended before the probe knew it, so the probe did not report its exit.
  known_.erase(process);
  probe_.remove_user(process.pid);
  return make_error(std::errc::no_such_process, "watch process", std::to_string(process.pid));
}

// While no record is taken nobody is called for one, over and over; only for what was examined. A
// call that fails changes nothing but that.
void BpfObserver::call_for_records(bool does) {
  const int fd = ring_buffer__epoll_fd(ring_.get());
  epoll_event event{.events = does ? EPOLLIN : 0U, .data = {.fd = fd}};
  if (::epoll_ctl(ready_.get(), EPOLL_CTL_MOD, fd, &event) == 0) calls_for_records_ = does;
}

// In its order, also what is not examined.
void BpfObserver::hand_out(DriverEvent&& event, int fd) {
  if (claims_) return claims_->add(std::move(event), fd);
  ++handed_out_;
  (*sink_)(std::move(event));
}

// A lost record may have been an exit, which nothing else would ever report.
void BpfObserver::close_the_dead() {
  std::erase_if(known_, [&](const ProcessId& process) {
    if (life_of(process) != Life::kEnded) return false;
    hand_out({MonotonicClock().now(), process, ProcessClosed{}});
    return true;
  });
}

}  // namespace gpushare
