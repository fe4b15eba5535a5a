// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/client_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {

bool ClientFiles::keep(const ProcessId& process) {
  const auto [at, is_new] = entries_.try_emplace(process);
  if (!is_new) return false;
  auto files = host_.copy_memory_files(process);
  if (files)
    at->second.files = std::move(*files);
  else if (files.error().code != std::errc::no_such_process && !std::exchange(was_refused_, true))
    log_warning(
        "MPS: {}: what process {} has open of the driver cannot be kept open. If a client is "
        "ended by a signal while it has kernels on the GPU, all clients may end with it",
        files.error().message(), process.pid);
  return true;
}

void ClientFiles::note_work(Time now, const ProcessId& process, const Work& work) {
  const auto at = entries_.find(process);
  if (at == entries_.end()) return;
  Entry& entry = at->second;
  const Work before = std::exchange(entry.work, work);
  if (!work.waits || before.launches != work.launches) {
    entry.looked.reset();
    entry.waited = {};
  }
  if (!work.waits) return;
  if (entry.looked && !work.is_held && !before.is_held) entry.waited += now - *entry.looked;
  entry.looked = now;
}

void ClientFiles::note_leaving(Time now, const IsThere& is_there) {
  for (auto& [process, entry] : entries_) {
    if (is_there(process))
      entry.left.reset();
    else if (!entry.left)
      entry.left = now;
  }
}

void ClientFiles::note_end(Time now, const ProcessId& process, Entry& entry) {
  entry.has_ended = true;
  entry.free_at = now + kDoneRest;
  if (entry.work.is_done) return;
  const bool is_endless = entry.waited >= kEndless;
  entry.free_at = is_endless ? Time::max() : now + std::max(kLeastRest, kWaitsAgain * entry.waited);
  if (is_endless && !entry.files.empty())
    log_warning(
        "MPS: process {} has ended, but the kernel for which it had waited for {} s may run on. "
        "Its "
        "memory is kept, so that the other clients do not end with it, until the last of them has "
        "ended",
        process.pid, std::chrono::duration_cast<std::chrono::seconds>(entry.waited).count());
}

void ClientFiles::step(Time now, const std::function<bool(const ProcessId&)>& has_ended) {
  bool is_any_alive = false;
  for (auto& [process, entry] : entries_) {
    if (!entry.has_ended && has_ended(process)) note_end(now, process, entry);
    is_any_alive |= !entry.has_ended;
  }
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    const bool is_forgotten = entry.left && now - *entry.left >= kForgotten;
    const bool is_free = entry.has_ended ? !is_any_alive || now >= entry.free_at : is_forgotten;
    if (is_free) host_.close_aside(std::move(entry.files));
    at = is_free ? entries_.erase(at) : std::next(at);
  }
}

std::size_t ClientFiles::lingering() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const auto& entry) { return entry.second.has_ended; }));
}

}  // namespace gpushare
