// SPDX-License-Identifier: Apache-2.0
// ClientFiles: what MPS clients have open of the driver's memory manager (nvidia-uvm), held open by
// the agent, too, until the driver has ended their work. It does no I/O but by MpsHost; called on
// the agent's thread.
//
// When a process dies without ending its CUDA contexts, by a signal for example, its files are
// closed while its kernels run. If those of the memory manager go first, the kernels' memory is
// taken away under them; that is a fault, which ends all clients of the server. If they stay, the
// resource manager waits for the work in line, two seconds at most, and nobody else comes to harm:
// that wait is part of the process's end (H200, driver 580.159.04; bench/results/mps_kills.jsonl).
// It does not wait for a kernel that is the last in its stream, and after two seconds the one that
// runs is left to itself. So the copies are closed, which frees the process's memory, a while after
// its end: a second, or four times as long as it had waited for its last kernel by its own word. A
// kernel for which it had waited for ten seconds is taken for one without end; then they are kept
// until no other client is left. Who has said that its work is done ends its contexts itself;
// then the next program, which takes longer to start, finds its memory free.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sched/mps/host.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class ClientFiles {
 public:
  static constexpr Nanos kLeastRest = 1s;    // how long files are kept after the end, at least
  static constexpr Nanos kDoneRest = 200ms;  // of one that had done its work
  static constexpr int kWaitsAgain = 4;      // and so many times as long as it had waited
  static constexpr Nanos kEndless = 10s;     // who has waited for so long waits for ever
  // One that lives so long after it was last on a GPU has become another program by exec.
  static constexpr Nanos kForgotten = 10s;

  explicit ClientFiles(MpsHost& host) : host_(host) {}

  // A client has a context: from now on its files are kept open. Returns false, and costs nothing,
  // for one that is known.
  bool keep(const ProcessId& process);
  // What one that is known says of itself; of one that says nothing, nothing.
  struct Work {
    uint64_t launches = 0;  // that it has made
    bool waits = false;     // a thread waits for work
    bool is_held = false;   // and may do so because its launches are held: that is no waiting
    bool is_done = false;   // it has done its work, and ends its contexts now
  };
  void note_work(Time now, const ProcessId& process, const Work& work);
  // Of those that are known, which are still on a GPU, as far as is seen: one that is not ends, or
  // has become another program.
  using IsThere = std::function<bool(const ProcessId&)>;
  void note_leaving(Time now, const IsThere& is_there);
  // Lets go what is not needed any more. `has_ended`: as of MpsHost.
  void step(Time now, const std::function<bool(const ProcessId&)>& has_ended);

  bool is_empty() const { return entries_.empty(); }
  // Processes that have ended whose files are still kept.
  std::size_t lingering() const;

 private:
  struct Entry {
    std::vector<Fd> files;
    Work work;
    std::optional<Time> looked;  // when, if it waited then
    Nanos waited{};              // without a launch, while it was not held
    std::optional<Time> left;    // when it was last on a GPU, if it is no more
    bool has_ended = false;
    Time free_at{};  // Time::max(): when no other client is left
  };

  static void note_end(Time now, const ProcessId& process, Entry& entry);

  MpsHost& host_;
  std::map<ProcessId, Entry> entries_;
  bool was_refused_ = false;  // that is logged once
};

}  // namespace gpushare
