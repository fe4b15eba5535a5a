// SPDX-License-Identifier: Apache-2.0
// Tests SimGpu and ModelObserver, which whole-system tests in virtual time use.
#include "intercept/sim/gpu/sim_gpu.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "tests/intercept/sim/programs.h"

namespace gpushare::sim {
namespace {

using namespace std::chrono_literals;

TEST(SimGpu, ControlsTakeTheTimeThatTheDriverTakes) {
  Machine machine;
  Program program(machine, 100);
  SimGpu gpu(machine.model);
  const ModelClock clock(machine.model);
  const auto took = [&](auto call) {
    const Time begun = clock.now();
    EXPECT_TRUE(call().has_value());
    return std::chrono::duration_cast<Micros>(clock.now() - begun);
  };
  // Measured: 559 / 254 us for the 8 channels of a graphics group, 521 / 224 for one.
  const auto all = program.channels();
  EXPECT_NEAR(took([&] { return gpu.freeze(0, all); }).count(), 559, 5);
  EXPECT_NEAR(took([&] { return gpu.thaw(0, all); }).count(), 254, 5);
  const std::vector one{all[0]};
  EXPECT_NEAR(took([&] { return gpu.freeze(0, one); }).count(), 521, 5);
  EXPECT_NEAR(took([&] { return gpu.thaw(0, one); }).count(), 224, 5);
  EXPECT_EQ(took([&] { return gpu.set_slice(program.group(), 5ms); }), 80us);
  EXPECT_EQ(gpu.slice(program.group()), 5000us);
}

TEST(SimGpu, AnInjectedFaultFailsOneCallAndDoesNothing) {
  Machine machine;
  Program program(machine, 100);
  SimGpu gpu(machine.model);
  const uint64_t work = program.endless();
  machine.run_for(1ms);
  gpu.fail_next(std::errc::io_error);
  EXPECT_EQ(gpu.freeze(0, program.channels()).error().code, std::errc::io_error);
  const Nanos before = program.executed(work);
  machine.run_for(1ms);
  EXPECT_EQ(program.executed(work), before + 1ms);
  EXPECT_TRUE(gpu.freeze(0, program.channels()).has_value());
}

TEST(SimGpu, ControlOfARefusedProcessIsNotPermittedOfOthersIs) {
  auto&& [machine, one, two] = TwoPrograms();
  SimGpu gpu(machine.model);
  gpu.refuse(100);
  EXPECT_EQ(gpu.set_slice(one.group(), 1ms).error().code, std::errc::operation_not_permitted);
  EXPECT_EQ(gpu.freeze(0, one.channels()).error().code, std::errc::operation_not_permitted);
  EXPECT_TRUE(gpu.set_slice(two.group(), 1ms).has_value());
  EXPECT_TRUE(gpu.freeze(0, two.channels()).has_value());
}

TEST(SimGpu, ReadsEverySwitchOnceAndFromItsStartOnly) {
  auto&& [machine, one, two] = TwoPrograms();
  one.endless();
  two.endless();
  machine.run_for(100ms);
  SimGpu gpu(machine.model);
  EXPECT_TRUE(gpu.read_switches(0)->records.empty());
  machine.run_for(100ms);
  const auto batch = gpu.read_switches(0).value();
  EXPECT_NEAR(static_cast<double>(batch.records.size()), 2 * 100 / 2.272, 3);
  EXPECT_EQ(batch.complete_until, machine.model.now());
  EXPECT_TRUE(gpu.read_switches(0)->records.empty());
}

TEST(SimGpu, AnAgentScriptedOnTheModelMayControlFromItsTicks) {
  Machine machine;
  Program program(machine, 100);
  SimGpu gpu(machine.model);
  const uint64_t work = program.endless();
  Time frozen_at{};
  machine.model.call_at(Time(10ms), [&] {
    EXPECT_TRUE(gpu.freeze(0, program.channels()).has_value());
    frozen_at = machine.model.now();
  });
  machine.run_for(1s);
  EXPECT_GT(frozen_at, Time(10ms));
  EXPECT_EQ(program.executed(work), frozen_at - Time(82us));
  EXPECT_EQ(machine.model.now(), Time(1s));
}

TEST(ModelObserver, IsReadableWhileEventsArePendingAndSaysWhatWasLost) {
  Machine machine;
  ModelObserver observer(machine.model);
  const auto is_readable = [&] {
    pollfd poll{.fd = observer.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) == 1;
  };
  EXPECT_FALSE(is_readable());
  Program program(machine, 100);
  EXPECT_TRUE(is_readable());
  std::vector<DriverEvent> events;
  const auto drain = [&] {
    return observer.drain([&](DriverEvent&& event) { events.push_back(event); }).value();
  };
  EXPECT_GT(drain(), 0U);
  EXPECT_TRUE(std::holds_alternative<ProcessOpened>(events[0].what));
  EXPECT_FALSE(is_readable());

  machine.model.close_client(program.client);
  observer.lose_pending();
  EXPECT_EQ(drain(), 1U);
  EXPECT_EQ(std::get<EventsLost>(events.back().what).count, 1U);
  EXPECT_EQ(observer.dropped(), 1U);
}

}  // namespace
}  // namespace gpushare::sim
