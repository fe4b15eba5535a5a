// SPDX-License-Identifier: Apache-2.0
// What processes have left, and what is remembered of those of an agent before: invariant 5 of
// registry.h.
#include "tests/sched/registry/registry_fixture.h"

namespace gpushare {
namespace {

using test::event;
using test::Handles;
using test::program;
using test::RegistryTest;

TEST_F(RegistryTest, WhoHasEndedStaysUntilTheDriverHasNothingOfIt) {
  for (const bool by_exec : {false, true}) {
    apply(program(kProcess, kContext, 1));
    registry_.apply(event(kProcess, ProcessClosed{.by_exec = by_exec}));
    ASSERT_NE(registry_.holder(kProcess, 0), nullptr);
    EXPECT_TRUE(registry_.find(kProcess)->ended.has_value());
    EXPECT_EQ(registry_.ended(), std::set<pid_t>{kProcess.pid});
    const std::vector<ObjectRef> left = registry_.unsettled();
    EXPECT_EQ(std::ranges::count(left, kItsClient), 1);
    EXPECT_EQ(std::ranges::count(left, kItsGroup), 1);
    gone({kItsGroup});
    EXPECT_EQ(registry_.holder(kProcess, 0), nullptr);
    ASSERT_NE(registry_.find(kProcess), nullptr) << "another group may be made in its client";
    gone({kItsClient});
    EXPECT_TRUE(registry_.processes().empty());
    EXPECT_FALSE(registry_.has_unsettled());
  }
}

TEST_F(RegistryTest, WhoHasEndedAndHadNothingIsForgotten) {
  registry_.apply(event(kProcess, ProcessOpened{}));
  registry_.apply(event(kProcess, ProcessClosed{}));
  EXPECT_TRUE(registry_.processes().empty());
}

// Its own descriptors were closed by the exec, and a child has copies of them.
TEST_F(RegistryTest, WhatWasLeftByAnExecStaysWhileTheNextProgramWorks) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{.by_exec = true}));
  Handles next = kContext;
  ++next.client;
  apply(program(kProcess, next, 1));
  EXPECT_FALSE(registry_.find(kProcess)->ended);
  ASSERT_EQ(registry_.holder(kProcess, 0)->groups.size(), 2u);
  const auto known = registry_.objects(kProcess.pid);
  registry_.reconcile(kProcess, program(kProcess, next, 1), known);
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups.size(), 2u) << "a search does not find it";
  gone({kItsClient, {next.client, next.client}});
  ASSERT_EQ(registry_.holder(kProcess, 0)->groups.size(), 1u) << "only what was left can be gone";
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups[0].ref.client, next.client);
}

TEST_F(RegistryTest, WhatAnHeirMakesInAClientThatWasLeftIsTheOwners) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  registry_.apply(event(kChild, GroupCreated{.client = kContext.client,
                                             .device = kContext.device,
                                             .group = 0x99,
                                             .engine = Engine::kGraphics,
                                             .fd = 7}));
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups.size(), 2u);
  EXPECT_EQ(registry_.find(kChild), nullptr);
}

// Who has no descriptor of it can say so, too.
TEST_F(RegistryTest, WhatIsSaidToBeFreedInAClientThatWasLeftIsAskedFor) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  const uint64_t before = registry_.leavings();
  registry_.apply(event(kChild, ObjectFreed{kContext.client, kContext.client}));
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_GT(registry_.leavings(), before);
}

TEST_F(RegistryTest, WhatIsMadeWhileTheDriverIsAskedIsNotGone) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  const uint64_t asked = registry_.last_serial();
  registry_.apply(event(kChild, GroupCreated{.client = kContext.client,
                                             .device = kContext.device,
                                             .group = kContext.group,
                                             .engine = Engine::kGraphics,
                                             .fd = 3}));  // all as before
  registry_.gone(std::span(&kItsGroup, 1), asked);
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr);
  gone({kItsGroup});
  EXPECT_EQ(registry_.holder(kProcess, 0), nullptr);
}

// It had a device and no group when it ended.
TEST_F(RegistryTest, WhatAnHeirMakesInAClientWithoutGroupsIsTheOwnersToo) {
  auto events = program(kProcess, kContext, 1);
  events.resize(3);
  apply(events);
  registry_.apply(event(kProcess, ProcessClosed{}));
  registry_.apply(event(kChild, GroupCreated{.client = kContext.client,
                                             .device = kContext.device,
                                             .group = kContext.group,
                                             .engine = Engine::kGraphics,
                                             .fd = 7}));
  ASSERT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups.size(), 1u);
}

