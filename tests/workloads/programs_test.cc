// SPDX-License-Identifier: Apache-2.0
// Runs every workload on the stand-in libcuda over a simulated GPU. Tests that it succeeds, that
// its results are right and the same every time, and how it ends on an error.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "intercept/sim/server/server.h"
#include "shmctl/program/temp_folder.h"
#include "tests/support/started.h"
#include "tests/workloads/common/output.h"

namespace gpushare {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{8} << 30;

struct Outcome : test::Outcome {
  // Of the last line; "" if it has no such member.
  std::string member(const std::string& key) const {
    const std::string lines = out.substr(0, out.find_last_not_of('\n') + 1);
    return text_in(lines.substr(lines.rfind('\n') + 1), key);
  }
};

class Workloads : public testing::Test {
 protected:
  void SetUp() override {
    auto server = sim::Server::listen({.socket = folder_.at("sim.sock"),
                                       .gpus = {2, {.memory_bytes = kMemoryBytes}},
                                       .parameters = {}});
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
  }

  Outcome run(const std::string& name, std::vector<std::string> arguments, bool has_gpu = true) {
    const std::string build = test::build_folder();
    std::vector<std::string> variables{
        "LD_LIBRARY_PATH=" + build + "/lib/sim",
        "GPUSHARE_SIM=" + folder_.at(has_gpu ? "sim.sock" : "nothing")};
    for (const char* option : {"TSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"})
      if (const char* value = std::getenv(option))
        variables.push_back(std::string(option) + "=" + value);
    arguments.insert(arguments.begin(), build + "/bin/workloads/" + name);
    return {test::outcome_of(*test::started(std::move(arguments), std::move(variables)))};
  }

  void expect_right(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.member("verified"), "true") << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }

  const TempFolder folder_ = test::needed(TempFolder::make("gs-work"));
  std::unique_ptr<sim::Server> server_;
  std::thread thread_;
};

TEST_F(Workloads, SpinsChecksumDependsOnCountAndSeedOnly) {
  const auto spin = [&](const char* seed, const char* us, const char* depth) {
    Outcome outcome = run("spin", {"--count", "20", "--ns-per-unit", "130", "--seed", seed,
                                   "--kernel-us", us, "--depth", depth});
    expect_right(outcome);
    EXPECT_EQ(outcome.member("kernels"), "20");
    return outcome.member("checksum");
  };
  const std::string first = spin("1", "500", "8");
  EXPECT_EQ(spin("1", "200", "1"), first);
  EXPECT_NE(spin("2", "500", "8"), first);
}

TEST_F(Workloads, SpinMeasuresAUnitAndMixesLengths) {
  const Outcome outcome = run("spin", {"--seconds", "0.1", "--kernel-us-min", "50",
                                       "--kernel-us-max", "5000", "--report-ms", "10"});
  expect_right(outcome);
  const double ns = std::stod(outcome.member("ns_per_unit"));
  EXPECT_GT(ns, 120);
  EXPECT_LT(ns, 140);
  EXPECT_TRUE(outcome.out.starts_with("{\"t_ns\":")) << outcome.out;
}

TEST_F(Workloads, SpinKeepsSeveralDevicesBusyAtOnce) {
  const std::vector<std::string> work{"--count", "100", "--ns-per-unit", "130"};
  const auto on = [&](std::vector<std::string> devices) {
    devices.insert(devices.end(), work.begin(), work.end());
    const Outcome outcome = run("spin", devices);
    expect_right(outcome);
    return outcome;
  };
  const Outcome both = on({"--devices", "0,1"});
  EXPECT_EQ(both.member("kernels"), "200");
  EXPECT_EQ(both.member("device0_kernels"), "100");
  EXPECT_EQ(both.member("device1_kernels"), "100");
  // From when the last one began to when the first one ended.
  EXPECT_LT(std::stoull(both.member("start_ns")), std::stoull(both.member("end_ns")));
  EXPECT_NEAR(std::stod(both.member("units_per_ms")),
              std::stod(both.member("device0_units_per_ms")) +
                  std::stod(both.member("device1_units_per_ms")),
              0.01);

  const Outcome second = on({"--device", "1"});
  EXPECT_EQ(second.member("kernels"), "100");
  EXPECT_EQ(second.member("device1_kernels"), "");
  const auto value = [](const Outcome& outcome) {
    return std::stoul(outcome.member("checksum"), nullptr, 16);
  };
  EXPECT_EQ(value(both), static_cast<uint32_t>(2 * value(second)));
}

