// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for names of errors, and for functions by their names.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "intercept/cuda/cuda_api.h"

namespace {

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};

#define GS_ERROR(name, text) \
  ErrorText { name, #name, text }
constexpr ErrorText kErrors[] = {
    GS_ERROR(CUDA_SUCCESS, "no error"),
    GS_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    GS_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    GS_ERROR(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called"),
    GS_ERROR(CUDA_ERROR_DEINITIALIZED, "the driver is shutting down"),
    GS_ERROR(CUDA_ERROR_STUB_LIBRARY, "a stub was loaded instead of the driver's library"),
    GS_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or gone"),
    GS_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA device was found"),
    GS_ERROR(CUDA_ERROR_INVALID_DEVICE, "no device of that number"),
    GS_ERROR(CUDA_ERROR_INVALID_IMAGE, "not a kernel image"),
    GS_ERROR(CUDA_ERROR_INVALID_CONTEXT, "no context, or not one of this process"),
    GS_ERROR(CUDA_ERROR_MAP_FAILED, "mapping failed"),
    GS_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for this device"),
    GS_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable memory error"),
    GS_ERROR(CUDA_ERROR_INVALID_PTX, "PTX that does not compile"),
    GS_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX compiler library not found"),
    GS_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX newer than the driver"),
    GS_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    GS_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "a system call failed"),
    GS_ERROR(CUDA_ERROR_INVALID_HANDLE, "no object of that handle"),
    GS_ERROR(CUDA_ERROR_ILLEGAL_STATE, "not in a state that allows this"),
    GS_ERROR(CUDA_ERROR_NOT_FOUND, "no symbol of that name"),
    GS_ERROR(CUDA_ERROR_NOT_READY, "not yet finished"),
    GS_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel touched memory that it may not"),
    GS_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources for a launch"),
    GS_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel ran too long"),
    GS_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is in use"),
    GS_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was destroyed"),
    GS_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the memory is registered already"),
    GS_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the memory is not registered"),
    GS_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel met an illegal instruction"),
    GS_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel used a misaligned address"),
    GS_ERROR(CUDA_ERROR_LAUNCH_FAILED, "a kernel failed"),
    GS_ERROR(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
    GS_ERROR(CUDA_ERROR_NOT_SUPPORTED, "not supported"),
    GS_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "the system is not ready"),
    GS_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "driver and library differ"),
    GS_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED, "no connection to the MPS server"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while a stream captures"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error ended the capture"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "it would merge two captures"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was not begun in this stream"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "the capture has work that was not joined"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a capture cannot wait for uncaptured work"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream would wait for a capture"),
    GS_ERROR(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture"),
    GS_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"),
    GS_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph differs too much for an update"),
    GS_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef GS_ERROR

const ErrorText* find_error(CUresult error) {
  const auto* found = std::ranges::find(kErrors, error, &ErrorText::error);
  return found == std::end(kErrors) ? nullptr : found;
}

struct EntryPoint {
  std::string_view base;
  int since;
  void* address;
};

// Finds the newest function of the name that is not newer than `version`, and whether any has it.
std::pair<void*, bool> find_entry_point(std::string_view base, int version) {
#define GS_CUDA_FUNCTION(base_name, symbol, since, parameters) \
  EntryPoint{#base_name, since, reinterpret_cast<void*>(&(symbol))},
  static const EntryPoint kEntryPoints[] = {
#include "intercept/cuda/cuda_functions.inc"
  };
#undef GS_CUDA_FUNCTION
  const EntryPoint* best = nullptr;
  bool is_known = false;
  for (const EntryPoint& each : kEntryPoints) {
    if (each.base != base) continue;
    is_known = true;
    if (each.since <= version && (best == nullptr || each.since > best->since)) best = &each;
  }
  return {best == nullptr ? nullptr : best->address, is_known};
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The stand-in has no variants whose null stream is the calling thread's own. It answers
// NOT_SUPPORTED instead of giving functions that mean another stream.
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_GET_PROC_ADDRESS_LEGACY_STREAM) return CUDA_ERROR_INVALID_VALUE;
  const auto [address, is_known] = find_entry_point(symbol, version);
  *function = address;
  const auto outcome = address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                       : is_known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (status != nullptr) *status = outcome;
  // A missing symbol is no error when the caller asks for the status.
  return address != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
