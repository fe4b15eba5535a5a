// SPDX-License-Identifier: Apache-2.0
#include "sched/control/waiting_line.h"

#include <algorithm>
#include <utility>

#include "shmctl/plane/slots.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {
namespace {

WaitingRecord record_of(const WaitingLine::Waiting& waiting) {
  WaitingRecord record;
  record.pid = waiting.process.pid;
  record.uid = waiting.uid;
  record.start_ticks = waiting.process.start_ticks;
  record.since_ns = stored_ns(waiting.since);
  record.memory_bytes = waiting.bytes;
  if (waiting.length)
    record.length_us =
        static_cast<uint64_t>(std::chrono::duration_cast<Micros>(*waiting.length).count());
  if (waiting.gpu) record.gpu = *waiting.gpu;
  waiting.command.copy(record.command, sizeof record.command - 1);
  waiting.why.copy(record.why, sizeof record.why - 1);
  return record;
}

}  // namespace

void WaitingLine::take_over(const Region& region, Time now) {
  uint32_t rejected = 0;
  for (const WaitingRecord& record : read_waiting(region, rejected)) {
    Waiting& one = waiting_.emplace_back();
    one.process = {record.pid, record.start_ticks};
    one.uid = record.uid;
    one.bytes = record.memory_bytes;
    if (record.length_us != kUnknown64) one.length = Micros(record.length_us);
    if (record.gpu != kUnknown32) one.gpu = record.gpu;
    one.command = record.command;
    one.why = record.why;
    one.since = std::min(Time(Nanos(record.since_ns)), now);
    one.asked = now;
  }
}

bool WaitingLine::go_on(const ProcessId& process, const std::string& why, Time now) {
  const auto known = std::ranges::find(waiting_, process, &Waiting::process);
  if (known == waiting_.end()) return false;
  known->why = why;
  known->asked = now;
  has_changed_ = true;
  return true;
}

bool WaitingLine::note(Waiting waiting, Time now) {
  waiting.asked = now;
  // As much as is shown.
  waiting.command.resize(std::min(waiting.command.size(), sizeof(WaitingRecord::command) - 1));
  while (waiting.command.ends_with(' ')) waiting.command.pop_back();
  const auto known = std::ranges::find(waiting_, waiting.process, &Waiting::process);
  if (known != waiting_.end()) {
    waiting.since = known->since;
    *known = std::move(waiting);
    has_changed_ = true;
    return true;
  }
  const auto of_user = std::ranges::count(waiting_, waiting.uid, &Waiting::uid);
  if (static_cast<std::size_t>(of_user) >= kMostOfAUser) return false;
  waiting.since = now;
  waiting_.push_back(std::move(waiting));
  has_changed_ = true;
  return true;
}

void WaitingLine::forget(const ProcessId& process) {
  has_changed_ |=
      std::erase_if(waiting_, [&](const Waiting& one) { return one.process == process; }) > 0;
}

std::vector<PlaceWaiting> WaitingLine::before(const ProcessId& process, Time now) const {
  std::vector<PlaceWaiting> list;
  for (const Waiting& one : waiting_) {
    if (one.process == process) break;
    if (now - one.asked < kSilent && now - one.since < kReserves)
      list.push_back({.bytes = one.bytes, .gpu = one.gpu});
  }
  return list;
}

void WaitingLine::publish(Region& region, Time now) {
  has_changed_ |=
      std::erase_if(waiting_, [&](const Waiting& one) { return now - one.asked >= kSilent; }) > 0;
  if (!std::exchange(has_changed_, false)) return;
  const std::size_t count = std::min<std::size_t>(waiting_.size(), kMaxWaiting);
  const Publication publication(region);
  for (std::size_t i = 0; i < std::max(count, published_); ++i)
    write_record(region.waiting[i], i < count ? record_of(waiting_[i]) : WaitingRecord{});
  published_ = count;
}

}  // namespace gpushare
