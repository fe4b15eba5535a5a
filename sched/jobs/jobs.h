// SPDX-License-Identifier: Apache-2.0
// Jobs: which processes on the GPUs are one job. What one `gpushare run` started, with its children
// on all GPUs, is one; any other process is one by itself. Pure: once a step it is given all that
// is there, and keeps what a job has received. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

// A process as it is on one GPU.
struct JobProcess {
  ProcessId process{};
  uint32_t gpu = 0;
  uint32_t tenant = 0;  // its slot
  uint32_t run = 0;     // number of the `gpushare run` that started it; 0: none did
  Time came{};          // when it was first seen there; for a run: when that was asked for
  Nanos used{};         // GPU time since the last step
  uint64_t memory_bytes = 0;
  std::string_view command_line{};  // valid during the call
  std::optional<IterationsView> iterations{};
};

struct Job {
  uint64_t id = 0;
  std::string name;  // "run-4711", "pid-4712"
  uint32_t tenant = 0;
  Time arrived{};
  Nanos service{};
  uint64_t gpus = 0;         // bit n: it has a process on GPU n
  std::string command_line;  // of its first process
  uint64_t iterations = 0;   // that have ended, of the process that has most
  uint64_t expected = 0;     // iterations that it announces in all; 0: it does not say
  uint64_t memory_bytes = 0;
  Nanos period{}, longest{};  // of an iteration; 0: unknown
  ShimPhase phase = ShimPhase::kUnknown;
  Nanos target{};
  bool has_boundary = false;         // iterations of all its processes are known
  std::vector<ProcessId> processes;  // ascending
};

class Jobs {
 public:
  // What a job has received is remembered for so long after its last process has left the GPUs, so
  // that one which comes back is the same job.
  static constexpr Nanos kRemembered = std::chrono::seconds(10);

  // A step: begin(), add() for each process and GPU in any order, end().
  void begin();
  void add(const JobProcess& process);
  void end(Time now);

  // As of the last end(), ascending by id.
  std::span<const Job> all() const { return present_; }
  // 0: it is in no job.
  uint64_t job_of(const ProcessId& process) const;
  // Jobs that will not come back, since the last call.
  std::vector<Job> take_ended();

 private:
  // A run by its number, any other process by itself.
  struct Key {
    uint32_t run = 0;
    ProcessId process{};
    auto operator<=>(const Key&) const = default;
  };
  struct Known {
    Job job;
    // Iterations: of processes that are gone; the most that one has said last, and in this step.
    uint64_t ended_before = 0, most_before = 0;
    std::optional<uint64_t> most;
    bool is_present = false;
    Time last_seen{};
  };

  uint64_t next_id_ = 1;
  std::map<Key, Known> known_;
  std::map<ProcessId, uint64_t> by_process_;
  std::vector<Job> present_, ended_;
};

}  // namespace gpushare
