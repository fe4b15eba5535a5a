// SPDX-License-Identifier: Apache-2.0
// Tests what an operator sees of jobs that take turns: `gpushare queue`.
#include "tools/view/queue_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sched/policy/job.h"
#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

// Two GPUs that take turns, and jobs that are added one by one.
class QueueView : public ::testing::Test {
 protected:
  QueueView() {
    status_.snapshot = fake_snapshot({.gpus = 2, .processes = 0}, Time{});
    status_.snapshot.processes.clear();
    status_.health.state = AgentHealth::State::kLive;
  }
  // One process of a job, on one GPU.
  ProcessRecord& add(uint64_t job, uint32_t gpu, TurnState turn, uint32_t place) {
    auto& processes = status_.snapshot.processes;
    ProcessRecord& record = processes
                                .emplace_back(Numbered<ProcessRecord>{
                                    .slot = static_cast<uint32_t>(processes.size()), .record = {}})
                                .record;
    record.pid = static_cast<int32_t>(4000 + job);
    record.gpu = gpu;
    record.job = job;
    record.run = static_cast<uint32_t>(4000 + job);
    record.turn = turn;
    record.job_place = place;
    record.job_left_us = kUnknown64;
    return record;
  }
  static void say(ProcessRecord& record, std::string_view note) {
    note.copy(record.note, sizeof record.note - 1);
  }
  // The row of a job as it is shown: its cells, without the spaces between them.
  std::string row_of(const std::string& job, std::optional<uint32_t> gpu = {}) const {
    for (const std::string& line : queue_lines(status_, {.width = 160}, gpu))
      if (line.find(job) != std::string::npos) return line;
    return "";
  }
  std::vector<std::string> order(std::optional<uint32_t> gpu = {}) const {
    std::vector<std::string> names;
    for (const QueuedJob& job : queued_jobs(status_.snapshot, gpu)) names.push_back(job.name);
    return names;
  }

  Status status_;
};

bool has(const std::string& line, const std::string& part) {
  return line.find(part) != std::string::npos;
}

TEST_F(QueueView, RowsComeInTheOrderOfTurns) {
  add(7, 0, TurnState::kHeld, 3);
  add(8, 0, TurnState::kHeld, 2);
  add(9, 0, TurnState::kRunning, 1);
  add(5, 1, TurnState::kRunning, 1);
  EXPECT_EQ(order(), (std::vector<std::string>{"run-4009", "run-4008", "run-4007", "run-4005"}));
  const auto lines = queue_lines(status_, {.width = 160});
  std::vector<std::size_t> at;
  for (const char* job : {"run-4009", "run-4008", "run-4007", "run-4005"})
    at.push_back(static_cast<std::size_t>(
        std::ranges::find_if(lines, [&](const auto& line) { return has(line, job); }) -
        lines.begin()));
  EXPECT_TRUE(std::ranges::is_sorted(at));
  EXPECT_LT(at.back(), lines.size());
}

TEST_F(QueueView, WhoWaitsForMemoryIsBelowTheJobs) {
  WaitingRecord& waiting = status_.snapshot.waiting.emplace_back();
  waiting.pid = 5001;
  waiting.memory_bytes = uint64_t{20} << 30;
  std::string("memory: needs 20480 MiB on 1 GPU, free on 0").copy(waiting.why, 95);
  std::string("/usr/bin/python train.py").copy(waiting.command, 127);
  waiting.gpu = 1;
  EXPECT_TRUE(has(row_of("5001"), " 20G ")) << row_of("5001");
  EXPECT_TRUE(has(row_of("5001"), "memory: needs 20480 MiB"));
  add(7, 0, TurnState::kRunning, 1);
  const auto lines = queue_lines(status_, {.width = 160});
  EXPECT_TRUE(has(lines.back(), "5001")) << lines.back();
  EXPECT_EQ(row_of("5001", 0), "") << "it asked for the other one";
  EXPECT_TRUE(has(row_of("5001", 1), " python train.py")) << row_of("5001", 1);
  const auto json = nlohmann::json::parse(queue_json(status_.snapshot, 1));
  ASSERT_EQ(json["waiting"].size(), 1U);
  EXPECT_EQ(json["waiting"][0]["gpu"], 1);
  EXPECT_EQ(json["waiting"][0]["length_us"], nullptr);
  EXPECT_EQ(nlohmann::json::parse(queue_json(status_.snapshot, 0))["waiting"].size(), 0U);
}

