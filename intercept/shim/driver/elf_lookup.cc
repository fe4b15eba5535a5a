// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/elf_lookup.h"

#include <elf.h>

#include <cstring>

// The loader's tables hold addresses as numbers.
// NOLINTBEGIN(performance-no-int-to-ptr)
namespace gpushare::shim {
namespace {

bool contains(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address - begin < segment.p_memsz) return true;
  }
  return false;
}

bool are_equal(const char* one, const char* other) {
  for (; *one == *other; ++one, ++other)
    if (*one == '\0') return true;
  return false;
}

// The parts of a library's dynamic section that a lookup needs.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;

  explicit Tables(const link_map& object) {
    const ElfW(Dyn)* entry = object.l_ld;
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      // The loader has turned these into addresses, except in the kernel's vDSO.
      uintptr_t address = entry->d_un.d_ptr;
      if (address < object.l_addr) address += object.l_addr;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          strings = reinterpret_cast<const char*>(address);
          break;
        case DT_GNU_HASH:
          gnu_hash = reinterpret_cast<const uint32_t*>(address);
          break;
        case DT_HASH:
          sysv_hash = reinterpret_cast<const uint32_t*>(address);
          break;
        default:
          break;
      }
    }
  }

  bool is_function(const ElfW(Sym) & symbol, const char* name) const {
    return symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
           are_equal(strings + symbol.st_name, name);
  }

  const ElfW(Sym) * find(const char* name) const {
    if (symbols == nullptr || strings == nullptr) return nullptr;
    if (gnu_hash != nullptr) return find_by_gnu_hash(name);
    if (sysv_hash == nullptr) return nullptr;
    for (uint32_t i = 0; i < sysv_hash[1]; ++i)
      if (is_function(symbols[i], name)) return &symbols[i];
    return nullptr;
  }

  const ElfW(Sym) * find_by_gnu_hash(const char* name) const {
    uint32_t hash = 5381;
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<uint8_t>(*c);
    const uint32_t bucket_count = gnu_hash[0], first = gnu_hash[1], bloom_words = gnu_hash[2];
    const uint32_t* buckets = gnu_hash + 4 + bloom_words * (sizeof(uintptr_t) / sizeof(uint32_t));
    const uint32_t* chain = buckets + bucket_count;
    if (bucket_count == 0) return nullptr;
    for (uint32_t i = buckets[hash % bucket_count]; i >= first; ++i) {
      if ((chain[i - first] | 1) == (hash | 1) && is_function(symbols[i], name)) return &symbols[i];
      if ((chain[i - first] & 1) != 0) break;
    }
    return nullptr;
  }
};

struct Place {
  uintptr_t address;
  LoadedObject* object;
};

int look_for_address(dl_phdr_info* object, size_t, void* data) {
  const auto& place = *static_cast<Place*>(data);
  if (!contains(*object, place.address)) return 0;
  place.object->base = object->dlpi_addr;
  const size_t length = std::strlen(object->dlpi_name);
  if (length < sizeof place.object->path)
    std::memcpy(place.object->path, object->dlpi_name, length + 1);
  return 1;
}

}  // namespace

void* function_of(const link_map& library, const char* name) {
  const ElfW(Sym)* symbol = Tables(library).find(name);
  return symbol == nullptr ? nullptr : reinterpret_cast<void*>(library.l_addr + symbol->st_value);
}

void* next_function(const char* name) {
  bool is_behind_us = false;
  for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
    if (is_behind_us)
      if (void* const function = function_of(*object, name)) return function;
    is_behind_us = is_behind_us || object->l_ld == _DYNAMIC;
  }
  return nullptr;
}

bool find_object(const void* address, LoadedObject* object) {
  Place place{reinterpret_cast<uintptr_t>(address), object};
  return dl_iterate_phdr(look_for_address, &place) != 0;
}

}  // namespace gpushare::shim
// NOLINTEND(performance-no-int-to-ptr)
