// SPDX-License-Identifier: Apache-2.0
// Waiting for an instant or for a condition, which Ctrl-C can end. One thread.
#pragma once

#include <signal.h>

#include <functional>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

class Wait {
 public:
  // A wait that no signal ends.
  Wait();
  // Blocks SIGINT, SIGTERM and SIGHUP for this thread from now on: they count in a wait. Create it
  // before the program's other threads.
  static Wait until_interrupted();

  // Returns at `instant`. The error is operation_canceled, once one of the signals has come and
  // from then on always.
  Result<> until(Time instant);
  // Looks every 2 ms whether `is_done` is true or fails. Returns false when `limit` is over.
  Result<bool> until(const std::function<Result<bool>()>& is_done, Nanos limit);

 private:
  sigset_t signals_{};  // those that end it
  bool is_interrupted_ = false;
};

// Returns whether the condition held before `limit` was over. The default is for tests, of what
// happens soon: so long that what has not happened by then does not happen, however slow and busy
// the machine is.
bool eventually(const std::function<bool()>& is_so, Nanos limit = std::chrono::minutes(5));

timespec timespec_of(Nanos duration);

}  // namespace gpushare
