// SPDX-License-Identifier: Apache-2.0
// Tests the decoder with records built by hand, one for each form of a call.
#include "intercept/nvrm/decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "intercept/nvrm/raw_event.h"

namespace gpushare::nvrm {
namespace {

// The sizes of the ring's records and of the driver's structures, as in the headers that abi.h
// names.
static_assert(sizeof(gs_raw_head) == 64 && sizeof(gs_raw_event) == 248);
static_assert(sizeof(gs_nvos32_head) <= GS_RAW_ARG_BYTES);
static_assert(offsetof(gs_nvos32_head, h_memory) == 44 && offsetof(gs_nvos32_head, attr) == 56);
static_assert(offsetof(gs_nvos32_head, height_or_range_size) == 80);
static_assert(offsetof(gs_nvos32_head, size) == 88);
static_assert(offsetof(gs_memory_params, size) + sizeof(gs_u64) <= GS_RAW_PARAMS_BYTES);
static_assert(sizeof(gs_nvos05) == 20 && sizeof(gs_nvos02_fd) == 56);

gs_raw_event record_of(uint32_t kind) {
  gs_raw_event raw{};
  raw.head.kind = kind;
  raw.head.time_ns = 5'000;
  raw.head.start_boottime_ns = 1'239'999'999;  // 123 ticks and almost another
  raw.head.cgroup_id = 77;
  raw.head.pid = 4321;
  raw.head.tid = 4322;
  raw.head.ns_pid = 1;
  raw.head.uid = 1000;
  std::memcpy(raw.head.comm, "python3", 8);
  raw.fd = 9;
  return raw;
}

template <class Arg>
gs_raw_event call(uint32_t nr, const Arg& arg) {
  gs_raw_event raw = record_of(GS_RAW_IOCTL);
  raw.nr = nr;
  raw.arg_size = sizeof arg;
  std::memcpy(raw.arg, &arg, std::min(sizeof arg, sizeof raw.arg));
  return raw;
}

template <class Arg, class Params>
gs_raw_event call(uint32_t nr, const Arg& arg, const Params& params) {
  gs_raw_event raw = call(nr, arg);
  raw.params_bytes = std::min(sizeof params, sizeof raw.params);
  std::memcpy(raw.params, &params, raw.params_bytes);
  return raw;
}

std::optional<Sighting> decoded(const gs_raw_event& raw) {
  return decode(std::as_bytes(std::span(&raw, 1)));
}

// Returns the one event in `raw`; fails the test and returns an empty T if it is another or none.
template <class T>
T only(const gs_raw_event& raw) {
  const auto sighting = decoded(raw);
  if (!sighting || !sighting->event || !std::holds_alternative<T>(sighting->event->what)) {
    ADD_FAILURE() << "not the expected event";
    return {};
  }
  return std::get<T>(sighting->event->what);
}

bool says_nothing(const gs_raw_event& raw) {
  const auto sighting = decoded(raw);
  return sighting && !sighting->event;
}

gs_nvos64 alloc64(uint32_t class_id, uint32_t status = GS_NV_OK) {
  return {0xC1D00001, 2, 3, class_id, 0x7f0000001000, 0, 0, 0, status, 0};
}

TEST(Decode, NamesTheProcess) {
  const auto sighting = decoded(call(GS_NV_ESC_RM_FREE, gs_nvos00{1, 0, 2, 0}));
  ASSERT_TRUE(sighting && sighting->event);
  EXPECT_EQ(sighting->process, (ProcessId{4321, 123}));
  EXPECT_EQ(sighting->event->process, sighting->process);
  EXPECT_EQ(sighting->event->time, Time(Nanos(5'000)));
  EXPECT_EQ(sighting->opened.ns_pid, 1);
  EXPECT_EQ(sighting->opened.cgroup_id, 77u);
  EXPECT_EQ(sighting->opened.uid, 1000u);
  EXPECT_EQ(sighting->opened.command, "python3");
}

TEST(Decode, MakesTheCommandPrintable) {
  gs_raw_event raw = record_of(GS_RAW_EXIT);
  std::memset(raw.head.comm, 'x', sizeof raw.head.comm);  // not terminated
  raw.head.comm[0] = '\n';
  raw.head.comm[1] = static_cast<char>(0xFF);
  EXPECT_EQ(decoded(raw)->opened.command, "??xxxxxxxxxxxxx");
}

TEST(Decode, EveryRootClassIsAClient) {
  for (const uint32_t class_id : {GS_CLASS_ROOT, GS_CLASS_ROOT_NON_PRIV, GS_CLASS_ROOT_CLIENT}) {
    const auto made = only<ClientCreated>(call(GS_NV_ESC_RM_ALLOC, alloc64(class_id)));
    EXPECT_EQ(made.client, 3u);
    EXPECT_EQ(made.fd, 9);
  }
}

TEST(Decode, DeviceWithItsInstance) {
  gs_device_params params{};
  params.device_id = 5;
  const auto raw = call(GS_NV_ESC_RM_ALLOC, alloc64(GS_CLASS_DEVICE), params);
  const auto made = only<DeviceCreated>(raw);
  EXPECT_EQ(made.client, 0xC1D00001u);
  EXPECT_EQ(made.device, 3u);
  EXPECT_EQ(made.instance, 5u);
  EXPECT_EQ(only<DeviceCreated>(call(GS_NV_ESC_RM_ALLOC, alloc64(GS_CLASS_DEVICE))).instance, 0u)
      << "without parameters the driver takes zeros";
}

TEST(Decode, BothSizesOfAnAllocation) {
  gs_nvos21 arg{1, 2, 3, GS_CLASS_CHANNEL_GROUP, 0, 0, GS_NV_OK};
  gs_group_params params{};
  params.engine_type = 11;
  const auto made = only<GroupCreated>(call(GS_NV_ESC_RM_ALLOC, arg, params));
  EXPECT_EQ(std::tie(made.client, made.device, made.group, made.fd), std::tuple(1u, 2u, 3u, 9));
  EXPECT_EQ(made.engine, Engine::kCopy);
  arg.status = GS_NV_ERR_NO_MEMORY;
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC, arg, params)));
}

TEST(Decode, EngineOfAGroup) {
  const struct {
    const char* description;
    uint32_t type;
    Engine engine;
  } rows[] = {
      {"null", 0, Engine::kOther},       {"GR0", 1, Engine::kGraphics},
      {"GR7", 8, Engine::kGraphics},     {"COPY0", 9, Engine::kCopy},
      {"COPY9", 18, Engine::kCopy},      {"NVDEC0", 19, Engine::kOther},
      {"OFA0", 51, Engine::kOther},      {"COPY10", 52, Engine::kCopy},
      {"COPY19", 61, Engine::kCopy},     {"OFA1", 62, Engine::kOther},
      {"all ones", ~0u, Engine::kOther},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.description);
    EXPECT_EQ(engine_of(row.type), row.engine);
    gs_group_params params{};
    params.engine_type = row.type;
    const auto raw = call(GS_NV_ESC_RM_ALLOC, alloc64(GS_CLASS_CHANNEL_GROUP), params);
    EXPECT_EQ(only<GroupCreated>(raw).engine, row.engine);
  }
}

TEST(Decode, SerializedParametersAreNotMisread) {
  gs_nvos64 arg = alloc64(GS_CLASS_CHANNEL_GROUP);
  arg.flags = 1;  // NVOS64_FLAGS_FINN_SERIALIZED
  gs_group_params params{};
  params.engine_type = 1;
  EXPECT_EQ(only<GroupCreated>(call(GS_NV_ESC_RM_ALLOC, arg, params)).engine, Engine::kOther);
}

TEST(Decode, ChannelsOfEveryGeneration) {
  for (const uint32_t class_id : {0xA06Fu, 0xB06Fu, 0xC36Fu, 0xC56Fu, 0xC86Fu, 0xC96Fu, 0xCA6Fu}) {
    const auto made = only<ChannelCreated>(call(GS_NV_ESC_RM_ALLOC, alloc64(class_id)));
    EXPECT_EQ(made.class_id, class_id);
    EXPECT_EQ(made.parent, 2u);
    EXPECT_EQ(made.channel, 3u);
  }
  for (const uint32_t class_id : {0x6Fu, 0x1C86Fu, 0xC8B5u, GS_CLASS_SUBDEVICE})
    EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC, alloc64(class_id))));
}

