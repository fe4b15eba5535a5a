// SPDX-License-Identifier: Apache-2.0
// Waiting that Ctrl-C ends. One thread, the only one of its program.
#pragma once

#include <signal.h>

#include <functional>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

class DemoWait {
 public:
  // Blocks SIGINT, SIGTERM and SIGHUP from now on: they count when somebody waits.
  DemoWait();

  // Error operation_canceled when one of them came; from then on always.
  Result<> until(Time instant);
  // Until `is_done` says so or fails. Looks every 20 ms. Returns false when `deadline` passed.
  Result<bool> until(const std::function<Result<bool>()>& is_done, Time deadline);

 private:
  sigset_t signals_{};
  bool is_interrupted_ = false;
};

}  // namespace gpushare
