// SPDX-License-Identifier: Apache-2.0
// Starts: which programs only start yet, and what they may have of a GPU meanwhile beside whoever
// has the turn. It is told in each step what each program of a GPU that takes turns has used of it.
// Pure; one thread.
//
// All starts of a GPU together have kPart of it beside the turns, and up to kSaved of that at once;
// what they have had beyond that, at most kSaved, is paid back first. While nothing is left, a
// program that starts wants its turn like any other: else a crowd of programs that each do no more
// than a start may would pass every queue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"
#include "shmctl/plane/token_bucket.h"

namespace gpushare {

class Starts {
 public:
  // Until it has had so much of a GPU a program that has launched nothing, as far as can be told,
  // makes its context there: what it does then is no work. On an H200 a start takes 2 to 6.5 ms, in
  // which the driver has it on the GPU for 0.07 ms up to 34 times and for up to 1.5 ms a few times
  // (docs/measurements.md).
  static constexpr Nanos kLongest = std::chrono::milliseconds(10);
  static constexpr double kPart = 0.05;
  static constexpr Nanos kSaved = std::chrono::seconds(1);

  // How soon the next step comes, so that it is seen when a program that starts does more than
  // that: as long as one has come or has had the GPU in the last kWatch, or nothing is left for
  // starts; and while there are others, which may begin to work at any time.
  static constexpr Nanos kStep = std::chrono::milliseconds(2);
  static constexpr Nanos kWatch = std::chrono::milliseconds(50);
  static constexpr Nanos kIdleStep = std::chrono::milliseconds(25);

  // What a step sees of a program on a GPU.
  struct Seen {
    ProcessId process{};
    uint32_t gpu = 0;
    Nanos used{};            // since the last step
    bool can_start = true;   // false: it has begun to work, or nothing tells what it uses
    bool passes = false;     // it has no turn, and another job wants this GPU
    bool is_frozen = false;  // it can do nothing that would have to be seen soon
  };

  // A step begins; who is not seen in it is forgotten.
  void begin();
  // In a step: whether its start was over in the last one. What else is to be said of it than what
  // it has used makes no difference then.
  bool was_over(const ProcessId& process, uint32_t gpu) const;
  // Returns whether it starts, beside whoever has the turn. `now`: until when its use is known.
  bool see(const Seen& seen, Time now);
  // Takes what one had that passed others and has left the GPU since: what is known of it late.
  void charge(uint32_t gpu, Nanos used, Time now);

  // As of the last step. False for one that was not seen.
  bool is_starting(const ProcessId& process, uint32_t gpu) const;
  // What it used in the last step on GPUs on which its start was over in that step.
  Nanos worked(const ProcessId& process) const;
  Time next_step(Time now) const;

 private:
  struct One {
    Nanos used{}, worked{};
    Time used_last{};  // or when it was first seen
    bool is_over = false;
  };
  using Key = std::pair<ProcessId, uint32_t>;

  Nanos left(uint32_t gpu, Time now);

  std::map<Key, One> ones_, before_;
  std::array<TokenBucket, kMaxGpus> left_{};
  bool is_any_ = false, is_any_watched_ = false;  // of this step
};

}  // namespace gpushare
