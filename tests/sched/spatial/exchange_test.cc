// SPDX-License-Identifier: Apache-2.0
// Partitions of programs whose queues never run empty change places: a model of what happens on the
// GPU, in virtual time, and what is lost by it.
#include "sched/spatial/exchange.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <memory>

#include "tests/sched/support/spatial_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Two tenants, 1 and 2, of which 1 has 12 groups and gives up 8.
class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    plan(12, 4);
    sets_.take_assignments();
    for (const uint32_t tenant : {1U, 2U}) sets_.confirm(tenant, sets_.assigned(tenant));
    from_ = {sets_.assigned(1), sets_.assigned(2)};
    plan(4, 12);
    sets_.take_assignments();
    SmSets after = sets_;
    after.confirm(1, after.assigned(1));
    after.take_assignments();
    to_ = {after.assigned(1), after.assigned(2)};
  }
  void plan(uint32_t one, uint32_t two) {
    const std::vector<PlannedSet> sets{{.tenants = {1}, .groups = one},
                                       {.tenants = {2}, .groups = two}};
    sets_.plan(sets);
  }
  void begin(Nanos one, Nanos two) {
    const Exchange::Mover shrinks{.tenant = 1, .from = from_[0], .to = to_[0], .drain = one},
        grows{.tenant = 2, .from = from_[1], .to = to_[1], .drain = two};
    exchange_.begin(now_, {&shrinks, 1}, {&grows, 1});
  }
  void advance(Nanos by) {
    now_ += by;
    exchange_.advance(now_, sets_);
  }
  bool is_told(uint32_t tenant) const {
    const SmGroups told = exchange_.groups(tenant, sets_.assigned(tenant));
    EXPECT_TRUE(told == from_[tenant - 1] || told == to_[tenant - 1]);
    return told == to_[tenant - 1];
  }

  SmSets sets_{geometry_of(132)};
  std::array<SmGroups, 2> from_{}, to_{};
  Exchange exchange_;
  Time now_{1000s};
};

TEST_F(ExchangeTest, TheLongerDrainIsToldFirstAndTheOtherSoMuchAfterItsLaunch) {
  begin(21ms, 64ms);
  EXPECT_TRUE(is_told(2));
  EXPECT_FALSE(is_told(1));
  advance(5ms);
  exchange_.note_gone(1);
  EXPECT_EQ(exchange_.next(), now_ - 5ms + Exchange::kPatience + 43ms) << "it has not launched yet";
  exchange_.note_gone(2);
  EXPECT_EQ(exchange_.next(), now_ + 43ms);
  advance(42ms);
  exchange_.note_gone(2);
  EXPECT_FALSE(is_told(1));
  advance(1ms);
  EXPECT_TRUE(is_told(1));
  EXPECT_EQ(exchange_.next(), Time::max());
  sets_.confirm(1, to_[0]);
  sets_.take_assignments();
  advance(21ms);
  EXPECT_FALSE(exchange_.is_under_way());
  EXPECT_TRUE(is_told(1) && is_told(2));
}

TEST_F(ExchangeTest, WhoShrinksIsToldFirstIfItsDrainIsLonger) {
  begin(64ms, 21ms);
  EXPECT_TRUE(is_told(1));
  EXPECT_FALSE(is_told(2));
  exchange_.note_gone(1);
  advance(30ms);
  sets_.confirm(1, to_[0]);
  sets_.take_assignments();
  EXPECT_TRUE(is_told(2)) << "who has gone sooner than it said is not waited for";
}

TEST_F(ExchangeTest, OneThatDoesNotHappenIsGivenUp) {
  begin(21ms, 64ms);
  advance(Exchange::kPatience);
  EXPECT_FALSE(is_told(1)) << "the other has not launched";
  advance(43ms);
  EXPECT_TRUE(is_told(1));
  advance(21ms + Exchange::kPatience);
  EXPECT_FALSE(exchange_.is_under_way());
  EXPECT_FALSE(is_told(2)) << "nothing was given up for it";
}

TEST_F(ExchangeTest, WhatIsCancelledIsTold) {
  begin(21ms, 64ms);
  exchange_.cancel();
  EXPECT_TRUE(is_told(1));
  EXPECT_FALSE(is_told(2));
}

TEST_F(ExchangeTest, WhoDrainsForLongerThanIsBelievedIsNotWaitedFor) {
  begin(21ms, Exchange::kLongestDrain + 1ns);
  EXPECT_FALSE(exchange_.is_under_way());
}

// --- a GPU and what runs on it

const SmGeometry kGeometry = geometry_of(132);

// Keeps so many kernels in line, in one stream. Each runs where it was launched, in the stream's
// order; a kernel takes `length` in all of the GPU.
struct Stream {
  struct Kernel {
    double left = 0;  // of its work, in ns on the whole GPU
    uint64_t place = 0;
    Time launched{};
    bool is_behind_move = false;  // what was launched elsewhere was in line before it
  };

