// SPDX-License-Identifier: Apache-2.0
// Fd: a file descriptor with one owner. It can be moved, and it is closed once, on the thread that
// destroys it.
#pragma once

#include <unistd.h>

#include <utility>

namespace gpushare {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  // The descriptor, or -1 when there is none; the Fd stays its owner.
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Gives the descriptor away without closing it.
  int release() { return std::exchange(fd_, -1); }
  // Closes the descriptor and owns `fd` from now on.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gpushare
