// SPDX-License-Identifier: Apache-2.0
// FakeAgent is an agent's control socket that answers what the test says and keeps what it was
// asked. It serves several connections at once, so its handler may be called from several threads.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shmctl/base/fd.h"
#include "tests/tools/support/temp_dir.h"

namespace gpushare {

class FakeAgent {
 public:
  // Returns the lines that answer a request line, without their newlines. kHangUp instead of a line
  // closes the connection.
  using Handler = std::function<std::vector<std::string>(const std::string&)>;
  static constexpr const char* kHangUp = "hang up";

  explicit FakeAgent(Handler handler);
  ~FakeAgent();

  std::string socket() const { return dir_.at("agent.sock"); }
  std::vector<std::string> requests() const;

 private:
  void accept_all();
  void serve(int fd);

  TempDir dir_;
  Handler handler_;
  Fd listener_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;  // under mutex_
  std::vector<int> connections_;       // under mutex_; open ones
  std::vector<std::thread> threads_;   // of the accepting thread
  std::thread acceptor_;
};

}  // namespace gpushare
