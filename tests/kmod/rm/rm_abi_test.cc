// SPDX-License-Identifier: Apache-2.0
// The module stands alone and has its own declarations of RM's ABI: the same as intercept/nvrm's,
// which are compared with NVIDIA's headers.
#include "kmod/rm/rm_abi.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "intercept/nvrm/abi.h"

namespace gpushare {
namespace {

TEST(KmodRmAbi, HasTheNumbersOfTheClient) {
#define SAME(module, client) \
  EXPECT_EQ(static_cast<uint64_t>(module), static_cast<uint64_t>(client)) << #module
  SAME(RM_MAJOR, GS_NV_MAJOR);
  SAME(RM_ESC_ALLOC_MEMORY, GS_NV_ESC_RM_ALLOC_MEMORY);
  SAME(RM_ESC_ALLOC_OBJECT, GS_NV_ESC_RM_ALLOC_OBJECT);
  SAME(RM_ESC_FREE, GS_NV_ESC_RM_FREE);
  SAME(RM_ESC_CONTROL, GS_NV_ESC_RM_CONTROL);
  SAME(RM_ESC_ALLOC, GS_NV_ESC_RM_ALLOC);
  SAME(RM_ESC_DUP_OBJECT, GS_NV_ESC_RM_DUP_OBJECT);
  SAME(RM_ESC_VID_HEAP_CONTROL, GS_NV_ESC_RM_VID_HEAP_CONTROL);
  SAME(RM_ESC_XFER, GS_NV_ESC_IOCTL_XFER_CMD);
  SAME(RM_OK, GS_NV_OK);
  SAME(RM_ERR_INSUFFICIENT_PERMISSIONS, GS_NV_ERR_INSUFFICIENT_PERMISSIONS);
  SAME(RM_ERR_NO_MEMORY, GS_NV_ERR_NO_MEMORY);
  SAME(RM_CLASS_ROOT, GS_CLASS_ROOT);
  SAME(RM_CLASS_ROOT_NON_PRIV, GS_CLASS_ROOT_NON_PRIV);
  SAME(RM_CLASS_ROOT_CLIENT, GS_CLASS_ROOT_CLIENT);
  SAME(RM_CLASS_MEMORY_SYSTEM, GS_CLASS_MEMORY_SYSTEM);
  SAME(RM_CLASS_MEMORY_LOCAL_USER, GS_CLASS_MEMORY_LOCAL_USER);
  SAME(RM_CLASS_DEVICE, GS_CLASS_DEVICE);
  SAME(RM_CLASS_SUBDEVICE, GS_CLASS_SUBDEVICE);
  SAME(RM_CLASS_GROUP, GS_CLASS_CHANNEL_GROUP);
  SAME(RM_CHANNEL_CLASS_LOW_BYTE, GS_CHANNEL_CLASS_LOW_BYTE);
  SAME(RM_CTRL_CHANNEL_PREEMPTIVE_REMOVAL, GS_CTRL_CHANNEL_PREEMPTIVE_REMOVAL);
  SAME(RM_CTRL_DISABLE_CHANNELS, GS_CTRL_DISABLE_CHANNELS);
  SAME(RM_CTRL_RUNLIST_SET_SCHED_POLICY, GS_CTRL_RUNLIST_SET_SCHED_POLICY);
  SAME(RM_CTRL_OBJSCHED_SET_STATE, GS_CTRL_OBJSCHED_SET_STATE);
  SAME(RM_CTRL_GROUP_SCHEDULE, GS_CTRL_GROUP_SCHEDULE);
  SAME(RM_CTRL_SET_TIMESLICE, GS_CTRL_SET_TIMESLICE);
  SAME(RM_CTRL_GROUP_PREEMPT, GS_CTRL_GROUP_PREEMPT);
  SAME(RM_CTRL_SET_INTERLEAVE, GS_CTRL_SET_INTERLEAVE);
  SAME(RM_CTRL_MAKE_REALTIME, GS_CTRL_MAKE_REALTIME);
  SAME(RM_CTRL_CHANNEL_SCHEDULE, GS_CTRL_CHANNEL_SCHEDULE);
  SAME(RM_CTRL_CHANNEL_SET_INTERLEAVE, GS_CTRL_CHANNEL_SET_INTERLEAVE);
  SAME(RM_CTRL_CHANNEL_RESTART_RUNLIST, GS_CTRL_CHANNEL_RESTART_RUNLIST);
  SAME(RM_CTRL_CHANNEL_STOP, GS_CTRL_CHANNEL_STOP);
  SAME(RM_HEAP_ALLOC_SIZE, GS_HEAP_ALLOC_SIZE);
  SAME(RM_HEAP_FREE, GS_HEAP_FREE);
  SAME(RM_HEAP_ALLOC_SIZE_RANGE, GS_HEAP_ALLOC_SIZE_RANGE);
  SAME(RM_MEMORY_FLAGS_VIRTUAL, GS_HEAP_FLAGS_VIRTUAL);
  SAME(RM_MEMORY_ATTR_LOCATION_MASK, GS_MEMORY_ATTR_LOCATION_MASK);
#undef SAME
}

TEST(KmodRmAbi, HasTheLayoutsOfTheClient) {
#define SIZE(module, client) EXPECT_EQ(sizeof(struct module), sizeof(client)) << #module
#define FIELD(module, client, member)                                                          \
  EXPECT_EQ(offsetof(struct module, member), offsetof(client, member)) << #module " " #member; \
  EXPECT_EQ(sizeof(module::member), sizeof(client::member)) << #module " " #member
  SIZE(rm_nvos00, gs_nvos00);
  FIELD(rm_nvos00, gs_nvos00, h_root);
  FIELD(rm_nvos00, gs_nvos00, h_parent);
  FIELD(rm_nvos00, gs_nvos00, h_object);
  FIELD(rm_nvos00, gs_nvos00, status);
  SIZE(rm_nvos02_fd, gs_nvos02_fd);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, h_root);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, h_parent);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, h_new);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, h_class);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, flags);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, p_memory);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, limit);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, status);
  FIELD(rm_nvos02_fd, gs_nvos02_fd, fd);
  SIZE(rm_nvos05, gs_nvos05);
  FIELD(rm_nvos05, gs_nvos05, h_root);
  FIELD(rm_nvos05, gs_nvos05, h_parent);
  FIELD(rm_nvos05, gs_nvos05, h_new);
  FIELD(rm_nvos05, gs_nvos05, h_class);
  FIELD(rm_nvos05, gs_nvos05, status);
  SIZE(rm_nvos21, gs_nvos21);
  FIELD(rm_nvos21, gs_nvos21, h_root);
  FIELD(rm_nvos21, gs_nvos21, h_parent);
  FIELD(rm_nvos21, gs_nvos21, h_new);
  FIELD(rm_nvos21, gs_nvos21, h_class);
  FIELD(rm_nvos21, gs_nvos21, p_params);
  FIELD(rm_nvos21, gs_nvos21, params_size);
  FIELD(rm_nvos21, gs_nvos21, status);
  SIZE(rm_nvos64, gs_nvos64);
  FIELD(rm_nvos64, gs_nvos64, h_root);
  FIELD(rm_nvos64, gs_nvos64, h_parent);
  FIELD(rm_nvos64, gs_nvos64, h_new);
  FIELD(rm_nvos64, gs_nvos64, h_class);
  FIELD(rm_nvos64, gs_nvos64, p_params);
  FIELD(rm_nvos64, gs_nvos64, p_rights);
  FIELD(rm_nvos64, gs_nvos64, params_size);
  FIELD(rm_nvos64, gs_nvos64, flags);
  FIELD(rm_nvos64, gs_nvos64, status);
  SIZE(rm_nvos54, gs_nvos54);
  FIELD(rm_nvos54, gs_nvos54, h_client);
  FIELD(rm_nvos54, gs_nvos54, h_object);
  FIELD(rm_nvos54, gs_nvos54, cmd);
  FIELD(rm_nvos54, gs_nvos54, flags);
  FIELD(rm_nvos54, gs_nvos54, p_params);
  FIELD(rm_nvos54, gs_nvos54, params_size);
  FIELD(rm_nvos54, gs_nvos54, status);
  SIZE(rm_nvos55, gs_nvos55);
  FIELD(rm_nvos55, gs_nvos55, h_client);
  FIELD(rm_nvos55, gs_nvos55, h_parent);
  FIELD(rm_nvos55, gs_nvos55, h_object);
  FIELD(rm_nvos55, gs_nvos55, h_client_src);
  FIELD(rm_nvos55, gs_nvos55, h_object_src);
  FIELD(rm_nvos55, gs_nvos55, flags);
  FIELD(rm_nvos55, gs_nvos55, status);
  SIZE(rm_nvos32_head, gs_nvos32_head);
  FIELD(rm_nvos32_head, gs_nvos32_head, h_root);
  FIELD(rm_nvos32_head, gs_nvos32_head, h_parent);
  FIELD(rm_nvos32_head, gs_nvos32_head, function);
  FIELD(rm_nvos32_head, gs_nvos32_head, status);
  FIELD(rm_nvos32_head, gs_nvos32_head, h_memory);
  FIELD(rm_nvos32_head, gs_nvos32_head, type);
  FIELD(rm_nvos32_head, gs_nvos32_head, flags);
  FIELD(rm_nvos32_head, gs_nvos32_head, attr);
  FIELD(rm_nvos32_head, gs_nvos32_head, height_or_range_size);
  FIELD(rm_nvos32_head, gs_nvos32_head, size);
  SIZE(rm_xfer, gs_nv_xfer);
  FIELD(rm_xfer, gs_nv_xfer, cmd);
  FIELD(rm_xfer, gs_nv_xfer, size);
  FIELD(rm_xfer, gs_nv_xfer, ptr);
  FIELD(rm_device_params, gs_device_params, device_id);
  FIELD(rm_group_params, gs_group_params, engine_type);
  FIELD(rm_memory_params, gs_memory_params, type);
  FIELD(rm_memory_params, gs_memory_params, flags);
  FIELD(rm_memory_params, gs_memory_params, attr);
  FIELD(rm_memory_params, gs_memory_params, attr2);
  FIELD(rm_memory_params, gs_memory_params, size);
