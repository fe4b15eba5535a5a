// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/writer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/trace/merge.h"
#include "tools/trace/turn_times.h"

namespace gpushare {
namespace {

TraceSwitch on(uint64_t t, pid_t pid, uint32_t gpu = 0) { return {t, gpu, pid, true}; }
TraceSwitch off(uint64_t t, pid_t pid, uint32_t gpu = 0) { return {t, gpu, pid, false}; }

// What was told during a recording from 100 to 200 ns, and what that makes.
template <class Told, class Expected>
struct Row {
  const char* description;
  std::vector<Told> told;
  std::vector<Expected> expected;
};

TEST(PairSwitches, Cases) {
  const Row<TraceSwitch, Residence> table[] = {
      {"nothing", {}, {}},
      {"a stay", {on(110, 1), off(120, 1)}, {{0, 1, 110, 120, false}}},
      {"two take turns",
       {on(110, 1), off(120, 1), on(125, 2), off(150, 2), on(151, 1), off(160, 1)},
       {{0, 1, 110, 120, false}, {0, 2, 125, 150, false}, {0, 1, 151, 160, false}}},
      {"out of order", {off(120, 1), on(110, 1)}, {{0, 1, 110, 120, false}}},
      {"an end without its start, at the edge", {off(120, 1)}, {{0, 1, 100, 120, true}}},
      {"a start without its end, at the edge", {on(190, 1)}, {{0, 1, 190, 200, true}}},
      {"a lost end: over when the next one starts",
       {on(110, 1), on(130, 2), off(140, 2)},
       {{0, 1, 110, 130, true}, {0, 2, 130, 140, false}}},
      {"a lost start: from the last known end",
       {on(110, 1), off(120, 1), off(140, 2)},
       {{0, 1, 110, 120, false}, {0, 2, 120, 140, true}}},
      {"a start twice: the first is over at the second",
       {on(110, 1), on(130, 1), off(140, 1)},
       {{0, 1, 110, 130, true}, {0, 1, 130, 140, false}}},
      {"the switch is logged before the end",
       {on(110, 1), on(118, 2), off(120, 1), off(130, 2)},
       {{0, 1, 110, 120, false}, {0, 2, 118, 130, false}}},
      {"GPUs do not mix",
       {on(110, 1, 0), on(115, 1, 1), off(120, 1, 0), off(130, 1, 1)},
       {{0, 1, 110, 120, false}, {1, 1, 115, 130, false}}},
      {"what is outside of the trace is cut off",
       {on(50, 1), off(130, 1), on(150, 2), off(999, 2)},
       {{0, 1, 100, 130, false}, {0, 2, 150, 200, false}}},
  };
  for (const auto& row : table)
    EXPECT_EQ(pair_switches(row.told, 100, 200), row.expected) << row.description;
}

TEST(PairSwitches, AnyRecordsGiveStaysInsideTheTrace) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<TraceSwitch> switches(random() % 40);
    for (TraceSwitch& record : switches)
      record = {random() % 300, static_cast<uint32_t>(random() % 2),
                static_cast<pid_t>(random() % 4), random() % 2 == 0};
    uint64_t previous = 0;
    for (const Residence& stay : pair_switches(switches, 100, 200)) {
      EXPECT_GE(stay.begin_ns, 100u);
      EXPECT_LT(stay.begin_ns, stay.end_ns);
      EXPECT_LE(stay.end_ns, 200u);
      EXPECT_GE(stay.begin_ns, previous);
      previous = stay.begin_ns;
    }
  }
}

TEST(PairSwitches, WithoutLossesNothingIsClippedAndNothingIsMissing) {
  std::vector<TraceSwitch> switches;
  uint64_t t = 1000;
  for (int i = 0; i < 1000; ++i) {
    switches.push_back(on(t, i % 3));
    t += 2000;
    switches.push_back(off(t, i % 3));
    t += 80;
  }
  const auto stays = pair_switches(switches, 0, t);
  ASSERT_EQ(stays.size(), 1000u);
  for (const Residence& stay : stays) {
    EXPECT_EQ(stay.end_ns - stay.begin_ns, 2000u);
    EXPECT_FALSE(stay.is_clipped);
  }
}

