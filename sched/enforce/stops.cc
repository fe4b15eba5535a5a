// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/stops.h"

#include <algorithm>

#include "shmctl/base/log.h"

namespace gpushare {

Result<bool> Stops::stop(const ControlKey& key, Controlled& process) {
  const LedgerKey own = ledger_key(key);
  if (process.stop_entry || leftovers_.contains(own)) return false;  // it is resumed first
  const Result<uint32_t> entry = ledger_.begin_freeze(own, -1, {});
  if (!entry) return std::unexpected(entry.error());
  if (const Result<> stopped = gpu_.stop(key.first); !stopped) {
    // The signal may have been sent: a surplus one is harmless.
    if (has_undone(resume(key)))
      ledger_.end_thaw(*entry);
    else
      leftovers_.add(own);
    return std::unexpected(stopped.error());
  }
  process.stop_entry = *entry;
  process.is_frozen = true;
  ++process.freezes;
  return true;
}

Result<> Stops::resume(const ControlKey& key) {
  const auto first = all_.lower_bound({key.first, 0});
  for (auto other = first; other != all_.end() && other->first.first == key.first; ++other)
    if (other->first != key && other->second.stop_entry) return {};
  return gpu_.resume(key.first);
}

void Stops::release(const ControlKey& key, Controlled& process) {
  if (!process.stop_entry) return;
  const Result<> resumed = resume(key);
  if (has_undone(resumed)) {
    ledger_.clear(*process.stop_entry);
  } else {
    log_error("process {} is still stopped: {}", key.first.pid, resumed.error().message());
    leftovers_.add(ledger_key(key));
  }
}

void Stops::stop_again(const ControlKey& key) { (void)gpu_.stop(key.first); }

void Stops::stop_again(std::span<const ProcessId> resumed) {
  if (resumed.empty()) return;
  for (const auto& [key, process] : all_)
    if (process.stop_entry && std::ranges::find(resumed, key.first) != resumed.end())
      (void)gpu_.stop(key.first);
}

}  // namespace gpushare
