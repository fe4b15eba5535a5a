// SPDX-License-Identifier: Apache-2.0
// How the module reads the driver's ioctls: kind, members, parameters, answer.
#include "kmod/rm/rm_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "kmod/rm/rm_params.h"

namespace gpushare {
namespace {

constexpr __u32 kAllEscapes[] = {RM_ESC_ALLOC_MEMORY,    RM_ESC_ALLOC_OBJECT, RM_ESC_FREE,
                                 RM_ESC_CONTROL,         RM_ESC_ALLOC,        RM_ESC_DUP_OBJECT,
                                 RM_ESC_VID_HEAP_CONTROL};

template <class T>
rm_call parse(__u32 nr, const T& arg, __u32 size = sizeof(T)) {
  alignas(8) unsigned char bytes[RM_ARG_MAX] = {};
  std::memcpy(bytes, &arg, std::min(sizeof arg, sizeof bytes));
  rm_call call;
  rm_call_parse(nr, size, bytes, &call);
  return call;
}

TEST(KmodRmCall, LooksAtACommandOfItsOwnSizeOnly) {
  EXPECT_EQ(rm_call_kind(RM_ESC_ALLOC, sizeof(rm_nvos64)), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_ALLOC, sizeof(rm_nvos21)), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_ALLOC_OBJECT, sizeof(rm_nvos05)), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_ALLOC_MEMORY, sizeof(rm_nvos02_fd)), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_FREE, sizeof(rm_nvos00)), RM_CALL_FREE);
  EXPECT_EQ(rm_call_kind(RM_ESC_DUP_OBJECT, sizeof(rm_nvos55)), RM_CALL_DUP);
  EXPECT_EQ(rm_call_kind(RM_ESC_CONTROL, sizeof(rm_nvos54)), RM_CALL_CONTROL);
  for (const __u32 nr : kAllEscapes) {
    int sizes = 0;
    for (__u32 size = 0; size < sizeof(rm_nvos32_head); ++size)
      sizes += rm_call_kind(nr, size) != RM_CALL_OTHER;
    EXPECT_EQ(sizes, nr == RM_ESC_ALLOC ? 2 : nr == RM_ESC_VID_HEAP_CONTROL ? 0 : 1) << nr;
  }
  EXPECT_EQ(rm_call_kind(RM_ESC_VID_HEAP_CONTROL, 184), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_VID_HEAP_CONTROL, RM_ARG_MAX), RM_CALL_ALLOC);
  EXPECT_EQ(rm_call_kind(RM_ESC_VID_HEAP_CONTROL, RM_ARG_MAX + 1), RM_CALL_OTHER);
  EXPECT_EQ(rm_call_kind(RM_ESC_XFER, sizeof(rm_xfer)), RM_CALL_OTHER);
}

TEST(KmodRmCall, ReadsBothFormsOfAnAllocation) {
  rm_nvos64 arg{1, 2, 3, RM_CLASS_MEMORY_LOCAL_USER, 0x1000, 0, 128, 0, 0, 0};
  rm_call call = parse(RM_ESC_ALLOC, arg);
  EXPECT_EQ(call.kind, RM_CALL_ALLOC);
  EXPECT_EQ(call.client, 1u);
  EXPECT_EQ(call.parent, 2u);
  EXPECT_EQ(call.object, 3u);
  EXPECT_EQ(call.class_id, RM_CLASS_MEMORY_LOCAL_USER);
  EXPECT_FALSE(call.is_opaque);
  EXPECT_EQ(call.status_offset, offsetof(rm_nvos64, status));
  rm_params_place wanted = rm_params_wanted(&call);
  EXPECT_EQ(wanted.value_at, offsetof(rm_memory_params, size));
  EXPECT_EQ(wanted.value_bytes, 8u);
  EXPECT_EQ(wanted.attr_bytes, 4u);
  arg.flags = RM_ALLOC_FLAGS_SERIALIZED;
  call = parse(RM_ESC_ALLOC, arg);
  EXPECT_TRUE(call.is_opaque);
  EXPECT_EQ(rm_params_wanted(&call).value_bytes, 0u);

  rm_nvos21 old{1, 2, 3, RM_CLASS_GROUP, 0x1000, 12, 0};
  call = parse(RM_ESC_ALLOC, old);
  EXPECT_EQ(call.status_offset, offsetof(rm_nvos21, status));
  EXPECT_EQ(call.params_size, 12u);
  wanted = rm_params_wanted(&call);
  EXPECT_EQ(wanted.value_at, offsetof(rm_group_params, engine_type))
      << "where the class has it, whatever the caller says";
  EXPECT_EQ(wanted.value_bytes, 4u);
  EXPECT_EQ(wanted.attr_bytes, 0u);
}

