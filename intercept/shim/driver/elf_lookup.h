// SPDX-License-Identifier: Apache-2.0
// Symbols of loaded libraries, read from their ELF tables. The shim defines dlsym() itself, so it
// has no name by which to call the real one. Any thread; allocates nothing, leaves errno alone.
#pragma once

#include <link.h>

#include <cstdint>

namespace gpushare::shim {

// The function of that name that `library` itself defines; null if it defines none. It is valid as
// long as the library stays loaded.
void* function_of(const link_map& library, const char* name);

// What RTLD_NEXT means: the function of that name in the first library after this one, in the order
// of loading, that defines one. Null if there is none. Calls no function, because the runtime of a
// sanitizer in the program stands in for strcmp and dl_iterate_phdr, and asks dlsym for the real
// ones before it can serve a call. Reads the loader's list without its lock. REQUIRES: `name` is a
// function of libc, so that the walk ends among the libraries that the program began with, which
// are never unloaded.
void* next_function(const char* name);

struct LoadedObject {
  uintptr_t base = 0;
  char path[512] = {};  // empty for the program itself, or when it is too long
};

// Finds the library that the address lies in. False: it lies in none. Takes the loader's lock,
// which is recursive.
bool find_object(const void* address, LoadedObject* object);

}  // namespace gpushare::shim
