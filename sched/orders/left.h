// SPDX-License-Identifier: Apache-2.0
// What is left of a job, and how that is known: the most certain of what was said of it, announced
// by it, or learnt from earlier runs of its command. A job that goes on for a tenth longer than
// was said of it, and for 2 s at least (100 ms, if it was learnt), is unknown from then on, so that
// a false word wins nothing but that time. Of iterations that are announced again and again the
// fewest count, and half as long again, 2 s at least; and one that takes five times as long as the
// others, and 2 s more, makes the job unknown until it has ended. What is taken for the start of
// its programs is no part of a length. Pure.
#pragma once

#include <optional>

#include "sched/policy/job.h"

namespace gpushare {

struct KnownLength {
  uint64_t iterations = 0;        // of the whole job, said or expected; 0: unknown
  uint64_t ended = 0;             // of these
  Nanos period{};                 // GPU time of one, alone; 0: unknown
  Nanos promised{}, beyond{};     // GPU time of those that it announced, and since they have ended
  Nanos since_end{};              // GPU time since an iteration has ended
  Nanos length{};                 // GPU time of the whole job, said; 0: unknown
  std::optional<Nanos> learnt{};  // the median of the command's finished runs
  Nanos service{};                // GPU time so far
  Nanos start{};                  // of that, what is taken for its start
};

struct Left {
  std::optional<Nanos> time{};  // at least 0; none: unknown
  LeftSource source = LeftSource::kUnknown;

  bool operator==(const Left&) const = default;
};

// Never throws, and takes any values.
Left left_of(const KnownLength& known);

}  // namespace gpushare
