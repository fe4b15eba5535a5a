// SPDX-License-Identifier: Apache-2.0
// Starts the simulated GPU's server before the tests of the stand-in libcuda.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "intercept/sim/server/server.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

class SimulatedGpu : public testing::Environment {
 public:
  void SetUp() override {
    const std::string socket = folder_.at("sim.sock");
    auto server = sim::Server::listen(
        {.socket = socket, .gpus = std::vector<sim::GpuModel>(2), .parameters = {}});
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    ::setenv("GPUSHARE_SIM", socket.c_str(), 1);
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
    server_.reset();
  }

 private:
  const TempFolder folder_ = TempFolder::make("gs-cuda").value();
  std::unique_ptr<sim::Server> server_;
  std::thread thread_;
};

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new gpushare::SimulatedGpu);
  return RUN_ALL_TESTS();
}
