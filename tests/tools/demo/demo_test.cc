// SPDX-License-Identifier: Apache-2.0
// gpushare-demo: the targets, the measurement and the report by themselves; and all of it on the
// simulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/demo/report.h"
#include "tools/demo/setup.h"
#include "tools/demo/sim_command.h"

namespace gpushare {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

auto near(double value) { return DoubleNear(value, 1e-9); }

TEST(DemoTargets, AlwaysBusyProgramsShareByWeight) {
  const std::vector<DemoClaim> claims{{.weight = 300}, {.weight = 100}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0.75), near(0.25)));
}

TEST(DemoTargets, WhatACapLeavesGoesToTheOthersByWeight) {
  const std::vector<DemoClaim> claims{
      {.weight = 300}, {.weight = 100}, {.weight = 300, .cap = 0.2}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0.6), near(0.2), near(0.2)));
}

TEST(DemoTargets, ACapAboveTheFairShareChangesNothing) {
  const std::vector<DemoClaim> claims{{.weight = 300}, {.weight = 100, .cap = 0.3}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0.75), near(0.25)));
}

TEST(DemoTargets, OneCapMayBringAnotherProgramToItsOwn) {
  // Each would have a third; when the first leaves 0.23, the second gets 0.45.
  const std::vector<DemoClaim> claims{{.cap = 0.1}, {.cap = 0.4}, {}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0.1), near(0.4), near(0.5)));
}

TEST(DemoTargets, IdleClassGetsWhatNobodyElseMayHave) {
  std::vector<DemoClaim> claims{{}, {.priority = Priority::kIdle}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(1), near(0)));
  claims[0].cap = 0.3;
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0.3), near(0.7)));
}

TEST(DemoTargets, ABusyHighProgramTakesEverything) {
  const std::vector<DemoClaim> claims{{}, {.priority = Priority::kHigh}};
  EXPECT_THAT(target_shares(claims, 0), ElementsAre(near(0), near(1)));
}

TEST(DemoTargets, UseAndSwitchingComeOffBeforeTheOthersDivide) {
  const std::vector<DemoClaim> claims{{.weight = 300},
                                      {.weight = 100},
                                      {.weight = 300, .cap = 0.2},
                                      {.priority = Priority::kIdle},
                                      {.priority = Priority::kHigh, .used = 0.02}};
  EXPECT_THAT(target_shares(claims, 0.03),
              ElementsAre(near(0.5625), near(0.1875), near(0.2), near(0), near(0.02)));
}

TEST(DemoTargets, NothingIsNegativeWhenUseExceedsTheGpu) {
  const std::vector<DemoClaim> claims{{}, {.used = 1.01}};
  EXPECT_THAT(target_shares(claims, 0.1), ElementsAre(near(0), near(1.01)));
}

TEST(DemoTargets, IdleTimeIsNotExcusedAsSwitching) {
  EXPECT_NEAR(switching_share(400, 0.03), 0.03, 1e-9);
  EXPECT_NEAR(switching_share(400, 0.20), 0.04, 1e-9);
  EXPECT_EQ(switching_share(400, -0.01), 0);
}

// Makes two looks, 1 s apart, at an agent that gave the programs these parts of the GPU.
std::pair<DemoReading, DemoReading> readings(const std::vector<double>& shares) {
  DemoReading from{.at_ns = 1, .agent_pid = 7, .log_records = 10, .used_ns = {5, 5, 5, 5, 5}};
  DemoReading to{
      .at_ns = 1'000'000'001, .agent_pid = 7, .log_records = 810, .used_ns = from.used_ns};
  for (size_t i = 0; i < shares.size(); ++i)
    to.used_ns[i] += static_cast<uint64_t>(shares[i] * 1e9);
  return {from, to};
}

TEST(DemoMeasure, SharesAreWhatWasUsedInTheTimeBetween) {
  const auto [from, to] = readings({0.56, 0.18, 0.2, 0, 0.02});
  const auto shares = compare_readings(from, to);
  ASSERT_TRUE(shares);
  EXPECT_THAT(shares->measured,
              ElementsAre(near(0.56), near(0.18), near(0.2), near(0), near(0.02)));
  EXPECT_NEAR(shares->switches_per_s, 400, 1e-6);
  EXPECT_NEAR(shares->switching, 0.04, 1e-9);
  EXPECT_THAT(shares->target,
              ElementsAre(near(0.555), near(0.185), near(0.2), near(0), near(0.02)));
  EXPECT_EQ(max_error_points(*shares), 0.5);
}

TEST(DemoMeasure, AGpuThatStandsIdleIsAnError) {
  const auto [from, to] = readings({0.4, 0.18, 0.2, 0, 0.02});
  EXPECT_GT(max_error_points(*compare_readings(from, to)), kDemoLimitPoints);
}

TEST(DemoMeasure, AnAgentThatStartedAgainIsAnErrorNotAShare) {
  auto [from, to] = readings({0.56, 0.18, 0.2, 0, 0.02});
  to.agent_pid = 8;
  EXPECT_FALSE(compare_readings(from, to));
}

TEST(DemoMeasure, AnAgentThatStoppedPublishingIsAnError) {
  auto [from, to] = readings({0.56, 0.18, 0.2, 0, 0.02});
  to.at_ns = from.at_ns;
  EXPECT_FALSE(compare_readings(from, to));
}

TEST(DemoMeasure, ReadsTheTenantsOfTheGpuInUse) {
  PlaneSnapshot snapshot;
  snapshot.agent.agent_pid = 7;
  snapshot.agent.published_ns = 99;
  snapshot.gpus.resize(2);
  snapshot.gpus[1].index = 1;
  snapshot.gpus[1].log_records = 42;
  uint64_t used = 0;
  for (const DemoProgram& program : demo_programs()) {
    TenantRecord tenant;
    std::memcpy(tenant.name, program.tenant.data(), program.tenant.size());
    tenant.gpu[1].gpu_time_ns = ++used;
    snapshot.tenants.push_back({static_cast<uint32_t>(10 - used), tenant});
  }
  const auto reading = read_demo(snapshot, 1);
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->at_ns, 99u);
  EXPECT_EQ(reading->log_records, 42u);
  EXPECT_THAT(reading->used_ns, ElementsAre(1, 2, 3, 4, 5));
  snapshot.tenants.pop_back();
  const auto without = read_demo(snapshot, 1);
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message(), HasSubstr("service"));
}

