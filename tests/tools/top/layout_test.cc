// SPDX-License-Identifier: Apache-2.0
#include "tools/top/layout.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

TEST(TopLayout, BandsFillTheHeightWithoutOverlapAtAnySize) {
  for (size_t height = 0; height <= 100; ++height)
    for (size_t gpus : {0, 1, 2, 8, 16})
      for (size_t warnings : {0, 1, 4}) {
        const TopLayout layout = arrange(height, gpus, warnings);
        size_t y = 0;
        for (const Band& band : {layout.agent, layout.warnings, layout.gpus, layout.heading,
                                 layout.rows, layout.footer}) {
          EXPECT_EQ(band.y, y);
          y += band.height;
        }
        EXPECT_EQ(y, height) << gpus << " GPUs, " << warnings << " warnings";
        EXPECT_LE(layout.gpus.height, gpus);
        EXPECT_LE(layout.warnings.height, warnings);
        EXPECT_GE(layout.rows.height, height == 0 ? 0u : 1u);
        if (height >= 12) {
          EXPECT_GE(layout.rows.height, height / 2);
        }
      }
}

TEST(TopLayout, FiveLinesShowOneOfEach) {
  const TopLayout layout = arrange(5, 2, 1);
  for (const Band& band : {layout.agent, layout.gpus, layout.heading, layout.rows, layout.footer})
    EXPECT_EQ(band.height, 1u);
  EXPECT_EQ(layout.warnings.height, 0u);
}

TEST(TopLayout, AnOrdinaryScreenShowsAllGpusAndWarnings) {
  const TopLayout layout = arrange(24, 8, 1);
  EXPECT_EQ(layout.gpus.height, 8u);
  EXPECT_EQ(layout.warnings.height, 1u);
  EXPECT_EQ(layout.rows.height, 12u);
}

}  // namespace
}  // namespace gpushare