TEST(FrozenTimes, FollowFreezesAndThaws) {
  using Kind = TraceAction::Kind;
  const auto freeze = [](uint64_t t, pid_t pid, const char* reason) {
    return TraceAction{.t_ns = t, .kind = Kind::kFreeze, .gpu = 0, .pid = pid, .reason = reason};
  };
  const auto thaw = [](uint64_t t, pid_t pid) {
    return TraceAction{.t_ns = t, .kind = Kind::kThaw, .gpu = 0, .pid = pid};
  };
  const Row<TraceAction, Frozen> table[] = {
      {"nothing", {}, {}},
      {"once", {freeze(110, 1, "cap"), thaw(120, 1)}, {{0, 1, 110, 120, "cap"}}},
      {"out of order", {thaw(120, 1), freeze(110, 1, "cap")}, {{0, 1, 110, 120, "cap"}}},
      {"before it began", {thaw(120, 1)}, {{0, 1, 100, 120, ""}}},
      {"until it ended", {freeze(190, 1, "user")}, {{0, 1, 190, 200, "user"}}},
      {"a surplus thaw",
       {freeze(110, 1, "cap"), thaw(120, 1), thaw(130, 1)},
       {{0, 1, 110, 120, "cap"}}},
      {"a second reason",
       {freeze(110, 1, "cap"), freeze(115, 1, "user"), thaw(120, 1)},
       {{0, 1, 110, 120, "cap"}}},
      {"two processes",
       {freeze(110, 2, "cap"), freeze(111, 1, "turn"), thaw(120, 2), thaw(130, 1)},
       {{0, 1, 111, 130, "turn"}, {0, 2, 110, 120, "cap"}}},
  };
  for (const auto& row : table)
    EXPECT_EQ(frozen_times(row.told, 100, 200), row.expected) << row.description;
}

TEST(TurnTimes, Cases) {
  const auto begins = [](uint64_t t, const char* job, uint32_t gpu = 0) {
    return TraceTurn{.t_ns = t, .gpu = gpu, .pid = 7, .job = job, .is_start = true};
  };
  const auto ends = [&](uint64_t t, const char* job, uint32_t gpu = 0) {
    TraceTurn turn = begins(t, job, gpu);
    turn.is_start = false;
    return turn;
  };
  const Row<TraceTurn, TurnTime> table[] = {
      {"nothing", {}, {}},
      {"one after the other",
       {begins(110, "a"), ends(120, "a"), begins(121, "b"), ends(140, "b")},
       {{0, 7, "a", 110, 120}, {0, 7, "b", 121, 140}}},
      {"the next one comes in before the last one stands",
       {begins(110, "a"), begins(119, "b"), ends(120, "a"), ends(140, "b")},
       {{0, 7, "a", 110, 119}, {0, 7, "b", 119, 140}}},
      {"a begin before the recording", {ends(120, "a")}, {{0, 7, "a", 100, 120}}},
      {"the same, and it was told of besides",
       {begins(50, "a"), ends(120, "a")},
       {{0, 7, "a", 100, 120}}},
      {"an end after the recording", {begins(190, "a")}, {{0, 7, "a", 190, 200}}},
      {"an end that was lost",
       {begins(110, "a"), begins(130, "b"), ends(140, "b")},
       {{0, 7, "a", 110, 130}, {0, 7, "b", 130, 140}}},
      {"told twice, out of order",
       {ends(120, "a"), begins(110, "a"), begins(115, "a")},
       {{0, 7, "a", 110, 120}}},
      {"GPUs do not mix",
       {begins(110, "a", 1), begins(115, "b", 0), ends(130, "a", 1)},
       {{0, 7, "b", 115, 200}, {1, 7, "a", 110, 130}}},
      {"of one instant",
       {begins(110, "a"), begins(120, "b"), ends(120, "a")},
       {{0, 7, "a", 110, 120}, {0, 7, "b", 120, 200}}},
  };
  for (const auto& row : table)
    EXPECT_EQ(turn_times(row.told, 100, 200), row.expected) << row.description;
}

TraceRecording sample() {
  TraceRecording recording;
  recording.start_ns = 1'000'000;
  recording.end_ns = 9'000'000;
  recording.switches = {on(1'000'500, 11), off(3'000'500, 11), on(3'080'500, 12),
                        off(5'000'000, 12)};
  recording.actions = {
      {.t_ns = 5'000'000, .kind = TraceAction::Kind::kFreeze, .pid = 12, .reason = "cap"},
      {.t_ns = 6'000'000, .kind = TraceAction::Kind::kThaw, .pid = 12},
      {.t_ns = 6'500'000, .kind = TraceAction::Kind::kSlice, .pid = 11, .slice_us = 6000},
      {.t_ns = 99'000'000, .kind = TraceAction::Kind::kThaw, .pid = 12}};
  recording.shares = {{2'000'000, 0, 11, 750}};
  recording.processes[11] = {"train \"me\"\xff\n", "research"};
  recording.gpus[0] = "NVIDIA H200";
  recording.lost = 3;
  recording.epoch_ns = 1'699'999'999'999'000'000;
  recording.about["driver"] = "580.1";
  return recording;
}

