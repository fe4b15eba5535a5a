// SPDX-License-Identifier: Apache-2.0
#include "tests/shmctl/plane/stepped_child.h"
#include "tests/support/sanitized.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gpushare {
namespace {

constexpr int kEndOfOperation = SIGUSR1;
#if GS_IS_SANITIZED
constexpr bool kCanStepInstructions = false;
#else
constexpr bool kCanStepInstructions = true;
#endif

// Waits for the child to stop; the signal it stopped for, 0 when it has ended.
int wait_for_stop(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
}

}  // namespace

SteppedChild::SteppedChild(Stride stride, const std::function<void()>& operation)
    : stride_(stride) {
  if (stride == Stride::kInstruction && !kCanStepInstructions) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    operation();
    ::raise(kEndOfOperation);
    ::_exit(0);
  }
  is_running_ = pid_ > 0 && wait_for_stop(pid_) == SIGSTOP;
}

bool SteppedChild::step() {
  const auto request = stride_ == Stride::kInstruction ? PTRACE_SINGLESTEP : PTRACE_SYSCALL;
  if (!is_running_ || ::ptrace(request, pid_, nullptr, nullptr) != 0) return false;
  ++steps_;
  const int signal = wait_for_stop(pid_);
  if (signal == 0) is_running_ = false;
  return signal == SIGTRAP;
}

void SteppedChild::finish() {
  if (!is_running_ || ::ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) return;
  is_running_ = wait_for_stop(pid_) != 0;
}

void SteppedChild::kill() {
  if (!is_running_) return;
  ::kill(pid_, SIGKILL);
  while (wait_for_stop(pid_) != 0) {
  }
  is_running_ = false;
}

bool die_along(Stride stride, const std::function<void()>& prepare,
               const std::function<void()>& operation, const std::function<void()>& check,
               uint64_t deaths) {
  prepare();
  uint64_t total = 0;
  {
    SteppedChild whole(stride, operation);
    while (whole.step()) {
    }
    total = whole.steps();
  }
  const uint64_t apart = std::max<uint64_t>(1, total / deaths);
  for (uint64_t last = 0; last < total; last += apart) {
    prepare();
    SteppedChild child(stride, operation);
    while (child.steps() < last && child.step()) {
    }
    child.kill();
    check();
  }
  return total > 0;
}

}  // namespace gpushare
