// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/spatial.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "tests/sched/support/spatial_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

std::vector<GpuInfo> h200s(uint32_t count) {
  std::vector<GpuInfo> gpus(count);
  for (uint32_t i = 0; i < count; ++i) {
    gpus[i].index = i;
    gpus[i].sm_count = 132;
    gpus[i].pci = "0000:1" + std::to_string(i) + ":00.0";
  }
  return gpus;
}

constexpr SmGroups kAllGroups = (SmGroups{1} << 16) - 1;

// What the shim does in a process.
struct Program {
  explicit Program(pid_t pid) : id{pid, 1} {}

  bool is_held() const { return (slot->gate & 1) != 0; }
  void launch() {
    if (is_held()) {  // it waits in its first launch
      slot->stripes[0].launches = 1;
      return;
    }
    ++slot->stripes[0].launches;
    for (ShimGpu& gpu : slot->gpus) gpu.applied = gpu.wanted.load();
  }
  // What its launches would run in; without a partition that is all there is.
  SmGroups set(uint32_t gpu = 0) const {
    const SmGroups wanted = slot->gpus[gpu].wanted;
    return wanted == 0 && !is_held() ? kAllGroups : wanted;
  }
  int groups(uint32_t gpu = 0) const { return std::popcount(set(gpu)); }

  ProcessId id;
  uint32_t tenant = 0;
  std::vector<uint32_t> gpus{0};
  LeastPartition least{};
  std::unique_ptr<ShimSlot> slot = std::make_unique<ShimSlot>();
};

class SpatialTest : public ::testing::Test {
 protected:
  uint32_t make(const std::string& tenant, const std::string& percent) {
    return rig_.tenants.set(tenant, std::vector<Setting>{{"sm_percent", percent}}, true).value();
  }
  Program& come(uint32_t tenant) {
    Program& program = *programs_.emplace_back(std::make_unique<Program>(++pids_));
    program.tenant = tenant;
    const ShimRequest wish = rig_.wish(tenant);
    EXPECT_EQ(wish.features, kShimGate | kShimPartitions);
    program.slot->gate = wish.is_closed ? 1 : 0;
    for (std::size_t i = 0; i < wish.gpus.size(); ++i)
      program.slot->gpus[i].wanted = wish.gpus[i].groups;
    return program;
  }
  void go(const Program& program) {
    std::erase_if(programs_, [&](const auto& one) { return one.get() == &program; });
  }
  void step() {
    std::vector<ShimClient> clients;
    for (const auto& program : programs_)
      clients.push_back({.process = program->id,
                         .tenant = program->tenant,
                         .gpus = program->gpus,
                         .slot = program->slot.get(),
                         .least = program->least});
    next_ = rig_.step(now_, std::move(clients));
    now_ += 2ms;
  }
  // Everyone in `working` launches all the time.
  void run(Nanos time, const std::vector<Program*>& working) {
    for (const Time end = now_ + time; now_ < end;) {
      for (Program* program : working) program->launch();
      step();
      expect_disjoint(working);
    }
  }
  // Steps only when the last one has asked for it.
  void run_as_asked(Nanos time, Program& working) {
    const Time end = now_ + time;
    while (std::max(next_, now_) < end) {
      now_ = std::max(next_, now_);
      working.launch();
      step();
      now_ -= 2ms;  // step() goes on by so much
    }
    now_ = end;
  }
  void expect_disjoint(const std::vector<Program*>& working) const {
    for (const Program* a : working)
      for (const Program* b : working)
        if (a->tenant < b->tenant && !a->is_held() && !b->is_held() &&
            rig_.partition(a->tenant, 0).sharers == 1) {
          ASSERT_EQ(a->slot->gpus[0].applied & b->slot->gpus[0].applied, 0u);
        }
  }

  test::SpatialRig rig_{h200s(1)};
  std::vector<std::unique_ptr<Program>> programs_;
  pid_t pids_ = 100;
  Time now_{1s}, next_{};
};