TEST(KmodRmCall, WithoutParametersNoneAreRead) {
  rm_nvos64 arg{};
  arg.h_class = RM_CLASS_MEMORY_LOCAL_USER;
  arg.params_size = 128;
  const rm_call call = parse(RM_ESC_ALLOC, arg);
  EXPECT_EQ(rm_params_wanted(&call).value_bytes, 0u);
}

TEST(KmodRmCall, ReadsTheWaysOfTheOldHeap) {
  rm_nvos32_head arg{};
  arg.h_root = 1;
  arg.h_parent = 2;
  arg.h_memory = 3;
  arg.size = 10'000;
  arg.height_or_range_size = 20'000;
  for (const auto& [function, bytes] :
       {std::pair{RM_HEAP_ALLOC_SIZE, 12'288u}, {RM_HEAP_ALLOC_SIZE_RANGE, 20'480u}}) {
    arg.function = function;
    const rm_call call = parse(RM_ESC_VID_HEAP_CONTROL, arg, 184);
    EXPECT_EQ(call.kind, RM_CALL_ALLOC);
    EXPECT_TRUE(call.is_video);
    EXPECT_EQ(call.class_id, RM_CLASS_MEMORY_LOCAL_USER);
    EXPECT_EQ(call.bytes, bytes);
    EXPECT_EQ(call.object, 3u);
  }
  arg.attr = 1u << 25;  // PCI
  rm_call call = parse(RM_ESC_VID_HEAP_CONTROL, arg, 184);
  EXPECT_EQ(call.kind, RM_CALL_OTHER);
  arg.function = RM_HEAP_ALLOC_SIZE;
  arg.attr = RM_MEMORY_ATTR_LOCATION_MASK;  // anywhere: it is not taken for the GPU's
  EXPECT_EQ(parse(RM_ESC_VID_HEAP_CONTROL, arg, 184).kind, RM_CALL_OTHER);
  arg.attr = 0;
  arg.flags = RM_MEMORY_FLAGS_VIRTUAL;
  EXPECT_EQ(parse(RM_ESC_VID_HEAP_CONTROL, arg, 184).kind, RM_CALL_OTHER);
  arg.function = RM_HEAP_FREE;
  call = parse(RM_ESC_VID_HEAP_CONTROL, arg, 184);
  EXPECT_EQ(call.kind, RM_CALL_FREE);
  EXPECT_EQ(call.object, 3u);
  EXPECT_EQ(call.status_offset, offsetof(rm_nvos32_head, status));
  arg.function = 5;  // INFO
  EXPECT_EQ(parse(RM_ESC_VID_HEAP_CONTROL, arg, 184).kind, RM_CALL_OTHER);
}

TEST(KmodRmCall, ASurfacesSizeIsItsHeightTimesItsPitch) {
  rm_nvos32_tiled surface{};
  surface.function = RM_HEAP_ALLOC_TILED;
  surface.height = 1u << 25;  // where other functions have an attribute that says "not video"
  surface.pitch = 3;
  alignas(8) unsigned char arg[RM_ARG_MAX] = {};
  const auto parsed = [&] {
    std::memcpy(arg, &surface, sizeof surface);
    rm_call call;
    rm_call_parse(RM_ESC_VID_HEAP_CONTROL, 184, arg, &call);
    return call;
  };
  EXPECT_TRUE(parsed().is_video);
  EXPECT_EQ(parsed().bytes, 3u << 25);
  surface.pitch = -1;
  EXPECT_GT(parsed().bytes, 1ULL << 62);
  surface.attr = 1u << 25;
  EXPECT_FALSE(parsed().is_video);
}

