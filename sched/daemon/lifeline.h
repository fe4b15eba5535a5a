// SPDX-License-Identifier: Apache-2.0
// Lifeline: tells the supervisor at once that the agent dies. A dying process first gives up its
// memory, then closes its files, and its parent is told only after that; closing the driver's files
// takes a quarter of a second (measured on an H200), during which tenants would stay frozen. The
// kernel passes a robust mutex on in the first of these steps. So the agent holds one for as long
// as it lives, in memory that it shares with the supervisor, and a thread of the supervisor waits
// for it. The supervisor makes one Lifeline for each agent.
#pragma once

#include <memory>
#include <utility>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class Lifeline {
 public:
  // The supervisor's end; starts the thread. The calling process gets `signal` when the one process
  // that holds the lifeline dies; it may come late, also after the end of this object. Errors:
  // those of memfd_create(), ftruncate() and mmap(), and that no thread can be made.
  static Result<std::unique_ptr<Lifeline>> create(int signal);
  // Waits for nothing: a thread whose holder does not end stays behind.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Whether the holder has died. The signal comes after that.
  bool has_fired() const;

  // What hold() needs in the agent. It stays open across exec only when the child has called
  // keep_for_child() between fork and exec, for which that function is async-signal-safe.
  int fd() const { return fd_.get(); }
  static void keep_for_child(int fd);

  // The agent's end: call it once, on the thread that ends last. It holds until the process dies.
  // Errors: those of mmap() and pthread_mutex_lock().
  static Result<> hold(int fd);

 private:
  struct Shared;
  struct Unmap {
    void operator()(Shared* shared) const;
  };
  struct Watch;  // of the thread, too
  explicit Lifeline(Fd fd) : fd_(std::move(fd)) {}
  static Result<std::unique_ptr<Shared, Unmap>> map(int fd);

  const Fd fd_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace gpushare
