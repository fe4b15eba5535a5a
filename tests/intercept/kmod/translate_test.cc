// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/translate.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/intercept/kmod/fake_kmod.h"

namespace gpushare::kmod {
namespace {

using test::kmod_record;
using test::kPid;
using test::kTicks;

template <class T>
T event_of(const gpushare_event& record) {
  const Translation said = translate(record);
  EXPECT_TRUE(said.event);
  EXPECT_EQ(said.event->process, (ProcessId{kPid, kTicks}));
  EXPECT_EQ(said.event->time, Time(Nanos(1'000)));
  return std::get<T>(said.event->what);
}
template <class T>
T notice_of(const gpushare_event& record) {
  const Translation said = translate(record);
  EXPECT_TRUE(said.notice);
  return std::get<T>(said.notice->what);
}

TEST(KmodTranslate, AnOpenedProcessIsAnEventAndItsTenantANotice) {
  const auto record = test::kmod_opened("batch");
  const auto opened = event_of<ProcessOpened>(record);
  EXPECT_EQ(opened.ns_pid, 7);
  EXPECT_EQ(opened.cgroup_id, 42u);
  EXPECT_EQ(opened.uid, 1000u);
  EXPECT_EQ(opened.command, "train");
  const auto assigned = notice_of<TenantAssigned>(record);
  EXPECT_EQ(assigned.process, (ProcessId{kPid, kTicks}));
  EXPECT_EQ(assigned.tenant, "batch");
  EXPECT_TRUE(assigned.is_opening);
}

TEST(KmodTranslate, AMoveIsANoticeOnly) {
  const Translation said = translate(test::kmod_moved("batch"));
  EXPECT_FALSE(said.event);
  const auto assigned = std::get<TenantAssigned>(said.notice->what);
  EXPECT_EQ(assigned.tenant, "batch");
  EXPECT_FALSE(assigned.is_opening);
}

TEST(KmodTranslate, ObjectsAreAsTheProbeReportsThem) {
  gpushare_event record = kmod_record(GPUSHARE_EVENT_GROUP_CREATED);
  record.object = {.client = 10,
                   .parent = 11,
                   .object = 12,
                   .class_id = 13,
                   .bytes = 14,
                   .instance = 15,
                   .engine_type = 1,
                   .fd = 16,
                   .reserved = {}};
  const auto group = event_of<GroupCreated>(record);
  EXPECT_EQ(group.client, 10u);
  EXPECT_EQ(group.device, 11u);
  EXPECT_EQ(group.group, 12u);
  EXPECT_EQ(group.engine, Engine::kGraphics);
  EXPECT_EQ(group.fd, 16);
  record.kind = GPUSHARE_EVENT_CLIENT_CREATED;
  EXPECT_EQ(event_of<ClientCreated>(record).client, 10u);
  EXPECT_EQ(event_of<ClientCreated>(record).fd, 16);
  record.kind = GPUSHARE_EVENT_DEVICE_CREATED;
  EXPECT_EQ(event_of<DeviceCreated>(record).device, 12u);
  EXPECT_EQ(event_of<DeviceCreated>(record).instance, 15u);
  record.kind = GPUSHARE_EVENT_CHANNEL_CREATED;
  EXPECT_EQ(event_of<ChannelCreated>(record).parent, 11u);
  EXPECT_EQ(event_of<ChannelCreated>(record).channel, 12u);
  EXPECT_EQ(event_of<ChannelCreated>(record).class_id, 13u);
  record.kind = GPUSHARE_EVENT_MEMORY_ALLOCATED;
  EXPECT_EQ(event_of<MemoryAllocated>(record).bytes, 14u);
  EXPECT_EQ(event_of<MemoryAllocated>(record).device, 11u);
  EXPECT_FALSE(event_of<MemoryAllocated>(record).is_video);
  record.flags = GPUSHARE_EVENT_VIDEO;
  EXPECT_TRUE(event_of<MemoryAllocated>(record).is_video);
  record.kind = GPUSHARE_EVENT_OBJECT_FREED;
  EXPECT_EQ(event_of<ObjectFreed>(record).object, 12u);
}

TEST(KmodTranslate, ExecIsToldFromExit) {
  EXPECT_FALSE(event_of<ProcessClosed>(kmod_record(GPUSHARE_EVENT_PROCESS_CLOSED)).by_exec);
  EXPECT_TRUE(
      event_of<ProcessClosed>(kmod_record(GPUSHARE_EVENT_PROCESS_CLOSED, GPUSHARE_EVENT_BY_EXEC))
          .by_exec);
}

TEST(KmodTranslate, ARefusedControlIsANoticeToo) {
  gpushare_event record = kmod_record(GPUSHARE_EVENT_CONTROL_MADE);
  // Client, object, command, status, value and repeats.
  record.control = {1, 2, 0xA06C0103, 0x1B, 2048, 5, {}};
  EXPECT_EQ(event_of<ControlMade>(record).value, 2048u);
  EXPECT_FALSE(translate(record).notice);
  record.flags = GPUSHARE_EVENT_REFUSED;
  EXPECT_EQ(event_of<ControlMade>(record).status, 0x1Bu);
  EXPECT_EQ(notice_of<ControlRefused>(record).command, 0xA06C0103u);
  EXPECT_EQ(notice_of<ControlRefused>(record).repeats, 5u);
}

TEST(KmodTranslate, RefusedMemoryIsANotice) {
  gpushare_event record = kmod_record(GPUSHARE_EVENT_MEMORY_REFUSED);
  record.memory_refused.instance = 1;
  record.memory_refused.bytes = 100;
  record.memory_refused.current_bytes = 950;
  record.memory_refused.max_bytes = 1000;
  record.memory_refused.repeats = 2;
  const auto refused = notice_of<MemoryRefused>(record);
  EXPECT_EQ(refused.process, (ProcessId{kPid, kTicks}));
  EXPECT_EQ(refused.instance, 1u);
  EXPECT_EQ(refused.bytes, 100u);
  EXPECT_EQ(refused.current_bytes, 950u);
  EXPECT_EQ(refused.max_bytes, 1000u);
  EXPECT_EQ(refused.repeats, 2u);
  EXPECT_FALSE(translate(record).event);
}

TEST(KmodTranslate, SettingsHaveNoProcess) {
  const auto weight = notice_of<SettingsChanged>(test::kmod_settings("a", GPUSHARE_SETTING_WEIGHT));
  EXPECT_EQ(weight.tenant, "a");
  EXPECT_EQ(weight.what, SettingsChanged::What::kSettings);
  const auto procs = notice_of<SettingsChanged>(test::kmod_settings("a", GPUSHARE_SETTING_PROCS));
  EXPECT_EQ(procs.what, SettingsChanged::What::kMembers);
  const auto later = notice_of<SettingsChanged>(test::kmod_settings("a", 999));
  EXPECT_EQ(later.what, SettingsChanged::What::kSettings) << "of a later module";
}

TEST(KmodTranslate, SkipsWhatItDoesNotKnow) {
  for (const uint32_t kind : {0u, 13u, 0xFFFFFFFFu}) {
    gpushare_event record = kmod_record(GPUSHARE_EVENT_PROCESS_OPENED);
    record.kind = kind;
    const Translation said = translate(record);
    EXPECT_FALSE(said.event || said.notice) << kind;
  }
  for (const uint32_t pid : {0u, 0x80000000u, 0xFFFFFFFFu}) {
    gpushare_event record = test::kmod_opened("a");
    record.pid = pid;
    EXPECT_FALSE(translate(record).event) << pid;
  }
}

TEST(KmodTranslate, AnyBytesAreSafe) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    gpushare_event record;
    auto* bytes = reinterpret_cast<unsigned char*>(&record);
    std::generate(bytes, bytes + sizeof record, [&] { return static_cast<uint8_t>(random()); });
    record.kind = static_cast<uint32_t>(random() % 16);
    const Translation said = translate(record);
    if (said.event) {
      EXPECT_GT(said.event->process.pid, 0);
    }
    if (said.notice) {
      if (const auto* assigned = std::get_if<TenantAssigned>(&said.notice->what)) {
        EXPECT_LE(assigned->tenant.size(), sizeof record.opened.tenant);
      }
    }
  }
}

}  // namespace
}  // namespace gpushare::kmod
