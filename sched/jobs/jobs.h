// SPDX-License-Identifier: Apache-2.0
// Jobs: which processes on the GPUs are one job. What one `gpushare run` started, with its children
// on all GPUs, is one; any other process is one by itself. Pure: once a step it is given all that
// is there, and keeps what a job has received. One thread.
#pragma once

#include <cstdint>
#include <functional>
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
  std::optional<uid_t> user{};
  bool is_late = false;  // it was there before the agent, which has not seen all of its GPU time
  Time came{};           // when it was first seen there; for a run: when that was asked for
  Nanos used{};          // GPU time since the last step, less what was returned
  uint64_t memory_bytes = 0;
  std::string_view command_line{};  // valid during the call
  std::optional<IterationsView> iterations{};
};

// What a scheduler before knew of a job, by its run or, where none started it, its process.
struct FormerJob {
  uint32_t run = 0;
  ProcessId process{};
  Time arrived{};
  Nanos service{};  // of all GPUs together
};

struct Job {
  uint64_t id = 0;
  std::string name;  // "run-4711", "pid-4712"
  uint32_t tenant = 0;
  Time arrived{};
  Nanos service{};             // GPU time that it has received, of all GPUs together
  std::optional<Nanos> start;  // of that, what it had before end_start(); none: it still starts
  uint64_t gpus = 0;           // bit n: it has a process on GPU n
  uint32_t most_gpus = 0;      // that it was on at once
  std::string command_line;    // of its first process; the first kMostLine bytes
  std::string signature;       // of all of it and its user: command_signature()
  std::optional<uid_t> user;   // of that process
  bool is_whole = true;        // all of its GPU time was seen
  std::optional<int> status;   // of the process that ended last, as wait(2) gives it; none: unknown
  uint64_t iterations = 0;     // that have ended, of the process that has most
  // What had ended, and what it had worked (worked_on_each()), at two instants: between the older
  // one and now lie at least 64 iterations or 2 s of work, if it has had so many.
  struct Mark {
    uint64_t iterations = 0;
    Nanos worked{};
  } older{}, newer{};
  Nanos last_end{};       // what it had worked when it was last seen that one had ended
  uint64_t expected = 0;  // iterations that it announces in all; 0: it does not say
  uint64_t memory_bytes = 0;
  // Of an iteration, from begin to begin without its waits at the boundary; at most kLongestPeriod,
  // 0: unknown.
  Nanos period{}, longest{};
  // The fewest iterations that it has ever announced, 0: it has not; what it had worked when it
  // announced any first, and when so many had ended (none: they have not).
  uint64_t fewest_expected = 0;
  Nanos announced{};
  std::optional<Nanos> kept_word;
  ShimPhase phase = ShimPhase::kUnknown;
  Nanos target{};
  bool has_boundary = false;         // iterations of all its processes are known
  std::vector<ProcessId> processes;  // ascending
};

// What it has received on each of its GPUs: it has its turns on all of them at once. A part of all
// that it has received, by the most GPUs that it was on; so this is its length in the end.
Nanos service_on_each(const Job& job);
// Of that, what is taken for its start: what it had before end_start(), up to kLongestStart.
Nanos start_on_each(const Job& job);
// And what it had besides, its own work.
Nanos worked_on_each(const Job& job);
// GPU time of one iteration on each of its GPUs, 0: unknown. What it has worked for each of the
// latest; before there are some, its period, in which it may also have waited.
Nanos work_of_iteration(const Job& job);
// What the iterations have taken that it has announced, once they have ended, and what it has
// worked beyond that.
Nanos work_promised(const Job& job);
Nanos work_beyond(const Job& job);
// What it has worked since an iteration was last seen to end.
Nanos work_since_end(const Job& job);
// Whether the next run of its command will take as long, as far as that can be known: all of it was
// seen, it did not fail, and it has worked for kLeastLesson on each of its GPUs.
bool teaches(const Job& ended);

class Jobs {
 public:
  static constexpr std::size_t kMostLine = 4096;
  static constexpr Nanos kLeastLesson = std::chrono::milliseconds(100);
  // 60 ms in the median of 100 programs that started on an H200 together, 2 s at most
  // (bench/results/trace.jsonl).
  static constexpr Nanos kLongestStart = std::chrono::seconds(2);
  // What a job has received is remembered for so long after its last process has left the GPUs, so
  // that one which comes back is the same job; and where all of it has ended, for so long, in which
  // the switch log and the driver's samples tell of its last kernels (Charging waits 1.5 s for
  // them).
  static constexpr Nanos kRemembered = std::chrono::seconds(10),
                         kRememberedEnded = std::chrono::seconds(2);

  // After a pause so long, in which no policy ordered jobs, those that are there have had GPU time
  // that was not seen.
  static constexpr Nanos kPause = std::chrono::seconds(5);
  // The shim counts a longer iteration as one of so long (IterationTimes::kLongestNs).
  static constexpr Nanos kLongestPeriod{int64_t{1} << 40};  // 18 minutes
  // From the first step on: GPUs may be opened late.
  static constexpr Nanos kFormer = std::chrono::seconds(60);

  // A step: begin(), add() for each process and GPU in any order, end(), which asks whether any
  // process of a run is alive.
  using HasRun = std::function<bool(uint32_t run)>;
  // Before the first step: a job of which a scheduler before us told keeps its place and what it
  // had, if it comes back within kFormer.
  void remember(std::span<const FormerJob> former);
  void begin();
  void add(const JobProcess& process);
  void end(Time now, const HasRun& has_run);
  // A process has ended, with this status if it is known. What it belongs to is that of the last
  // step. Of several processes of a job the one that ends last counts: one that starts others waits
  // for them, or ends them.
  void note_end(const ProcessId& process, std::optional<int> status);
  // The job begins to work. All that it had until the last end(), but for `worked`, was its start,
  // if this is the first call: contexts and modules were made, for which the GPU is held, at times
  // alone.
  void end_start(uint64_t job, Nanos worked = {});
  // Of a job that is known: what the log says late of a process that has left the GPUs.
  void add_late(uint64_t job, Nanos used);

  // As of the last end(), ascending by id.
  std::span<const Job> all() const { return present_; }
  // 0: it is in no job.
  uint64_t job_of(const ProcessId& process) const;
  // Jobs that will not come back, since the last call, as they were when they were there last.
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
    // Iterations: what each of its processes has said last, the most that they have said, and those
    // of processes that were there before them.
    std::map<ProcessId, uint64_t> said;
    uint64_t most = 0, ended_before = 0;
    bool has_said = false;
    bool is_present = false;
    bool has_ended = false;  // a process that is a job by itself
    Time last_seen{};
  };
  static bool is_over(const Key& key, const Known& known, Time now, const HasRun& has_run);
  static void count_iterations(Known& known);
  static void believe(Job& job);

  uint64_t next_id_ = 1;
  std::map<Key, Known> known_;
  std::map<Key, FormerJob> former_;
  std::optional<Time> former_until_;
  std::map<ProcessId, uint64_t> by_process_;
  std::optional<Time> last_end_;
  std::vector<Job> present_, ended_;
};

}  // namespace gpushare