  Stream(pid_t pid, Nanos kernel, std::size_t kernels)
      : id{pid, 1}, length(kernel), depth(kernels) {}

  void launch(Time now) {
    while (line.size() < depth) {
      ++slot->stripes[0].launches;
      const uint64_t wanted = slot->gpus[0].wanted;
      const bool has_other =
          std::ranges::any_of(line, [&](const Kernel& one) { return one.place != wanted; });
      slot->gpus[0].follows = has_other ? ShimFollows::kWorkRemains : ShimFollows::kFollows;
      if (!has_other) slot->gpus[0].applied = wanted;
      line.push_back({static_cast<double>(length.count()), wanted, now, has_other});
    }
  }
  // The first kernel has ended: what was in front of it when it was launched took so long, less
  // itself.
  void end(Time now) {
    line.pop_front();
    if (says_drain && !line.empty() && !line.front().is_behind_move) {
      ShimDrain& drain = slot->drains[0];
      const int64_t took = (now - line.front().launched).count();
      const auto known = static_cast<int64_t>(drain.ns.load());
      const bool is_first = drain.place != line.front().place || known == 0;
      drain.ns = static_cast<uint64_t>(is_first ? took : known + (took - known) / 4);
      drain.place = line.front().place;
    }
    launch(now);
  }
  SmGroups runs_on() const {
    const uint64_t place = line.empty() ? 0 : line.front().place;
    return place == 0 ? SmGroups{0xFFFF} : place;
  }

  ProcessId id;
  uint32_t tenant = 0;
  Nanos length;
  std::size_t depth;
  bool says_drain = true;
  std::deque<Kernel> line;
  double done = 0;  // ns of the whole GPU
  std::unique_ptr<ShimSlot> slot = std::make_unique<ShimSlot>();
};

class Machine {
 public:
  Machine() {
    GpuInfo gpu;
    gpu.sm_count = 132;
    gpu.pci = "0000:10:00.0";
    rig_ = std::make_unique<test::SpatialRig>(std::vector<GpuInfo>{gpu});
  }
  Stream& add(const std::string& tenant, const char* percent, Nanos kernel, std::size_t depth) {
    set(tenant, percent);
    Stream& stream = *streams_.emplace_back(std::make_unique<Stream>(++pid_, kernel, depth));
    stream.tenant = *rig_->tenants.find(tenant);
    const ShimRequest wish = rig_->wish(stream.tenant);
    stream.slot->gate = 0;
    stream.slot->waits = 1;  // for the kernel that ends next
    for (std::size_t i = 0; i < wish.gpus.size(); ++i)
      stream.slot->gpus[i].wanted = wish.gpus[i].groups;
    return stream;
  }
  void set(const std::string& tenant, const char* percent) {
    rig_->tenants.set(tenant, std::vector<Setting>{{"sm_percent", percent}}, true).value();
    next_step_ = now_;
  }
  void run_for(Nanos time) {
    constexpr Nanos kTick = 100us;
    for (const Time end = now_ + time; now_ < end; now_ += kTick) {
      if (now_ >= next_step_) step();
      for (const auto& stream : streams_) stream->launch(now_);
      const auto ns = static_cast<double>(kTick.count());
      for (const auto& stream : streams_) {
        double part = 0;
        for (uint32_t group = 0; group < 16; ++group) {
          if ((stream->runs_on() >> group & 1) == 0) continue;
          const auto there = std::ranges::count_if(
              streams_, [&](const auto& one) { return (one->runs_on() >> group & 1) != 0; });
          part += kGeometry.sms_of(SmGroups{1} << group) / 132.0 / static_cast<double>(there);
        }
        if (std::ranges::count_if(streams_, [&](const auto& one) {
              return one != stream && (one->runs_on() & stream->runs_on()) != 0;
            }) != 0)
          overlap_ += kTick;
        stream->done += ns * part;
        stream->line.front().left -= ns * part;
        if (stream->line.front().left <= 0) stream->end(now_ + kTick);
      }
    }
  }
  // Whether each runs in what it was told.
  bool is_in_force() const {
    return std::ranges::all_of(streams_, [](const auto& stream) {
      const ShimGpu& own = stream->slot->gpus[0];
      return own.applied == own.wanted && stream->line.front().place == own.wanted;
    });
  }
  int groups(const Stream& stream) const { return std::popcount(stream.runs_on()); }
  Nanos overlap() const { return overlap_ / 2; }
  double done() const {
    double sum = 0;
    for (const auto& stream : streams_) sum += stream->done;
    return sum;
  }
  Time now() const { return now_; }

 private:
  void step() {
    std::vector<ShimClient> clients;
    for (const auto& stream : streams_)
      clients.push_back({.process = stream->id,
                         .tenant = stream->tenant,
                         .gpus = {0},
                         .slot = stream->slot.get()});
    next_step_ = std::max(rig_->step(now_, std::move(clients)), now_ + 1ms);
  }

  std::unique_ptr<test::SpatialRig> rig_;
  std::vector<std::unique_ptr<Stream>> streams_;
  pid_t pid_ = 0;
  Time now_{1000s}, next_step_{};
  Nanos overlap_{};
};