TEST(DemoReport, TheWorkloadsOwnLineIsRead) {
  const auto result = parse_workload_result(
      R"({"workload":"periodic","p50_us":300.5,"p99_us":320,"ns_per_unit":129.3,"verified":true})");
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->is_verified);
  EXPECT_EQ(result->p50_us, 300.5);
  EXPECT_EQ(result->progress, std::nullopt);
}

TEST(DemoReport, AnythingElseIsNoResult) {
  for (const char* line : {"", "{", "[]", "{}", "spin: cuInit: no device", R"({"t_ns":1})"})
    EXPECT_FALSE(parse_workload_result(line)) << line;
  EXPECT_FALSE(parse_workload_result(R"({"workload":"spin"})")->is_verified);
}

TEST(DemoReport, FitsTheScreenAndEndsWithTheError) {
  const auto [from, to] = readings({0.60, 0.14, 0.2, 0, 0.02});
  DemoResult result;
  result.shares = *compare_readings(from, to);
  result.workloads.resize(kDemoPrograms);
  result.trace = "demo-trace.json";
  for (const size_t width : {80u, 120u}) {
    const auto lines = report_lines(result, width);
    for (const std::string& line : lines) EXPECT_LE(line.size(), width) << line;
    EXPECT_EQ(lines.back(), "max share error: 4.5 points");
    for (const std::string& line : progress_bars(result.shares, width))
      EXPECT_LE(line.size(), width) << line;
  }
  EXPECT_THAT(report_json(result), HasSubstr("\"ok\": false"));
}

TEST(DemoSetup, SaysWhatIsMissingForAGpu) {
  const TempDir dev;
  auto found = find_nvidia_gpu(dev.path());
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr("nvidiactl"));
  dev.write("nvidiactl", "");
  dev.write("nvidia-uvm", "");
  found = find_nvidia_gpu(dev.path());
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr("nvidia0"));
  dev.write("nvidia3", "");
  EXPECT_TRUE(find_nvidia_gpu(dev.path()));
}

// The demo's own process started everything below it in /dev/shm and the temporary folder.
void expect_nothing_left(pid_t demo, const std::filesystem::path& temporary) {
  const std::string region = "/gpushare-demo-" + std::to_string(demo);
  for (const std::string& name : {region, region + ".lock"})
    EXPECT_EQ(::access(("/dev/shm" + name).c_str(), F_OK), -1) << name;
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
  for (const auto& process : std::filesystem::directory_iterator("/proc"))
    EXPECT_THAT(TempDir::read(process.path() / "cmdline"),
                testing::Not(HasSubstr(temporary.string())));
}