TEST(Decode, MemoryByAllocation) {
  gs_memory_params params{};
  params.size = 20ull << 30;
  for (const uint32_t class_id : {GS_CLASS_MEMORY_LOCAL_USER, GS_CLASS_MEMORY_SYSTEM}) {
    const auto raw = call(GS_NV_ESC_RM_ALLOC, alloc64(class_id), params);
    const auto made = only<MemoryAllocated>(raw);
    EXPECT_EQ(made.device, 2u);
    EXPECT_EQ(made.memory, 3u);
    EXPECT_EQ(made.bytes, 20ull << 30);
    EXPECT_EQ(made.is_video, class_id == GS_CLASS_MEMORY_LOCAL_USER);
  }
}

TEST(Decode, MemoryByAllocMemory) {
  gs_nvos02_fd arg{};
  arg.h_root = 1;
  arg.h_parent = 2;
  arg.h_new = 3;
  arg.h_class = GS_CLASS_MEMORY_SYSTEM;
  arg.limit = 4095;
  const auto made = only<MemoryAllocated>(call(GS_NV_ESC_RM_ALLOC_MEMORY, arg));
  EXPECT_EQ(made.bytes, 4096u);
  EXPECT_FALSE(made.is_video);
  arg.h_class = GS_CLASS_MEMORY_LOCAL_USER;  // the driver only tells how much there is
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC_MEMORY, arg)));
  arg.h_class = 0x71;  // the program's own pages, described to the driver: nothing is allocated
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC_MEMORY, arg)));
  arg.h_class = GS_CLASS_MEMORY_SYSTEM;
  arg.status = GS_NV_ERR_NO_MEMORY;
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC_MEMORY, arg)));
}

