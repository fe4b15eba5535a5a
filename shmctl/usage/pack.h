// SPDX-License-Identifier: Apache-2.0
// Packs: many samples of the file of the usage history as one compressed row. A sample by itself
// takes some ten bytes for each series, in a pack it takes less than two, because the numbers of
// one series lie side by side there, as differences from the least of them or from the one before.
// zlib compresses what remains, and its checksum tells of a pack that is broken. Pure; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/usage/codec.h"

namespace gpushare {

using NumberedSamples = std::map<WallSeconds, NumberedSample>;  // by their begin

// No more samples are put into one pack than have this many cells together: a cell is one sample
// of one series, whether the sample has that series or not. It bounds the memory that is needed.
inline constexpr size_t kMostPackedCells = size_t{1} << 18;

// A series that has nothing in a sample is left out of that sample. Requires: there is a sample.
std::string encode_pack(const NumberedSamples& samples);
// nullopt: these are no such bytes.
std::optional<NumberedSamples> decode_pack(std::string_view bytes);

}  // namespace gpushare