// A program may write into its slot what it likes, also over the end of a text.
TEST(Spatial, ATextWithoutAnEndInASlotIsReadNoFurther) {
  const std::vector<GpuInfo> gpus = h200s(1);
  const Spatial spatial(std::vector<SpatialGpu>{{.info = gpus[0]}});
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  ASSERT_EQ(kShimSlotBytes, page);
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + page, page, PROT_NONE), 0);
  std::memset(pages, 0xff, page);
  auto& slot = *static_cast<ShimSlot*>(pages);
  slot.head.gpu_count = 1;
  EXPECT_FALSE(spatial.fits(slot));
  gpus[0].pci.copy(slot.gpus[0].pci, sizeof slot.gpus[0].pci);
  EXPECT_FALSE(spatial.fits(slot));
  slot.gpus[0].pci[gpus[0].pci.size()] = 0;
  EXPECT_TRUE(spatial.fits(slot));
  ::munmap(pages, 2 * page);
}

TEST_F(SpatialTest, ATenantWithoutAPartIsLeftAlone) {
  const ShimRequest wish = rig_.wish(kDefaultTenant);
  EXPECT_EQ(wish.features, 0u);
}

TEST_F(SpatialTest, TwoTenantsHaveTheirPartsAndSaySo) {
  const uint32_t a = make("a", "50"), b = make("b", "25");
  Program &one = come(a), &two = come(b);
  EXPECT_TRUE(one.is_held());
  run(100ms, {&one, &two});
  EXPECT_FALSE(one.is_held() || two.is_held());
  EXPECT_EQ(rig_.partition(a, 0).entitled, 64u);
  EXPECT_EQ(rig_.partition(b, 0).entitled, 32u);
  EXPECT_EQ(one.groups() + two.groups(), 16) << "what nobody asked for is lent";
  EXPECT_GE(one.groups(), 8);
  EXPECT_GE(two.groups(), 4);
  EXPECT_EQ(rig_.partition(a, 0).in_use, geometry_of(132).sms_of(one.set()));
  EXPECT_EQ(next_, now_ - 2ms + Spatial::kCalmLook);
}

// A kernel whose blocks wait for each other never ends where they are not on the GPU at once.
TEST_F(SpatialTest, APartitionIsNeverSmallerThanAProgramNeeds) {
  Program &one = come(make("a", "10")), &two = come(make("b", "90"));
  one.least = {.percent = 75};
  run(100ms, {&one, &two});
  EXPECT_EQ(one.groups(), 13);
  EXPECT_EQ(two.groups(), 3);
  run(2s, {&two});
  EXPECT_EQ(one.groups(), 13) << "it lends nothing of that";
  two.least = {.percent = 50};
  run(100ms, {&two});
  Program& third = come(make("c", "50"));
  run(100ms, {&one, &two, &third});
  EXPECT_EQ(one.set(), two.set()) << "both do not fit beside each other, so they share one";
  EXPECT_GE(one.groups(), 13);
  EXPECT_EQ(one.set() & third.set(), 0u);
  EXPECT_EQ(rig_.partition(one.tenant, 0).sharers, 2u);
}

// On an H100 a decoder with 40 % was left with one group for as long as it ran, because the driver
// had refused a launch of the training beside it.
TEST_F(SpatialTest, NobodyLosesItsShareToWhatTheDriverHasRefusedAnother) {
  Program &one = come(make("a", "40")), &two = come(make("b", "60"));
  run(100ms, {&one, &two});
  two.slot->needs[0].refused_sms = 120;
  run(100ms, {&one, &two});
  EXPECT_EQ(one.groups(), 7);
  EXPECT_EQ(two.groups(), 9);
  run(2s, {&one});
  EXPECT_EQ(two.groups(), 1) << "it lends as before";
  EXPECT_EQ(one.groups(), 15);
  run(100ms, {&one, &two});
  EXPECT_EQ(one.groups(), 7);
}

TEST_F(SpatialTest, AKernelThatDoesNotEndInItsShareMakesOthersShareTheirs) {
  Program &one = come(make("a", "40")), &two = come(make("b", "60"));
  run(100ms, {&one, &two});
  two.slot->waits = 1;
  two.slot->needs[0].at_once_sms = 120;
  run(Widening::kPatience + 100ms, {&one});
  two.slot->waits = 0;
  two.slot->needs[0].at_once_sms = 0;
  run(100ms, {&one, &two});
  EXPECT_EQ(one.set(), two.set());
  EXPECT_EQ(one.groups(), 16);
  EXPECT_EQ(rig_.partition(one.tenant, 0).sharers, 2u);
}

