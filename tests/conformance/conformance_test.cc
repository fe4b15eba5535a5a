// SPDX-License-Identifier: Apache-2.0
// The scenes on the stand-in libcuda, with the shim and without: they always say what expected.h
// says, which is what the driver of a GPU says.
#include <random>

#include "intercept/sim/gpu/remote_gpu.h"
#include "shmctl/shim/credit.h"
#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

class Conformance : public OnTheSimulatedGpu {
 protected:
  static void expect_right(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("\nseen "), std::string::npos) << outcome.err;
  }
  // Plays the scenes again and again, and calls `disturb` as often as it can meanwhile.
  void expect_undisturbed(ShimRig& rig, const std::function<void(const Child&)>& disturb) {
    const auto program = start({"conformance", "--repeat", "20"}, &rig);
    while (!program->has_ended()) {
      disturb(*program);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    expect_right(outcome_of(*program));
  }
};

TEST_F(Conformance, OnTheStandIn) { expect_right(run({"conformance"}, nullptr)); }

TEST_F(Conformance, WithEveryFeatureInTheWholeGpu) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  expect_right(run({"conformance"}, &rig));
}

TEST_F(Conformance, InAPartition) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  expect_right(run({"conformance"}, &rig));
}

TEST_F(Conformance, UnderRandomMoves) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  expect_undisturbed(rig, [&](const Child&) {
    const uint64_t groups = random() % 14;  // few enough that all can be made
    rig.with_all_slots([&](ShimSlot& slot) {
      slot.gpus[0].wanted.store(groups);
      slot.soon[0].sets[0].store(random() % 14);
    });
  });
}

TEST_F(Conformance, WhileTheGateClosesAndOpens) {
  ShimRig rig(kShimGate);
  bool is_closed = false;
  expect_undisturbed(rig, [&](const Child&) {
    is_closed = !is_closed;
    rig.with_all_slots([&](ShimSlot& slot) {
      is_closed ? ShimHost::close_gate(slot) : ShimHost::open_gate(slot);
    });
  });
}

TEST_F(Conformance, WhileCreditComesAndGoes) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(3);
  expect_undisturbed(rig, [&](const Child&) {
    rig.with_all_slots([&](ShimSlot& slot) {
      if (random() % 8 == 0) slot.gpus[0].wanted.store(random() % 14);
      random() % 2 == 0 ? close_credit(slot) : open_credit(slot);
    });
  });
}

std::vector<ChannelRef> channels_of(Gpu& gpu, pid_t pid) {
  std::vector<ChannelRef> channels;
  const auto objects = gpu.attach(pid)->finish();
  if (!objects) return channels;  // the program has none yet, or has ended
  for (const DriverEvent& event : *objects)
    if (const auto* channel = std::get_if<ChannelCreated>(&event.what))
      channels.push_back({channel->client, channel->channel});
  return channels;
}

TEST_F(Conformance, WhileItIsFrozenAndMoves) {
  auto gpu = sim::make_sim_gpu(socket());
  ASSERT_TRUE(gpu.has_value()) << gpu.error().message();
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(2);
  std::vector<ChannelRef> channels;
  bool is_frozen = false;
  uint64_t freezes = 0;
  expect_undisturbed(rig, [&](const Child& program) {
    const uint64_t groups = random() % 14;
    rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
    if (channels.empty()) channels = channels_of(**gpu, program.pid());
    if (channels.empty()) return;
    // This is refused if the program has just ended.
    is_frozen = !is_frozen;
    const auto done = is_frozen ? (*gpu)->freeze(0, channels) : (*gpu)->thaw(0, channels);
    freezes += is_frozen && done.has_value() ? 1 : 0;
  });
  EXPECT_GT(freezes, 0u);
}

// Clients of one MPS server play the scenes at the same time.
TEST_F(Conformance, BesideAnotherClientOfMps) {
  ShimRig rig(kShimFeatures, {{kPci, 0b110}});
  more_environment_ = {"GPUSHARE_SIM_MPS=4711"};
  const auto first = start({"conformance", "--repeat", "3"}, &rig),
             second = start({"conformance", "--repeat", "3"}, nullptr);
  expect_right(outcome_of(*first));
  expect_right(outcome_of(*second));
}

}  // namespace
}  // namespace gpushare::test