// Python reads the file, because our own reader could have the same mistake as the writer.
std::string python(const std::string& json, const std::string& expression) {
  TempDir dir;
  dir.write("trace.json", json);
  const ToolResult result =
      run_tool("python3", {"-c",
                           "import json,sys\n"
                           "trace = json.load(open(sys.argv[1], encoding='utf-8'))\n"
                           "events = trace['traceEvents']\n"
                           "print(" +
                               expression + ")",
                           dir.at("trace.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err << json;
  return result.out;
}

TEST(TraceJson, IsReadByAnotherReader) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  const std::string json = trace_json(sample());
  EXPECT_EQ(
      python(json,
             "[(e['name'][:5], e['tid'], e['ts'], e['dur']) for e in events if e['ph'] == 'X']"),
      "[('train', 11, 0.5, 2000.0), ('pid 1', 12, 2080.5, 1919.5), "
      "('froze', 8388620, 4000.0, 1000.0)]\n");
  EXPECT_EQ(
      python(json, "[(e['name'], e['ts'], e['s']) for e in events if e['ph'] == 'i']"),
      "[('freeze: cap', 4000.0, 't'), ('thaw', 5000.0, 't'), ('slice 6.0ms', 5500.0, 't')]\n");
  EXPECT_EQ(python(json, "[e['args'] for e in events if e['ph'] == 'C']"), "[{'%': 75.0}]\n");
  EXPECT_EQ(python(json, "[e['args']['name'] for e in events if e['name'] == 'process_name']"),
            "['GPU 0 NVIDIA H200']\n");
  EXPECT_EQ(
      python(json,
             "[(e['tid'], e['args']['name'][-13:]) for e in events if e['name'] == 'thread_name']"),
      "[(11, '11 (research)'), (12, 'pid 12'), (8388620, 'id 12: frozen')]\n");
  EXPECT_EQ(python(json,
                   "[e['tid'] for e in sorted((e for e in events if e['name'] == "
                   "'thread_sort_index'), key=lambda e: e['args']['sort_index'])]"),
            "[12, 8388620, 11]\n")
      << "by tenant, and what is frozen below what runs";
  EXPECT_EQ(python(json, "[e['args']['tenant'] for e in events if e['name'].startswith('train')]"),
            "['research']\n");
  EXPECT_EQ(python(json,
                   "trace['baseTimeNanoseconds'], trace['otherData']['start_monotonic_ns'], "
                   "trace['otherData']['driver']"),
            "1700000000000000000 1000000 580.1\n");
  EXPECT_EQ(python(json, "trace['otherData']['lost_records']"), "3\n");
}

TEST(TraceJson, HasATrackOfTurnsAboveTheProcesses) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  TraceRecording recording = sample();
  recording.turns = {{.t_ns = 2'000'000, .gpu = 0, .pid = 11, .job = "run-11", .is_start = true},
                     {.t_ns = 3'500'000, .gpu = 0, .pid = 11, .job = "run-11", .is_start = false}};
  EXPECT_EQ(
      python(trace_json(recording),
             "[(e['name'].split()[0], e['ts'], e['dur']) for e in events if e['ph'] == 'X' and "
             "e['tid'] == 1 << 24], [e['args'] for e in events if e.get('tid') == 1 << 24 and "
             "e['ph'] == 'M']"),
      "[('run-11', 1000.0, 1500.0)] [{'name': 'turns'}, {'sort_index': 0}]\n");
}

TEST(MergeTraces, PutsOursIntoTheTimeOfTheOther) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  const std::string ours = trace_json(sample());
  const auto both = [&](const char* other) {
    const auto merged = merge_traces(ours, other);
    EXPECT_TRUE(merged) << merged.error().message();
    return python(merged.value_or("{}"),
                  "len([e for e in events if e['name'] == 'step']), [(e['pid'], e['ts']) for e in "
                  "events if e['name'].startswith('train') and e['ph'] == 'X']");
  };
  // The other trace began 2 ms before this one.
  EXPECT_EQ(both(R"({"baseTimeNanoseconds":1699999999998000000,
                     "traceEvents":[{"ph":"X","name":"step","pid":7,"tid":7,"ts":3.5,"dur":1}]})"),
            "1 [(1000000001, 2000.5)]\n");
  EXPECT_EQ(both(R"([{"ph":"X","name":"step","pid":7,"tid":7,"ts":1700000000000001,"dur":1}])"),
            "1 [(1000000001, 1700000000000000.5)]\n")
      << "times of the epoch, in the bare form";
  for (const char* wrong :
       {"", "nonsense", "{}", R"({"traceEvents":[]})",
        R"({"traceEvents":[{"ph":"X","name":"a","pid":1,"ts":5}]})", R"({"traceEvents":[5]})",
        R"({"traceEvents":{}})", R"({"traceEvents":[{"ph":5,"ts":5}]})"}) {
    const auto merged = merge_traces(ours, wrong, {.other = "b.json"});
    ASSERT_FALSE(merged) << wrong;
    EXPECT_EQ(merged.error().code, std::errc::invalid_argument);
    EXPECT_TRUE(merged.error().detail.starts_with("b.json ")) << merged.error().detail;
    EXPECT_FALSE(merged.error().detail.contains("json.exception")) << merged.error().detail;
  }
}

TEST(TraceJson, AnEmptyRecordingIsValidToo) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  EXPECT_EQ(python(trace_json({}), "len(events)"), "0\n");
}

}  // namespace
}  // namespace gpushare
