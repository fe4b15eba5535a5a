// SPDX-License-Identifier: Apache-2.0
// ControlServer: the agent's Unix socket. It reads lines, gives each to a handler together with
// what the kernel says of the sender, and writes the answers back in the order of the requests. It
// runs on the agent's event loop and thread, and never blocks.
//
// A client that floods it hurts only itself: its connection ends after a line of more than
// kLongestRequest bytes, with more than kMostUnsent bytes of answers that it has not read, or when
// there are kMostClients others.
//
// The socket's mode is 0660 and its group is gpushare, so that only root and that group can
// connect. A mode of 0666 gives other users only what the handler grants them, which checks every
// request.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "sched/control/handler.h"
#include "sched/control/trace_lines.h"
#include "shmctl/base/error.h"

namespace gpushare {

class ControlServer {
 public:
  static constexpr std::size_t kMostClients = 256;
  static constexpr std::size_t kMostUnsent = 16 << 20;  // bytes

  using Handle = std::function<Answer(std::string_view line, const Peer& peer)>;

  // Listens on `path`, and takes over a socket file on which no process listens any more. `handle`
  // is called on the loop's thread, once for each request. Errors: address_in_use when a process
  // listens there; filename_too_long; otherwise those of bind() and listen().
  static Result<std::unique_ptr<ControlServer>> listen(boost::asio::io_context& loop,
                                                       const std::string& path, Handle handle);
  ~ControlServer();  // closes all, removes the socket file

  // True while any client traces: only then is it worth making the lines.
  bool is_traced() const;
  // Sends a line of sched/control/trace_lines.h to every client that traces. A client that reads
  // too slowly loses lines; their number stands in the last line of its trace.
  void trace(const std::string& line);

 private:
  struct Impl;
  explicit ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushare
