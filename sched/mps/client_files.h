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
// So the copies are closed when the process has ended, which frees its memory. If that took as long
// as the resource manager waits, a kernel runs on that nothing can end; then they are kept until no
// other client is left, and so is the memory of the process.
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
  // A process whose end takes so long may have a kernel that runs on. The resource manager waits
  // for 2.0 s; that the process begins to end is seen a moment later.
  static constexpr Nanos kLongEnd = 1800ms;
  // One that lives so long after it was last on a GPU has become another program by exec.
  static constexpr Nanos kForgotten = 10s;

  explicit ClientFiles(MpsHost& host) : host_(host) {}

  // A client has a context: from now on its files are kept open. Costs nothing for one that is
  // known.
  void keep(const ProcessId& process);
  // Of those that are known, which are still on a GPU, as far as is seen: one that is not has begun
  // to end.
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
    std::optional<Time> left;  // when it began to end, as far as is known
    bool has_ended = false;
  };

  MpsHost& host_;
  std::map<ProcessId, Entry> entries_;
  bool was_refused_ = false;  // that is logged once
};

}  // namespace gpushare
