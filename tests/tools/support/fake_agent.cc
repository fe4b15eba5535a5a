// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/support/fake_agent.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

namespace gpushare {

FakeAgent::FakeAgent(Handler handler) : handler_(std::move(handler)) {
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket().c_str(), sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
  acceptor_ = std::thread([this] { accept_all(); });
}

FakeAgent::~FakeAgent() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (int fd : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

std::vector<std::string> FakeAgent::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeAgent::accept_all() {
  while (true) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    {
      const std::lock_guard lock(mutex_);
      connections_.push_back(fd);
    }
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void FakeAgent::serve(int fd) {
  std::string received;
  char byte = 0;
  bool is_open = true;
  while (is_open && ::recv(fd, &byte, 1, 0) == 1) {
    if (byte != '\n') {
      received += byte;
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(received);
    }
    for (const std::string& line : handler_(received)) {
      if (line == kHangUp) {
        is_open = false;
        break;
      }
      const std::string text = line + "\n";
      if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) break;
    }
    received.clear();
  }
  const std::lock_guard lock(mutex_);
  std::erase(connections_, fd);
  ::close(fd);
}

}  // namespace gpushare
