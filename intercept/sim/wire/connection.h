// SPDX-License-Identifier: Apache-2.0
// Connection: the server's end of one client's socket. It cuts the stream into messages and keeps
// what must be sent until the socket takes it. It never blocks. One thread.
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

  // Hands every whole message that has arrived to `handle`. Returns false when the connection must
  // be closed: the peer is gone, it sent something that is no message, or `handle` returned false.
  bool receive(const Handler& handle);

  // Appends one message, which flush() sends.
  void queue(uint16_t kind, uint64_t tag, std::span<const std::byte> body,
             std::span<const std::byte> extra = {});
  // Sends what the socket takes now. Returns false when the peer is gone.
  bool flush();
  // Bytes that are queued and not sent.
  size_t unsent() const { return outbox_.size() - sent_; }

 private:
  Fd socket_;
  std::vector<std::byte> inbox_;
  std::vector<std::byte> outbox_;
  size_t sent_ = 0;  // bytes of outbox_ that are sent
};

}  // namespace gpushare::sim
