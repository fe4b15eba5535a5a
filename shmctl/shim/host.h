// SPDX-License-Identifier: Apache-2.0
// ShimHost: the agent's end of the slots (shmctl/shim/slot.h). Listens on a socket to which anyone
// may connect, makes a slot for each process that does, and hands it the descriptor. Who a process
// is, is the kernel's word.
//
// Never blocks: the owner waits for fd() and calls serve(). Not thread-safe. A process can hold one
// slot, and there are at most kMostSlots; one that connects again, after exec() for instance, gets
// a new one in place of the old.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"
#include "shmctl/shim/published.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// What a process is asked for.
struct ShimWish {
  uint32_t features = 0;   // ShimFeature; 0: it gets no slot
  bool is_closed = false;  // its gate, until the agent opens it
  struct Gpu {
    std::string pci;      // "0000:3b:00.0"
    uint64_t groups = 0;  // ShimGpu::wanted
  };
  std::vector<Gpu> gpus;   // at most kShimGpus
  std::string mps_pipe{};  // of the MPS server that it is to be a client of; empty: none
};

class ShimHost {
 public:
  static constexpr std::size_t kMostSlots = 4096;
  using Decide = std::function<ShimWish(const ProcessId& process, uid_t user)>;

  // Takes over a socket file that nobody listens on any more. Error address_in_use when somebody
  // does.
  static Result<std::unique_ptr<ShimHost>> listen(const std::string& path, Decide decide);
  ~ShimHost();  // opens all gates, removes the socket file
  ShimHost(const ShimHost&) = delete;
  ShimHost& operator=(const ShimHost&) = delete;

  int fd() const { return socket_.get(); }
  // Gives slots to all who are waiting for one.
  void serve();
  // To be called at least every kShimBeatNs: else the shims take us for dead. Also forgets the
  // slots of processes that have ended, whether their parents know it or not.
  void beat(Time now);

  // Null: it has none. Valid until beat() or serve().
  ShimSlot* find(const ProcessId& process) const;
  std::vector<ProcessId> processes() const;

  // No effect where the gate is in that state already.
  static void close_gate(ShimSlot& slot);
  static void open_gate(ShimSlot& slot);

  // Iterations beyond so many begun wait from now on; 0: none does. An iteration that has just
  // begun when this comes goes on. Whether the program can be held so at all: its `source`.
  static void set_run_until(ShimSlot& slot, uint64_t begun);
  // Empty: it is being written all the time, or its program died in the middle.
  static std::optional<PublishedIterations> iterations(const ShimSlot& slot);

 private:
  struct Mapping {
    Mapping(ShimSlot* mapped, Fd owner) : slot(mapped), process(std::move(owner)) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ShimSlot* const slot;
    const Fd process;  // becomes readable when it ends, also before its parent is told
  };

  ShimHost(Fd socket, std::string path, Decide decide);
  Result<> welcome(const Fd& connection);
  Result<Fd> make_slot(const ProcessId& process, const ShimWish& wish);

  const Fd socket_;
  const std::string path_;
  const Decide decide_;
  Time now_{};
  Time next_sweep_{};
  std::map<ProcessId, std::unique_ptr<Mapping>> slots_;
};

}  // namespace gpushare
