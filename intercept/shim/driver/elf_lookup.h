// SPDX-License-Identifier: Apache-2.0
// Symbols of loaded libraries, read from their ELF tables. Needed because the shim defines dlsym()
// itself and so has no name left by which to call the real one. Any thread; allocates nothing,
// leaves errno alone.
#pragma once

#include <link.h>

#include <cstdint>

namespace gpushare::shim {

// The function of that name that `library` itself defines; null if it defines none. Valid as long
// as it stays loaded.
void* function_of(const link_map& library, const char* name);

// The function of that name in the first library behind ours, in the order of loading, that defines
// one: what RTLD_NEXT means. Null if there is none. Calls no function: a sanitizer's runtime in the
// program stands in for strcmp and dl_iterate_phdr, but asks dlsym for the real ones before it can
// serve a call. Reads the loader's list without its lock, so `name` must be one of libc's: then the
// walk ends among the libraries that the program began with, which are never unloaded.
void* next_function(const char* name);

struct LoadedObject {
  uintptr_t base = 0;
  char path[512] = {};  // empty for the program itself, or when it is too long
};

// The library that the address lies in. False: in none. Takes the loader's (recursive) lock.
bool find_object(const void* address, LoadedObject* object);

}  // namespace gpushare::shim
