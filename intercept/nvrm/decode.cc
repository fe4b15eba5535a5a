// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/decode.h"

#include <algorithm>
#include <cstring>

#include "intercept/nvrm/raw_event.h"

namespace gpushare::nvrm {
namespace {

using What = decltype(DriverEvent::what);

constexpr uint64_t kTickNs = 10'000'000;  // 1 / USER_HZ
constexpr uint32_t kFinnSerialized = 1;   // NVOS64_FLAGS_FINN_SERIALIZED

// The first `size` bytes as a `T`; what the caller did not provide is zero.
template <class T>
T prefix_as(const uint8_t* bytes, size_t size) {
  T value{};
  std::memcpy(&value, bytes, std::min(size, sizeof(T)));
  return value;
}

template <class T>
T arg_as(const gs_raw_event& raw) {
  return prefix_as<T>(raw.arg, std::min<size_t>(raw.arg_size, sizeof raw.arg));
}

// When `given` is false the call had no parameters, and the driver took zeros.
template <class T>
T params_as(const gs_raw_event& raw, bool given = true) {
  return prefix_as<T>(raw.params,
                      given ? std::min<size_t>(raw.params_bytes, sizeof raw.params) : 0);
}

bool is_root_class(uint32_t class_id) {
  return class_id == GS_CLASS_ROOT || class_id == GS_CLASS_ROOT_NON_PRIV ||
         class_id == GS_CLASS_ROOT_CLIENT;
}

// A channel class has four hexadecimal digits and ends in 6F: 0xA06F, 0xC86F, 0xCA6F.
bool is_channel_class(uint32_t class_id) {
  return class_id > 0xFF && class_id <= 0xFFFF && (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE;
}

// What the three forms of an allocation (NVOS05, NVOS21, NVOS64) have in common.
struct Allocation {
  uint32_t client, parent, object, class_id;
  bool has_params;
};

std::optional<What> allocated(const gs_raw_event& raw, const Allocation& made) {
  if (is_root_class(made.class_id)) return ClientCreated{made.object, raw.fd};
  if (is_channel_class(made.class_id))
    return ChannelCreated{made.client, made.parent, made.object, made.class_id};
  switch (made.class_id) {
    case GS_CLASS_DEVICE:
      return DeviceCreated{made.client, made.object,
                           params_as<gs_device_params>(raw, made.has_params).device_id};
    case GS_CLASS_CHANNEL_GROUP: {
      const auto params = params_as<gs_group_params>(raw, made.has_params);
      return GroupCreated{made.client, made.parent, made.object, engine_of(params.engine_type),
                          raw.fd};
    }
    case GS_CLASS_MEMORY_LOCAL_USER:
    case GS_CLASS_MEMORY_SYSTEM: {
      const auto params = params_as<gs_memory_params>(raw, made.has_params);
      return MemoryAllocated{made.client, made.parent, made.object, params.size,
                             made.class_id == GS_CLASS_MEMORY_LOCAL_USER};
    }
    default:
      return {};
  }
}

// The driver takes exactly these two sizes and distinguishes them in the same way.
std::optional<What> decode_alloc(const gs_raw_event& raw) {
  if (raw.arg_size == sizeof(gs_nvos64)) {
    const auto arg = arg_as<gs_nvos64>(raw);
    if (arg.status != GS_NV_OK) return {};
    return allocated(raw, {arg.h_root, arg.h_parent, arg.h_new, arg.h_class,
                           (arg.flags & kFinnSerialized) == 0});
  }
  if (raw.arg_size == sizeof(gs_nvos21)) {
    const auto arg = arg_as<gs_nvos21>(raw);
    if (arg.status != GS_NV_OK) return {};
    return allocated(raw, {arg.h_root, arg.h_parent, arg.h_new, arg.h_class, true});
  }
  return {};
}

std::optional<What> decode_alloc_object(const gs_raw_event& raw) {
  const auto arg = arg_as<gs_nvos05>(raw);
  if (raw.arg_size != sizeof arg || arg.status != GS_NV_OK) return {};
  return allocated(raw, {arg.h_root, arg.h_parent, arg.h_new, arg.h_class, false});
}

std::optional<What> decode_alloc_memory(const gs_raw_event& raw) {
  const auto arg = arg_as<gs_nvos02_fd>(raw);
  if (raw.arg_size != sizeof arg || arg.status != GS_NV_OK) return {};
  // This call makes no video memory: for its class the driver only answers how much there is.
  if (arg.h_class != GS_CLASS_MEMORY_SYSTEM) return {};
  return MemoryAllocated{arg.h_root, arg.h_parent, arg.h_new, arg.limit + 1, false};
}

std::optional<What> decode_heap(const gs_raw_event& raw) {
  const auto arg = arg_as<gs_nvos32_head>(raw);
  if (raw.arg_size < sizeof arg || arg.status != GS_NV_OK) return {};
  const bool is_video = (arg.attr & GS_MEMORY_ATTR_LOCATION_MASK) == 0;
  switch (arg.function) {
    case GS_HEAP_FREE:
      return ObjectFreed{arg.h_root, arg.h_memory};
    case GS_HEAP_ALLOC_SIZE:
    case GS_HEAP_ALLOC_SIZE_RANGE:
      if ((arg.flags & GS_HEAP_FLAGS_VIRTUAL) != 0) return {};
      return MemoryAllocated{
          arg.h_root, arg.h_parent, arg.h_memory,
          arg.function == GS_HEAP_ALLOC_SIZE ? arg.size : arg.height_or_range_size, is_video};
    default:
      return {};
  }
}

std::optional<What> decode_free(const gs_raw_event& raw) {
  const auto arg = arg_as<gs_nvos00>(raw);
  if (raw.arg_size != sizeof arg || arg.status != GS_NV_OK) return {};
  return ObjectFreed{arg.h_root, arg.h_object};
}

std::optional<What> decode_control(const gs_raw_event& raw) {
  const auto arg = arg_as<gs_nvos54>(raw);
  if (raw.arg_size != sizeof arg) return {};
  return ControlMade{arg.h_client, arg.h_object, arg.cmd, arg.status, params_as<uint64_t>(raw)};
}

constexpr std::pair<uint32_t, std::optional<What> (*)(const gs_raw_event&)> kDecoders[] = {
    {GS_NV_ESC_RM_ALLOC, decode_alloc},     {GS_NV_ESC_RM_ALLOC_OBJECT, decode_alloc_object},
    {GS_NV_ESC_RM_FREE, decode_free},       {GS_NV_ESC_RM_ALLOC_MEMORY, decode_alloc_memory},
    {GS_NV_ESC_RM_CONTROL, decode_control}, {GS_NV_ESC_RM_VID_HEAP_CONTROL, decode_heap},
};

std::optional<What> decode_ioctl(const gs_raw_event& raw) {
  for (const auto& [nr, decoder] : kDecoders)
    if (nr == raw.nr) return decoder(raw);
  return {};
}

// Whether the driver did it is in memory of the caller, so it is not asked.
What decode_switch(const gs_raw_switch& raw) {
  ChannelsSwitched made{.is_freeze = raw.params.disable != 0, .channels = {}};
  const uint32_t count = std::min<uint32_t>(raw.params.count, GS_DISABLE_CHANNELS_MAX);
  for (uint32_t i = 0; i < count; ++i)
    made.channels.push_back({raw.params.clients[i], raw.params.channels[i]});
  return made;
}

}  // namespace

std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

Engine engine_of(uint32_t engine_type) {
  const auto within = [&](uint32_t first, uint32_t last) {
    return engine_type >= first && engine_type <= last;
  };
  if (within(GS_ENGINE_TYPE_GR0, GS_ENGINE_TYPE_GR7)) return Engine::kGraphics;
  if (within(GS_ENGINE_TYPE_COPY0, GS_ENGINE_TYPE_COPY9)) return Engine::kCopy;
  if (within(GS_ENGINE_TYPE_COPY10, GS_ENGINE_TYPE_COPY19)) return Engine::kCopy;
  return Engine::kOther;
}

std::optional<Sighting> decode(std::span<const std::byte> record) {
  gs_raw_event raw{};
  if (record.size() < sizeof raw.head) return {};
  std::memcpy(&raw, record.data(), std::min(record.size(), sizeof raw));
  const gs_raw_head& head = raw.head;

  Sighting sighting;
  sighting.time = Time(Nanos(static_cast<int64_t>(head.time_ns)));
  sighting.process = {static_cast<pid_t>(head.pid), head.start_boottime_ns / kTickNs};
  if (sighting.process.pid <= 0) return {};
  sighting.opened = {static_cast<pid_t>(head.ns_pid), head.cgroup_id, head.uid,
                     printable({head.comm, strnlen(head.comm, sizeof head.comm - 1)})};

  std::optional<What> what;
  switch (head.kind) {
    case GS_RAW_IOCTL:
      if (record.size() < sizeof raw) return {};
      what = decode_ioctl(raw);
      sighting.fd = raw.fd;
      break;
    case GS_RAW_SWITCH: {
      gs_raw_switch switched{};
      if (record.size() < sizeof switched) return {};
      std::memcpy(&switched, record.data(), sizeof switched);
      what = decode_switch(switched);
      break;
    }
    case GS_RAW_UNREAD:
      what = EventsLost{1};
      break;
    case GS_RAW_EXEC:
      what = ProcessClosed{.by_exec = true};
      break;
    case GS_RAW_EXIT:
      what = ProcessClosed{.by_exec = false, .status = static_cast<int>(raw.head.status)};
      break;
    default:
      return {};
  }
  if (what) sighting.event = DriverEvent{sighting.time, sighting.process, std::move(*what)};
  return sighting;
}

}  // namespace gpushare::nvrm
