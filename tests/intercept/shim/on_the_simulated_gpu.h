// SPDX-License-Identifier: Apache-2.0
// A test that runs programs on a simulated GPU of its own, with the shim and without. One thread.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {

// The address of that GPU.
inline constexpr const char* kPci = "0000:10:00.0";

using Json = nlohmann::json;

class OnTheSimulatedGpu : public testing::Test {
 protected:
  // `options`: of gpushare-sim.
  explicit OnTheSimulatedGpu(const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{build_folder() + "/bin/gpushare-sim", "--socket", socket()};
    words.insert(words.end(), options.begin(), options.end());
    server_ = started(std::move(words), {});
    needed(server_->await(
        "listen", [&] { return std::filesystem::exists(socket()); }, std::chrono::minutes(5)));
  }

  const std::string& folder() const { return folder_.path(); }
  std::string socket() const { return folder_.at("sim.sock"); }
  std::vector<std::string> more_environment_;  // of programs that start from now on

  // Without the shim if `rig` is null.
  Outcome run(const std::vector<std::string>& arguments, const ShimRig* rig) const {
    return outcome_of(*start(arguments, rig));
  }
  Outcome succeed(const std::vector<std::string>& arguments, const ShimRig* rig) const {
    return success_of(*start(arguments, rig));
  }
  std::unique_ptr<Child> start(const std::vector<std::string>& arguments,
                               const ShimRig* rig) const {
    std::vector<std::string> command = arguments;
    command[0] = build_folder() + "/bin/workloads/" + arguments[0];
    std::vector<std::string> environment{"GPUSHARE_SIM=" + socket(), "GPUSHARE_SIM_STRICT=1",
                                         "LD_LIBRARY_PATH=" + build_folder() + "/lib/sim"};
    environment.insert(environment.end(), more_environment_.begin(), more_environment_.end());
    if (rig != nullptr) {
      environment.push_back("LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so");
      environment.push_back("GPUSHARE_SHIM_SOCKET=" + rig->socket());
    }
    return started(std::move(command), std::move(environment));
  }

  // All programs are to be in this partition.
  static void want(ShimRig& rig, uint64_t groups) {
    rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
  }
  // The partition that the program is in; all ones: it has no slot.
  static uint64_t applied(ShimRig& rig, const Child& program) {
    uint64_t applied = ~uint64_t{0};
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { applied = slot.gpus[0].applied.load(); });
    return applied;
  }
  // Returns false if this program does not follow.
  static bool goes_to(ShimRig& rig, const Child& program, uint64_t groups) {
    want(rig, groups);
    return eventually([&] { return applied(rig, program) == groups; });
  }

  // Sends the program from one partition to another at random until it ends, with announcements or
  // without. It must find its own result right.
  static void expect_right_under_moves(ShimRig& rig, Child& program, std::mt19937& random,
                                       bool announces) {
    while (!program.has_ended()) {
      const uint64_t groups = random() % 14;  // few enough that all can be made
      rig.with_all_slots([&](ShimSlot& slot) {
        slot.gpus[0].wanted.store(groups);
        if (announces) slot.soon[0].sets[random() % kShimSoon].store(random() % 14);
      });
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    const Outcome outcome = success_of(program);
    EXPECT_EQ(last_line(outcome)["verified"], true);
  }

  // Two programs print with the shim what they print without.
  void expect_the_same_output(const ShimRig& rig) const {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"hash", "--rounds", "20"},
          std::vector<std::string>{"copy", "--bytes", "1048576", "--rounds", "2"}}) {
      const Outcome alone = run(command, nullptr), with = run(command, &rig);
      EXPECT_EQ(alone.status, 0) << alone.err;
      EXPECT_EQ(with.status, 0) << with.err;
      EXPECT_EQ(checksum(with), checksum(alone)) << command[0];
    }
  }

  static Json last_line(const Outcome& outcome) {
    const std::string text = outcome.out.substr(0, outcome.out.find_last_not_of('\n') + 1);
    return Json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  }
  static std::string checksum(const Outcome& outcome) {
    const Json line = last_line(outcome);
    return line.is_object() && line.contains("checksum") ? line["checksum"].dump() : outcome.out;
  }

 private:
  const TempFolder folder_ = needed(TempFolder::make("gs-shim-sim"));
  std::unique_ptr<Child> server_;
};

}  // namespace gpushare::test
