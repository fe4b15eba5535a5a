// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

constexpr Time kNow{std::chrono::seconds(1000)};

Status fake_status(const FakePlane& fake) {
  Status status{.snapshot = fake_snapshot(fake, kNow), .health = {}, .taken = kNow};
  status.health = judge_agent(status.snapshot.agent, kNow, true);
  return status;
}

TopModel model_of(const FakePlane& fake) {
  TopModel model;
  model.update(fake_status(fake), kNow);
  return model;
}

std::string text_of(const FrameLine& line) {
  std::string text;
  for (const Span& span : line.spans) text += span.text;
  return text;
}

std::string text_of(const Frame& frame) {
  std::string text;
  for (const FrameLine& line : frame) text += text_of(line) + "\n";
  return text;
}

void press(TopModel& model, std::string_view keys) {
  for (char key : keys) model.press({Key::Kind::kCharacter, key}, 10);
}

TEST(TopFrame, FitsAnySizeInEveryMode) {
  for (const FakePlane& fake :
       {FakePlane{.gpus = 1, .processes = 0}, FakePlane{.gpus = 2, .processes = 7},
        FakePlane{.gpus = 16, .processes = 120}, FakePlane{.processes = 9, .has_targets = true}})
    for (const char* keys : {"", "v", "vv", "?", "/x", "f", " ", "w", "s", "g"}) {
      TopModel model = model_of(fake);
      press(model, keys);
      for (size_t height : {0, 1, 2, 3, 4, 5, 6, 10, 24, 37, 100})
        for (size_t width : {0, 1, 5, 19, 20, 21, 40, 60, 79, 80, 81, 120, 200, 300}) {
          const Frame frame = compose(model, {width, height, Glyphs::kUnicode, width % 2 == 0});
          ASSERT_EQ(frame.size(), height);
          for (const FrameLine& line : frame)
            ASSERT_LE(display_width(text_of(line)), width)
                << width << "x" << height << " keys '" << keys << "': " << text_of(line);
        }
    }
}

TEST(TopFrame, TheChosenRowIsAlwaysOnTheScreen) {
  TopModel model = model_of({.gpus = 1, .processes = 50});
  for (int step = 0; step < 50; ++step) {
    const Frame frame = compose(model, {80, 12, Glyphs::kAscii});
    EXPECT_EQ(std::ranges::count_if(frame, &FrameLine::is_selected), 1) << step;
    press(model, "j");
  }
}

