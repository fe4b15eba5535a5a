// SPDX-License-Identifier: Apache-2.0
// The bytes of a sample in the file of the usage history. A sample is, in this order: the time that
// was watched, and for each series, in the order of their numbers, how far its number lies beyond
// the one before, a mask that says which amounts are not zero, and these, in the order of
// UsageAmounts. All numbers are LEB128. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/usage/usage.h"

namespace gpushare {

// By the numbers that the file gives to series.
struct NumberedSample {
  uint64_t watched_ms = 0;
  std::map<uint32_t, UsageAmounts> amounts;

  bool operator==(const NumberedSample&) const = default;
};

std::string encode_sample(const NumberedSample& sample);
// nullopt: these are no such bytes.
std::optional<NumberedSample> decode_sample(std::string_view bytes);

}  // namespace gpushare
