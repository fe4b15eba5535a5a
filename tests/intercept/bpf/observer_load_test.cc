// SPDX-License-Identifier: Apache-2.0
// Tests that of many simultaneous calls all are seen, in order, or counted as lost.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>
#include <thread>

#include "tests/intercept/bpf/observer_fixture.h"

namespace gpushare {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST_F(BpfObserverTest, CountsWhatAFullRingCouldNotTake) {
  start({.ring_bytes = 4096, .accept_any_file = true});
  constexpr uint32_t kCalls = 100;
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    for (uint32_t i = 0; i < kCalls; ++i) rm_free(fd, 1, i);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<EventsLost>(), SizeIs(1));
  EXPECT_EQ(all<EventsLost>()[0].count, observer_->dropped());
  const size_t seen = all<ObjectFreed>().size();
  EXPECT_GT(seen, 0u);
  EXPECT_GT(observer_->dropped(), 0u);
  EXPECT_EQ(seen + observer_->dropped(), kCalls) << "the exit is shorter and still fits";
  EXPECT_TRUE(std::holds_alternative<EventsLost>(events_.back().what));
}

TEST_F(BpfObserverTest, FindsOutAboutAnExitThatWasLost) {
  start({.ring_bytes = 4096, .accept_any_file = true});
  const Fd file = driver_->open();
  HeldChild early([fd = file.get()] {
    rm_free(fd, 1, 1);
    ::raise(SIGSTOP);
  });
  early.go();
  ASSERT_EQ(::waitpid(early.process().pid, nullptr, WUNTRACED), early.process().pid);
  // Fill the ring to the last byte: long records first, then exits only.
  for (int i = 0; i < 8; ++i) {
    HeldChild filler([fd = file.get()] {
      for (uint32_t n = 0; n < 20; ++n) rm_free(fd, 1, n);
    });
    EXPECT_EQ(filler.finish(), 0);
  }
  ::kill(early.process().pid, SIGCONT);
  EXPECT_EQ(early.finish(), 0);
  drain();
  EXPECT_THAT(from(early.process()), ElementsAre("opened", "freed 1", "closed"));
  EXPECT_TRUE(std::holds_alternative<EventsLost>(events_.back().what));
}

struct Crowd {
  const char* description;
  int processes, threads;
};

class BpfObserverCrowdTest : public BpfObserverTest, public ::testing::WithParamInterface<Crowd> {};

TEST_P(BpfObserverCrowdTest, SeesEveryObjectInOrderOfItsThread) {
  constexpr uint32_t kObjects = 1000;
  const auto [description, processes, threads] = GetParam();
  const Fd file = driver_->open();
  std::vector<std::unique_ptr<HeldChild>> children;
  for (int p = 0; p < processes; ++p) {
    children.push_back(std::make_unique<HeldChild>([fd = file.get(), count = threads] {
      std::vector<std::thread> workers;
      for (int t = 0; t < count; ++t)
        workers.emplace_back([fd, t] {
          for (uint32_t i = 1; i <= kObjects; ++i)
            rm_alloc(fd, 1, static_cast<uint32_t>(t), kHopperChannel, nullptr, 0, i);
        });
      for (std::thread& worker : workers) worker.join();
    }));
  }
  for (auto& child : children) child->go();
  for (auto& child : children) ASSERT_TRUE(drain_until_closed(child->process()));
  for (auto& child : children) EXPECT_EQ(child->finish(), 0);

  std::map<std::pair<ProcessId, uint32_t>, uint32_t> last;
  for (const DriverEvent& event : events_) {
    const auto* made = std::get_if<ChannelCreated>(&event.what);
    if (made == nullptr) continue;
    ASSERT_EQ(made->channel, ++last[std::pair(event.process, made->parent)]);
  }
  EXPECT_THAT(last, SizeIs(processes * threads));
  for (const auto& [who, count] : last) EXPECT_EQ(count, kObjects);
  EXPECT_EQ(observer_->dropped(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Crowds, BpfObserverCrowdTest,
                         ::testing::Values(Crowd{"threads", 1, 8}, Crowd{"processes", 4, 2}),
                         [](const auto& crowd) { return crowd.param.description; });

}  // namespace
}  // namespace gpushare