#undef FIELD
#undef SIZE
}

// nvos.h of 535.261.03, 580.142 and 595.45.04: NVOS32_PARAMETERS.data.AllocTiledPitchHeight.
TEST(KmodRmAbi, ASurfacesMembersStandElsewhere) {
  EXPECT_EQ(offsetof(rm_nvos32_tiled, h_memory), offsetof(rm_nvos32_head, h_memory));
  EXPECT_EQ(offsetof(rm_nvos32_tiled, flags), offsetof(rm_nvos32_head, flags));
  EXPECT_EQ(offsetof(rm_nvos32_tiled, height), 56u);
  EXPECT_EQ(offsetof(rm_nvos32_tiled, pitch), 60u);
  EXPECT_EQ(offsetof(rm_nvos32_tiled, attr), 64u);
  EXPECT_LE(sizeof(rm_nvos32_tiled), sizeof(rm_nvos32_head));
}

// Parameters are copied up to the last member that is read.
TEST(KmodRmAbi, ShortParametersEndBehindTheirLastMember) {
  EXPECT_EQ(sizeof(rm_memory_params), offsetof(gs_memory_params, size) + sizeof(gs_u64));
  EXPECT_EQ(sizeof(rm_group_params), offsetof(gs_group_params, engine_type) + sizeof(gs_u32));
}

}  // namespace
}  // namespace gpushare
