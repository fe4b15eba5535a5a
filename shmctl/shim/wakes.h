// SPDX-License-Identifier: Apache-2.0
// Wakes: by which processes wake the agent, each with an eventfd of its own that it has got beside
// its slot. What a process wants is in its slot; that it woke the agent says only that a look is
// worth while. One that wakes it more often than kMostPerSecond is not heard for kUnheard; the
// owner then looks at its slot now and then. Never blocks. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Wakes {
 public:
  static constexpr uint32_t kMostPerSecond = 2000;
  static constexpr Nanos kUnheard = std::chrono::seconds(10);
  // Of processes in one call of take().
  static constexpr int kMostTaken = 64;

  Wakes();
  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;

  // Readable when a process has woken the agent. -1: the kernel gave no descriptor, and none can.
  int fd() const { return epoll_.get(); }
  // Returns the descriptor that this process is to write to, which stays ours; -1: there is none.
  // What it had before is over.
  int add(const ProcessId& process);
  void remove(const ProcessId& process);
  // Those that have woken the agent since the last call, ascending. fd() stays readable while there
  // are more.
  std::vector<ProcessId> take(Time now);
  // Whether it is not heard at present.
  bool is_unheard(const ProcessId& process) const;

 private:
  struct Ear {
    ProcessId process;
    Fd event;
    Time second{};       // of the count
    uint32_t count = 0;  // wakes in it
  };

  void hear(uint64_t number, const Ear& ear);
  void hear_again(Time now);

  const Fd epoll_;
  uint64_t next_ = 1;
  std::map<uint64_t, Ear> ears_;  // by a number that is never used again
  std::map<ProcessId, uint64_t> numbers_;
  std::map<uint64_t, Time> unheard_;  // and until when
};

}  // namespace gpushare
