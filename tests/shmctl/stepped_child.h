// SPDX-License-Identifier: Apache-2.0
// SteppedChild: a forked process that runs one operation under ptrace, one machine instruction at a
// time. Between two instructions it stands still, which to everybody else is the same as having
// died there: what the parent sees in shared memory is what a recovery would see. kill() makes it
// true.
//
//   SteppedChild child([&] { write_record(slot, record); });
//   while (child.step()) check(slot);   // after each instruction
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace gpushare {

class SteppedChild {
 public:
  // Forks; the child stops before `operation`. The test must have no other threads.
  explicit SteppedChild(const std::function<void()>& operation);
  ~SteppedChild() { kill(); }
  SteppedChild(const SteppedChild&) = delete;
  SteppedChild& operator=(const SteppedChild&) = delete;

  // False: this machine does not allow ptrace; skip the test.
  bool is_traced() const { return is_running_; }
  // Runs one instruction. False when the operation is over.
  bool step();
  void kill();
  uint64_t steps() const { return steps_; }

 private:
  pid_t pid_ = -1;
  bool is_running_ = false;
  uint64_t steps_ = 0;
};

// How many instructions the operation takes; 0 if this machine does not allow ptrace.
uint64_t count_steps(const std::function<void()>& operation);

// Runs the operation again and again, killed after a growing number of instructions (every one if
// there are at most `deaths` of them, else about that many, evenly), and calls check() after each.
// prepare() goes before each run. False: no ptrace here.
bool die_along(const std::function<void()>& prepare, const std::function<void()>& operation,
               const std::function<void()>& check, uint64_t deaths);

}  // namespace gpushare
