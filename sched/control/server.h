// SPDX-License-Identifier: Apache-2.0
// ControlServer: the agent's Unix socket. Reads lines, hands each to a handler with the kernel's
// word on who sent it, writes the answers back in order. Runs on the agent's event loop, never
// blocks.
//
// Whoever floods it hurts only himself: a line over kLongestRequest, more than kMostUnsent bytes of
// answers that are not read, or a client beyond kMostClients ends that connection.
//
// The socket is 0660, group gpushare: who can connect at all is that group and root, and so is who
// may change anything. Opening it to everyone (chmod 0666) gives the others only what
// sched/control/handler.h lets ordinary users do, because every request is checked.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "sched/control/handler.h"
#include "shmctl/base/error.h"

namespace gpushare {

class ControlServer {
 public:
  static constexpr std::size_t kMostClients = 256;
  static constexpr std::size_t kMostUnsent = 16 << 20;

  using Handle = std::function<Answer(std::string_view line, const Peer& peer)>;

  // Takes over a socket file that nobody listens on any more. Error address_in_use when somebody
  // does.
  static Result<std::unique_ptr<ControlServer>> listen(boost::asio::io_context& loop,
                                                       const std::string& path, Handle handle);
  ~ControlServer();  // closes all, removes the socket file

  // True while anyone traces: only then is it worth making the lines.
  bool is_traced() const;
  // To everyone who traces.
  void trace(const std::string& line);

 private:
  struct Impl;
  explicit ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushare
