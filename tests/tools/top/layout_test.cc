// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/layout.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

TEST(TopLayout, BandsFillTheSizeWithoutOverlapAtAnySize) {
  for (size_t height = 0; height <= 100; ++height)
    for (size_t width : {0, 20, 63, 64, 80, 128, 200, 300})
      for (size_t gpus : {0, 1, 2, 3, 8, 16})
        for (size_t warnings : {0, 1, 4})
          for (bool has_graphs : {false, true}) {
            const TopLayout layout = arrange(width, height, gpus, warnings, has_graphs);
            size_t y = 0;
            for (const Band& band : {layout.agent, layout.warnings, layout.gpus, layout.heading,
                                     layout.rows, layout.footer}) {
              EXPECT_EQ(band.y, y);
              y += band.height;
            }
            EXPECT_EQ(y, height) << gpus << " GPUs, " << warnings << " warnings";
            EXPECT_LE(layout.warnings.height, warnings);
            EXPECT_GE(layout.rows.height, height == 0 ? 0u : 1u);
            if (height >= 12) {
              EXPECT_GE(layout.rows.height, height / 2);
            }
            // Whole panels side by side, each wide enough, and all of them if they have graphs.
            EXPECT_EQ(layout.gpus.height % layout.panel_height, 0u);
            EXPECT_LE(layout.gpus.height / layout.panel_height, gpus);
            EXPECT_TRUE(layout.panel_columns == 1 || width / layout.panel_columns >= kPanelWidth);
            if (layout.panel_height > 1) {
              EXPECT_TRUE(has_graphs);
              EXPECT_GE(layout.panel_height, kGraphPanel);
              EXPECT_GE(layout.panel_columns * layout.gpus.height / layout.panel_height, gpus);
            }
          }
}

TEST(TopLayout, FiveLinesShowOneOfEach) {
  const TopLayout layout = arrange(80, 5, 2, 1);
  for (const Band& band : {layout.agent, layout.gpus, layout.heading, layout.rows, layout.footer})
    EXPECT_EQ(band.height, 1u);
  EXPECT_EQ(layout.warnings.height, 0u);
}

TEST(TopLayout, AnOrdinaryScreenHasAGraphOfOneGpuAndALineOfEachOfMany) {
  const TopLayout one = arrange(80, 24, 1, 1);
  EXPECT_EQ(one.panel_height, 8u);
  EXPECT_EQ(one.warnings.height, 1u);
  EXPECT_EQ(one.rows.height, 12u);
  const TopLayout many = arrange(80, 24, 8, 1);
  EXPECT_EQ(many.gpus.height, 8u);
  EXPECT_EQ(many.panel_height, 1u);
  EXPECT_EQ(many.rows.height, 12u);
}

TEST(TopLayout, AWideScreenHasGraphsSideBySide) {
  const TopLayout layout = arrange(300, 80, 8, 0);
  EXPECT_EQ(layout.panel_columns, 2u);
  EXPECT_EQ(layout.panel_height, 9u);
  EXPECT_EQ(layout.gpus.height, 36u);
}

}  // namespace
}  // namespace gpushare
