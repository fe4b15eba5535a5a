// SPDX-License-Identifier: Apache-2.0
// How the module reads what lets memory outlive the objects that a program has of it.
#include "kmod/rm/rm_kept.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

struct Carried {
  bool is_import;
  __u32 count, first, parent;
};
// The handle at the place `at` is expected as well.
void expect_carried(const rm_carried& what, const Carried& expected, __u32 at, __u32 handle) {
  EXPECT_EQ(what.is_import, expected.is_import);
  ASSERT_EQ(what.count, expected.count);
  EXPECT_EQ(what.first, expected.first);
  EXPECT_EQ(what.parent, expected.parent);
  EXPECT_EQ(what.handles[at], handle);
}

TEST(KmodRmKept, ReadsWhatAControlCarries) {
  rm_export_object out{};
  out.h_object = 7;
  expect_carried(rm_carried_read(RM_CTRL_EXPORT_OBJECT, &out), {false, 1, 0, 0}, 0, 7);

  rm_import_object in{};
  in.h_parent = 3, in.h_object = 8;
  expect_carried(rm_carried_read(RM_CTRL_IMPORT_OBJECT, &in), {true, 1, 0, 3}, 0, 8);

  rm_export_objects some{};
  some.count = 2, some.first = 5, some.objects[1] = 9;
  expect_carried(rm_carried_read(RM_CTRL_EXPORT_OBJECTS, &some), {false, 2, 5, 0}, 1, 9);

  rm_import_objects others{};
  others.count = 0xFFFF, others.h_parent = 4, others.objects[127] = 6;
  expect_carried(rm_carried_read(RM_CTRL_IMPORT_OBJECTS, &others),
                 {true, 128 /* no more than there are */, 0, 4}, 127, 6);
  EXPECT_EQ(rm_carried_bytes(RM_CTRL_EXPORT_OBJECTS), sizeof some);
  EXPECT_EQ(rm_carried_bytes(RM_CTRL_IMPORT_OBJECTS), sizeof others);
}

// Memory that a GPU has, as drivers before 545 and since say it, and what is none.
TEST(KmodRmKept, TellsVideoMemoryThatUvmKeeps) {
  rm_uvm_memory memory{};
  EXPECT_FALSE(rm_uvm_memory_is_video(&memory)) << "of the fabric";
  memory.of_device[0] = 1;
  EXPECT_TRUE(rm_uvm_memory_is_video(&memory));
  memory.of_device[0] = 0, memory.of_device[1] = 1;
  EXPECT_TRUE(rm_uvm_memory_is_video(&memory));
  memory.is_system = 1;
  EXPECT_FALSE(rm_uvm_memory_is_video(&memory));
}

}  // namespace
}  // namespace gpushare
