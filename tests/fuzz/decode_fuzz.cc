// SPDX-License-Identifier: Apache-2.0
// Decodes hostile bytes as a record of the probe: as they are, and as the memory of a program
// behind a head that the probe wrote, which is the part that a program controls.
#include <cstring>

#include "intercept/nvrm/decode.h"
#include "intercept/nvrm/raw_event.h"

namespace {

constexpr uint8_t kCommands[] = {
    GS_NV_ESC_RM_ALLOC,        GS_NV_ESC_RM_ALLOC_OBJECT,     GS_NV_ESC_RM_FREE,
    GS_NV_ESC_RM_ALLOC_MEMORY, GS_NV_ESC_RM_VID_HEAP_CONTROL, GS_NV_ESC_RM_CONTROL,
};
constexpr uint32_t kSizes[] = {
    sizeof(gs_nvos64),
    sizeof(gs_nvos21),
    sizeof(gs_nvos05),
    sizeof(gs_nvos00),
    sizeof(gs_nvos54),
    sizeof(gs_nvos02_fd),
    184,
};

void check(std::span<const std::byte> record) {
  const auto sighting = gpushare::nvrm::decode(record);
  if (!sighting) return;
  if (sighting->process.pid <= 0 || sighting->opened.command.size() >= GS_RAW_COMM_BYTES)
    __builtin_trap();
  if (sighting->event && sighting->event->process != sighting->process) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  if (size < 4) return 0;
  gs_raw_event raw{};
  raw.head.kind = GS_RAW_IOCTL;
  raw.head.pid = 1;
  raw.nr = kCommands[data[0] % std::size(kCommands)];
  raw.arg_size = kSizes[data[1] % std::size(kSizes)];
  raw.params_bytes = data[2];
  const size_t bytes = std::min(size - 4, sizeof raw.arg + sizeof raw.params);
  std::memcpy(reinterpret_cast<uint8_t*>(&raw) + offsetof(gs_raw_event, arg), data + 4, bytes);
  check(std::as_bytes(std::span(&raw, 1)));
  return 0;
}
