// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/calls/waits.h"

#include <pthread.h>

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

using SetSpecific = int (*)(pthread_key_t, const void*);

void take_back(void*) {
  detail::OwnWaits& own = detail::own_waits;
  if (own.count > 0) own.slot->waits.fetch_sub(own.count, std::memory_order_relaxed);
  own.count = 0;
}

// In an older libc these are in a library of its own, which the driver has loaded.
struct Key {
  Key() {
    using Create = int (*)(pthread_key_t*, void (*)(void*));
    const auto create = reinterpret_cast<Create>(program_function("pthread_key_create"));
    set = reinterpret_cast<SetSpecific>(program_function("pthread_setspecific"));
    if (create == nullptr || set == nullptr || create(&key, &take_back) != 0) set = nullptr;
  }
  pthread_key_t key{};
  SetSpecific set = nullptr;  // nullptr: there is no key
};

// Two threads that come first at once make a key each, either of which serves.
constinit std::atomic<SetSpecific> set_specific{nullptr};
constinit std::atomic<pthread_key_t> the_key{};
constinit std::atomic<bool> has_asked{false};

}  // namespace

namespace detail {

constinit thread_local OwnWaits own_waits{};

// Where there is no key the end is not noticed.
void note_end_of_thread() {
  if (!has_asked.load(std::memory_order_acquire)) {
    const Key made;
    the_key.store(made.key, std::memory_order_relaxed);
    set_specific.store(made.set, std::memory_order_relaxed);
    has_asked.store(true, std::memory_order_release);  // pairs with the acquire above
  }
  if (const SetSpecific set = set_specific.load(std::memory_order_relaxed))
    set(the_key.load(std::memory_order_relaxed), &own_waits);
  own_waits.is_noted = true;
}

}  // namespace detail
}  // namespace gpushare::shim
