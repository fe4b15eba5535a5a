// SPDX-License-Identifier: Apache-2.0
// Every way in which a program gets a function of the driver comes through here; it gets the
// wrapper where a feature needs it, else exactly what it would have got without us.
#pragma once

#include "intercept/shim/table.h"

namespace gpushare::shim {

// The driver's own function of that name; null while no driver is loaded, or where it has none.
void* driver_function(const char* symbol);

// What the program gets instead of `function`, which it found for this hook.
void* substitute(int index, void* function);

// After the driver's cuGetProcAddress has answered. `ask` calls the driver's again, by another
// version.
template <class Ask>
void* substitute_entry_point(const char* base, int version, uint64_t flags, void* function,
                             const Ask& ask) {
  const Flavor flavor =
      flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? Flavor::kPerThread : Flavor::kLegacy;
  const int index = find_entry_point(base, version, flavor);
  if (index < 0) return function;
  // A driver newer than our table may have a later version of the function, with other parameters.
  if (ask(kHooks[index].since) != function && driver_function(kHooks[index].symbol) != function)
    return function;
  return substitute(index, function);
}

}  // namespace gpushare::shim