// A service whose requests come 50 ms apart, beside one that always works.
TEST_F(SpatialTest, WhereThatIsAskedForATenantLendsBetweenTwoRequests) {
  const auto choice =
      test::parse("[gpu.0]\nsharing = 'spatial'\nlend_after_ms = 4\n").value().gpu(0).policy;
  rig_.restart(h200s(1), [&](const GpuView& gpu) { return choice.make(gpu); });
  Program &service = come(make("a", "40")), &other = come(make("b", "60"));
  run(100ms, {&service, &other});
  for (int request = 0; request < 5; ++request) {
    run_as_asked(20ms, other);
    EXPECT_EQ(service.groups(), 1);
    EXPECT_EQ(other.groups(), 15) << "soon enough for what is left of the pause";
    run_as_asked(30ms, other);
    ASSERT_TRUE(rig_.is_held(service.id)) << "its next launch waits for what it has lent";
    service.slot->gate = 1;  // as the agent closes it for that
    service.launch();
    step();
    EXPECT_TRUE(service.is_held()) << "the other has not launched since";
    run(8ms, {&other});
    EXPECT_FALSE(service.is_held());
    run(20ms, {&service, &other});
    EXPECT_EQ(service.groups(), 7);
    EXPECT_EQ(other.groups(), 9);
  }
}

TEST_F(SpatialTest, WhoComesWaitsUntilTheOthersHaveMadeRoom) {
  Program& first = come(make("a", "50"));
  run(50ms, {&first});
  EXPECT_EQ(first.groups(), 16);
  Program& second = come(make("b", "50"));
  second.launch();
  step();
  step();
  EXPECT_TRUE(second.is_held()) << "the first has not launched since";
  EXPECT_EQ(second.set(), 0u);
  EXPECT_EQ(next_, now_ - 2ms + Spatial::kBusyLook);
  first.launch();
  step();
  EXPECT_FALSE(second.is_held());
  EXPECT_GE(second.groups(), 7);
  EXPECT_EQ(first.set() & second.set(), 0u);
}

TEST_F(SpatialTest, WhoDoesNotLaunchNeedNotAnswer) {
  Program& first = come(make("a", "50"));
  run(50ms, {&first});
  Program& second = come(make("b", "50"));
  run(GpuPartitions::kQuiet + 10ms, {&second});
  EXPECT_FALSE(second.is_held());
  EXPECT_NE(second.set(), 0u);
  EXPECT_EQ(first.set() & second.set(), 0u) << "its next launch sees it";
}

TEST_F(SpatialTest, NobodyWaitsForEver) {
  const uint32_t a = make("a", "50");
  Program& first = come(a);
  run(50ms, {&first});
  Program& second = come(make("b", "50"));
  second.launch();
  // The first launches and never answers.
  for (const Time end = now_ + Spatial::kLongestStart + 10ms; now_ < end;) {
    ++first.slot->stripes[0].launches;
    step();
  }
  EXPECT_FALSE(second.is_held());
}

// A program loads for seconds before it launches, and its tenant lends meanwhile.
TEST_F(SpatialTest, TheFirstPartitionIsTheRightOne) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(PlannedPartition::kIdleAfter + 200ms, {&one});
  EXPECT_EQ(one.groups(), 15);
  EXPECT_TRUE(two.is_held()) << "it has not launched";
  EXPECT_LE(next_, now_ + Spatial::kFirstLook);
  two.launch();
  step();
  step();
  EXPECT_TRUE(two.is_held()) << "the other has not given up its half";
  run(20ms, {&one});
  EXPECT_FALSE(two.is_held());
  EXPECT_EQ(two.groups(), 8);
}

TEST_F(SpatialTest, WhoWaitsForItsWorkKeepsWhatItRunsIn) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  const SmGroups had = one.set();
  one.slot->waits = 1;  // for kernels that it launched before
  ASSERT_TRUE(rig_.tenants.set("a", std::vector<Setting>{{"sm_percent", "10"}}, false));
  ASSERT_TRUE(rig_.tenants.set("b", std::vector<Setting>{{"sm_percent", "90"}}, false));
  run(200ms, {&two});
  EXPECT_NE(one.set(), had);
  EXPECT_EQ(two.set() & had, 0u);
  EXPECT_EQ(rig_.partition(one.tenant, 0).in_use, geometry_of(132).sms_of(had));
  one.slot->waits = 0;
  run(50ms, {&two});
  EXPECT_NE(two.set() & had, 0u);
}