TEST(KmodRmCall, AllocMemoryMakesNoVideoMemory) {
  rm_nvos02_fd arg{};
  arg.h_class = RM_CLASS_MEMORY_SYSTEM;
  arg.limit = (1 << 20) - 1;
  EXPECT_EQ(parse(RM_ESC_ALLOC_MEMORY, arg).bytes, 1u << 20);
  EXPECT_FALSE(parse(RM_ESC_ALLOC_MEMORY, arg).is_video);
  arg.limit = ~0ULL;
  EXPECT_EQ(parse(RM_ESC_ALLOC_MEMORY, arg).bytes, ~0ULL) << "must not wrap to nothing";
  arg.h_class = RM_CLASS_MEMORY_LOCAL_USER;  // It only asks how much there is.
  EXPECT_EQ(parse(RM_ESC_ALLOC_MEMORY, arg).kind, RM_CALL_OTHER);
}

TEST(KmodRmCall, ReadsTheAnswerWhereTheDriverPutsIt) {
  rm_nvos64 made{};
  made.h_class = RM_CLASS_MEMORY_LOCAL_USER;
  rm_call call = parse(RM_ESC_ALLOC, made);
  made.h_new = 7;
  EXPECT_EQ(rm_answered_object(&call, &made), 7u);
  rm_nvos55 duplicate{};
  call = parse(RM_ESC_DUP_OBJECT, duplicate);
  duplicate.h_object = 8;
  EXPECT_EQ(rm_answered_object(&call, &duplicate), 8u);
  rm_nvos02_fd memory{};
  memory.h_class = RM_CLASS_MEMORY_SYSTEM;
  call = parse(RM_ESC_ALLOC_MEMORY, memory);
  memory.h_new = 9;
  memory.limit = 65'535;
  EXPECT_EQ(rm_answered_object(&call, &memory), 9u);
  EXPECT_EQ(rm_answered_bytes(RM_ESC_ALLOC_MEMORY, &memory), 65'536u);
  rm_nvos32_head heap{};
  heap.function = RM_HEAP_ALLOC_SIZE;
  call = parse(RM_ESC_VID_HEAP_CONTROL, heap, 184);
  heap.h_memory = 10;
  heap.size = 1;
  heap.height_or_range_size = 2;
  EXPECT_EQ(rm_answered_object(&call, &heap), 10u);
  EXPECT_EQ(rm_answered_bytes(RM_ESC_VID_HEAP_CONTROL, &heap), 1u);
  heap.function = RM_HEAP_ALLOC_SIZE_RANGE;
  EXPECT_EQ(rm_answered_bytes(RM_ESC_VID_HEAP_CONTROL, &heap), 2u);
}

TEST(KmodRmCall, ReadsNothingOfAControlsSerializedParameters) {
  rm_nvos54 arg{0, 0, RM_CTRL_SET_TIMESLICE, 0, 0x1000, 8, 0};
  rm_call call = parse(RM_ESC_CONTROL, arg);
  EXPECT_EQ(rm_params_wanted(&call).value_bytes, 8u);
  arg.params_size = 2;
  call = parse(RM_ESC_CONTROL, arg);
  EXPECT_EQ(rm_params_wanted(&call).value_bytes, 2u) << "the driver reads what the caller says";
  arg.flags = RM_CONTROL_FLAGS_SERIALIZED;
  call = parse(RM_ESC_CONTROL, arg);
  EXPECT_TRUE(call.is_opaque);
  EXPECT_EQ(rm_params_wanted(&call).value_bytes, 0u);
}

// The flags say whether the mode counts, so both are pinned.
TEST(KmodRmCall, ReadsHowKernelsAreToLeaveTheGpu) {
  rm_nvos54 arg{0, 0, RM_CTRL_SET_PREEMPTION_MODE, 0, 0x1000, 32, 0};
  rm_call call = parse(RM_ESC_CONTROL, arg);
  const rm_params_place wanted = rm_params_wanted(&call);
  EXPECT_EQ(wanted.attr_at, offsetof(rm_preemption_params, flags));
  EXPECT_EQ(wanted.attr_bytes, 4u);
  EXPECT_EQ(wanted.value_at, offsetof(rm_preemption_params, graphics_mode));
  EXPECT_EQ(wanted.value_bytes, 8u);
  const auto value = [&call](__u32 flags, __u64 compute) {
    const rm_params params{.value = compute << 32 | 1, .attr = flags};
    return rm_control_value(&call, &params);
  };
  EXPECT_EQ(value(RM_PREEMPTION_FLAGS_COMPUTE, 2), 2u);
  EXPECT_EQ(value(RM_PREEMPTION_FLAGS_COMPUTE, RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE),
            RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE);
  EXPECT_NE(value(2, RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE), RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE)
      << "only the mode of graphics is set";
  arg.flags = RM_CONTROL_FLAGS_SERIALIZED;
  call = parse(RM_ESC_CONTROL, arg);
  EXPECT_EQ(value(0, 2), RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE) << "it cannot be read";
}

TEST(KmodRmCall, ReadsWhichFileIsToBeSpokenFor) {
  const rm_register_fd arg{.fd = 7};
  EXPECT_EQ(rm_call_kind(RM_ESC_REGISTER_FD, sizeof arg), RM_CALL_REGISTER);
  EXPECT_EQ(rm_call_kind(RM_ESC_REGISTER_FD, 8), RM_CALL_OTHER) << "the driver refuses it";
  EXPECT_EQ(parse(RM_ESC_REGISTER_FD, arg).fd, 7);
}

TEST(KmodRmCall, ReadsWhoseMemoryGoesIntoADmaBuffer) {
  for (const uint32_t bytes : {2600u, 2608u}) {  // up to 565, and since 570
    EXPECT_EQ(rm_call_kind(RM_ESC_EXPORT_DMA_BUF, bytes), RM_CALL_EXPORT);
    alignas(8) unsigned char seen[RM_ARG_MAX] = {};  // no more of it is looked at
    const rm_export_dma_buf_head head{.fd = -1, .h_client = 0xC1D00001, .total = 9, .count = 3};
    std::memcpy(seen, &head, sizeof head);
    rm_call call{};
    rm_call_parse(RM_ESC_EXPORT_DMA_BUF, bytes, seen, &call);
    EXPECT_EQ(call.client, 0xC1D00001);
    EXPECT_EQ(call.count, 3);
    EXPECT_EQ(call.status_offset, bytes - 8);
  }
  EXPECT_EQ(rm_call_kind(RM_ESC_EXPORT_DMA_BUF, 2599), RM_CALL_OTHER) << "the driver refuses it";
}

TEST(KmodRmCall, MakesReadyForNoMoreDmaBufferedObjectsThanTheDriverTakes) {
  rm_export_dma_buf_head head{.fd = -1, .h_client = 1, .total = ~0u, .count = ~0u};
  rm_call call{};
  rm_call_parse(RM_ESC_EXPORT_DMA_BUF, 2608, &head, &call);
  EXPECT_EQ(call.count, RM_EXPORT_DMA_BUF_MAX);
}

auto members(const rm_call& call) {
  return std::tuple(call.kind, call.client, call.parent, call.object, call.class_id,
                    call.source_client, call.source_object, call.cmd, call.fd, call.params_size,
                    call.p_params, call.bytes, call.has_inline_size, call.is_opaque, call.is_video,
                    call.object_offset, call.status_offset);
}

// The argument has exactly its size, so ASan sees what is read behind it.
TEST(KmodRmCall, ReadsNothingBehindTheArgument) {
  for (const __u32 nr : kAllEscapes) {
    for (const __u32 size : {16u, 20u, 28u, 32u, 48u, 56u, 96u, 184u}) {
      if (rm_call_kind(nr, size) == RM_CALL_OTHER) continue;
      std::vector<__u64> exact((size + 7) / 8, ~0ULL);
      rm_call whole, cut;
      std::vector<__u64> longer(exact.size() + 32, 0);
      std::memcpy(longer.data(), exact.data(), size);
      rm_call_parse(nr, size, exact.data(), &cut);
      rm_call_parse(nr, size, longer.data(), &whole);
      EXPECT_EQ(members(whole), members(cut)) << nr << " " << size;
    }
  }
}

rm_params_place wanted_of_video_memory() {
  rm_nvos64 arg{};
  arg.h_class = RM_CLASS_MEMORY_LOCAL_USER;
  arg.p_params = 0x1000;
  const rm_call call = parse(RM_ESC_ALLOC, arg);
  return rm_params_wanted(&call);
}

TEST(KmodRmCall, HoldsFastWhatItHasReadOfParametersAndNothingElse) {
  const rm_params_place wanted = wanted_of_video_memory();
  const rm_params looked_at{.value = 1 << 20, .attr = 7};
  for (const size_t bytes : {sizeof(rm_memory_params), offsetof(rm_memory_params, size) + 3,
                             offsetof(rm_memory_params, attr) + 2, size_t{0}}) {
    unsigned char copy[sizeof(rm_memory_params)], before[sizeof copy];
    std::memset(copy, 0xA5, sizeof copy);
    std::memcpy(before, copy, sizeof copy);
    rm_params_put(copy, bytes, &wanted, &looked_at);
    rm_memory_params expected;
    std::memcpy(&expected, before, sizeof expected);
    expected.size = looked_at.value;
    if (bytes >= offsetof(rm_memory_params, attr) + 4) expected.attr = looked_at.attr;
    EXPECT_EQ(std::memcmp(copy, &expected, bytes), 0) << bytes;
    EXPECT_EQ(std::memcmp(copy + bytes, before + bytes, sizeof copy - bytes), 0) << bytes;
  }
}

TEST(KmodRmCall, TakesTheAnswerOutOfTheParameters) {
  const rm_params_place wanted = wanted_of_video_memory();
  rm_memory_params answer{};
  answer.size = 2 << 20;
  rm_params params{};
  rm_params_get(&answer, sizeof answer, &wanted, &params);
  EXPECT_EQ(params.value, 2u << 20);
  answer.size = 3 << 20;
  rm_params_get(&answer, offsetof(rm_memory_params, size), &wanted, &params);
  EXPECT_EQ(params.value, 2u << 20) << "it lies behind what came back";
}

TEST(KmodRmCall, StatusLiesInsideTheArgumentWhateverItHolds) {
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    unsigned char bytes[184];
    std::ranges::generate(bytes, [&] { return static_cast<unsigned char>(random()); });
    const __u32 nr = kAllEscapes[random() % std::size(kAllEscapes)];
    for (const __u32 size : {16u, 20u, 28u, 32u, 48u, 56u, 184u}) {
      if (rm_call_kind(nr, size) == RM_CALL_OTHER) continue;
      alignas(8) unsigned char arg[sizeof bytes] = {};
      std::memcpy(arg, bytes, size);
      rm_call call;
      rm_call_parse(nr, size, arg, &call);
      if (call.kind == RM_CALL_OTHER) continue;
      EXPECT_GE(call.status_offset, 12u);
      EXPECT_LE(call.status_offset + 4, size);
      EXPECT_LE(call.object_offset + 4, size);
      const rm_params_place wanted = rm_params_wanted(&call);
      EXPECT_LE(wanted.value_at + wanted.value_bytes, sizeof(rm_memory_params));
      EXPECT_LE(wanted.value_bytes, sizeof(__u64));
    }
  }
}

