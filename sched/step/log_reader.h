// SPDX-License-Identifier: Apache-2.0
// LogReader: brings what the GPUs' switch logs say into their accounting. Each log is read by its
// GPU's line (driver_line.h): while programs start, their driver's lock is held for tens of
// milliseconds at a time, and a step that waited for it would keep the agent from everything else.
// What has not arrived after kPatience is taken by a later step; the accounting's time stands still
// until then. A GPU whose log cannot be read is given up until it answers again, and nothing is
// asked of one that is not open. One thread, the scheduler's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sched/enforce/driver_line.h"
#include "sched/registry/late_attach.h"
#include "sched/step/state.h"
#include "sched/step/surroundings.h"
#include "shmctl/program/backoff.h"

namespace gpushare {

class LogReader {
 public:
  // A step waits for readings as long as that in all. A reading takes 12 us on an H200, and the
  // slice that may be set before it 0.4 ms.
  static constexpr Nanos kPatience = std::chrono::microseconds(500);

  // All outlive it.
  LogReader(State& state, const Surroundings& outside, LateAttach& late);

  // Asks for what was logged since the last reading.
  void begin(Time now);
  // Accounts what has arrived. Returns false when no GPU answers.
  bool read(Time now);
  // Whether what happened on the GPU before this instant is accounted, or will not be.
  bool is_read_until(uint32_t gpu, Time at) const;
  // Asks for the driver's own samples, where they tell something that the log does not, or they are
  // wanted.
  void sample(const std::function<bool(uint32_t gpu)>& is_wanted);
  // Waits until no sample is asked for, but not longer on any GPU. Returns false when one is.
  bool rest(Nanos patience);
  // Enters those that have come.
  void take_samples();

 private:
  // One reading, which the line's thread fills.
  class Reading;
  struct Log {
    std::shared_ptr<Reading> reading;  // nullptr: none is under way
    bool is_late = false;              // the one under way has been waited for
    bool is_sampled = false;           // a sample has been asked for
    bool is_closed = false;            // the GPU was not open when it was last looked at
    int failures = 0;                  // in a row
    Backoff answers{};                 // of the GPU
  };

  bool read(uint32_t gpu, Time now, Time deadline);
  bool enter(uint32_t gpu, Time now, const Result<SwitchBatch>& batch);
  bool has_log() const { return outside_.gpu.support().has_switch_log; }
  bool may_ask(uint32_t gpu, Time now) const;
  bool is_closed(uint32_t gpu) const { return !outside_.gpu.closed_because(gpu).empty(); }
  bool leave_closed(uint32_t gpu, Time now);
  void note_answer(uint32_t gpu);
  void give_up(uint32_t gpu, const Error& error);

  State& state_;
  const Surroundings& outside_;
  LateAttach& late_;
  std::vector<Log> logs_;  // by GPU
  // Samples are asked for on lines of their own: each is two calls, which wait for the driver's
  // lock while programs start, and a freeze would wait for both.
  std::vector<std::unique_ptr<DriverLine>> samplers_;
};

}  // namespace gpushare