// The last waits that it put in line have no write behind them, or its gate holds what is in line.
// So it is not known that nothing of it runs, and it lends nothing; but it does not keep for ever
// what it was told to give up.
TEST_F(SpatialTest, WhoHasWorkInLineAnswersInTheEnd) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  const SmGroups had = one.set();
  one.slot->credit.held = ShimHeld::kOnGpu;
  one.slot->credit.issued = 7;
  one.slot->credit.reached = 5;
  ASSERT_TRUE(rig_.tenants.set("a", std::vector<Setting>{{"sm_percent", "10"}}, false));
  ASSERT_TRUE(rig_.tenants.set("b", std::vector<Setting>{{"sm_percent", "90"}}, false));
  run(GpuPartitions::kQuietWithWork - 100ms, {&two});
  EXPECT_EQ(two.set() & had, 0u);
  run(200ms, {&two});
  EXPECT_NE(two.set() & had, 0u);
  EXPECT_GT(one.groups(), 1) << "it lends nothing";
  one.slot->credit.reached = 7;
  run(PlannedPartition::kIdleAfter + 100ms, {&two});
  EXPECT_EQ(one.groups(), 1);
}

// Its kernels take longer than the time after which a tenant without launches lends.
TEST_F(SpatialTest, WhoWaitsForALongKernelLendsNothing) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  one.slot->waits = 1;
  run(PlannedPartition::kIdleAfter + 100ms, {&two});
  EXPECT_GE(one.groups(), 7);
  one.slot->waits = 0;
  run(PlannedPartition::kIdleAfter + 100ms, {&two});
  EXPECT_EQ(one.groups(), 1);
}

TEST_F(SpatialTest, ATenantWhoseLaunchesLeaveItsPartIsShown) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  EXPECT_EQ(rig_.partition(one.tenant, 0).follows, ShimFollows::kFollows);
  one.slot->home_launches[0] = 1;
  run(10ms, {&one, &two});
  EXPECT_EQ(rig_.partition(one.tenant, 0).follows, ShimFollows::kLeaves);
  run(6s, {&one, &two});
  EXPECT_EQ(rig_.partition(one.tenant, 0).follows, ShimFollows::kFollows);
}

TEST_F(SpatialTest, AnIdleOneLendsItsPartAndHasItBackWhenItLaunches) {
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  EXPECT_LE(two.groups(), 8);
  run(PlannedPartition::kIdleAfter + 100ms, {&two});
  EXPECT_EQ(two.groups(), 15);
  EXPECT_EQ(one.groups(), 1);
  run(50ms, {&one, &two});
  EXPECT_GE(one.groups(), 7);
  EXPECT_GE(two.groups(), 7);
}

TEST_F(SpatialTest, AChangedSettingMovesThePartsWhileBothRun) {
  const uint32_t a = make("a", "50");
  make("b", "50");
  Program &one = come(a), &two = come(rig_.tenants.find("b").value());
  run(100ms, {&one, &two});
  ASSERT_TRUE(rig_.tenants.set("a", std::vector<Setting>{{"sm_percent", "10"}}, false));
  ASSERT_TRUE(rig_.tenants.set("b", std::vector<Setting>{{"sm_percent", "90"}}, false));
  run(50ms, {&one, &two});
  EXPECT_LE(one.groups(), 3);
  EXPECT_GE(two.groups(), 12);
}

TEST_F(SpatialTest, TheProcessesOfATenantShareItsPart) {
  const uint32_t a = make("a", "50");
  Program &one = come(a), &two = come(make("b", "50"));
  run(100ms, {&one, &two});
  Program& third = come(a);
  EXPECT_EQ(third.set(), one.set()) << "from its first launch on";
  run(50ms, {&one, &two, &third});
  EXPECT_EQ(third.set(), one.set());
  go(one);
  go(third);
  run(50ms, {&two});
  EXPECT_EQ(two.groups(), 16);
  EXPECT_EQ(rig_.partition(a, 0).entitled, 0u);
}