TEST(TopFrame, ShowsWhatMattersInEightyColumns) {
  const std::string text =
      text_of(compose(model_of({.gpus = 1, .processes = 7}), {80, 24, Glyphs::kAscii}));
  for (const char* expected :
       {"gpushared running", "GPU 0", "95.0% busy", "20G/141G mem", "research", "59.7%", "60.0%",
        "frozen: cap", "frozen: turn", "frozen: user", "observe only", "?", "F10 Quit"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
}

// Returns the line of the frame that begins with this text.
std::string line_with(const Frame& frame, std::string_view begin) {
  for (const FrameLine& line : frame)
    if (text_of(line).starts_with(begin)) return text_of(line);
  return "";
}

TEST(TopFrame, GroupedByTenantShowsTargetsInEightyColumns) {
  TopModel model = model_of({.processes = 7, .has_targets = true});
  press(model, "v");
  const Frame frame = compose(model, {80, 24, Glyphs::kAscii});
  const std::string own = line_with(frame, "research ");
  for (const char* cell :
       {"slo 20.0ms", "mean 21.5ms", "p99 30.1ms", " 46.5/s", "SMs 48/64 ", "grows"})
    EXPECT_NE(own.find(cell), std::string::npos) << cell << "\n" << text_of(frame);
  EXPECT_EQ(own.find(" by "), std::string::npos) << own;
  const std::string shared = line_with(frame, "capped ");
  for (const char* cell : {"slo  5.0ms", "mean  7.2ms", "137.9/s", "SMs 40/40 by 2", "starved"})
    EXPECT_NE(shared.find(cell), std::string::npos) << cell << "\n" << text_of(frame);
  const std::string unmeasured = line_with(frame, "batch ");
  for (const char* cell : {"mean      ?", "p99      ?", "?/s", "unmeasured"})
    EXPECT_NE(unmeasured.find(cell), std::string::npos) << cell << "\n" << text_of(frame);
  const std::string rest = line_with(frame, "default ");
  EXPECT_NE(rest.find("slo      -"), std::string::npos) << text_of(frame);
}

TEST(TopFrame, TargetsThatFitLessAreLeftOutLeastImportantFirst) {
  TopModel model = model_of({.processes = 7, .has_targets = true});
  press(model, "v");
  size_t shown = 100;
  for (size_t width = 240; width >= 20; --width) {
    const std::string line = line_with(compose(model, {width, 24, Glyphs::kAscii}), "capped");
    size_t cells = 0;
    bool is_gone = false;
    for (const char* cell : {"SMs 40/40 by 2", "starved", "mean  7.2ms", "slo  5.0ms", "p99 12.4ms",
                             "137.9/s", "knee   ?", "weight 100", "share"}) {
      const bool is_there = line.find(cell) != std::string::npos ||
                            (cell == std::string_view("starved") &&
                             line.find("not enough SMs: the 2 need 56") != line.npos);
      EXPECT_FALSE(is_there && is_gone) << width << " " << cell << ": " << line;
      is_gone = !is_there;
      cells += is_there;
    }
    EXPECT_LE(cells, shown) << width;
    shown = cells;
  }
}

TEST(TopFrame, WithoutTargetsATenantsLineSaysItsSettings) {
  TopModel model = model_of({.processes = 7});
  press(model, "v");
  const std::string text = text_of(compose(model, {80, 24, Glyphs::kAscii}));
  EXPECT_NE(text.find("research weight 300"), std::string::npos) << text;
  EXPECT_NE(text.find("capped   weight 100, cap 20%"), std::string::npos) << text;
  for (const char* part : {"slo", "SMs", "knee"})
    EXPECT_EQ(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(TopFrame, WideScreensHaveTheHistory) {
  const TopModel model = model_of({.gpus = 1, .processes = 1});
  EXPECT_NE(text_of(compose(model, {200, 24, Glyphs::kUnicode})).find("▆"), std::string::npos);
  const std::string ascii = text_of(compose(model, {200, 24, Glyphs::kAscii}));
  EXPECT_TRUE(
      std::ranges::all_of(ascii, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(TopFrame, EachGpuHasAGraphWithTheTenantsNames) {
  Status status = fake_status({.gpus = 2, .processes = 7});
  for (auto& [slot, tenant] : status.snapshot.tenants)
    tenant.gpu[0].share_permille = tenant.gpu[1].share_permille = 100 * (slot + 1);
  TopModel model;
  model.update(status, kNow);
  const std::string text = text_of(compose(model, {150, 40, Glyphs::kUnicode}));
  for (const char* part : {"■ research 20.0%", "■ batch 40.0%", "100%", "  0%", "no NVML"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(TopFrame, WhatNvmlSaysIsShownAndWhatItDoesNotSayIsNot) {
  TopModel model;
  model.update(fake_status({.gpus = 2}), kNow,
               {.has_library = true,
                .gpus = {{.power_mw = 512'300,
                          .power_limit_mw = 700'000,
                          .temperature_c = 64,
                          .sm_clock_mhz = 1980,
                          .memory_used_bytes = uint64_t{33} << 30},
                         {}}});
  const std::string text = text_of(compose(model, {150, 24, Glyphs::kAscii}));
  for (const char* part : {"512/700 W", "64 C", "1980 MHz", "33G/141G mem", "? W", " ? C", "? MHz"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("no NVML"), std::string::npos) << text;
}

TEST(TopFrame, SaysThatTheAgentIsGoneAndForHowLong) {
  TopModel model = model_of({});
  const Time later = kNow + std::chrono::seconds(75);
  model.update(make_error(std::errc::connection_refused, "connect to the agent"), later);
  const Frame frame = compose(model, {100, 24, Glyphs::kAscii});
  EXPECT_NE(text_of(frame[0]).find("gone; last seen 1 min 15 s ago"), std::string::npos)
      << text_of(frame[0]);
  EXPECT_EQ(frame[0].spans[0].style, Style::kBad);
  EXPECT_NE(text_of(frame).find("research"), std::string::npos);  // what was known stays
}

TEST(TopFrame, APausedDisplayIsSeenOnNarrowScreens) {
  Status status = fake_status({.processes = 7});
  status.snapshot.agent.is_simulated = 1;
  status.snapshot.agent.restarts = 2;
  TopModel model;
  model.update(status, kNow);
  const auto head = [&](size_t width) { return text_of(compose(model, {width, 24})[0]); };
  EXPECT_FALSE(head(60).contains("paused")) << head(60);
  press(model, " ");
  for (const size_t width : {60, 80, 120}) {
    EXPECT_TRUE(head(width).contains("[paused: Space goes on]")) << head(width);
    EXPECT_TRUE(head(width).contains("simulated GPU")) << head(width);
  }
}

TEST(TopFrame, WithoutAnAgentItDoesNotSayThatNothingRuns) {
  TopModel model = model_of({.processes = 0});
  EXPECT_TRUE(text_of(compose(model, {80, 24})).contains("no process uses a GPU"));
  model.update(make_error(std::errc::connection_refused, "connect to the agent"),
               kNow + std::chrono::seconds(75));
  const std::string text = text_of(compose(model, {80, 24}));
  EXPECT_FALSE(text.contains("no process uses a GPU")) << text;
  EXPECT_TRUE(text.contains("nobody knows who uses the GPUs")) << text;
}

TEST(TopFrame, SaysWhyThereIsNothing) {
  TopModel model;
  model.update(make_error(std::errc::connection_refused, "connect to the agent"), kNow);
  const Frame frame = compose(model, {100, 24, Glyphs::kAscii});
  EXPECT_NE(text_of(frame[0]).find("connect to the agent"), std::string::npos);
  EXPECT_EQ(frame[0].spans[0].style, Style::kBad);
}

TEST(TopFrame, WarnsOfWhatWasLostAndOfObserveOnly) {
  Status status = fake_status({});
  std::strcpy(status.snapshot.agent.observe_only_reason, "driver 999 is unknown");
  status.snapshot.agent.events_dropped = 12;
  TopModel model;
  model.update(status, kNow);
  const std::string text = text_of(compose(model, {100, 24, Glyphs::kAscii}));
  EXPECT_NE(text.find("observe only: driver 999 is unknown"), std::string::npos);
  EXPECT_NE(text.find("12 driver events were lost"), std::string::npos);
}

TEST(TopFrame, AllOfTheHelpCanBeReachedOnASmallScreen) {
  TopModel model = model_of({});
  press(model, "?");
  EXPECT_EQ(text_of(compose(model, {80, 24})).find("does not apply"), std::string::npos);
  for (int i = 0; i < 60; ++i) model.press({Key::Kind::kDown}, 10);
  EXPECT_NE(text_of(compose(model, {80, 24})).find("does not apply"), std::string::npos);
  for (int i = 0; i < 60; ++i) model.press({Key::Kind::kUp}, 10);
  EXPECT_NE(text_of(compose(model, {80, 24})).find("Up Down"), std::string::npos);
  EXPECT_NE(text_of(compose(model, {80, 60})).find("does not apply"), std::string::npos);
  press(model, "x");
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
}

TEST(TopFrame, WhatIsTypedIsSeenOnANarrowScreen) {
  TopModel model = model_of({.processes = 7});
  press(model, "sKILL");
  for (const size_t width : {30, 60, 80, 200}) {
    const std::string last = text_of(compose(model, {width, 24}).back());
    EXPECT_NE(last.find(": KILL_"), std::string::npos) << last;
  }
}

TEST(TopFrame, TheReasonOfARefusalIsReadOnANarrowScreen) {
  TopModel model = model_of({.processes = 7});
  press(model, "fy");
  const std::string socket = "/tmp/gpushare-sim-1a2b3c4d/run/agent.sock";
  model.report_done(make_error(std::errc::timed_out, "connect to the agent", socket));
  for (const size_t width : {60, 80, 200}) {
    const Frame frame = compose(model, {width, 24, Glyphs::kAscii});
    ASSERT_EQ(frame.size(), 24u);
    const std::string text = text_of(frame);
    for (const char* part : {"freeze process 4000", socket.c_str(), ": Connection"})
      EXPECT_TRUE(text.contains(part)) << width << " " << part << "\n" << text;
    EXPECT_TRUE(text.contains("PID")) << "it covers rows only";
    for (size_t y = 0; y < frame.size(); ++y)
      if (hit_at(model, {width, 24, Glyphs::kAscii}, 0, y).line)
        EXPECT_TRUE(text_of(frame[y]).contains(" 40")) << "a click meets what is shown";
  }
  press(model, "x");
  EXPECT_FALSE(text_of(compose(model, {80, 24})).contains(socket));
}

TEST(TopFrame, SaysWhichRowsAreShown) {
  TopModel model = model_of({.gpus = 1, .processes = 50});
  const auto last = [&] { return text_of(compose(model, {80, 24, Glyphs::kAscii}).back()); };
  EXPECT_TRUE(last().ends_with("  1-12 of 50")) << last();
  model.press({Key::Kind::kEnd}, 12);
  EXPECT_TRUE(last().ends_with("49-50 of 50")) << last();
  press(model, "w");
  EXPECT_TRUE(last().ends_with("49-50 of 50")) << last();
  EXPECT_EQ(text_of(compose(model_of({.processes = 5}), {80, 24}).back()).find(" of "),
            std::string::npos);
}

TEST(TopFrame, AClickHitsWhatIsShownThere) {
  for (const size_t width : {60, 80, 120, 300}) {
    TopModel model = model_of({.gpus = 1, .processes = 50});
    model.press({Key::Kind::kPageDown}, 12);
    const TopScreen screen{width, 24};
    const Frame frame = compose(model, screen);
    size_t keys = 0, titles = 0;
    for (size_t y = 0; y < frame.size(); ++y) {
      const std::string text = text_of(frame[y]);
      for (size_t x = 0; x < width; ++x) {
        const TopHit hit = hit_at(model, screen, x, y);
        if (hit.line) {
          const pid_t pid = model.lines()[*hit.line].process->record.pid;
          EXPECT_NE(text.find(std::to_string(pid)), std::string::npos) << text;
        }
        if (hit.title) {
          const std::string_view title = kFields[static_cast<size_t>(*hit.title)].column.title;
          EXPECT_NE(text.find(title), std::string::npos) << text;
          ++titles;
        }
        if (hit.key) ++keys;
      }
    }
    EXPECT_GT(titles, 20u);
    EXPECT_GT(keys, 20u);
    const size_t x = text_of(frame.back()).find("F9 Signal");
    if (x != std::string::npos) {
      EXPECT_EQ(hit_at(model, screen, x, 23).key->character, 9);
    }
  }
}

TEST(TopFrame, WithoutGraphsAGpuHasALine) {
  TopModel model = model_of({.gpus = 1, .processes = 7});
  press(model, "g");
  EXPECT_EQ(text_of(compose(model, {80, 24, Glyphs::kAscii})).find("100%"), std::string::npos);
}

TEST(TopFrame, CountsTheGpusThatDoNotFit) {
  const std::string text =
      text_of(compose(model_of({.gpus = 16, .processes = 32}), {80, 24, Glyphs::kAscii}));
  EXPECT_NE(text.find("more GPUs"), std::string::npos) << text;
}

}  // namespace
}  // namespace gpushare
