// SPDX-License-Identifier: Apache-2.0
// SteppedChild: a forked process that runs one operation under ptrace, one machine instruction at a
// time, or from system call to system call where other processes see only those. Between two steps
// it stands still, which looks to other processes as if it had died there: the parent sees in
// shared memory what a recovery would see. kill() kills it there.
//
//   SteppedChild child(Stride::kInstruction, [&] { write_record(slot, record); });
//   while (child.step()) check(slot);
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace gpushare {

enum class Stride { kInstruction, kSystemCall };  // the latter stops at entry and at exit

class SteppedChild {
 public:
  // Forks; the child stops before `operation`. The test must have no other threads.
  SteppedChild(Stride stride, const std::function<void()>& operation);
  ~SteppedChild() { kill(); }
  SteppedChild(const SteppedChild&) = delete;
  SteppedChild& operator=(const SteppedChild&) = delete;

  // False when it cannot be stepped and the test must be skipped: the machine does not allow
  // ptrace, or a sanitized build would step single instructions, of which it has fifty times as
  // many.
  bool is_traced() const { return is_running_; }
  // Runs to the next stop. False when the operation is over.
  bool step();
  // Runs to the end of the operation at full speed.
  void finish();
  void kill();
  uint64_t steps() const { return steps_; }

 private:
  Stride stride_;
  pid_t pid_ = -1;
  bool is_running_ = false;
  uint64_t steps_ = 0;
};

// Runs the operation again and again and kills it after a growing number of steps: after each one
// if there are at most `deaths` of them, otherwise after about that many, evenly. Calls prepare()
// before each run and check() after each death. Returns false when it cannot be stepped.
bool die_along(Stride stride, const std::function<void()>& prepare,
               const std::function<void()>& operation, const std::function<void()>& check,
               uint64_t deaths);

}  // namespace gpushare
