// SPDX-License-Identifier: Apache-2.0
// SwitchLog: the newest context-switch records of one simulated GPU. Every reader has a place of
// its own, so that each of several gets every record; one that is too slow learns how many it lost.
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "intercept/gpu.h"

namespace gpushare::sim {

class SwitchLog {
 public:
  explicit SwitchLog(size_t capacity) : capacity_(capacity) {}

  void append(const SwitchRecord& record) {
    if (records_.size() == capacity_) {
      records_.pop_front();
      ++first_;
    }
    records_.push_back(record);
  }

  uint64_t end() const { return first_ + records_.size(); }

  // Returns at most `limit` records from `place` on, and moves `place` behind them.
  SwitchBatch read(uint64_t& place, size_t limit, Time complete_until) const {
    SwitchBatch batch;
    if (place < first_) batch.lost = first_ - place;
    place = std::max(place, first_);
    const uint64_t until = std::min<uint64_t>(end(), place + limit);
    for (; place < until; ++place) batch.records.push_back(records_[place - first_]);
    // When records are left, the batch is complete only until its last record.
    batch.complete_until =
        until == end() || batch.records.empty() ? complete_until : batch.records.back().time;
    return batch;
  }

 private:
  const size_t capacity_;
  std::deque<SwitchRecord> records_;
  uint64_t first_ = 0;  // the number of the oldest record in the log
};

}  // namespace gpushare::sim
