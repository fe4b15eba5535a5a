// SPDX-License-Identifier: Apache-2.0
// The module stands alone and has its own declarations of RM's ABI. They must be the same as those
// of intercept/nvrm, which other tests compare with NVIDIA's headers.
#include "kmod/rm/rm_abi.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "intercept/nvrm/abi.h"

namespace gpushare {
namespace {

// EACH(F, a, b, c) is F(a) F(b) F(c).
#define PARENS ()
#define AGAIN() EACH_FURTHER
#define EACH_FURTHER(F, first, ...) F(first) __VA_OPT__(AGAIN PARENS(F, __VA_ARGS__))
#define SCAN(...) SCAN4(SCAN4(SCAN4(SCAN4(__VA_ARGS__))))
#define SCAN4(...) SCAN16(SCAN16(SCAN16(SCAN16(__VA_ARGS__))))
#define SCAN16(...) __VA_ARGS__
#define EACH(F, ...) SCAN(EACH_FURTHER(F, __VA_ARGS__))

TEST(KmodRmAbi, HasTheNumbersOfTheClient){
#define SAME(module, client) \
  EXPECT_EQ(static_cast<uint64_t>(module), static_cast<uint64_t>(client)) << #module;
#define SAME_NAME(name) SAME(RM_##name, GS_##name)
#define SAME_NV(name) SAME(RM_##name, GS_NV_##name)
#define SAME_ESC(name) SAME(RM_ESC_##name, GS_NV_ESC_RM_##name)
    EACH(SAME_NV, MAJOR, OK, ERR_INSUFFICIENT_PERMISSIONS, ERR_NO_MEMORY)
        EACH(SAME_ESC, ALLOC_MEMORY, ALLOC_OBJECT, FREE, CONTROL, ALLOC, DUP_OBJECT,
             VID_HEAP_CONTROL) EACH(SAME_NAME, CLASS_ROOT, CLASS_ROOT_NON_PRIV, CLASS_ROOT_CLIENT,
                                    CLASS_MEMORY_SYSTEM, CLASS_MEMORY_LOCAL_USER, CLASS_DEVICE,
                                    CLASS_SUBDEVICE, CHANNEL_CLASS_LOW_BYTE, HEAP_ALLOC_SIZE,
                                    HEAP_FREE, HEAP_ALLOC_SIZE_RANGE, MEMORY_ATTR_LOCATION_MASK)
            EACH(SAME_NAME, CTRL_CHANNEL_PREEMPTIVE_REMOVAL, CTRL_DISABLE_CHANNELS,
                 CTRL_RUNLIST_SET_SCHED_POLICY, CTRL_OBJSCHED_SET_STATE, CTRL_GROUP_SCHEDULE,
                 CTRL_SET_TIMESLICE, CTRL_GROUP_PREEMPT, CTRL_SET_INTERLEAVE, CTRL_MAKE_REALTIME,
                 CTRL_CHANNEL_SCHEDULE, CTRL_CHANNEL_SET_INTERLEAVE, CTRL_CHANNEL_RESTART_RUNLIST,
                 CTRL_CHANNEL_STOP) SAME(RM_ESC_XFER, GS_NV_ESC_IOCTL_XFER_CMD)
                SAME(RM_CLASS_GROUP, GS_CLASS_CHANNEL_GROUP)
                    SAME(RM_MEMORY_FLAGS_VIRTUAL, GS_HEAP_FLAGS_VIRTUAL)}

TEST(KmodRmAbi, HasTheLayoutsOfTheClient) {
  const auto same_field = [](const char* field, auto module, auto client) {
    EXPECT_EQ(module, client) << field;
  };
#define FIELD(member)                                                              \
  same_field(#member, std::pair(offsetof(Module, member), sizeof(Module::member)), \
             std::pair(offsetof(Client, member), sizeof(Client::member)));
#define FIELDS(module, client, ...) \
  {                                 \
    SCOPED_TRACE(#module);          \
    using Module = module;          \
    using Client = client;          \
    EACH(FIELD, __VA_ARGS__)        \
  }
#define LAYOUT(module, client, ...)                     \
  EXPECT_EQ(sizeof(module), sizeof(client)) << #module; \
  FIELDS(module, client, __VA_ARGS__)
  LAYOUT(rm_nvos00, gs_nvos00, h_root, h_parent, h_object, status)
  LAYOUT(rm_nvos02_fd, gs_nvos02_fd, h_root, h_parent, h_new, h_class, flags, p_memory, limit,
         status, fd)
  LAYOUT(rm_nvos05, gs_nvos05, h_root, h_parent, h_new, h_class, status)
  LAYOUT(rm_nvos21, gs_nvos21, h_root, h_parent, h_new, h_class, p_params, params_size, status)
  LAYOUT(rm_nvos64, gs_nvos64, h_root, h_parent, h_new, h_class, p_params, p_rights, params_size,
         flags, status)
  LAYOUT(rm_nvos54, gs_nvos54, h_client, h_object, cmd, flags, p_params, params_size, status)
  LAYOUT(rm_nvos55, gs_nvos55, h_client, h_parent, h_object, h_client_src, h_object_src, flags,
         status)
  LAYOUT(rm_nvos32_head, gs_nvos32_head, h_root, h_parent, function, status, h_memory, type, flags,
         attr, height_or_range_size, size)
  LAYOUT(rm_xfer, gs_nv_xfer, cmd, size, ptr)
  FIELDS(rm_device_params, gs_device_params, device_id)
  FIELDS(rm_group_params, gs_group_params, engine_type)
  FIELDS(rm_memory_params, gs_memory_params, type, flags, attr, attr2, size)
}

// The offsets are those of NVOS32_PARAMETERS.data.AllocTiledPitchHeight in nvos.h of 535.261.03,
// 580.142 and 595.45.04.
TEST(KmodRmAbi, ASurfacesMembersStandElsewhere) {
  EXPECT_EQ(offsetof(rm_nvos32_tiled, h_memory), offsetof(rm_nvos32_head, h_memory));
  EXPECT_EQ(offsetof(rm_nvos32_tiled, flags), offsetof(rm_nvos32_head, flags));
  EXPECT_EQ(offsetof(rm_nvos32_tiled, height), 56u);
  EXPECT_EQ(offsetof(rm_nvos32_tiled, pitch), 60u);
  EXPECT_EQ(offsetof(rm_nvos32_tiled, attr), 64u);
  EXPECT_LE(sizeof(rm_nvos32_tiled), sizeof(rm_nvos32_head));
}

// Parameters are declared, and copied, up to the last member that is read.
TEST(KmodRmAbi, ShortParametersEndBehindTheirLastMember) {
  EXPECT_EQ(sizeof(rm_memory_params), offsetof(gs_memory_params, size) + sizeof(gs_u64));
  EXPECT_EQ(sizeof(rm_group_params), offsetof(gs_group_params, engine_type) + sizeof(gs_u32));
}

// The offsets are those of UvmGpuMemoryInfo in nv_uvm_types.h of 535.43.02, 545.23.06, 580.142 and
// 595.45.04, which differ in where deviceDescendant stands: at 5 before 545, at 6 since.
TEST(KmodRmAbi, WhatUvmIsToldOfMemoryStandsWhereTheDriverPutsIt) {
  EXPECT_EQ(offsetof(rm_uvm_memory, is_system), 4u);
  EXPECT_EQ(offsetof(rm_uvm_memory, of_device), 5u);
  EXPECT_EQ(offsetof(rm_uvm_memory, page_size), 8u);
  EXPECT_EQ(offsetof(rm_uvm_memory, is_contiguous), 16u);
  EXPECT_EQ(offsetof(rm_uvm_memory, size), 32u);
}

// The offsets are those of ctrl0000unix.h of 535.43.02 and 595.45.04.
TEST(KmodRmAbi, WhatCarriesObjectsByFilesHasTheDriversForm) {
  EXPECT_EQ(sizeof(rm_export_object), 24u);
  EXPECT_EQ(offsetof(rm_export_object, h_object), 12u);
  EXPECT_EQ(sizeof(rm_import_object), 20u);
  EXPECT_EQ(offsetof(rm_import_object, h_object), 16u);
  EXPECT_EQ(offsetof(rm_export_objects, objects), 76u);
  EXPECT_EQ(offsetof(rm_export_objects, count), 2124u);
  EXPECT_EQ(sizeof(rm_export_objects), 2128u);
  EXPECT_EQ(offsetof(rm_import_objects, objects), 8u);
  EXPECT_EQ(offsetof(rm_import_objects, count), 648u);
  EXPECT_EQ(sizeof(rm_import_objects), 652u);
}

}  // namespace
}  // namespace gpushare
