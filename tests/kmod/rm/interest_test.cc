// SPDX-License-Identifier: Apache-2.0
// Which calls the module looks at, by the rule that both the filter and the probe before RM ask.
#include "kmod/rm/interest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

namespace gpushare {
namespace {

// Asks as the module does: by number and size, and then by the word if it takes one.
bool is_of_interest(__u32 nr, __u32 size, const void* arg) {
  __u32 offset = 0, word = 0;
  switch (gs_interest_in(nr, size, &offset)) {
    case GS_INTEREST_NONE:
      return false;
    case GS_INTEREST_BY_WORD:
      EXPECT_LE(offset + sizeof word, size);
      std::memcpy(&word, static_cast<const char*>(arg) + offset, sizeof word);
      return gs_word_is_of_interest(nr, word);
    default:
      return true;
  }
}

TEST(KmodInterest, IsInControlsOfTheTable) {
  rm_nvos54 arg{};
  arg.cmd = RM_CTRL_SET_TIMESLICE;
  EXPECT_TRUE(is_of_interest(RM_ESC_CONTROL, sizeof arg, &arg));
  arg.cmd = RM_CTRL_SET_TIMESLICE + 1;  // GET_TIMESLICE
  EXPECT_FALSE(is_of_interest(RM_ESC_CONTROL, sizeof arg, &arg));
  arg.cmd = RM_CTRL_SET_TIMESLICE;
  EXPECT_FALSE(is_of_interest(RM_ESC_CONTROL, sizeof arg + 4, &arg)) << "the driver refuses it";
}

TEST(KmodInterest, IsInObjectsThatAreRememberedByEveryForm) {
  rm_nvos64 arg{};
  rm_nvos05 object{};
  rm_nvos02_fd memory{};
  for (const auto& [class_id, is_tracked] : {std::pair{RM_CLASS_MEMORY_LOCAL_USER, true},
                                             {RM_CLASS_ROOT_CLIENT, true},
                                             {RM_CLASS_GROUP, true},
                                             {0xC86Fu, true},
                                             {RM_CLASS_MEMORY_SYSTEM, false},
                                             {0xCBC0u, false}}) {
    arg.h_class = object.h_class = memory.h_class = class_id;
    EXPECT_EQ(is_of_interest(RM_ESC_ALLOC, sizeof arg, &arg), is_tracked) << std::hex << class_id;
    EXPECT_EQ(is_of_interest(RM_ESC_ALLOC, sizeof(rm_nvos21), &arg), is_tracked);
    EXPECT_EQ(is_of_interest(RM_ESC_ALLOC_OBJECT, sizeof object, &object), is_tracked);
    EXPECT_EQ(is_of_interest(RM_ESC_ALLOC_MEMORY, sizeof memory, &memory), is_tracked);
  }
}

TEST(KmodInterest, IsInNoOtherClass) {
  const std::set<__u32> tracked{RM_CLASS_ROOT,   RM_CLASS_ROOT_NON_PRIV, RM_CLASS_ROOT_CLIENT,
                                RM_CLASS_DEVICE, RM_CLASS_SUBDEVICE,     RM_CLASS_MEMORY_LOCAL_USER,
                                RM_CLASS_GROUP};
  for (__u32 class_id = 0; class_id < 0x2'0000; ++class_id) {
    const bool is_channel = class_id > 0xFF && class_id <= 0xFFFF && class_id % 0x100 == 0x6F;
    EXPECT_EQ(rm_is_tracked_class(class_id), is_channel || tracked.contains(class_id)) << class_id;
  }
}

TEST(KmodInterest, IsInEveryEndAndSecondNameOfAnObject) {
  EXPECT_TRUE(is_of_interest(RM_ESC_FREE, sizeof(rm_nvos00), nullptr));
  EXPECT_TRUE(is_of_interest(RM_ESC_DUP_OBJECT, sizeof(rm_nvos55), nullptr));
}

// What the full look accounts for the short look must not pass over.
TEST(KmodInterest, PassesOverNothingThatAFullLookWouldAccountFor) {
  std::mt19937 random(1);
  constexpr __u32 kEscapes[] = {RM_ESC_ALLOC_MEMORY, RM_ESC_ALLOC_OBJECT, RM_ESC_FREE,
                                RM_ESC_ALLOC,        RM_ESC_DUP_OBJECT,   RM_ESC_VID_HEAP_CONTROL};
  int looked_at = 0;
  for (int round = 0; round < 100'000; ++round) {
    alignas(8) __u32 arg[256 / 4];
    std::ranges::generate(arg, [&] { return static_cast<__u32>(random() % 16); });
    if (random() % 2) arg[3] = RM_CLASS_MEMORY_LOCAL_USER;
    const __u32 nr = kEscapes[random() % std::size(kEscapes)];
    for (const __u32 size : {16u, 20u, 28u, 32u, 48u, 56u, 184u}) {
      if (rm_call_kind(nr, size) == RM_CALL_OTHER) continue;
      rm_call call;
      rm_call_parse(nr, size, arg, &call);
      if (call.kind == RM_CALL_OTHER) continue;
      if (call.kind == RM_CALL_ALLOC && !rm_is_tracked_class(call.class_id)) continue;
      EXPECT_TRUE(is_of_interest(nr, size, arg)) << nr << " " << size;
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 10'000);
}

}  // namespace
}  // namespace gpushare
