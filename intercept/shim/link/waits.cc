// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/link/waits.h"

#include <pthread.h>

namespace gpushare::shim {
namespace {

pthread_key_t key;
bool has_key = false;  // set in pthread_once()

void take_back(void*) {
  detail::OwnWaits& own = detail::own_waits;
  if (own.count > 0) own.slot->waits.fetch_sub(own.count, std::memory_order_relaxed);
  own.count = 0;
}

}  // namespace

namespace detail {

constinit thread_local OwnWaits own_waits{};

// Where there is no key left the end is not noticed.
void note_end_of_thread() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] { has_key = ::pthread_key_create(&key, &take_back) == 0; });
  if (has_key) ::pthread_setspecific(key, &own_waits);
  own_waits.is_noted = true;
}

}  // namespace detail
}  // namespace gpushare::shim
