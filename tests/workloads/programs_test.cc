// SPDX-License-Identifier: Apache-2.0
// Runs every workload on the stand-in libcuda over a simulated GPU. Tests that it succeeds, that
// its results are right and the same every time, and how it ends on an error.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "intercept/sim/server/server.h"
#include "shmctl/base/fd.h"
#include "tests/workloads/common/output.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMemoryBytes = uint64_t{8} << 30;

struct Outcome {
  int status = -1;
  std::string out, err;

  std::string last_line() const {
    std::istringstream lines(out);
    std::string line, last;
    while (std::getline(lines, line)) last = line;
    return last;
  }
  // Of the last line; "" if it has no such member.
  std::string member(const std::string& key) const { return text_in(last_line(), key); }
};

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part;
  ssize_t got = 0;
  while ((got = ::read(fd, part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<size_t>(got));
  return text;
}

class Workloads : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "gs-work-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    auto server = sim::Server::listen({.socket = folder + "/sim.sock",
                                       .gpus = {2, {.memory_bytes = kMemoryBytes}},
                                       .parameters = {}});
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
    fs::remove_all(folder_);
  }

  // The outputs are small: each fits into its pipe, so they can be read one after the other.
  Outcome run(const std::string& name, std::vector<std::string> arguments, bool has_gpu = true) {
    const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
    const std::string path = build / "workloads" / name;
    std::vector<std::string> variables{
        "LD_LIBRARY_PATH=" + (build.parent_path() / "lib/sim").string(),
        "GPUSHARE_SIM=" + (has_gpu ? folder_ + "/sim.sock" : folder_ + "/nothing")};
    for (const char* name_of : {"TSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"})
      if (const char* value = std::getenv(name_of))
        variables.push_back(std::string(name_of) + "=" + value);
    arguments.insert(arguments.begin(), path);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    int out[2], err[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(err, O_CLOEXEC), 0);
    const Fd out_read(out[0]), err_read(err[0]);
    Fd out_write(out[1]), err_write(err[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
    ::posix_spawn_file_actions_adddup2(&actions, err_write.get(), 2);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, path.c_str(), &actions, nullptr, pointers(arguments).data(),
                            pointers(variables).data()),
              0)
        << path;
    ::posix_spawn_file_actions_destroy(&actions);
    out_write.reset();
    err_write.reset();
    Outcome outcome;
    outcome.out = read_all(out_read.get());
    outcome.err = read_all(err_read.get());
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }

  void expect_right(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.member("verified"), "true") << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }

  std::string folder_;
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
  EXPECT_NE(outcome.err.find(folder_ + "/nothing"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Workloads, WrongUseIsStatus2AndHelpIs0) {
  EXPECT_EQ(run("spin", {"--secnods", "1"}).status, 2);
  EXPECT_EQ(run("spin", {"--seconds", "-1"}).status, 2);
  EXPECT_EQ(run("spin", {"--count", "1.5"}).status, 2);
  EXPECT_EQ(run("spin", {"--seconds"}).status, 2);
  EXPECT_EQ(run("spin", {"--kernel-us-min", "5"}).status, 2);
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
