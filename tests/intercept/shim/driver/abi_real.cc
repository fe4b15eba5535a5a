// SPDX-License-Identifier: Apache-2.0
// hooks.def against NVIDIA's own declarations, if they are installed: cudaTypedefs.h names the type
// of each function by the API level with which it came. Everything is checked by the compiler; the
// test only says whether it was.
#include "tests/intercept/shim/driver/abi_real.h"

#if __has_include(<cudaTypedefs.h>)

// So that names stay as they are written, and do not turn into their newest version.
#define __CUDA_API_VERSION_INTERNAL
#include <cudaTypedefs.h>

#include <type_traits>
#endif

// An older header does not have all names.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

namespace {

// Two types are alike if they go through the same register or stack slot: pointers to whatever
// type, and numbers or enumerations of the same size.
template <class Ours, class Theirs>
constexpr bool is_same_place() {
  if (sizeof(Ours) != sizeof(Theirs)) return false;
  if (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
  return std::is_class_v<Ours> == std::is_class_v<Theirs>;
}

template <class Ours, class Theirs>
constexpr bool is_same_abi = false;
template <class... Ours, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
constexpr bool is_same_abi<CUresult(Ours...), CUresult (*)(Theirs...)> =
    (is_same_place<Ours, Theirs>() && ...);

// No function may take floating point, as entry.S does not save the registers for it.
template <class Signature>
constexpr bool has_no_floats = false;
template <class... Parameters>
constexpr bool has_no_floats<CUresult(Parameters...)> =
    (!std::is_floating_point_v<Parameters> && ...);

// What a header is too old to know is compared with nothing: its level stands for two words, of
// which the second is taken.
#if CUDA_VERSION < 13020
#define GS_NEWER_13020 ~, GS_KEEP
#endif
#if CUDA_VERSION < 13030
#define GS_NEWER_13030 ~, GS_KEEP
#endif
#if CUDA_VERSION < 13040
#define GS_NEWER_13040 ~, GS_KEEP
#endif
#define GS_SECOND(first, second, ...) second
#define GS_CHOSEN(...) GS_SECOND(__VA_ARGS__)
#define GS_KEEP(base, symbol, since, parameters)
#define GS_COMPARE(base, symbol, since, parameters) \
  static_assert(is_same_abi<CUresult parameters, PFN_##base##_v##since>, #symbol);
#define GS_HOOK(kind, base, symbol, since, parameters) \
  static_assert(has_no_floats<CUresult parameters>);   \
  GS_CHOSEN(GS_NEWER_##since, GS_COMPARE, ~)(base, symbol, since, parameters)
#define GS_HOOK_VARIANT(kind, base, symbol, since, parameters)
#include "intercept/shim/driver/hooks.def"

}  // namespace

int gpushare::test::compared_with_api_level() { return CUDA_VERSION; }

#else

int gpushare::test::compared_with_api_level() { return 0; }

#endif
