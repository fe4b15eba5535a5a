// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/client_files.h"

#include <algorithm>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {

void ClientFiles::keep(const ProcessId& process) {
  if (entries_.contains(process)) return;
  auto files = host_.copy_memory_files(process);
  if (!files) {
    // Nothing is to be kept of one that has ended meanwhile.
    if (files.error().code != std::errc::no_such_process && !std::exchange(was_refused_, true))
      log_warning(
          "MPS: {}: what process {} has open of the driver cannot be kept open. If a client is "
          "ended by a signal while it has kernels on the GPU, all clients may end with it",
          files.error().message(), process.pid);
    files = std::vector<Fd>{};
  }
  entries_[process].files = std::move(*files);
}

void ClientFiles::note_leaving(Time now, const IsThere& is_there) {
  for (auto& [process, entry] : entries_) {
    if (is_there(process))
      entry.left.reset();
    else if (!entry.left)
      entry.left = now;
  }
}

void ClientFiles::step(Time now, const std::function<bool(const ProcessId&)>& has_ended) {
  bool is_any_alive = false;
  for (auto& [process, entry] : entries_) {
    if (entry.has_ended) continue;
    entry.has_ended = has_ended(process);
    is_any_alive |= !entry.has_ended;
    const Nanos leaving = entry.left ? now - *entry.left : Nanos::zero();
    if (entry.has_ended ? leaving < kLongEnd : leaving >= kForgotten)
      host_.close_aside(std::exchange(entry.files, {}));
    else if (entry.has_ended && !entry.files.empty())
      log_warning(
          "MPS: process {} has ended, but a kernel of it runs on. Its memory is kept, so that the "
          "other clients do not end with it, until the last of them has ended",
          process.pid);
  }
  if (!is_any_alive)
    for (auto& [process, entry] : entries_) host_.close_aside(std::exchange(entry.files, {}));
  std::erase_if(entries_, [&](const auto& entry) {
    const Entry& one = entry.second;
    return one.files.empty() && (one.has_ended || (one.left && now - *one.left >= kForgotten));
  });
}

std::size_t ClientFiles::lingering() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const auto& entry) { return entry.second.has_ended; }));
}

}  // namespace gpushare