TEST(KmodRmCall, RoundsMemoryToWholePages) {
  constexpr auto attr = [](__u32 page) { return page << RM_MEMORY_ATTR_PAGE_SIZE_SHIFT; };
  EXPECT_EQ(rm_memory_round(0, 0), 0u);
  EXPECT_EQ(rm_memory_round(1, 0), 4096u);
  EXPECT_EQ(rm_memory_round(4096, 0), 4096u);
  EXPECT_EQ(rm_memory_round(1, attr(RM_MEMORY_ATTR_PAGE_SIZE_4K)), 4096u);
  EXPECT_EQ(rm_memory_round(1, attr(RM_MEMORY_ATTR_PAGE_SIZE_BIG)), 65536u);
  EXPECT_EQ(rm_memory_round(1, attr(RM_MEMORY_ATTR_PAGE_SIZE_HUGE)), 2u << 20);
  EXPECT_EQ(rm_memory_round(~0ULL - 10, 0), ~0ULL);
}

TEST(KmodRmCall, OnlyGpfifoClassesAreChannels) {
  for (const __u32 class_id : {0xA06Fu, 0xC36Fu, 0xC86Fu, 0xCA6Fu})
    EXPECT_TRUE(rm_is_channel_class(class_id)) << std::hex << class_id;
  for (const __u32 class_id : {0x6Fu, 0xA06Cu, 0x1C86Fu, 0u})
    EXPECT_FALSE(rm_is_channel_class(class_id)) << std::hex << class_id;
}

}  // namespace
}  // namespace gpushare
