// SPDX-License-Identifier: Apache-2.0
// A program as a child process whose output is read as it comes. The child dies with us. One
// thread.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

struct ChildPlan {
  std::vector<std::string> words{};                                // path and arguments
  std::vector<std::pair<std::string, std::string>> environment{};  // besides our own
  std::string log{};  // file that takes what it writes to standard error
  int signal_at_our_end = SIGKILL;
};

class Child {
 public:
  static Result<Child> start(const ChildPlan& plan);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) = delete;
  ~Child();  // killed and reaped

  pid_t pid() const { return pid_; }
  // Readable, or at its end, when pump() has something to do; -1 at the end.
  int fd() const { return output_.get(); }
  // Takes what there is, without waiting.
  void pump();
  bool has_ended() const { return status_.has_value(); }
  // 0: ended well. Requires: has_ended().
  int status() const { return *status_; }
  const std::string& output() const { return text_; }
  std::string last_line() const;

  void signal(int number) const;
  void kill();

 private:
  Child(pid_t pid, Fd output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_ = -1;
  Fd output_;
  std::string text_;
  std::optional<int> status_;
};

}  // namespace gpushare
