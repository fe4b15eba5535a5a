// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/claims.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "intercept/client_of.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {
namespace {

constexpr std::size_t kMostUnfreed = 4096;

// Where this machine lets nobody copy descriptors, there is nothing to ask RM with.
bool cannot_ask(const Error& error) { return error.code == std::errc::operation_not_permitted; }

// The kinds of objects that the reader of events knows; a handle that now names something else was
// freed and used again.
bool is_of_interest(uint32_t class_id) {
  return class_id == GS_CLASS_ROOT || class_id == GS_CLASS_ROOT_NON_PRIV ||
         class_id == GS_CLASS_ROOT_CLIENT || class_id == GS_CLASS_DEVICE ||
         class_id == GS_CLASS_CHANNEL_GROUP ||
         (class_id > 0xFF && (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE);
}

// The object that an event makes; nullopt: it makes none.
std::optional<std::pair<uint32_t, uint32_t>> made_by(const DriverEvent& event) {
  return std::visit(
      [](const auto& what) -> std::optional<std::pair<uint32_t, uint32_t>> {
        using Kind = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<Kind, ClientCreated>)
          return std::pair(what.client, what.client);
        else if constexpr (std::is_same_v<Kind, DeviceCreated>)
          return std::pair(what.client, what.device);
        else if constexpr (std::is_same_v<Kind, GroupCreated>)
          return std::pair(what.client, what.group);
        else if constexpr (std::is_same_v<Kind, ChannelCreated>)
          return std::pair(what.client, what.channel);
        else
          return std::nullopt;
      },
      event.what);
}

}  // namespace

void Claims::examine(DriverEvent&& event, int fd, const Observer::Sink& sink) {
  if (std::holds_alternative<ProcessClosed>(event.what)) {
    forget(event.process);
    return sink(std::move(event));
  }
  if (std::holds_alternative<ControlMade>(event.what) ||
      std::holds_alternative<ChannelsSwitched>(event.what) ||
      std::holds_alternative<EventsLost>(event.what))
    return sink(std::move(event));
  if (is_worn_out(event)) return;
  const Verdict verdict = judge(event, fd);
  if (verdict == Verdict::kForeign) {
    if (const auto client = client_of(event)) give_to(owners_.at(*client), event);
  } else if (verdict != Verdict::kTrue) {
    return doubt(event, verdict);
  }
  if (const auto made = made_by(event)) {
    // The handle was freed after all and is used again.
    if (unfreed_.erase({event.process, made->first, made->second}) > 0)
      sink({event.time, event.process, ObjectFreed{made->first, made->second}});
  } else if (const auto* freed = std::get_if<ObjectFreed>(&event.what)) {
    if (freed->client == freed->object) owners_.erase(freed->client);
  }
  sink(std::move(event));
}

Claims::Verdict Claims::judge(const DriverEvent& event, int fd) {
  const ProcessId& process = event.process;
  return std::visit(
      [&](const auto& what) {
        using Kind = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<Kind, ClientCreated> ||
                      std::is_same_v<Kind, MemoryAllocated>) {
          return owns(process, what.client, fd);
        } else if constexpr (std::is_same_v<Kind, DeviceCreated>) {
          return is_object(process, what.client, what.device, fd, GS_CLASS_DEVICE, what.client);
        } else if constexpr (std::is_same_v<Kind, GroupCreated>) {
          return is_object(process, what.client, what.group, fd, GS_CLASS_CHANNEL_GROUP,
                           what.device);
        } else if constexpr (std::is_same_v<Kind, ChannelCreated>) {
          return is_object(process, what.client, what.channel, fd, what.class_id, what.parent);
        } else if constexpr (std::is_same_v<Kind, ObjectFreed>) {
          const auto owner = owners_.find(what.client);
          const bool is_anothers = owner != owners_.end() && owner->second.process != process;
          const ProcessId freed_of = is_anothers ? owner->second.process : process;
          const Verdict whose = is_anothers ? owns(process, what.client, fd) : Verdict::kTrue;
          if (whose == Verdict::kFalse || whose == Verdict::kUnknown) return whose;
          if (is_freed(process, what, fd)) return whose;
          if (unfreed_.size() >= kMostUnfreed) unfreed_.clear();
          unfreed_.insert({freed_of, what.client, what.object});
          return Verdict::kUnknown;
        } else {
          return Verdict::kTrue;
        }
      },
      event.what);
}

// The owner's descriptor is a copy of the caller's, of the same file.
void Claims::give_to(const Owner& owner, DriverEvent& event) {
  event.process = owner.process;
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.fd; }) what.fd = owner.fd;
      },
      event.what);
}