TEST(Demo, SharesTheSimulatedGpuAsTheSettingsSay) {
  const TempDir temporary, out;
  // It measures for 3 s, in which a machine that stands still for a moment spoils a share. A demo
  // that does not share as the settings say fails each time.
  ToolResult result;
  for (int run = 0; run < 3 && result.exit_code != 0; ++run) {
    result = run_tool("gpushare-demo", {"--sim", "--seconds", "3", "--out", out.at("trace.json")},
                      {"TMPDIR=" + temporary.path().string()});
    expect_nothing_left(result.pid, temporary.path());
  }
  EXPECT_TRUE(result.out.starts_with("Running on a simulated GPU, as asked.\n")) << result.out;
  ASSERT_GT(result.out.size(), 2u) << result.err;
  const size_t last_line = result.out.rfind('\n', result.out.size() - 2) + 1;
  double error = -1;
  int length = -1;
  std::sscanf(result.out.c_str() + last_line, "max share error: %lf points\n%n", &error, &length);
  ASSERT_EQ(last_line + static_cast<size_t>(length), result.out.size()) << result.out << result.err;
  EXPECT_LE(error, kDemoLimitPoints) << result.out;
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(TempDir::read(out.at("trace.json")), HasSubstr("traceEvents"));
}

TEST(Demo, AnInterruptStopsEverything) {
  const TempDir temporary;
  Child demo = start_tool("gpushare-demo", {"--sim", "--json", "--out", "/dev/null"},
                          {"TMPDIR=" + temporary.path().string()});
  const auto warms_up = demo.await(
      "warm up", [&] { return demo.errors().find("warm-up") != std::string::npos; },
      std::chrono::seconds(60));
  EXPECT_TRUE(warms_up) << warms_up.error().message();
  demo.signal(SIGINT);
  const ToolResult result = result_of(demo);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
  expect_nothing_left(result.pid, temporary.path());
}

TEST(Demo, WrongUseIsSaid) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--seconds", "0"}, {"--seconds", "ten"}, {"--sim", "--gpu"}, {"--gold"}, {"now"}}) {
    const ToolResult result = run_tool("gpushare-demo", arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("gpushare-demo"));
  }
  EXPECT_EQ(run_tool("gpushare-demo", {"--help"}).exit_code, 0);
}

// What is run in `gpushare sim` finds its agent and its GPUs, and all of it ends with that.
TEST(Demo, ASimulatedSessionRunsAProgramOnItsGpus) {
  const TempDir temporary;
  const ToolResult result = run_tool(
      "gpushare",
      {"sim", "--gpus", "2", "--", "sh", "-c",
       "gpushare run --tenant mine --weight 300 -- spin --seconds 1 && gpushare status && exit 7"},
      {"TMPDIR=" + temporary.path().string()});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"gpu_share\""));
  EXPECT_THAT(result.out, HasSubstr("simulated GPU"));
  EXPECT_THAT(result.out, HasSubstr("\n  1 "));
  expect_nothing_left(result.pid, temporary.path());
}

// The simulated GPU ends with the program that is named, and takes what still runs on it along.
TEST(Demo, WhatTheHelpOfASessionStartsIsWaitedFor) {
  for (const std::string& example : sim_command().examples) {
    if (!example.contains(" & ")) continue;
    EXPECT_TRUE(example.ends_with("; wait'")) << example;
    const TempDir temporary;
    const std::string built = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const ToolResult result = run_tool("sh", {"-c", "PATH=\"$0/..:$PATH\"; exec " + example, built},
                                       {"TMPDIR=" + temporary.path().string()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("\"gpu_share\"")) << result.err;
    expect_nothing_left(result.pid, temporary.path());
  }
}

TEST(Demo, ASimulatedSessionEndsWhenItIsAskedTo) {
  const TempDir temporary;
  Child session =
      start_tool("gpushare", {"sim", "--", "sh", "-c", "gpushare status; exec sleep 600"},
                 {"TMPDIR=" + temporary.path().string()});
  EXPECT_TRUE(session.await("show the agent", [&] { return !session.output().empty(); }, 60s));
  session.signal(SIGTERM);
  const ToolResult result = result_of(session);
  EXPECT_EQ(session.status(), 128 + SIGTERM);
  expect_nothing_left(result.pid, temporary.path());
}

TEST(Demo, ASimulatedSessionSaysWhatItCannotStart) {
  const TempDir temporary;
  const std::vector<std::string> environment{"TMPDIR=" + temporary.path().string()};
  const ToolResult missing = run_tool("gpushare", {"sim", "--", "/no/such/program"}, environment);
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/program"));
  expect_nothing_left(missing.pid, temporary.path());
  const ToolResult unread =
      run_tool("gpushare", {"sim", "--config", "/no/such/file", "--", "true"}, environment);
  EXPECT_EQ(unread.exit_code, 1);
  EXPECT_THAT(unread.err, HasSubstr("/no/such/file"));
  for (const char* gpus : {"0", "17"}) {
    const ToolResult none =
        run_tool("gpushare", {"sim", "--gpus", gpus, "--", "true"}, environment);
    EXPECT_EQ(none.exit_code, 2) << gpus;
    EXPECT_THAT(none.err, HasSubstr("1 to 16"));
  }
}

}  // namespace
}  // namespace gpushare
