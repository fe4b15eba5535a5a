// SPDX-License-Identifier: Apache-2.0
// Ordinary CUDA programs on the simulated GPU, with the shim and without: they print the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/shim/shim_rig.h"

namespace gpushare::test {
namespace {

using Json = nlohmann::json;

class OnTheSimulatedGpu : public testing::Test {
 protected:
  OnTheSimulatedGpu() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gs-shim-sim-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    server_ = std::make_unique<Program>(
        std::vector<std::string>{build_folder() + "/bin/gpushare-sim", "--socket", socket()},
        std::vector<std::string>{});
    EXPECT_TRUE(ShimRig::eventually([&] { return std::filesystem::exists(socket()); }));
  }
  ~OnTheSimulatedGpu() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string socket() const { return folder_ + "/sim.sock"; }

  // With `rig` under the shim.
  Outcome run(const std::vector<std::string>& arguments, const ShimRig* rig) const {
    std::vector<std::string> command = arguments;
    command[0] = build_folder() + "/bin/workloads/" + arguments[0];
    std::vector<std::string> environment{"GPUSHARE_SIM=" + socket(),
                                         "LD_LIBRARY_PATH=" + build_folder() + "/lib/sim"};
    if (rig != nullptr) {
      environment.push_back("LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so");
      environment.push_back("GPUSHARE_SHIM_SOCKET=" + rig->socket());
    }
    return Program(command, environment).wait();
  }

  static std::string checksum(const Outcome& outcome) {
    const Json line = Json::parse(outcome.out, nullptr, false);
    return line.is_object() && line.contains("checksum") ? line["checksum"].dump() : outcome.out;
  }

 private:
  std::string folder_;
  std::unique_ptr<Program> server_;
};

TEST_F(OnTheSimulatedGpu, ProgramsPrintTheSame) {
  ShimRig rig(kShimGate);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"hash", "--rounds", "20"},
        std::vector<std::string>{"copy", "--bytes", "1048576", "--rounds", "2"}}) {
    const Outcome alone = run(command, nullptr), with = run(command, &rig);
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(checksum(with), checksum(alone)) << command[0];
  }
}

TEST_F(OnTheSimulatedGpu, EveryLaunchIsCounted) {
  ShimRig rig(kShimGate);
  const Outcome outcome = run({"launch", "--count", "1000", "--sync-count", "100"}, &rig);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(rig.launches_of_all(), 500u + 1000u + 100u) << "500 to warm up";
}

}  // namespace
}  // namespace gpushare::test