// It may hold the descriptor alone, and have rewritten the arguments of another call.
TEST_F(RegistryTest, WhoSaysThatItMadeAClientThatWasLeftIsNotBelieved) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  const uint64_t before = registry_.leavings();
  registry_.apply(event(kChild, ClientCreated{.client = kContext.client, .fd = 3}));
  ASSERT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups[0].channels.size(), 8u);
  EXPECT_GT(registry_.leavings(), before);
}

// The handle was free, and it has chosen it: the switch log shows that it works.
TEST_F(RegistryTest, WhoWorksInAClientThatWasLeftHasMadeIt) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  apply(program(kChild, kContext, 1));
  EXPECT_EQ(registry_.holder(kChild, 0), nullptr);
  EXPECT_TRUE(registry_.reconcile(kChild, program(kChild, kContext, 1), {}, true).empty());
  ASSERT_NE(registry_.holder(kChild, 0), nullptr);
  EXPECT_EQ(registry_.find(kProcess), nullptr);
  EXPECT_FALSE(registry_.has_unsettled());
}

// What works is its own.
TEST_F(RegistryTest, AnHeirThatWorksItselfHasNotMadeWhatItHolds) {
  apply(program(kProcess, kContext, 1));
  registry_.apply(event(kProcess, ProcessClosed{}));
  Handles own = kContext;
  ++own.client;
  auto found = program(kChild, kContext, 1);
  const auto others = program(kChild, own, 1);
  found.insert(found.end(), others.begin(), others.end());
  EXPECT_EQ(registry_.reconcile(kChild, found, {}, true),
            (std::vector<Registry::Owned>{{kProcess, kContext.client}}));
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_NE(registry_.holder(kChild, 0), nullptr);
}

// Another agent has seen who made the client; now it is found in a child, and its maker has ended.
TEST_F(RegistryTest, WhatIsFoundInAnHeirIsItsFormerOwners) {
  registry_.remember({kProcess, {kContext.client}});
  const auto others = registry_.reconcile(kChild, program(kChild, kContext, 1), {});
  EXPECT_EQ(others, (std::vector<Registry::Owned>{{kProcess, kContext.client}}));
  ASSERT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups[0].ref.process, kProcess);
  EXPECT_TRUE(registry_.find(kProcess)->ended.has_value());
  EXPECT_EQ(registry_.find(kProcess)->heirs, std::set<pid_t>{kChild.pid});
  EXPECT_EQ(registry_.holder(kChild, 0), nullptr);

  // It lives after all.
  registry_.reconcile(kProcess, program(kProcess, kContext, 1), {});
  EXPECT_FALSE(registry_.find(kProcess)->ended);
}

// It lives, and has closed its own copy of the descriptor.
TEST_F(RegistryTest, WhatAFormerOwnerHasGivenAwayIsItsOwn) {
  registry_.remember({kProcess, {kContext.client}});
  Handles other = kContext;
  ++other.client;
  apply(program(kProcess, other, 1), Registry::Source::kAttach);
  registry_.reconcile(kChild, program(kChild, kContext, 1), {});
  EXPECT_EQ(registry_.holder(kProcess, 0)->groups.size(), 2u);
  EXPECT_FALSE(registry_.find(kProcess)->ended);
}

TEST_F(RegistryTest, AFormerOwnersPidMayBeAnothersByNow) {
  registry_.remember({{kProcess.pid, kProcess.start_ticks - 1}, {kContext.client}});
  registry_.apply(event(kProcess, ProcessOpened{}));
  EXPECT_TRUE(registry_.reconcile(kChild, program(kChild, kContext, 1), {}).empty());
  EXPECT_NE(registry_.holder(kChild, 0), nullptr);
}

// He may only hold a copy of its descriptor. If the name was used again, the switch log tells.
TEST_F(RegistryTest, WhoSaysFirstThatHeMadeARememberedClientIsNotBelieved) {
  registry_.remember({kProcess, {kContext.client}});
  apply(program(kChild, kContext, 1));
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_EQ(registry_.holder(kChild, 0), nullptr);
  registry_.reconcile(kChild, program(kChild, kContext, 1), {}, /*works_unseen=*/true);
  EXPECT_NE(registry_.holder(kChild, 0), nullptr);
  EXPECT_EQ(registry_.find(kProcess), nullptr);
}

TEST_F(RegistryTest, WhoMakesAGroupInARememberedClientMakesItForItsOwner) {
  registry_.remember({kProcess, {kContext.client}});
  registry_.apply(event(kChild, ProcessOpened{}));
  registry_.apply(event(kChild, DeviceCreated{kContext.client, 1, 1}));
  registry_.apply(event(kChild, GroupCreated{kContext.client, 1, 0x10, Engine::kGraphics, 3}));
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr);
  EXPECT_EQ(registry_.holder(kChild, 0), nullptr);
}

