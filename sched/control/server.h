// SPDX-License-Identifier: Apache-2.0
// ControlServer: the agent's Unix socket. It reads lines, gives each to a handler together with
// what the kernel says of the sender, and writes the answers back in the order of the requests. It
// runs on the agent's event loop and thread, never blocks, and handles one request in a turn of the
// loop, of the users in turn. What takes longer (Answer::later) runs on a thread of its own, one at
// a time.
//
// A client that floods it hurts only itself and its user: its connection ends after a line of more
// than kLongestRequest bytes, when its user's clients have not read more than kMostUnsentOfUser
// bytes of answers, when its user holds most of kMostUnsent and it most of these, when it neither
// asks nor reads for Patience::idle, or when there are kMostClients others, or kMostClientsOfUser
// of its user. Places beyond kMostClients are root's alone.
//
// The socket's mode is 0660 and its group is gpushare, so that only root and that group can
// connect. A mode of 0666 gives other users only what the handler grants them, which checks every
// request.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "sched/control/handler.h"
#include "sched/control/trace_lines.h"
#include "shmctl/base/error.h"

namespace gpushare {

class ControlServer {
 public:
  static constexpr std::size_t kMostClients = 256, kMostClientsOfUser = 64, kClientsOfRoot = 16;
  // Bytes of answers that wait to be read. A status of everything that there is room for takes
  // 4 MiB. The allocator can hold twice as much; the unit gives the agent 128 MiB in all.
  static constexpr std::size_t kMostUnsent = 24 << 20, kMostUnsentOfUser = 12 << 20;

  struct Patience {
    Nanos idle = std::chrono::seconds(60);
    Nanos look = std::chrono::seconds(5);  // how often clients are looked at for that
  };
  using Handle = std::function<Answer(std::string_view line, const Peer& peer)>;

  // Listens on `path`, and takes over a socket file on which no process listens any more. `handle`
  // is called on the loop's thread, once for each request. Asks the name service for the group
  // before it returns, and later on a thread of its own. Errors: those of listen_on_socket().
  static Result<std::unique_ptr<ControlServer>> listen(asio::io_context& loop,
                                                       const std::string& path, Handle handle,
                                                       const Patience& patience);
  static Result<std::unique_ptr<ControlServer>> listen(asio::io_context& loop,
                                                       const std::string& path, Handle handle) {
    return listen(loop, path, std::move(handle), Patience{});
  }
  // Closes all, removes the socket file, and waits for an answer that is being made.
  ~ControlServer();

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
