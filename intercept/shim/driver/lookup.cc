// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/lookup.h"

#include <dlfcn.h>

#include <cstdint>

#include "intercept/shim/driver/elf_lookup.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/quiet.h"

extern "C" {

using FindSymbol = void* (*)(void* handle, const char* name);
using FindVersion = void* (*)(void* handle, const char* name, const char* version);
using OpenLibrary = void* (*)(const char* path, int flags);

// Defined in entry.S.
extern void* gs_targets[];
extern const char gs_trampolines_begin[], gs_trampolines_end[];

// Used by entry.S.
constinit std::atomic<FindSymbol> gs_real_dlsym{nullptr};
constinit std::atomic<FindVersion> gs_real_dlvsym{nullptr};
constinit std::atomic<OpenLibrary> gs_real_dlopen{nullptr};
FindSymbol gs_find_dlsym();
FindVersion gs_find_dlvsym();
OpenLibrary gs_find_dlopen();
bool gs_is_hooked(const char* name);
void* gs_dlsym_hooked(void* handle, const char* name);
void* gs_dlvsym_hooked(void* handle, const char* name, const char* version);
void* gs_resolve(uint64_t index);

}  // extern "C"

namespace gpushare::shim {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";

bool is_trampoline(const void* function) {
  const auto address = static_cast<const char*>(function);
  return address >= gs_trampolines_begin && address < gs_trampolines_end;
}

// A function of libc that this library does not define, or hides. Found once; null: there is none.
template <class Function>
Function of_libc(std::atomic<Function>& found, const char* name) {
  Function function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(next_function(name));
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

// Keeps the library of this function loaded, as the shim keeps the function.
void pin(const void* function) {
  LoadedObject object;
  if (!find_object(function, &object) || object.path[0] == '\0') return;
  if (const OpenLibrary open = gs_find_dlopen())
    open(object.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

bool are_of_one_library(const void* one, const void* other) {
  LoadedObject a, b;
  return find_object(one, &a) && find_object(other, &b) && a.base == b.base;
}

// The driver's function behind the exported one of that name; null while no driver is loaded.
void* behind_trampoline(const char* symbol) {
  const FindSymbol find = gs_find_dlsym();
  void* function = find == nullptr ? nullptr : find(RTLD_NEXT, symbol);
  // Otherwise the driver may be loaded where lookups do not see it (RTLD_LOCAL).
  return function != nullptr ? function : driver_function(symbol);
}

// What a program calls that is linked to a function which the driver does not have.
CUresult missing() { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

void* driver_function(const char* symbol) {
  const FindSymbol find = gs_find_dlsym();
  const OpenLibrary open = gs_find_dlopen();
  if (find == nullptr || open == nullptr) return nullptr;
  void* library = open(kDriverLibrary, RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : find(library, symbol);
}

void* program_function(const char* name) {
  const FindSymbol find = gs_find_dlsym();
  return find == nullptr ? nullptr : find(RTLD_DEFAULT, name);
}

Lookup fill_table(std::atomic<Lookup>& state, void** table, const char* const* names, size_t count,
                  size_t needed) {
  Lookup now = state.load(std::memory_order_acquire);
  if (now != Lookup::kNotYet) return now;
  if (driver_function("cuInit") == nullptr) return now;  // it may be loaded later
  now = Lookup::kComplete;
  for (size_t i = 0; i < count; ++i) {
    void* const function = driver_function(names[i]);
    if (function == nullptr && i < needed) now = Lookup::kMissing;
    std::atomic_ref(table[i]).store(function, std::memory_order_relaxed);
  }
  state.store(now, std::memory_order_release);
  return now;
}

bool bind(int index, void* function) {
  void* first = nullptr;
  if (real_functions[index].compare_exchange_strong(first, function, std::memory_order_acq_rel)) {
    pin(function);
    return true;
  }
  // dlsym and cuGetProcAddress may give two addresses of the driver for the same function.
  return first == function || are_of_one_library(first, function);
}

void* substitute(int index, void* function) {
  if (function == nullptr || function == kHooks[index].wrapper) return function;
  const uint32_t features = attach();
  if ((features & features_that_need(kHooks[index].kind)) == 0) return function;
  return bind(index, function) ? kHooks[index].wrapper : function;
}

namespace {

// A lookup through a handle that includes the shim finds its trampoline, but the program means the
// driver.
template <class Find>
void* find_hooked(void* handle, const char* name, const Find& find) {
  void* function = find(handle);
  if (is_trampoline(function)) function = find(RTLD_NEXT);
  if (function == nullptr) return nullptr;
  return substitute(find_symbol(name), function);
}

}  // namespace
}  // namespace gpushare::shim

using gpushare::shim::find_hooked;
using gpushare::shim::find_symbol;
using gpushare::shim::KeepErrno;
using gpushare::shim::of_libc;

FindSymbol gs_find_dlsym() { return of_libc(gs_real_dlsym, "dlsym"); }

OpenLibrary gs_find_dlopen() { return of_libc(gs_real_dlopen, "dlopen"); }

FindVersion gs_find_dlvsym() { return of_libc(gs_real_dlvsym, "dlvsym"); }

bool gs_is_hooked(const char* name) { return find_symbol(name) >= 0; }

void* gs_dlsym_hooked(void* handle, const char* name) {
  const FindSymbol find = gs_find_dlsym();
  if (find == nullptr) return nullptr;
  return find_hooked(handle, name, [&](void* where) { return find(where, name); });
}

void* gs_dlvsym_hooked(void* handle, const char* name, const char* version) {
  const FindVersion find = gs_find_dlvsym();
  if (find == nullptr) return nullptr;
  return find_hooked(handle, name, [&](void* where) { return find(where, name, version); });
}

void* gs_resolve(uint64_t index) {
  const KeepErrno errno_of_the_program;
  const auto& hook = gpushare::shim::kHooks[index];
  void* function = gpushare::shim::behind_trampoline(hook.symbol);
  // Not remembered: the driver may be loaded later.
  if (function == nullptr) return reinterpret_cast<void*>(&gpushare::shim::missing);
  void* target = gpushare::shim::substitute(static_cast<int>(index), function);
  if (target == function) gpushare::shim::pin(function);
  std::atomic_ref(gs_targets[index]).store(target, std::memory_order_release);
  return target;
}