// Anybody who knows its name may say so, and be refused by the driver.
TEST_F(RegistryTest, WhoTellsARememberedClientSomethingTakesItFromNobody) {
  registry_.remember({kProcess, {kContext.client}});
  const uint64_t before = registry_.leavings();
  registry_.apply(event(kChild, ControlMade{.client = kContext.client, .object = 5, .command = 1}));
  registry_.apply(event(kChild, ObjectFreed{kContext.client, kContext.client}));
  EXPECT_GT(registry_.leavings(), before) << "the driver is asked";
  EXPECT_EQ(registry_.find(kProcess), nullptr);
  EXPECT_TRUE(registry_.remembers({kProcess, kContext.client}));
}

TEST_F(RegistryTest, WhatARememberedClientHasIsLookedForUntilItIsFound) {
  registry_.remember({kProcess, {kContext.client}});
  EXPECT_EQ(registry_.remembered(), std::set<pid_t>{kProcess.pid});
  registry_.apply(event(kChild, ProcessOpened{}));
  registry_.apply(event(kChild, ClientCreated{kContext.client, 3}));
  EXPECT_TRUE(registry_.take_heirs_request());
  EXPECT_EQ(registry_.remembered(), std::set<pid_t>{kProcess.pid});
  registry_.reconcile(kChild, program(kChild, kContext, 1), {});
  EXPECT_TRUE(registry_.remembered().empty());
}

// What it freed before it was given its client back is not in it any more.
TEST_F(RegistryTest, AnOwnerThatIsGivenItsClientBackHasWhatWasFound) {
  registry_.remember({kProcess, {kContext.client}});
  Handles other = kContext;
  other.group += 0x100;
  other.first_channel += 0x100;
  std::vector<DriverEvent> both = program(kChild, kContext, 1);
  for (const DriverEvent& one : program(kChild, other, 1)) both.push_back(one);
  registry_.reconcile(kChild, both, {});
  ASSERT_EQ(holder(0).groups.size(), 2u);
  registry_.reconcile(kProcess, program(kProcess, kContext, 1), registry_.objects(kProcess.pid));
  EXPECT_EQ(holder(0).groups.size(), 1u);
}

// A child may be looked at before the program that lives and has the client: it was never left, so
// that what the program says of it is believed as before.
TEST_F(RegistryTest, AnOwnerThatLivesIsGivenItsClientBack) {
  registry_.remember({kProcess, {kContext.client}});
  registry_.reconcile(kChild, program(kChild, kContext, 1), {});
  registry_.reconcile(kProcess, program(kProcess, kContext, 1), {});
  EXPECT_FALSE(registry_.has_unsettled());
  EXPECT_EQ(holder(0).groups[0].channels.size(), 8u);
  const uint32_t channel = holder(0).groups[0].channels[0];
  registry_.apply(event(kProcess, ObjectFreed{kContext.client, channel}));
  EXPECT_EQ(holder(0).groups[0].channels.size(), 7u);
  EXPECT_EQ(registry_.holder(kChild, 0), nullptr);
}

// Whoever holds a copy of the descriptor can make channels and memory without an end there, and
// nobody says when they are freed: the driver is asked for channels, and memory does not count.
TEST_F(RegistryTest, WhatAnHeirMakesInALeftClientDoesNotPileUp) {
  apply(program(kProcess, kContext, 1));
  registry_.end(kProcess, Time{});
  const uint64_t memory = holder(0).memory_bytes;
  const uint32_t group = holder(0).groups[0].ref.group;
  for (uint32_t i = 0; i < 100; ++i) {
    registry_.apply(event(kChild, ChannelCreated{kContext.client, group, 0x5000 + i, 0xC56F}));
    registry_.apply(event(
        kChild, MemoryAllocated{kContext.client, kContext.device, 0x9000 + i, 1 << 20, true}));
    registry_.apply(event(kChild, ObjectFreed{kContext.client, 0x5000 + i}));
  }
  EXPECT_EQ(holder(0).memory_bytes, memory);
  EXPECT_EQ(holder(0).groups[0].channels.size(), 108u);
  std::vector<ObjectRef> gone = registry_.unsettled();
  std::erase_if(gone,
                [](const ObjectRef& one) { return one.object < 0x5000 || one.object > 0x5063; });
  EXPECT_EQ(gone.size(), 100u);
  registry_.gone(gone, registry_.last_serial());
  EXPECT_EQ(holder(0).groups[0].channels.size(), 8u);
}

}  // namespace
}  // namespace gpushare
