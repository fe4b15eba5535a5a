// SPDX-License-Identifier: Apache-2.0
// SteppedChild: a forked process that runs one operation under ptrace, one machine instruction at a
// time (or from system call to system call, where those alone can be seen by others). Between two
// steps it stands still, which to everybody else is the same as having died there: what the parent
// sees in shared memory is what a recovery would see. kill() makes it true.
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

  // False: cannot be stepped, skip the test. The machine does not allow ptrace; or single
  // instructions of a sanitized build, which has fifty times as many and would find nothing more
  // here.
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

// Runs the operation again and again, killed after a growing number of steps (each one if there are
// at most `deaths` of them, else about that many, evenly), and calls check() after each death.
// prepare() goes before each run. False: cannot be stepped.
bool die_along(Stride stride, const std::function<void()>& prepare,
               const std::function<void()>& operation, const std::function<void()>& check,
               uint64_t deaths);

}  // namespace gpushare
