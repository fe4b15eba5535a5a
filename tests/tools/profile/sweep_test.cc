// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tools/profile/plot.h"
#include "tools/profile/sweep.h"

namespace gpushare {
namespace {

constexpr const char* kSweep = R"({"format": 1, "command": "serve <a> & b", "gpu": "NVIDIA H200",
  "sms": 132, "sms_per_group": 8, "knee_groups": 4, "slo_us": 20000, "points": [
  {"groups": 4, "iterations": 50, "mean_us": 10000, "p99_us": 10400},
  {"groups": 1, "iterations": 50, "mean_us": 36000, "p99_us": 40000},
  {"groups": 2, "iterations": 50, "mean_us": 19000, "p99_us": 22000},
  {"groups": 15, "iterations": 50, "mean_us": 9800, "p99_us": 10000}]})";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string with(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(ProfileSweep, IsReadAndSorted) {
  const auto sweep = parse_sweep(kSweep);
  ASSERT_TRUE(sweep);
  EXPECT_TRUE(std::ranges::is_sorted(sweep->points, {}, &SweepPoint::groups));
  EXPECT_EQ(sweep->points.size(), 4U);
  EXPECT_EQ(sweep->knee_groups, 4U);
  EXPECT_EQ(sweep->slo_us, 20000.0);
}

TEST(ProfileSweep, KneeAndTargetMayBeMissing) {
  const auto sweep = parse_sweep(
      with(with(kSweep, R"("knee_groups": 4, )", ""), R"("slo_us": 20000)", R"("slo_us": null)"));
  ASSERT_TRUE(sweep);
  EXPECT_FALSE(sweep->knee_groups);
  EXPECT_FALSE(sweep->slo_us);
}

TEST(ProfileSweep, WhatMakesNoSenseIsRefused) {
  const struct {
    const char *what, *by;
  } rows[] = {
      {R"("format": 1)", R"("format": 2)"},
      {R"("sms": 132)", R"("sms": 0)"},
      {R"("sms": 132)", R"("sms": -5)"},
      {R"("sms_per_group": 8)", R"("sms_per_group": 9)"},  // 15 groups of 9 are 135
      {R"("groups": 2)", R"("groups": 1)"},
      {R"("groups": 2)", R"("groups": 0)"},
      {R"("mean_us": 10000)", R"("mean_us": 0)"},
      {R"("mean_us": 10000)", R"("mean_us": 10401)"},
      {R"("mean_us": 10000)", R"("mean_us": "10000")"},
      {R"("knee_groups": 4)", R"("knee_groups": 16)"},
      {R"("slo_us": 20000)", R"("slo_us": -1)"},
      {R"("gpu")", R"("card")"},
  };
  for (const auto& row : rows) {
    const auto sweep = parse_sweep(with(kSweep, row.what, row.by));
    ASSERT_FALSE(sweep) << row.by;
    EXPECT_FALSE(sweep.error().detail.empty());
  }
  EXPECT_FALSE(parse_sweep(""));
  EXPECT_FALSE(parse_sweep(R"({"format": 1, "command": "", "gpu": "", "sms": 8,
                                "sms_per_group": 8, "points": []})"));
}

TEST(ProfileView, DrawsOneLineForEachPoint) {
  const auto lines = lines_of(draw_sweep(*parse_sweep(kSweep), 77));
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines[0], "serve <a> & b on NVIDIA H200");
  EXPECT_EQ(lines[1], "groups  SMs     mean      p99");
  EXPECT_EQ(lines[2], "     1    8   36.0ms   40.0ms  ===================|================----");
  EXPECT_EQ(lines[3], "     2   16   19.0ms   22.0ms  ===================|--");
  EXPECT_EQ(lines[4], "     4   32   10.0ms   10.4ms  ==========         |  knee");
  EXPECT_EQ(lines[5], "    15  120    9.8ms   10.0ms  ==========         |");
  EXPECT_EQ(lines[6], "target 20.0ms");
  EXPECT_EQ(lines[7], "The p99 of fewer than 100 iterations is the longest (-n).");
  Sweep measured = *parse_sweep(kSweep);
  for (SweepPoint& point : measured.points) point.iterations = 100;
  EXPECT_EQ(lines_of(draw_sweep(measured, 77)).size(), 7U);
}

TEST(ProfileSweep, NoiseIsSeenInSpreadAndInOrder) {
  Sweep sweep = *parse_sweep(kSweep);
  EXPECT_FALSE(is_knee_chance(sweep));
  sweep.points.back().p99_us = 100'000;  // 90 ms above a mean of 9.8 ms, of 50 iterations
  EXPECT_GT(noise_of(sweep), 1.0);
  EXPECT_TRUE(is_knee_chance(sweep));
  sweep = *parse_sweep(kSweep);
  sweep.points.back().mean_us = sweep.points.back().p99_us = 11'000;  // 10 % more than on fewer
  EXPECT_NEAR(noise_of(sweep), 0.1, 1e-9);
  sweep.points.resize(1);
  sweep.points[0].p99_us = sweep.points[0].mean_us;
  EXPECT_EQ(noise_of(sweep), 0);
}

TEST(ProfileView, WordsStayInThePicture) {
  Sweep sweep = *parse_sweep(kSweep);
  sweep.points.back().groups = 16;  // all SMs
  sweep.knee_groups = 16;
  sweep.command = std::string(500, 'x');
  const std::string svg = sweep_svg(sweep);
  EXPECT_TRUE(svg.contains(R"(text-anchor="end" font-size="13">knee<)")) << svg;
  const size_t title = svg.find("font-size=\"16\">");
  EXPECT_LE(svg.find('<', title) - title, 90U);
  sweep.knee_groups = 4;
  EXPECT_TRUE(sweep_svg(sweep).contains(R"(text-anchor="start" font-size="13">knee<)"));
}

TEST(ProfileView, NoLineIsLongerThanTheTerminal) {
  for (const size_t width : {60U, 80U, 133U, 250U})
    for (const std::string& line : lines_of(draw_sweep(*parse_sweep(kSweep), width)))
      EXPECT_LE(line.size(), width);
}

TEST(ProfileView, SvgHoldsBothCurvesAndTheMarksAndEscapesNames) {
  const std::string svg = sweep_svg(*parse_sweep(kSweep));
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  const auto count = [&](std::string_view what) {
    size_t found = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<polyline"), 2U);
  EXPECT_EQ(count("<circle"), 8U);
  EXPECT_EQ(count("stroke-dasharray"), 2U);
  EXPECT_EQ(count("serve &lt;a&gt; &amp; b"), 2U);
  EXPECT_EQ(count("knee"), 1U);
  EXPECT_EQ(count("nan"), 0U);
  EXPECT_EQ(count("inf"), 0U);
}

// Whatever the extremes are, no part of the curve leaves the picture.
TEST(ProfileView, AllPointsLieInThePicture) {
  for (const double scale : {1e-3, 1.0, 1e7}) {
    Sweep sweep;
    sweep.sms = 132;
    sweep.sms_per_group = 8;
    for (uint32_t groups = 1; groups <= 15; ++groups)
      sweep.points.push_back({groups, 10, scale * 100 / groups, scale * 120 / groups});
    const std::string svg = sweep_svg(sweep);
    for (size_t at = svg.find(" cy=\""); at != std::string::npos; at = svg.find(" cy=\"", at + 1)) {
      const double y = std::stod(svg.substr(at + 5));
      EXPECT_GE(y, 60);
      EXPECT_LE(y, 390);
    }
  }
}

}  // namespace
}  // namespace gpushare
