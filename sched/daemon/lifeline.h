// SPDX-License-Identifier: Apache-2.0
// Lifeline: tells the supervisor at once that the agent dies. A dying process first lets go of its
// memory, then closes its files, and only then its parent is told; closing the driver's files takes
// a quarter of a second (H200), while tenants would stay frozen. The kernel hands a robust mutex
// on in the first step: the agent holds one for as long as it lives, in memory that both share, and
// a thread of the supervisor waits for it.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <memory>
#include <thread>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class Lifeline {
 public:
  // The supervisor's end. `signal` is sent to this process when the holder dies. One holder.
  static Result<std::unique_ptr<Lifeline>> create(int signal);
  // Waits for the thread; the holder, if there was one, is dead.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // For the child; stays open across exec only after keep_for_child() in it.
  int fd() const { return fd_.get(); }
  static void keep_for_child(int fd);  // async-signal-safe

  // The agent's end, once, on the thread that ends last: holds until the process dies.
  static Result<> hold(int fd);

 private:
  struct Shared;
  struct Unmap {
    void operator()(Shared* shared) const;
  };
  Lifeline() = default;
  static Result<std::unique_ptr<Shared, Unmap>> map(int fd);

  Fd fd_;
  std::unique_ptr<Shared, Unmap> shared_;
  std::thread waiter_;
};

}  // namespace gpushare
