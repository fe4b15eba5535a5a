// SPDX-License-Identifier: Apache-2.0
// Connection: the server's end of one client's socket. Cuts the stream into messages and holds what
// is to be sent until the socket takes it. Never blocks. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "intercept/sim/wire/protocol.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare::sim {

class Connection {
 public:
  using Handler = std::function<bool(const Header&, std::span<const std::byte> body)>;

  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Hands every whole message that has arrived to `handle`. False: the peer is gone, sent something
  // that is no message, or `handle` refused one; the connection is to be closed.
  bool receive(const Handler& handle);

  // Appends one message; flush() sends.
  void queue(uint16_t kind, uint64_t tag, std::span<const std::byte> body,
             std::span<const std::byte> extra = {});
  // False: the peer is gone.
  bool flush();
  size_t unsent() const { return outbox_.size() - sent_; }

 private:
  Fd socket_;
  std::vector<std::byte> inbox_;
  std::vector<std::byte> outbox_;
  size_t sent_ = 0;  // of outbox_
};

}  // namespace gpushare::sim