// Each GPU has an order of its own.
TEST_F(QueueView, AskedForOneGpuItShowsThePlacesThere) {
  add(7, 0, TurnState::kHeld, 1);
  add(7, 1, TurnState::kHeld, 2);
  add(8, 0, TurnState::kRunning, 2);
  add(9, 1, TurnState::kRunning, 1);
  EXPECT_EQ(order(0), (std::vector<std::string>{"run-4007", "run-4008"}));
  EXPECT_EQ(order(1), (std::vector<std::string>{"run-4009", "run-4007"}));
  EXPECT_EQ(queued_jobs(status_.snapshot, 0)[0].place, 1U);
  EXPECT_EQ(queued_jobs(status_.snapshot, 1)[1].place, 2U);
  EXPECT_TRUE(has(row_of("run-4007"), "0,1")) << row_of("run-4007");
}

TEST_F(QueueView, StateIsAWordForEachTurn) {
  const std::pair<TurnState, const char*> rows[] = {{TurnState::kHeld, "held"},
                                                    {TurnState::kRunning, "running"},
                                                    {TurnState::kStopping, "stopping"},
                                                    {TurnState::kStopped, "stopped"}};
  uint64_t job = 1;
  for (const auto& [turn, word] : rows) {
    add(job, 0, turn, static_cast<uint32_t>(job));
    EXPECT_TRUE(has(row_of("run-" + std::to_string(4000 + job)), word)) << word;
    ++job;
  }
}

TEST_F(QueueView, LeftSaysWhenceItIsKnown) {
  const std::pair<LeftSource, const char*> rows[] = {{LeftSource::kLearnt, "learnt"},
                                                     {LeftSource::kSaid, "said"},
                                                     {LeftSource::kAnnounced, "announced"}};
  uint64_t job = 1;
  for (const auto& [source, word] : rows) {
    ProcessRecord& record = add(job, 0, TurnState::kHeld, static_cast<uint32_t>(job));
    record.job_left_us = 38'000'000;
    record.job_left_by = static_cast<uint32_t>(source);
    const std::string row = row_of("run-" + std::to_string(4000 + job));
    EXPECT_TRUE(has(row, duration_text(std::chrono::seconds(38)) + " " + word)) << row;
    ++job;
  }
  add(job, 0, TurnState::kHeld, static_cast<uint32_t>(job));
  const std::string row = row_of("run-" + std::to_string(4000 + job));
  EXPECT_TRUE(has(row, std::string(" ") + kUnknownText + " ")) << row;
  EXPECT_FALSE(has(row, "said") || has(row, "learnt") || has(row, "announced")) << row;
}

// A job on several GPUs says why it waits if any of its processes does.
TEST_F(QueueView, WhyIsTheFirstWordOfAnyOfItsProcesses) {
  add(7, 0, TurnState::kStopped, 1);
  say(add(7, 1, TurnState::kStopped, 2), "turn of run-4711, 38 s left (GPU 1)");
  add(8, 0, TurnState::kRunning, 2);
  EXPECT_TRUE(has(row_of("run-4007"), "turn of run-4711, 38 s left (GPU 1)"));
  const auto json = nlohmann::json::parse(queue_json(status_.snapshot));
  EXPECT_EQ(json["jobs"][0]["why"], "turn of run-4711, 38 s left (GPU 1)");
  EXPECT_EQ(json["jobs"][1]["why"], "");
}

TEST_F(QueueView, WithoutTurnsItSaysWhatWouldTakeThem) {
  ASSERT_EQ(queue_lines(status_, {.width = 160}).size(), 1U);
  EXPECT_TRUE(has(queue_lines(status_, {.width = 160})[0], "no GPU takes turns"));
}

TEST_F(QueueView, AskedForAGpuWithoutTurnsItSpeaksOfThatOne) {
  auto& gpus = status_.snapshot.gpus;
  std::string("fifo").copy(gpus[0].policy, sizeof gpus[0].policy);
  std::string("fair").copy(gpus[1].policy, sizeof gpus[1].policy);
  using Lines = std::vector<std::string>;
  EXPECT_EQ(queue_lines(status_, {.width = 160}, 0),
            (Lines{"GPU 0: policy fifo", "no job is on a GPU that takes turns"}))
      << "its policy orders jobs, also while there is none";
  EXPECT_EQ(queue_lines(status_, {.width = 160}, 1),
            (Lines{"GPU 1 takes no turns (its policy is fair)"}));
}

TEST_F(QueueView, OfADeadAgentItSaysThatItIsDead) {
  status_.snapshot.gpus.clear();
  status_.health = {AgentHealth::State::kGone, std::chrono::seconds(5)};
  const auto lines = queue_lines(status_, {.width = 160});
  EXPECT_TRUE(lines[0].starts_with("gpushared: gone; last seen 5 s ago")) << lines[0];
  for (const std::string& line : lines) EXPECT_FALSE(has(line, "takes turns")) << line;
}

}  // namespace
}  // namespace gpushare
