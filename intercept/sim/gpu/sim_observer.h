// SPDX-License-Identifier: Apache-2.0
// SimObserver: the event stream of gpushare-sim as an Observer, over a connection of its own. One
// thread.
#pragma once

#include <memory>
#include <string>

#include "intercept/observer.h"
#include "intercept/sim/gpu/pending_events.h"
#include "intercept/sim/wire/client.h"

namespace gpushare::sim {

class SimObserver final : public Observer {
 public:
  static Result<std::unique_ptr<SimObserver>> connect(const std::string& socket);

  int fd() const override { return ready_.get(); }
  // Error connection_reset when the server is gone.
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override;
  using Observer::drain;
  uint64_t dropped() const override { return dropped_; }

 private:
  SimObserver() = default;

  std::unique_ptr<Client> client_;
  PendingEvents pending_;  // read from the socket and not yet handed out
  uint64_t dropped_ = 0;
  Fd early_;  // readable while events that came with the greeting are pending
  Fd ready_;  // an epoll of the socket and early_
};

}  // namespace gpushare::sim
