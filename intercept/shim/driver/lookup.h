// SPDX-License-Identifier: Apache-2.0
// Every way in which a program gets a function of the driver comes through here: it gets the
// wrapper if a wanted feature needs it, and otherwise exactly what it would have got without the
// shim. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "intercept/shim/driver/table.h"

namespace gpushare::shim {

// The driver's own function of that name; null while no driver is loaded, or if it has none.
void* driver_function(const char* symbol);

// The function of that name that a library of the program sees (RTLD_DEFAULT); null: there is none.
void* program_function(const char* name);

// How far a table of functions of the driver has been filled.
enum class Lookup { kNotYet, kComplete, kMissing };

// Fills a table of `count` pointers once, and says how far it is. Without one of the first `needed`
// it is kMissing, and kNotYet while no driver is loaded. Two threads may fill it at once, with the
// same values.
Lookup fill_table(std::atomic<Lookup>& state, void** table, const char* const* names, size_t count,
                  size_t needed);

// Functions of the driver that are looked up together, once; `Table` has nothing but pointers to
// them. Any thread.
template <class Table>
class DriverTable {
 public:
  static constexpr size_t kCount = sizeof(Table) / sizeof(void*);

  // Of a table that names its functions itself (GS_FUNCTIONS).
  constexpr DriverTable() : DriverTable(Table::kNames) {}
  // In the order of the table, of which the last ones may be `optional`.
  explicit constexpr DriverTable(const char* const (&names)[kCount], size_t optional = 0)
      : names_(names), needed_(kCount - optional) {}
  Lookup look_up() {
    return fill_table(state_, reinterpret_cast<void**>(&found_), names_, kCount, needed_);
  }
  // Null: the driver is not loaded, or lacks one that is needed.
  const Table* get() {
    Lookup now = state_.load(std::memory_order_acquire);
    if (now == Lookup::kNotYet) now = look_up();
    return now == Lookup::kComplete ? &found_ : nullptr;
  }

 private:
  const char* const* const names_;
  const size_t needed_;
  Table found_{};
  std::atomic<Lookup> state_{Lookup::kNotYet};
};

// A function of the driver that is looked up once. Any thread.
template <class Function>
class DriverFunction {
 public:
  explicit constexpr DriverFunction(const char* symbol) : symbol_(symbol) {}
  Function get() {  // null as above; the next call then looks it up again
    Function known = known_.load(std::memory_order_relaxed);
    if (known == nullptr) {
      known = reinterpret_cast<Function>(driver_function(symbol_));
      known_.store(known, std::memory_order_relaxed);
    }
    return known;
  }

 private:
  const char* const symbol_;
  std::atomic<Function> known_{nullptr};
};

// What the program gets instead of `function`, which it has found for the entry `index`.
void* substitute(int index, void* function);

// The same for `function`, which the driver's cuGetProcAddress has returned. `ask` asks that
// function again, for another version.
template <class Ask>
void* substitute_entry_point(const char* base, int version, uint64_t flags, void* function,
                             const Ask& ask) {
  const Flavor flavor =
      flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? Flavor::kPerThread : Flavor::kLegacy;
  const int index = find_entry_point(base, version, flavor);
  if (index < 0) return function;
  // A driver newer than hooks.def may have a later version of the function, with other parameters.
  if (ask(kHooks[index].since) != function && driver_function(kHooks[index].symbol) != function)
    return function;
  return substitute(index, function);
}

}  // namespace gpushare::shim
