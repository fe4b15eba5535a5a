// SPDX-License-Identifier: Apache-2.0
// SlotKeeper: frees programs that wait for credit on the GPU when their agent is gone. It is the
// supervisor's second hold on their slots: the agent sends it each slot that it gives away with the
// feature kShimCredit, over a socket that it inherits. When the agent dies the supervisor calls
// free_all(), about a millisecond later (sched/daemon/lifeline.h); when the agent hangs, a thread
// of the keeper opens the words of all whose beat is older than kShimBeatTimeoutNs, at most kLook
// later. Where the supervisor is gone, too, each shim does it for its own process
// (intercept/shim/credit/watcher.h).
//
// The supervisor makes one for each agent. A slot is its process's own page, which cannot be made
// shorter; whatever it holds, only that process is set free.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

class SlotKeeper {
 public:
  static constexpr Nanos kLook = std::chrono::milliseconds(50);

  // Errors: those of socketpair().
  static Result<std::unique_ptr<SlotKeeper>> start();
  ~SlotKeeper();
  SlotKeeper(const SlotKeeper&) = delete;
  SlotKeeper& operator=(const SlotKeeper&) = delete;

  // What the agent inherits, for report_to(); the supervisor closes it when the agent has started.
  int agents_end() const { return agents_end_.get(); }
  void close_agents_end() { agents_end_.reset(); }

  // The agent has died: opens all words, says in each slot that nobody beats any more, and wakes
  // the threads that wait there. Any thread; doing it twice does no harm.
  void free_all();
  std::size_t size();

  // The agent's end. From now on report() sends to this descriptor; one thread, at the start.
  static void report_to(int fd);
  // A slot that was given to `process`, for which `owner` is a pidfd. Replaces an older one of the
  // same process. Does nothing without report_to(). Error: that of sendmsg(), which never blocks.
  static Result<> report(const ProcessId& process, const Fd& slot, const Fd& owner);

 private:
  struct Kept {
    Kept(ShimSlot* mapped, Fd process) : slot(mapped), owner(std::move(process)) {}
    ~Kept();
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ShimSlot* const slot;
    const Fd owner;
  };

  SlotKeeper(Fd own_end, Fd agents_end);
  void run();
  bool take_all();  // false: the agent has closed its end
  void free_late(uint64_t now_ns);
  void drop_ended();

  const Fd own_end_;
  Fd agents_end_;
  std::mutex mutex_;  // protects what follows
  std::map<ProcessId, std::unique_ptr<Kept>> slots_;
  std::thread thread_;
};

}  // namespace gpushare
