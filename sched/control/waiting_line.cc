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
  record.since_ns = static_cast<uint64_t>(waiting.since.time_since_epoch().count());
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

void WaitingLine::note(Waiting waiting, Time now) {
  waiting.asked = now;
  const auto known = std::ranges::find(waiting_, waiting.process, &Waiting::process);
  if (known != waiting_.end()) {
    waiting.since = known->since;
    has_changed_ |= known->why != waiting.why;
    *known = std::move(waiting);
    return;
  }
  const auto of_user = std::ranges::count(waiting_, waiting.uid, &Waiting::uid);
  if (static_cast<std::size_t>(of_user) >= kMostOfAUser) return;
  waiting.since = now;
  waiting_.push_back(std::move(waiting));
  has_changed_ = true;
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
