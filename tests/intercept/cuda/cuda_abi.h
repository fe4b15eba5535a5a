// SPDX-License-Identifier: Apache-2.0
// The ABI of the CUDA driver API as numbers and texts, so that two headers that cannot be included
// together can be compared: cuda_abi_table.inc is compiled once with each of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>

namespace gpushare {

struct CudaAbi {
  std::map<std::string, uint64_t> numbers;        // constants, sizes, offsets
  std::map<std::string, std::string> signatures;  // of functions
};

CudaAbi our_cuda_abi();
// Empty where no cuda.h was found when this was built.
CudaAbi real_cuda_abi();

// The part of a type that matters to a caller: "u4" is an unsigned number of 4 bytes, "f4" a float,
// "s16" a struct, "e4" an enum, "h" a pointer to an opaque object, "F" a pointer to a function; "P"
// stands before the type that any other pointer points to.
template <class T>
concept IsComplete = requires { sizeof(T); };

template <class T>
std::string abi_of() {
  if constexpr (std::is_void_v<T>) {
    return "v";
  } else if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_cv_t<std::remove_pointer_t<T>>;
    const std::string constness = std::is_const_v<std::remove_pointer_t<T>> ? "c" : "";
    if constexpr (std::is_function_v<Target>) {
      return "F";
    } else if constexpr (std::is_void_v<Target>) {
      return "P" + constness + "v";
    } else if constexpr (!IsComplete<Target>) {
      return "h";
    } else {
      return "P" + constness + abi_of<Target>();
    }
  } else {
    const char* kind = std::is_enum_v<T>             ? "e"
                       : std::is_class_v<T>          ? "s"
                       : std::is_floating_point_v<T> ? "f"
                       : std::is_signed_v<T>         ? "i"
                                                     : "u";
    return kind + std::to_string(sizeof(T));
  }
}

// Only the function's type is used: it is not called, so it need not be linked.
template <class Function>
struct Signature;
template <class Result, class... Parameters>
struct Signature<Result(Parameters...)> {
  static std::string text() {
    return abi_of<Result>() + "(" + ((abi_of<Parameters>() + " ") + ... + "") + ")";
  }
};

}  // namespace gpushare