TEST_F(Workloads, EndlessHasOneChecksumHoweverLongItRuns) {
  const Outcome shorter = run("endless", {"--seconds", "0.05"});
  const Outcome longer = run("endless", {"--seconds", "0.1", "--report-ms", "20"});
  expect_right(shorter);
  expect_right(longer);
  EXPECT_EQ(shorter.member("checksum"), longer.member("checksum"));
  EXPECT_GT(std::stoull(longer.member("turns")), 132u);
}

TEST_F(Workloads, PeriodicTakesAtLeastItsKernel) {
  const Outcome outcome =
      run("periodic", {"--samples", "10", "--period-us", "2000", "--ns-per-unit", "130"});
  expect_right(outcome);
  EXPECT_GE(std::stod(outcome.member("min_us")), 99.0);
  EXPECT_GE(std::stod(outcome.member("p99_us")), std::stod(outcome.member("p50_us")));
}

TEST_F(Workloads, LaunchTimesEveryLaunch) {
  const Outcome outcome =
      run("launch", {"--count", "1000", "--sync-count", "50", "--streams", "4"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(std::stod(outcome.member("launch_p50_ns")), 0.0);
  EXPECT_GT(std::stod(outcome.member("sync_p50_ns")), std::stod(outcome.member("launch_p50_ns")));
}

TEST_F(Workloads, CopyBringsEveryByteBack) {
  expect_right(run("copy", {"--bytes", "1000000", "--rounds", "3"}));
}

TEST_F(Workloads, WithinFillsAndCopiesInOrder) {
  for (const char* stream : {"legacy", "per-thread", "blocking", "non-blocking", "none"}) {
    expect_right(run("within", {"--bytes", "40000", "--rounds", "20", "--stream", stream}));
    expect_right(
        run("within", {"--bytes", "40000", "--rounds", "2", "--stream", stream, "--host", "1"}));
  }
}

TEST_F(Workloads, HashEqualsTheSameWorkOnTheHost) {
  const Outcome outcome = run("hash", {"--rounds", "10", "--words", "10000", "--streams", "5"});
  expect_right(outcome);
  EXPECT_EQ(
      run("hash", {"--rounds", "10", "--words", "10000", "--streams", "5"}).member("checksum"),
      outcome.member("checksum"));
}

TEST_F(Workloads, ChurnEndsWithItsChecksum) {
  const Outcome outcome = run("churn", {});
  expect_right(outcome);
  EXPECT_EQ(run("churn", {"--units", "5"}).member("checksum"), outcome.member("checksum"));
}

TEST_F(Workloads, MemhogHoldsWhatItAskedFor) {
  const Outcome outcome = run("memhog", {"--bytes", "300000000", "--hold-ms", "0"});
  expect_right(outcome);
  EXPECT_EQ(outcome.member("held_bytes"), "300000000");
}

TEST_F(Workloads, MemhogEndsWithTheCudaErrorWhenMemoryIsOut) {
  const Outcome outcome =
      run("memhog", {"--bytes", "12000000000", "--chunk", "3000000000", "--hold-ms", "0"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.member("held_bytes"), "6000000000");
  EXPECT_NE(outcome.err.find("cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos)
      << outcome.err;
}

TEST_F(Workloads, WithoutAGpuTheySayWhereTheyLooked) {
  const Outcome outcome = run("churn", {}, false);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("CUDA_ERROR_NO_DEVICE"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(folder_.at("nothing")), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Workloads, WrongUseIsStatus2AndHelpIs0) {
  EXPECT_EQ(run("spin", {"--secnods", "1"}).status, 2);
  EXPECT_EQ(run("spin", {"--seconds", "-1"}).status, 2);
  EXPECT_EQ(run("spin", {"--count", "1.5"}).status, 2);
  EXPECT_EQ(run("spin", {"--seconds"}).status, 2);
  EXPECT_EQ(run("spin", {"--kernel-us-min", "5"}).status, 2);
  EXPECT_EQ(run("spin", {"--depth", "0"}).status, 2);
  const Outcome above = run("launch", {"--rounds", "10001"});
  EXPECT_EQ(above.status, 2);
  EXPECT_NE(above.err.find("1 to 10000"), std::string::npos) << above.err;
  for (const char* devices : {"", "0,", ",1", "0;1", "0,,1", "1,1", "all"})
    EXPECT_EQ(run("spin", {"--devices", devices}).status, 2) << devices;
  EXPECT_EQ(run("spin", {"--devices", "0,2"}).status, 1) << "there is no third";
  for (const char* name :
       {"spin", "endless", "periodic", "launch", "copy", "hash", "churn", "memhog"}) {
    const Outcome help = run(name, {"--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("--device"), std::string::npos) << help.out;
  }
}

}  // namespace
}  // namespace gpushare