TEST(Decode, MemoryByHeapControl) {
  struct Heap {  // the real structure goes on
    gs_nvos32_head head;
    uint8_t rest[88];
  } arg{};
  arg.head.h_root = 1;
  arg.head.h_parent = 2;
  arg.head.h_memory = 3;
  arg.head.size = 1 << 20;
  arg.head.height_or_range_size = 1 << 16;
  arg.head.function = GS_HEAP_ALLOC_SIZE;
  EXPECT_EQ(only<MemoryAllocated>(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)).bytes, 1u << 20);
  EXPECT_TRUE(only<MemoryAllocated>(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)).is_video);
  arg.head.function = GS_HEAP_ALLOC_SIZE_RANGE;
  EXPECT_EQ(only<MemoryAllocated>(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)).bytes, 1u << 16);
  arg.head.attr = GS_MEMORY_ATTR_LOCATION_PCI;
  EXPECT_FALSE(only<MemoryAllocated>(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)).is_video);
  arg.head.flags = GS_HEAP_FLAGS_VIRTUAL;
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)));
  arg.head.function = GS_HEAP_FREE;
  EXPECT_EQ(only<ObjectFreed>(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)).object, 3u);
  arg.head.status = GS_NV_ERR_INVALID_ARGUMENT;
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_VID_HEAP_CONTROL, arg)));
}

