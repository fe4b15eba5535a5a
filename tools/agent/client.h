// SPDX-License-Identifier: Apache-2.0
// One connection to the agent's control socket: it sends a line and receives lines. It blocks, with
// a limit on every wait, so that a stuck agent cannot hang a tool. One thread. The descriptor is
// close-on-exec.
#pragma once

#include <optional>
#include <string>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "tools/agent/protocol.h"

namespace gpushare {

inline constexpr Nanos kAnswerTimeout = std::chrono::seconds(5);

class Client {
 public:
  // The error's detail names the path and what to do: start the agent, or get the permission. An
  // empty path is Endpoints::socket of an agent whose region alone was named.
  static Result<Client> connect(const std::string& path);

  Result<> send(const Request& request);
  // The error is timed_out, or connection_reset when the agent closed the connection.
  Result<std::string> read_line(Nanos timeout = kAnswerTimeout);
  // Returns a line that is complete in what has been received. If there is none, wait for fd() and
  // receive().
  std::optional<std::string> buffered_line();
  // Takes what is there now, without waiting. The error is connection_reset at the end.
  Result<> receive();

  // Sends and returns the line that answers it. An agent that has no room for this connection has
  // answered that (resource_unavailable_try_again in decode_done()).
  Result<std::string> ask(const Request& request);

  int fd() const { return socket_.get(); }

 private:
  explicit Client(Fd socket) : socket_(std::move(socket)) {}

  Fd socket_;
  std::string received_;
  size_t taken_ = 0;     // of received_, by buffered_line()
  size_t searched_ = 0;  // no newline between taken_ and this
};

// Asks over a connection of its own, again and again while the agent has no room for one.
Result<std::string> ask_when_there_is_room(const std::string& path, const Request& request,
                                           Nanos patience);

// Each asks one question over a connection of its own.
Result<> tell_agent(const std::string& path, const Request& request);  // succeeds or fails
// Freezes or thaws a process, and says whether it is on a GPU now.
Result<bool> ask_on_gpu(const std::string& path, const Request& request);
Result<Hello> ask_hello(const std::string& path);
Result<PlaneSnapshot> ask_status(const std::string& path);
Result<std::vector<Finding>> ask_doctor(const std::string& path);

}  // namespace gpushare
