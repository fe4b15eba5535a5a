// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/translate.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "intercept/nvrm/decode.h"
#include "shmctl/plane/fields.h"

namespace gpushare::kmod {
namespace {

using Event = decltype(DriverEvent::what);
using Notice = decltype(KernelNotice::what);

std::optional<Event> event_of(const gpushare_event& record) {
  const gpushare_event_object& object = record.object;
  switch (record.kind) {
    case GPUSHARE_EVENT_PROCESS_OPENED:
      return ProcessOpened{static_cast<pid_t>(record.opened.ns_pid), record.opened.cgroup_id,
                           record.opened.uid,
                           nvrm::printable(std::string(text_in(record.opened.comm)))};
    case GPUSHARE_EVENT_PROCESS_CLOSED:
      return ProcessClosed{.by_exec = (record.flags & GPUSHARE_EVENT_BY_EXEC) != 0};
    case GPUSHARE_EVENT_CLIENT_CREATED:
      return ClientCreated{object.client, object.fd};
    case GPUSHARE_EVENT_DEVICE_CREATED:
      return DeviceCreated{object.client, object.object, object.instance};
    case GPUSHARE_EVENT_GROUP_CREATED:
      return GroupCreated{object.client, object.parent, object.object,
                          nvrm::engine_of(object.engine_type), object.fd};
    case GPUSHARE_EVENT_CHANNEL_CREATED:
      return ChannelCreated{object.client, object.parent, object.object, object.class_id};
    case GPUSHARE_EVENT_MEMORY_ALLOCATED:
      return MemoryAllocated{object.client, object.parent, object.object, object.bytes,
                             (record.flags & GPUSHARE_EVENT_VIDEO) != 0};
    case GPUSHARE_EVENT_OBJECT_FREED:
      return ObjectFreed{object.client, object.object};
    case GPUSHARE_EVENT_CONTROL_MADE:
      return ControlMade{record.control.client, record.control.object, record.control.command,
                         record.control.status, record.control.value};
    default:
      return {};
  }
}

std::optional<Notice> notice_of(const gpushare_event& record, const ProcessId& process) {
  switch (record.kind) {
    case GPUSHARE_EVENT_PROCESS_OPENED:
      return TenantAssigned{process, std::string(text_in(record.opened.tenant)), true};
    case GPUSHARE_EVENT_PROCESS_MOVED:
      return TenantAssigned{process, std::string(text_in(record.moved.tenant)), false};
    case GPUSHARE_EVENT_SETTINGS_CHANGED:
      return SettingsChanged{std::string(text_in(record.settings.tenant)),
                             record.settings.setting == GPUSHARE_SETTING_PROCS
                                 ? SettingsChanged::What::kMembers
                                 : SettingsChanged::What::kSettings};
    case GPUSHARE_EVENT_CONTROL_MADE:
      if ((record.flags & GPUSHARE_EVENT_REFUSED) == 0) return {};
      return ControlRefused{process, record.control.command, record.control.repeats};
    case GPUSHARE_EVENT_MEMORY_REFUSED:
      return MemoryRefused{process,
                           record.memory_refused.instance,
                           record.memory_refused.bytes,
                           record.memory_refused.current_bytes,
                           record.memory_refused.max_bytes,
                           record.memory_refused.repeats};
    default:
      return {};
  }
}

}  // namespace

Translation translate(const gpushare_event& record) {
  Translation said;
  const bool has_process =
      record.pid > 0 && record.pid <= static_cast<uint32_t>(std::numeric_limits<pid_t>::max());
  if (!has_process && record.kind != GPUSHARE_EVENT_SETTINGS_CHANGED) return said;
  const Time time{Nanos(static_cast<int64_t>(record.time_ns))};
  const ProcessId process{static_cast<pid_t>(record.pid), record.start_ticks};
  if (auto notice = notice_of(record, process))
    said.notice = KernelNotice{time, *std::move(notice)};
  if (auto event = event_of(record)) said.event = DriverEvent{time, process, *std::move(event)};
  return said;
}

}  // namespace gpushare::kmod