TEST(Decode, ObjectWithoutParameters) {
  const gs_nvos05 arg{1, 2, 3, GS_CLASS_DEVICE, GS_NV_OK};
  EXPECT_EQ(only<DeviceCreated>(call(GS_NV_ESC_RM_ALLOC_OBJECT, arg)).device, 3u);
  const gs_nvos05 refused{1, 2, 3, GS_CLASS_DEVICE, GS_NV_ERR_NO_MEMORY};
  EXPECT_TRUE(says_nothing(call(GS_NV_ESC_RM_ALLOC_OBJECT, refused)));
}

TEST(Decode, FreeOnlyWhenItSucceeded) {
  const auto freed = only<ObjectFreed>(call(GS_NV_ESC_RM_FREE, gs_nvos00{1, 0, 2, GS_NV_OK}));
  EXPECT_EQ(freed.client, 1u);
  EXPECT_EQ(freed.object, 2u);
  EXPECT_TRUE(
      says_nothing(call(GS_NV_ESC_RM_FREE, gs_nvos00{1, 0, 2, GS_NV_ERR_INVALID_OBJECT_HANDLE})));
}

TEST(Decode, ControlsAreReportedWithTheirStatus) {
  gs_nvos54 arg{};
  arg.h_client = 1;
  arg.h_object = 2;
  arg.cmd = GS_CTRL_SET_TIMESLICE;
  arg.status = GS_NV_ERR_INVALID_CLIENT;
  const auto made = only<ControlMade>(call(GS_NV_ESC_RM_CONTROL, arg, gs_timeslice{2048}));
  EXPECT_EQ(made.client, 1u);
  EXPECT_EQ(made.object, 2u);
  EXPECT_EQ(made.command, GS_CTRL_SET_TIMESLICE);
  EXPECT_EQ(made.status, GS_NV_ERR_INVALID_CLIENT);
  EXPECT_EQ(made.value, 2048u);
}

TEST(Decode, ASizeTheDriverRefusesSaysNothing) {
  for (uint32_t size = 0; size < 256; ++size) {
    gs_raw_event raw = call(GS_NV_ESC_RM_ALLOC, alloc64(GS_CLASS_ROOT_CLIENT));
    raw.arg_size = size;
    if (size == sizeof(gs_nvos21) || size == sizeof(gs_nvos64)) continue;
    EXPECT_TRUE(says_nothing(raw)) << size;
  }
}

TEST(Decode, EndsOfAProcess) {
  EXPECT_FALSE(only<ProcessClosed>(record_of(GS_RAW_EXIT)).by_exec);
  EXPECT_TRUE(only<ProcessClosed>(record_of(GS_RAW_EXEC)).by_exec);
  EXPECT_EQ(only<ProcessClosed>(record_of(GS_RAW_EXEC)).status, std::nullopt);
  // Their records are only a head.
  gs_raw_event raw = record_of(GS_RAW_EXIT);
  raw.head.status = 3 << 8;
  EXPECT_EQ(only<ProcessClosed>(raw).status, 3 << 8);
  EXPECT_TRUE(decode(std::as_bytes(std::span(&raw.head, 1))));
}

TEST(Decode, RefusesWhatIsNotARecord) {
  const gs_raw_event raw = call(GS_NV_ESC_RM_FREE, gs_nvos00{1, 0, 2, 0});
  const auto bytes = std::as_bytes(std::span(&raw, 1));
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(bytes.first(size)));
  EXPECT_TRUE(decode(bytes));
  EXPECT_FALSE(decoded(record_of(0)));
  EXPECT_FALSE(decoded(record_of(6)));
  gs_raw_event nobody = raw;
  nobody.head.pid = 0;
  EXPECT_FALSE(decoded(nobody));
}

TEST(Decode, AnyBytesGiveAValue) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(random() % 700);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (bytes.size() >= sizeof(gs_raw_head) && round % 2 == 0) {
      const uint32_t kind = 1 + random() % 5;
      std::memcpy(&bytes[offsetof(gs_raw_head, kind)], &kind, sizeof kind);
    }
    decode(bytes);
  }
}

}  // namespace
}  // namespace gpushare::nvrm
