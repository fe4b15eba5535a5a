// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/registry.h"

#include <random>

#include "tests/sched/registry/registry_fixture.h"

namespace gpushare {
namespace {

using test::event;
using test::Handles;
using test::program;
using test::RegistryTest;

TEST_F(RegistryTest, FindsTheComputeGroupWithItsChannelsAndMemory) {
  apply(program(kProcess, kContext, 1));
  ASSERT_EQ(registry_.processes().size(), 1u);
  const Process& process = *registry_.find(kProcess.pid);
  EXPECT_EQ(process.command, "spin");
  EXPECT_EQ(process.uid, 1000u);
  EXPECT_FALSE(process.is_late_attach);
  ASSERT_EQ(process.holders.size(), 1u);
  const Holder& held = holder(0);
  ASSERT_EQ(held.groups.size(), 1u);
  EXPECT_EQ(held.groups[0].ref, (GroupRef{kProcess, 3, kContext.client, kContext.group}));
  EXPECT_EQ(held.groups[0].channels.size(), 8u);
  EXPECT_EQ(held.memory_bytes, 16u << 20);
}

// A second thread writes other arguments before the probe reads them.
TEST_F(RegistryTest, WhatIsForgedOfAGroupOrADeviceASearchPutsRight) {
  for (DriverEvent one : program(kProcess, kContext, 1)) {
    if (auto* group = std::get_if<GroupCreated>(&one.what)) group->engine = Engine::kCopy;
    registry_.apply(one);
  }
  EXPECT_EQ(registry_.holder(kProcess, 0), nullptr);
  apply(program(kProcess, kContext, 1), Registry::Source::kAttach);
  EXPECT_EQ(holder(0).groups[0].channels.size(), 8u);
  registry_.apply(event(kProcess, DeviceCreated{kContext.client, kContext.device, 0}));
  EXPECT_NE(registry_.holder(kProcess, 0), nullptr) << "it is where it was made";
  EXPECT_EQ(registry_.holder(kProcess, 1), nullptr);
  registry_.apply(event(
      kProcess, GroupCreated{kContext.client, kContext.device, kContext.group, Engine::kCopy, 3}));
  EXPECT_EQ(holder(0).groups.size(), 1u);
}

// Any of them may have been freed unseen, and its handle used again.
TEST_F(RegistryTest, AfterLossesItsChannelsCountAsOthers) {
  apply(program(kProcess, kContext, 1));
  const ComputeGroup before = holder(0).groups[0];
  const uint64_t generation = registry_.generation();
  registry_.doubt_all();
  const ComputeGroup& after = holder(0).groups[0];
  EXPECT_EQ(after.channels, before.channels);
  EXPECT_EQ(after.serial, before.serial) << "the group keeps its slice";
  for (std::size_t i = 0; i < before.serials.size(); ++i)
    EXPECT_NE(after.serials[i], before.serials[i]);
  EXPECT_GT(registry_.generation(), generation);
}

TEST_F(RegistryTest, KeepsTheClassesOfTheComputeChannels) {
  apply(program(kProcess, kContext));
  EXPECT_EQ(holder(1).channel_classes, (std::set<uint32_t>{0xC86F}));
  const auto make = [&](uint32_t parent, uint32_t channel, uint32_t class_id) {
    registry_.apply(event(kProcess, ChannelCreated{.client = kContext.client,
                                                   .parent = parent,
                                                   .channel = channel,
                                                   .class_id = class_id}));
  };
  const uint32_t copy_group = kContext.group + 0x1000, added = kContext.first_channel + 100;
  make(copy_group, added + 1, 0xCA6F);
  EXPECT_EQ(holder(1).channel_classes, (std::set<uint32_t>{0xC86F})) << "not a compute channel";
  make(kContext.group, added, 0xC96F);
  EXPECT_EQ(holder(1).channel_classes, (std::set<uint32_t>{0xC86F, 0xC96F}));
  // The handle was freed unseen and used again.
  const uint64_t before = holder(1).generation;
  make(kContext.group, added, 0xCC6F);
  EXPECT_EQ(holder(1).channel_classes, (std::set<uint32_t>{0xC86F, 0xCC6F}));
  EXPECT_GT(holder(1).generation, before);
  registry_.apply(event(kProcess, ObjectFreed{kContext.client, added}));
  EXPECT_EQ(holder(1).channel_classes, (std::set<uint32_t>{0xC86F}));
}

TEST_F(RegistryTest, GivesAProcessOnTwoGpusTwoHolders) {
  apply(program(kProcess, kContext, 1));
  Handles second = kContext;
  second.device = 2;
  second.group = 0x50;
  second.first_channel = 0x60;
  apply(program(kProcess, second, 0));
  ASSERT_EQ(registry_.find(kProcess.pid)->holders.size(), 2u);
  EXPECT_EQ(holder(0).groups[0].ref.group, kContext.group);
  EXPECT_EQ(holder(1).groups[0].ref.group, second.group);
}

TEST_F(RegistryTest, PutsSeveralContextsOnOneGpuIntoOneHolder) {
  apply(program(kProcess, kContext));
  Handles second = kContext;
  second.client = 0xC1D00002;
  apply(program(kProcess, second));
  EXPECT_EQ(holder(1).groups.size(), 2u);
  EXPECT_EQ(holder(1).memory_bytes, 32u << 20);
}

TEST_F(RegistryTest, FreeingAParentFreesWhatIsBelow) {
  struct Case {
    const char* description;
    uint32_t object;
    std::size_t channels_left;
    uint64_t memory_left;
  };
  for (const Case& c :
       {Case{"channel", kContext.first_channel, 7, 16 << 20}, Case{"group", kContext.group, 0, 0},
        Case{"device", kContext.device, 0, 0}, Case{"client", kContext.client, 0, 0}}) {
    SCOPED_TRACE(c.description);
    apply(program(kProcess, kContext));
    registry_.apply(event(kProcess, ObjectFreed{kContext.client, c.object}));
    const Holder* left = registry_.holder(kProcess, 1);
    if (c.channels_left == 0) {
      EXPECT_EQ(left, nullptr);
    } else {
      ASSERT_NE(left, nullptr);
      EXPECT_EQ(left->groups[0].channels.size(), c.channels_left);
      EXPECT_EQ(left->memory_bytes, c.memory_left);
    }
    registry_.close(kProcess);
  }
}

TEST_F(RegistryTest, CountsMemoryOnceAndReturnsItWhenFreed) {
  apply(program(kProcess, kContext));
  const MemoryAllocated more{kContext.client, kContext.device, 0x900, 1 << 20, true};
  registry_.apply(event(kProcess, more));
  registry_.apply(event(kProcess, more));  // live and by late attach
  EXPECT_EQ(holder(1).memory_bytes, 17u << 20);
  registry_.apply(event(kProcess, MemoryAllocated{kContext.client, kContext.device, 0x901, 1 << 20,
                                                  /*is_video=*/false}));
  EXPECT_EQ(holder(1).memory_bytes, 17u << 20);
  registry_.apply(event(kProcess, ObjectFreed{kContext.client, 0x900}));
  EXPECT_EQ(holder(1).memory_bytes, 16u << 20);
}

TEST_F(RegistryTest, MemoryAllocatedBeforeTheGroupCounts) {
  registry_.apply(event(kProcess, DeviceCreated{7, 1, 0}));
  registry_.apply(event(kProcess, MemoryAllocated{7, 1, 0x900, 4096, true}));
  registry_.apply(event(kProcess, GroupCreated{7, 1, 0x10, Engine::kGraphics, 3}));
  EXPECT_EQ(holder(1).memory_bytes, 4096u);
}

TEST_F(RegistryTest, SeeingEverythingTwiceChangesNothing) {
  apply(program(kProcess, kContext));
  const Holder before = holder(1);
  apply(program(kProcess, kContext), Registry::Source::kAttach);
  EXPECT_EQ(holder(1).groups[0].channels, before.groups[0].channels);
  EXPECT_EQ(holder(1).memory_bytes, before.memory_bytes);
  EXPECT_EQ(holder(1).generation, before.generation);
  EXPECT_FALSE(registry_.find(kProcess.pid)->is_late_attach);
}

TEST_F(RegistryTest, MarksWhatWasThereBeforeTheAgent) {
  apply(program(kProcess, kContext), Registry::Source::kAttach);
  EXPECT_TRUE(registry_.find(kProcess.pid)->is_late_attach);
}

TEST_F(RegistryTest, ASearchTakesNothingFromWhatWasSeenLive) {
  ProcessOpened opened;
  opened.uid = 1000;
  opened.command = "train";
  registry_.apply(event(kProcess, opened));
  auto found = program(kProcess, kContext);
  found.front().what = ProcessOpened{};
  registry_.reconcile(kProcess, found, registry_.objects(kProcess.pid));
  const Process* process = registry_.find(kProcess.pid);
  EXPECT_EQ(process->command, "train");
  EXPECT_EQ(process->uid, 1000u);
  EXPECT_FALSE(process->is_late_attach) << "it was seen from its beginning";
  EXPECT_EQ(process->holders.size(), 1u);
}

TEST_F(RegistryTest, ANewBearerOfAPidReplacesTheOld) {
  apply(program(kProcess, kContext));
  const ProcessId later{kProcess.pid, kProcess.start_ticks + 1};
  ProcessOpened opened;
  opened.command = "other";
  registry_.apply(event(later, opened));
  EXPECT_EQ(registry_.processes().size(), 1u);
  EXPECT_EQ(registry_.holder(kProcess, 1), nullptr);
  EXPECT_EQ(registry_.find(kProcess.pid)->command, "other");
  // What still arrives of the old one must not hurt the new one.
  registry_.apply(event(kProcess, ProcessClosed{}));
  EXPECT_NE(registry_.find(kProcess.pid), nullptr);
}

TEST_F(RegistryTest, AcceptsAProcessWhoseOpeningWasLost) {
  auto events = program(kProcess, kContext);
  events.erase(events.begin());
  apply(events);
  EXPECT_EQ(holder(1).groups[0].channels.size(), 8u);
  EXPECT_FALSE(registry_.find(kProcess.pid)->uid.has_value());
}

TEST_F(RegistryTest, WithTwoGpusAGroupOfAnUnknownDeviceHasNoHolder) {
  registry_.apply(event(kProcess, GroupCreated{7, 1, 0x10, Engine::kGraphics, 3}));
  EXPECT_TRUE(registry_.find(kProcess.pid)->holders.empty());
  Registry one_gpu({gpus_.data(), 1});
  one_gpu.apply(event(kProcess, GroupCreated{7, 1, 0x10, Engine::kGraphics, 3}));
  EXPECT_NE(one_gpu.holder(kProcess, 0), nullptr);
}

TEST_F(RegistryTest, NotesThatAProcessChoseItsOwnSlice) {
  constexpr uint32_t kChooseSlice = 0xA06C0103;
  apply(program(kProcess, kContext));
  EXPECT_EQ(holder(1).groups[0].own_slice, std::nullopt);
  const uint64_t before = holder(1).generation;
  registry_.apply(event(kProcess, ControlMade{kContext.client, kContext.group, kChooseSlice,
                                              /*status=*/0x23, 1}));
  EXPECT_EQ(holder(1).groups[0].own_slice, std::nullopt) << "it was refused";
  registry_.apply(
      event(kProcess, ControlMade{kContext.client, kContext.group, kChooseSlice, 0, 2048}));
  EXPECT_EQ(holder(1).groups[0].own_slice, Micros(2048));
  EXPECT_EQ(holder(1).groups[0].own_slice_count, 1u);
  EXPECT_NE(holder(1).generation, before);
}

TEST_F(RegistryTest, AsksForARescanOnceAfterLosses) {
  EXPECT_FALSE(registry_.take_rescan_request());
  registry_.apply(event({}, EventsLost{3}));
  EXPECT_TRUE(registry_.take_rescan_request());
  EXPECT_FALSE(registry_.take_rescan_request());
}

TEST_F(RegistryTest, ReconcilingForgetsWhatIsGoneAndAddsWhatWasMissed) {
  apply(program(kProcess, kContext));
  Handles other = kContext;
  other.group = 0x80;
  other.first_channel = 0x90;
  const auto known = registry_.objects(kProcess.pid);
  registry_.reconcile(kProcess, program(kProcess, other), known);
  ASSERT_EQ(holder(1).groups.size(), 1u);
  EXPECT_EQ(holder(1).groups[0].ref.group, other.group);
  EXPECT_EQ(holder(1).memory_bytes, 32u << 20) << "attach does not see memory, so it is kept";
}

TEST_F(RegistryTest, WhatASearchMayHaveMissedIsNotForgotten) {
  apply(program(kProcess, kContext));
  Handles other = kContext;
  other.group = 0x80;
  other.first_channel = 0x90;
  registry_.reconcile(kProcess, program(kProcess, other), {});
  EXPECT_EQ(holder(1).groups.size(), 2u);
}

TEST_F(RegistryTest, WhatWasMadeDuringASearchIsNotForgotten) {
  apply(program(kProcess, kContext));
  const auto known = registry_.objects(kProcess.pid);
  Handles later = kContext;
  later.group = 0x80;
  later.first_channel = 0x90;
  apply(program(kProcess, later));
  registry_.reconcile(kProcess, program(kProcess, kContext), known);
  EXPECT_EQ(holder(1).groups.size(), 2u);
}

TEST_F(RegistryTest, AClientThatIsGoneTakesItsMemoryAlong) {
  apply(program(kProcess, kContext));
  registry_.reconcile(kProcess, {}, registry_.objects(kProcess.pid));
  EXPECT_TRUE(registry_.find(kProcess.pid)->holders.empty());
  EXPECT_TRUE(registry_.objects(kProcess.pid).empty());
}

// RM answers forked children on the inherited descriptor as it answers their parent.
TEST_F(RegistryTest, AClientHasOneOwnerTheOldestWhicheverIsFoundFirst) {
  const ProcessId child{kProcess.pid + 1, kProcess.start_ticks + 3};
  const ProcessId other_child{kProcess.pid - 1, kProcess.start_ticks + 4};  // pids wrap
  const Registry::Owned owned{kProcess, kContext.client};
  EXPECT_TRUE(registry_.reconcile(other_child, program(other_child, kContext), {}).empty());
  EXPECT_NE(registry_.holder(other_child, 1), nullptr) << "nobody else is known";
  registry_.reconcile(kProcess, program(kProcess, kContext), {});
  EXPECT_NE(registry_.holder(kProcess, 1), nullptr);
  EXPECT_EQ(registry_.holder(other_child, 1), nullptr);
  for (const ProcessId& one : {child, other_child})
    EXPECT_EQ(registry_.reconcile(one, program(one, kContext), {}), std::vector{owned});
  EXPECT_EQ(registry_.find(child.pid), nullptr) << "it has nothing of its own";
  EXPECT_TRUE(registry_.owns(owned));
  registry_.close(kProcess);
  EXPECT_FALSE(registry_.owns(owned));
  registry_.reconcile(child, program(child, kContext), {});
  EXPECT_NE(registry_.holder(child, 1), nullptr) << "the next one";
}

TEST_F(RegistryTest, WhoWasSeenToMakeAClientOwnsIt) {
  const ProcessId older{kProcess.pid - 1, kProcess.start_ticks - 1};
  apply(program(kProcess, kContext));
  EXPECT_EQ(registry_.reconcile(older, program(older, kContext), {}).size(), 1u);
  EXPECT_NE(registry_.holder(kProcess, 1), nullptr);
}

TEST_F(RegistryTest, AChildsOwnClientIsItsOwn) {
  const ProcessId child{kProcess.pid + 1, kProcess.start_ticks + 3};
  Handles own = kContext;
  own.client = 0xC1D00002;
  apply(program(kProcess, kContext));
  auto found = program(child, kContext);
  for (const DriverEvent& one : program(child, own)) found.push_back(one);
  EXPECT_EQ(registry_.reconcile(child, found, {}).size(), 1u);
  ASSERT_NE(registry_.holder(child, 1), nullptr);
  EXPECT_EQ(holder(1, child).groups.size(), 1u);
  EXPECT_EQ(holder(1, child).groups[0].ref.client, own.client);
}

TEST_F(RegistryTest, AGroupWhoseHandleIsUsedAgainIsAnotherOne) {
  apply(program(kProcess, kContext));
  const uint64_t before = holder(1).groups[0].serial;
  apply(program(kProcess, kContext));
  EXPECT_EQ(holder(1).groups[0].serial, before);
  registry_.apply(event(kProcess, ObjectFreed{kContext.client, kContext.group}));
  apply(program(kProcess, kContext));
  EXPECT_NE(holder(1).groups[0].serial, before);
}

// Whatever happens to 200 programs in whatever order: when they have ended nothing is left.
TEST_F(RegistryTest, TwoHundredProgramsLeaveNothingBehind) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (pid_t pid = 1000; pid < 1200; ++pid) {
    const ProcessId process{pid, below(3) + 1};
    for (uint32_t context = 0; context <= below(3); ++context) {
      auto events = program(process,
                            {.client = 0xC1D00000 + below(4),
                             .device = 1 + below(2),
                             .group = 0x10 * (1 + below(3)),
                             .first_channel = 0x100 * (1 + below(3)),
                             .channels = 1 + below(9)},
                            below(3));  // one instance of three is of no GPU we know
      for (uint32_t lost = below(4); lost > 0; --lost)
        events.erase(events.begin() + below(static_cast<uint32_t>(events.size())));
      for (uint32_t freed = below(5); freed > 0; --freed)
        events.push_back(event(process, ObjectFreed{0xC1D00000 + below(4), below(0x400)}));
      apply(events, below(2) == 0 ? Registry::Source::kLive : Registry::Source::kAttach);
    }
    if (below(10) == 0) registry_.apply(event({}, EventsLost{1}));
    registry_.apply(event(process, ProcessClosed{.by_exec = below(2) == 0}));
    if (below(2) == 0) gone(registry_.unsettled());
  }
  gone(registry_.unsettled());
  EXPECT_TRUE(registry_.processes().empty());
  EXPECT_FALSE(registry_.has_unsettled());
}

// A program with many groups, channels and allocations makes and frees them one after the other.
TEST_F(RegistryTest, AnEventCostsNoMoreWithWhatTheProcessHasBeside) {
  constexpr uint32_t kBusyClient = 7, kGroups = 300, kAllocations = 5000;
  apply(program(kProcess, kContext, 1));
  apply({event(kProcess, DeviceCreated{kBusyClient, 1, 1})});
  for (uint32_t i = 0; i < kAllocations; ++i)
    apply({event(kProcess, MemoryAllocated{kBusyClient, 1, 0x10000 + i, 4096, true})});
  const uint64_t before = registry_.looked_at();
  const uint64_t generation = registry_.generation();
  for (uint32_t i = 0; i < kGroups; ++i) {
    apply({event(kProcess, GroupCreated{kBusyClient, 1, 0x1000 + i, Engine::kGraphics, 3})});
    for (const uint32_t channel : {0x4000 + 2 * i, 0x4001 + 2 * i})
      apply({event(kProcess, ChannelCreated{kBusyClient, 0x1000 + i, channel, 0xC86F})});
    apply({event(kProcess, ControlMade{kBusyClient, 0x1000 + i, 0xA06C0103, 0, 1000 + i})});
  }
  EXPECT_EQ(holder(0).groups.size(), 1u + kGroups);
  EXPECT_EQ(holder(0).memory_bytes, (16u << 20) + kAllocations * 4096u);
  EXPECT_GE(registry_.generation(), generation + 4 * kGroups);
  for (uint32_t i = 0; i < kGroups; ++i) {
    apply({event(kProcess, ObjectFreed{kBusyClient, 0x4000 + 2 * i})});
    apply({event(kProcess, ObjectFreed{kBusyClient, 0x1000 + i})});
  }
  EXPECT_EQ(holder(0).groups.size(), 1u);
  EXPECT_EQ(registry_.looked_at(), before);
}

// Whatever happens one by one, holders are what they are when all is gone through.
TEST_F(RegistryTest, HoldersThatAreKeptAreThoseThatAreMadeAnew) {
  std::mt19937 random(11);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const auto as_text = [&] {
    std::string text;
    for (const Holder& holder : registry_.find(kProcess.pid)->holders) {
      text += "gpu " + std::to_string(holder.gpu) + " " + std::to_string(holder.memory_bytes);
      for (const uint32_t id : holder.channel_classes) text += " class " + std::to_string(id);
      for (const ComputeGroup& group : holder.groups) {
        text += "\n " + std::to_string(group.ref.client) + "/" + std::to_string(group.ref.group) +
                " fd " + std::to_string(group.ref.fd) + " serial " + std::to_string(group.serial) +
                " slice " + std::to_string(group.own_slice.value_or(Micros(0)).count()) + "*" +
                std::to_string(group.own_slice_count);
        for (std::size_t i = 0; i < group.channels.size(); ++i)
          text += " " + std::to_string(group.channels[i]) + ":" + std::to_string(group.serials[i]);
      }
      text += "\n";
    }
    return text;
  };
  registry_.apply(event(kProcess, ProcessOpened{}));
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t client = 1 + below(2), device = 1 + below(3), group = 0x10 + below(6);
    const uint32_t channel = 0x100 * (group - 0xF) + below(4), memory = 0x1000 + below(8);
    switch (below(8)) {
      case 0:
        registry_.apply(event(kProcess, DeviceCreated{client, device, below(3)}));
        break;
      case 1:
        registry_.apply(
            event(kProcess, GroupCreated{client, device, group,
                                         below(5) == 0 ? Engine::kCopy : Engine::kGraphics, 3}));
        break;
      case 2:
      case 3:
        registry_.apply(event(
            kProcess, ChannelCreated{client, group, channel, below(4) == 0 ? 0xC76Fu : 0xC86Fu}));
        break;
      case 4:
        registry_.apply(event(kProcess, MemoryAllocated{client, device, memory, 4096, true}));
        break;
      case 5:
        registry_.apply(event(kProcess, ControlMade{client, group, 0xA06C0103, 0, below(5000)}));
        break;
      default:
        const uint32_t freed[] = {client, device, group, channel, memory};
        registry_.apply(event(kProcess, ObjectFreed{client, freed[below(60) == 0 ? 0 : below(5)]}));
    }
    const std::string kept = as_text();
    registry_.apply(event(kProcess, ClientCreated{9, 3}));
    registry_.apply(event(kProcess, ObjectFreed{9, 9}));  // all is gone through
    ASSERT_EQ(kept, as_text()) << "after " << i;
  }
}

TEST_F(RegistryTest, LossesOfOneProcessAskForNoScanOfAll) {
  apply(program(kProcess, kContext));
  registry_.apply(event(kProcess, EventsLost{1}));
  EXPECT_FALSE(registry_.take_rescan_request());
  registry_.apply(event({}, EventsLost{1}));
  EXPECT_TRUE(registry_.take_rescan_request());
}

TEST_F(RegistryTest, KnowsWhoseAClientIs) {
  apply(program(kProcess, kContext));
  EXPECT_EQ(registry_.owner_of(kContext.client), kProcess);
  EXPECT_EQ(registry_.owner_of(kContext.client + 1), std::nullopt);
  registry_.close(kProcess);
  EXPECT_EQ(registry_.owner_of(kContext.client), std::nullopt);
}

}  // namespace
}  // namespace gpushare
