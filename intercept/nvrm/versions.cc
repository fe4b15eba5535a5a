// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/versions.h"

#include <algorithm>
#include <charconv>

namespace gpushare::nvrm {

Trust driver_trust(std::string_view version) {
  unsigned branch = 0;
  auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), branch);
  if (error != std::errc() || end == version.data() + version.size() || *end != '.')
    return Trust::kUnknown;
  if (branch == 580) return Trust::kMeasured;
  // The branches whose public headers were compared with abi.h.
  constexpr unsigned kCompared[] = {535, 550, 560, 565, 570, 575, 590, 595};
  return std::ranges::find(kCompared, branch) != std::end(kCompared) ? Trust::kHeaders
                                                                     : Trust::kUnknown;
}

bool is_known_channel_class(uint32_t class_id) {
  constexpr uint32_t kKnown[] = {
      0xC36F,  // Volta
      0xC46F,  // Turing
      0xC56F,  // Ampere, Ada
      0xC86F,  // Hopper
      0xC96F,  // Blackwell B100
      0xCA6F,  // Blackwell GB20x
  };
  return std::ranges::find(kKnown, class_id) != std::end(kKnown);
}

}  // namespace gpushare::nvrm