Claims::Verdict Claims::owns(const ProcessId& process, uint32_t client, int fd) {
  const auto known = owners_.find(client);
  if (known != owners_.end() && known->second.process == process) return Verdict::kTrue;
  const Result<std::optional<Object>> own = ask(process, fd, client, client);
  if (!own) return cannot_ask(own.error()) ? Verdict::kTrue : Verdict::kUnknown;
  if (known != owners_.end()) {
    const Owner& owner = known->second;
    const auto theirs = ask(owner.process, owner.fd, client, client);
    if (theirs && *theirs) return *own ? Verdict::kForeign : Verdict::kFalse;
  }
  if (!*own) return Verdict::kUnknown;
  owners_[client] = {process, fd};
  return Verdict::kTrue;
}

Claims::Verdict Claims::is_object(const ProcessId& process, uint32_t client, uint32_t object,
                                  int fd, uint32_t class_id, uint32_t parent) {
  const Verdict whose = owns(process, client, fd);
  if (whose != Verdict::kTrue && whose != Verdict::kForeign) return whose;
  const Result<std::optional<Object>> known = ask(process, fd, client, object);
  if (!known) return cannot_ask(known.error()) ? Verdict::kTrue : Verdict::kUnknown;
  const std::optional<Object>& is = *known;
  if (!is) return Verdict::kUnknown;
  const bool is_same = is->class_id == class_id && is->parent == parent;
  return is_same ? whose : Verdict::kUnknown;
}

bool Claims::is_freed(const ProcessId& process, const ObjectFreed& freed, int fd) {
  const Result<std::optional<Object>> known = ask(process, fd, freed.client, freed.object);
  if (!known) return true;
  const std::optional<Object>& is = *known;
  return !is || !is_of_interest(is->class_id);
}

Result<std::optional<Claims::Object>> Claims::ask(const ProcessId& process, int fd, uint32_t client,
                                                  uint32_t object) {
  auto copy = copies_.find({process, fd});
  if (copy == copies_.end())
    copy = copies_.emplace(std::pair(process, fd), driver_.fetch(process, fd)).first;
  const Result<Fd>& file = copy->second;
  if (!file) return std::unexpected(file.error());
  Object answer;
  for (const uint32_t index : {GS_HANDLE_INFO_CLASS, GS_HANDLE_INFO_PARENT}) {
    gs_handle_info info{.h_object = object, .index = index, .result = 0};
    if (!rm_control(driver_, file->get(), client, client, GS_CTRL_CLIENT_GET_HANDLE_INFO, info,
                    "ask a handle"))
      return std::nullopt;
    (index == GS_HANDLE_INFO_CLASS ? answer.class_id : answer.parent) =
        static_cast<uint32_t>(info.result);
    if (object == client) break;  // a client has no parent
  }
  return answer;
}

void Claims::forget(const ProcessId& process) {
  std::erase_if(owners_, [&](const auto& owner) { return owner.second.process == process; });
  std::erase_if(unfreed_, [&](const Name& name) { return std::get<ProcessId>(name) == process; });
  doubts_.erase(process);
}

uint32_t& Claims::Doubts::count(const DriverEvent& event) {
  const bool is_of_context = std::holds_alternative<GroupCreated>(event.what) ||
                             std::holds_alternative<ChannelCreated>(event.what);
  return is_of_context ? of_contexts : of_others;
}

bool Claims::is_worn_out(const DriverEvent& event) {
  const auto at = doubts_.find(event.process);
  if (at == doubts_.end()) return false;
  Doubts& doubts = at->second;
  if (event.time - doubts.since >= std::chrono::seconds(1)) {
    doubts = {.since = event.time, .is_to_tell = doubts.is_to_tell};
    return false;
  }
  if (doubts.count(event) < kMostDoubts) return false;
  doubts.is_to_tell = true;
  return true;
}

void Claims::doubt(const DriverEvent& event, Verdict verdict) {
  Doubts& doubts = doubts_.try_emplace(event.process, Doubts{.since = event.time}).first->second;
  ++doubts.count(event);
  doubts.is_to_tell = true;
  if (verdict != Verdict::kFalse) return;
  ++false_.count;
  false_.last = event.process;
}

void Claims::rest(const Observer::Sink& sink) {
  copies_.clear();
  for (auto& [process, doubts] : doubts_)
    if (std::exchange(doubts.is_to_tell, false))
      sink({MonotonicClock().now(), process, EventsLost{1}});
}

}  // namespace gpushare::nvrm
