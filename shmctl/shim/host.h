// SPDX-License-Identifier: Apache-2.0
// ShimHost: the agent's end of the slots (shmctl/shim/slot.h). It listens on a socket to which any
// process may connect, makes a slot for each that does, and sends it the descriptor. The kernel
// tells which process it is.
//
// Never blocks: the owner waits for fd() and calls serve(). Not thread-safe. A process has at most
// one slot; one that connects again, after exec() for instance, gets a new one in its place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"
#include "shmctl/base/user_budget.h"
#include "shmctl/shim/life.h"
#include "shmctl/shim/published.h"
#include "shmctl/shim/slot.h"
#include "shmctl/shim/wakes.h"

namespace gpushare {

// What the agent asks of a process when it comes; its slot is made from this.
struct ShimRequest {
  uint32_t features = 0;   // ShimFeature; 0: it gets no slot
  bool is_closed = false;  // its gate is closed until the agent opens it
  uint64_t run_until = 0;  // as set_run_until() would set it; not 0: it wakes us at a closed gate
  struct Gpu {
    std::string pci;      // "0000:3b:00.0"
    uint64_t groups = 0;  // ShimGpu::wanted
    uint32_t sms_shown = 0;
  };
  std::vector<Gpu> gpus;       // at most kShimGpus
  std::string mps_pipe{};      // directory of the MPS server whose client it is to be; empty: none
  uint32_t most_ahead_us = 0;  // ShimCredit::most_ahead_us
};

class ShimHost {
 public:
  static constexpr std::size_t kMostSlots = 4096, kMostSlotsOfUser = 1024;
  // In one call of serve(): so many connections are looked at, so many of them cost a slot, which
  // takes some 0.1 ms each.
  static constexpr int kMostAccepted = 64, kMostWelcomed = 4;
  // Of one user: so many slots at once, and then one each kBetweenSlots.
  static constexpr uint32_t kSlotBurst = 256;
  static constexpr Nanos kBetweenSlots = std::chrono::milliseconds(10);
  using Decide = std::function<ShimRequest(const ProcessId& process, uid_t user)>;

  // Takes over a socket file on which no process listens any more. Error address_in_use if one
  // does.
  static Result<std::unique_ptr<ShimHost>> listen(const std::string& path, Decide decide);
  ~ShimHost();  // opens all gates, gives all the whole GPU, removes the socket file
  ShimHost(const ShimHost&) = delete;
  ShimHost& operator=(const ShimHost&) = delete;

  int fd() const { return socket_.get(); }
  // Gives slots to processes that wait for one, within the bounds above, and calls `decide` for
  // each. fd() stays readable while more wait. A process whose user asks too often is sent away
  // without a slot, and asks again later. Returns how many slots it has given.
  int serve();
  // To be called at least every kShimBeatNs; otherwise the shims take the agent for dead. Also
  // drops the slots of processes that have ended, also of those that their parents have not waited
  // for. Who went on at a closed gate because we had stood still is held again.
  void beat(Time now);

  // The processes that wake us (wakes.h); a slot comes with its descriptor.
  int wake_fd() const { return wakes_.fd(); }
  std::vector<ProcessId> take_wakes(Time now) { return wakes_.take(now); }
  // Whether its wakes are not heard, because it wakes us too often.
  bool is_unheard(const ProcessId& process) const { return wakes_.is_unheard(process); }

  // Null: the process has no slot. Valid until beat() or serve().
  ShimSlot* find(const ProcessId& process) const;
  std::vector<ProcessId> processes() const;

  // Another GPU is shared with the process, at this place of ShimSlot::gpus, which is the next one.
  static void add_gpu(ShimSlot& slot, uint32_t place, const ShimRequest::Gpu& added);

  // These have no effect if the gate is in that state already, but that a word is closed again that
  // somebody else has opened.
  static void close_gate(ShimSlot& slot);
  static void open_gate(ShimSlot& slot);

  // From now on the next iteration waits when `begun` have begun; 0: none waits. An iteration that
  // has just begun goes on. Programs whose `source` is kNone cannot be held in this way.
  static void set_run_until(ShimSlot& slot, uint64_t begun);
  // Empty: it was being written at each attempt, or its program has died in the middle.
  static std::optional<PublishedIterations> iterations(const ShimSlot& slot);

 private:
  struct Mapping {
    Mapping(ShimSlot* mapped, Fd owner, uid_t of)
        : slot(mapped), process(std::move(owner)), user(of) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ShimSlot* const slot;
    const Fd process;  // a pidfd; readable once the process has ended, also before it is reaped
    const uid_t user;
    uint64_t gave_up = 0;  // ShimSlot::gave_up at the last beat
  };

  ShimHost(Fd socket, std::string path, Decide decide);
  enum class Welcome { kSentAway, kAsked, kHasSlot };
  Result<Welcome> welcome(const Fd& connection, Time now);
  bool has_room(const ProcessId& process, uid_t user) const;
  Result<Fd> make_slot(const ProcessId& process, uid_t user, const ShimRequest& request);

  const Fd socket_;
  const std::string path_;
  const Decide decide_;
  Time now_{};
  Time next_sweep_{};
  UserBudget budget_{kBetweenSlots, kSlotBurst};
  Wakes wakes_;
  std::unique_ptr<AgentLife> life_;  // null: there is none, and its beat must do
  std::map<ProcessId, std::unique_ptr<Mapping>> slots_;
};

}  // namespace gpushare
