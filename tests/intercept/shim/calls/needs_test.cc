// SPDX-License-Identifier: Apache-2.0
// What threads that launch and wait leave in the slot of what their kernels need at once. Each
// launches by way of a graph, which needs what was captured.
#include "intercept/shim/calls/needs.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>

#include "tests/support/sanitized.h"

namespace gpushare::shim {

// --- what the library has elsewhere -------------------------------------------------------------

constinit std::atomic<uint32_t> captured_sms{0};
static constinit Process the_process{};
namespace detail {
constinit std::atomic<Process*> process{&the_process};
}
uint32_t attach() { return 0; }
void* program_function(const char*) { return nullptr; }

namespace {

constexpr uint32_t kFew = 50, kMany = 100;
constexpr int kGpu = 1;

class Needs : public testing::Test {
 protected:
  Needs() { the_process.slot = slot_.get(); }
  ~Needs() override {
    note_end();
    the_process.slot = nullptr;
  }
  static void launch(uint32_t sms) {
    captured_sms = sms;
    note_graph(kGpu);
  }
  void wait() {
    begin_wait(*slot_);
    end();
  }
  void end() {
    end_wait(*slot_);
    note_end();
  }
  void wait_in_another_thread() {
    std::jthread([this] { wait(); });
  }
  uint32_t said() const { return slot_->needs[kGpu].at_once_sms; }

  const std::unique_ptr<ShimSlot> slot_ = std::make_unique<ShimSlot>();
};

TEST_F(Needs, AreSaidUntilTheHostHasSeenTheWorkEnd) {
  launch(kFew);
  launch(kMany);
  launch(kFew);
  EXPECT_EQ(said(), kMany);
  wait();
  EXPECT_EQ(said(), 0u);
  begin_wait(*slot_);
  EXPECT_EQ(said(), 0u) << "it waits for what others have launched";
  end();
}

TEST_F(Needs, OfWhoWaitsStayWhenAnotherThreadsWaitEnds) {
  launch(kMany);
  begin_wait(*slot_);
  wait_in_another_thread();
  EXPECT_EQ(said(), kMany);
  end();
  EXPECT_EQ(said(), 0u);
}

TEST_F(Needs, AreSaidAgainByWhoBeginsToWait) {
  launch(kMany);
  launch(kFew);
  wait_in_another_thread();
  begin_wait(*slot_);
  EXPECT_EQ(said(), kMany);
  end();
}

TEST_F(Needs, AreSaidInTheSlotOfTheNextAgent) {
  launch(kMany);
  const auto next = std::make_unique<ShimSlot>();
  the_process.slot = next.get();
  begin_wait(*next);
  EXPECT_EQ(next->needs[kGpu].at_once_sms, kMany);
  end_wait(*next);
  note_end();
  the_process.slot = slot_.get();
}

// A word that another thread raises whenever this one has looked at it.
struct Contended {
  uint32_t load(std::memory_order) {
    const uint32_t seen = value;
    value = by_the_other;
    return seen;
  }
  void store(uint32_t said, std::memory_order) { value = said; }
  bool compare_exchange_weak(uint32_t& seen, uint32_t said, std::memory_order) {
    if (value == seen) return value = said, true;
    return seen = value, false;
  }
  uint32_t value = 0, by_the_other = 0;
};

TEST_F(Needs, OfTwoThatAreSaidAtOnceTheMoreCounts) {
  Contended more{.by_the_other = kMany}, less{.by_the_other = kFew};
  raise(more, kFew);
  EXPECT_EQ(more.value, kMany);
  raise(less, kMany);
  EXPECT_EQ(less.value, kMany);
}

TEST_F(Needs, AreNotLostWhereOneBeginsToWaitWhileAnothersWaitEnds) {
  constexpr int kRounds = GS_IS_SANITIZED ? 2'000 : 20'000;
  std::barrier both(2);
  int lost = 0;
  std::jthread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      both.arrive_and_wait();
      wait();
      both.arrive_and_wait();
    }
  });
  captured_sms = kMany;
  for (int i = 0; i < kRounds; ++i) {
    note_graph(kGpu);
    both.arrive_and_wait();
    begin_wait(*slot_);
    both.arrive_and_wait();
    lost += said() != kMany ? 1 : 0;
    end();
  }
  other.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace gpushare::shim
