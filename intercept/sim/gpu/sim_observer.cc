// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/gpu/sim_observer.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utility>

#include "intercept/sim/wire/codec.h"

namespace gpushare::sim {

Result<std::unique_ptr<SimObserver>> SimObserver::connect(const std::string& socket) {
  std::unique_ptr<SimObserver> observer(new SimObserver);
  const auto on_event = [self = observer.get()](const Event& wire) {
    auto event = decode(wire);
    if (!event) {
      ++self->dropped_;
      return;
    }
    if (const auto* lost = std::get_if<EventsLost>(&event->what)) self->dropped_ += lost->count;
    self->pending_.push_back(std::move(*event));
  };
  auto client = Client::connect(socket, Role::kObserver, {}, on_event);
  if (!client) return std::unexpected(client.error());
  observer->client_ = std::move(*client);
  observer->early_ = Fd(::eventfd(observer->pending_.empty() ? 0 : 1, EFD_NONBLOCK | EFD_CLOEXEC));
  observer->ready_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {observer->client_->fd(), observer->early_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(observer->ready_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return errno_error("watch the simulated GPU's events");
  }
  return observer;
}

Result<uint64_t> SimObserver::drain(const Sink& sink, uint64_t most) {
  const auto polled = client_->poll();
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(early_.get(), &count, sizeof count);
  const uint64_t handed_out = pending_.hand_out(sink, most);
  if (!polled) return std::unexpected(polled.error());
  return handed_out;
}

}  // namespace gpushare::sim
