// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/watcher.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/gate.h"
#include "shmctl/shim/credit.h"

namespace gpushare::shim {
namespace {

constexpr int64_t kLookNs = 50'000'000;
// The wake-up that a slot's successor causes can come just before this thread waits.
constexpr timespec kLookWhileOpen{.tv_sec = 1, .tv_nsec = 0};

// While the word is closed or dealt out it changes often, and not every change is worth a wake-up.
void sleep_beside(ShimSlot& mine) {
  const uint32_t word = mine.credit.word.load(std::memory_order_acquire);
  if (is_credit_open(mine))
    ::syscall(SYS_futex, &mine.credit.word, FUTEX_WAIT, word, &kLookWhileOpen, nullptr, 0);
  else
    sleep_briefly(kLookNs);
}

void* watch(void*) {
  ::syscall(SYS_prctl, PR_SET_NAME, "gpushare-credit", 0, 0, 0);
  while (true) {
    ShimSlot& mine = slot();
    if (!is_credit_open(mine) && !is_agent_alive(mine)) open_credit(mine);
    sleep_beside(mine);
  }
}

}  // namespace

// In an older libc pthread_create() is in a library of its own, which the driver has loaded.
bool start_watcher() {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  const auto create = reinterpret_cast<Create>(program_function("pthread_create"));
  if (create == nullptr) return false;
  sigset_t all, before;
  ::sigfillset(&all);
  if (::sigprocmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_t thread{};
  const bool is_started = create(&thread, nullptr, watch, nullptr) == 0;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return is_started;
}

}  // namespace gpushare::shim