struct Cell {
  const char* name;
  Nanos kernel, between;
  std::size_t depth;
};

class Exchanges : public ::testing::TestWithParam<Cell> {};

// Two tenants with a quarter and three quarters change places a hundred times.
TEST_P(Exchanges, LoseNextToNothing) {
  const Cell& cell = GetParam();
  Machine machine;
  Stream& a = machine.add("a", "25", cell.kernel, cell.depth);
  Stream& b = machine.add("b", "75", cell.kernel, cell.depth);
  machine.run_for(2s + 20 * cell.kernel * cell.depth);
  ASSERT_EQ(machine.groups(a), 4);
  ASSERT_EQ(machine.groups(b), 12);
  const Time begin = machine.now();
  const double before = machine.done();
  const Nanos overlap = machine.overlap();
  int in_force = 0;
  for (int i = 0; i < 100; ++i) {
    const bool is_back = i % 2 == 1;
    machine.set("a", is_back ? "25" : "75");
    machine.set("b", is_back ? "75" : "25");
    machine.run_for(cell.between);
    in_force += machine.is_in_force() && machine.groups(a) == (is_back ? 4 : 12);
  }
  const Nanos took = machine.now() - begin;
  const double lost = 1 - (machine.done() - before) / static_cast<double>(took.count());
  EXPECT_LE(lost, 0.01);
  EXPECT_GE(in_force, 95);
  EXPECT_LE((machine.overlap() - overlap) / 100, 4ms + cell.kernel) << "until the next launch";
}

// As soon after another as a queue in a quarter drains, and 20 ms.
INSTANTIATE_TEST_SUITE_P(Kernels, Exchanges,
                         ::testing::Values(Cell{"Of300us", 300us, 40ms, 8},
                                           Cell{"Of2ms", 2ms, 100ms, 8},
                                           Cell{"Of2msTwoInLine", 2ms, 50ms, 2},
                                           Cell{"Of20ms", 20ms, 720ms, 8}),
                         [](const auto& cell) { return cell.param.name; });

// What it says is wrong: nothing is lost for good, and all have in the end what is theirs.
TEST(Exchange, ADrainThatIsALieDelaysAndDoesNoMore) {
  for (const uint64_t lie : {uint64_t{1}, uint64_t{1'900'000'000}, UINT64_MAX}) {
    Machine machine;
    Stream& a = machine.add("a", "25", 2ms, 8);
    Stream& b = machine.add("b", "75", 2ms, 8);
    b.says_drain = false;
    machine.run_for(2s);
    b.slot->drains[0].ns = lie;
    b.slot->drains[0].place = b.slot->gpus[0].wanted.load();
    machine.set("a", "75");
    machine.set("b", "25");
    machine.run_for(3s);
    EXPECT_EQ(machine.groups(a), 12) << lie;
    EXPECT_EQ(machine.groups(b), 4) << lie;
    EXPECT_TRUE(machine.is_in_force()) << lie;
    const Nanos overlap = machine.overlap();
    machine.run_for(1s);
    EXPECT_EQ(machine.overlap(), overlap) << lie;
  }
}

// It said so in a smaller partition, where it is scaled to less than a nanosecond.
TEST(Exchange, WhoseQueueIsEmptyIsToldWhenTheOthersDrainEnds) {
  Machine machine;
  Stream& a = machine.add("a", "25", 2ms, 8);
  Stream& b = machine.add("b", "75", 2ms, 1);
  b.says_drain = false;
  machine.run_for(2s);
  b.slot->drains[0].ns = 1;
  b.slot->drains[0].place = 1;
  const uint64_t before = b.slot->gpus[0].wanted;
  machine.set("a", "75");
  machine.set("b", "25");
  machine.run_for(5ms);
  EXPECT_EQ(std::popcount(a.slot->gpus[0].wanted.load()), 12) << "it is told at once";
  EXPECT_EQ(b.slot->gpus[0].wanted, before) << "the other one drains for 56 ms";
  machine.run_for(1s);
  EXPECT_TRUE(machine.is_in_force());
  EXPECT_EQ(machine.groups(b), 4);
}

TEST(Exchange, SettingsThatChangeAgainAndAgainMeanwhileAreInForceAtTheEnd) {
  Machine machine;
  Stream& a = machine.add("a", "25", 2ms, 8);
  Stream& b = machine.add("b", "75", 2ms, 8);
  machine.run_for(2s);
  for (const char* percent : {"75", "50", "12", "60", "75", "25", "50"}) {
    machine.set("a", percent);
    machine.set("b", std::to_string(100 - std::atoi(percent)).c_str());
    machine.run_for(17ms);
  }
  machine.run_for(1s);
  EXPECT_EQ(machine.groups(a), 8);
  EXPECT_EQ(machine.groups(b), 8);
  EXPECT_TRUE(machine.is_in_force());
}

}  // namespace
}  // namespace gpushare