TEST_F(SpatialTest, SetsThatMayComeAreAnnouncedBefore) {
  const uint32_t a = make("a", "56"), b = make("b", "44");
  Program &one = come(a), &two = come(b);
  run(100ms, {&one, &two});
  // Of 16 groups: one more for the one is one less for the other.
  const std::pair<const char*, const char*> kSettings[] = {
      {"50", "50"}, {"44", "56"}, {"38", "62"}};
  for (const auto& [first, second] : kSettings) {
    std::vector<std::vector<SmGroups>> announced;
    for (const Program* program : {&one, &two}) {
      std::vector<SmGroups>& sets = announced.emplace_back();
      for (const auto& each : program->slot->soon[0].sets) sets.push_back(each);
      EXPECT_EQ(std::popcount(sets[0]), program->groups() - 1);
      EXPECT_EQ(std::popcount(sets[1]), program->groups() + 1);
    }
    const int had = one.groups();
    ASSERT_TRUE(rig_.tenants.set("a", std::vector<Setting>{{"sm_percent", first}}, false));
    ASSERT_TRUE(rig_.tenants.set("b", std::vector<Setting>{{"sm_percent", second}}, false));
    run(100ms, {&one, &two});
    EXPECT_EQ(std::abs(one.groups() - had), 1);
    EXPECT_NE(std::ranges::find(announced[0], one.set()), announced[0].end());
    EXPECT_NE(std::ranges::find(announced[1], two.set()), announced[1].end());
  }
  one.gpus = {1};
  run(50ms, {&two});
  for (const auto& each : one.slot->soon[0].sets) EXPECT_EQ(each, 0u) << "it is not there";
  for (const auto& each : two.slot->soon[0].sets)
    EXPECT_NE(each, kAllGroups) << "for all of it no partition is made";
}

TEST_F(SpatialTest, WhatKeepsATenantFromFollowingIsShown) {
  const uint32_t a = make("a", "50");
  Program& one = come(a);
  run(50ms, {&one});
  EXPECT_EQ(rig_.partition(a, 0).follows, ShimFollows::kFollows);
  Program& other = come(a);
  Program& two = come(make("b", "50"));
  one.slot->gpus[0].follows = ShimFollows::kPauses;
  run(50ms, {&other, &two});
  EXPECT_EQ(rig_.partition(a, 0).follows, ShimFollows::kPauses) << "one of its two";
  EXPECT_EQ(rig_.partition(two.tenant, 0).follows, ShimFollows::kFollows);
  one.slot->gpus[0].follows = static_cast<ShimFollows>(1000);
  run(10ms, {&other, &two});
  EXPECT_EQ(rig_.partition(a, 0).follows, ShimFollows::kFollows) << "nobody is believed nonsense";
  run(50ms, {&one, &other, &two});
  EXPECT_EQ(rig_.partition(a, 0).follows, ShimFollows::kFollows);
}

TEST_F(SpatialTest, AProcessHasAPartOfTheGpusThatItUses) {
  rig_.restart(h200s(2), [](const GpuView&) { return test::make_policy("fair"); });
  Program &one = come(make("a", "50")), &two = come(make("b", "50"));
  one.gpus = {0};
  two.gpus = {1};
  run(100ms, {&one, &two});
  EXPECT_EQ(one.groups(0), 16);
  EXPECT_EQ(rig_.partition(one.tenant, 1).entitled, 0u);
  EXPECT_EQ(two.groups(1), 16);
  Program& fresh = come(make("c", "30"));
  fresh.gpus = {};
  run(100ms, {&one, &two, &fresh});
  EXPECT_GT(fresh.groups(0), 0);
  EXPECT_GT(fresh.groups(1), 0);
}

TEST_F(SpatialTest, WhateverHappensNoTwoTenantsLaunchOnOneGroup) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 6; ++i) make("t" + std::to_string(i), std::to_string(10 + 10 * i));
  std::vector<Program*> alive;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t what = below(20);
    if (what == 0 && alive.size() < 12) {
      alive.push_back(&come(rig_.tenants.find("t" + std::to_string(below(6))).value()));
    } else if (what == 1 && !alive.empty()) {
      const std::size_t which = below(static_cast<uint32_t>(alive.size()));
      go(*alive[which]);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (what == 2) {
      ASSERT_TRUE(rig_.tenants.set(
          "t" + std::to_string(below(6)),
          std::vector<Setting>{{"sm_percent", std::to_string(1 + below(100))}}, false));
    }
    // Each of these launches often enough to answer, or not for a while.
    for (Program* program : alive)
      if (below(3) != 0) program->launch();
    step();
    expect_disjoint(alive);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace gpushare
