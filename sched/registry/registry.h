// SPDX-License-Identifier: Apache-2.0
// Registry: who exists. Folds DriverEvents into processes, their driver objects, and, per process
// and GPU, the *share holder* that everything else works with: its compute channel groups, their
// channels, its video memory. Pure state, one thread, no I/O.
//
// Invariants:
//   1. One process per pid: an event of another start time closes the old bearer of the pid.
//   2. An object lives under its parent; freeing a parent frees what is below.
//   3. Seeing an object twice (live event and late attach) changes nothing.
//   4. A holder exists exactly while its process has a compute group on that GPU.
//   5. A process that has ended, or has another program, has *left* its clients: another one may
//      hold their descriptors, and then what is in them goes on. They stay its own, whoever makes
//      or frees something in them, until the driver has them no more (ended.h). So do those of
//      which an agent before us has said whose they are (remember()), until they are found in their
//      owner: who says first that he made one may only hold a copy of its descriptor.
// Events whose opening was lost are accepted; what they do not tell stays unknown.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "sched/enforce/holder.h"

namespace gpushare {

struct Process {
  ProcessId id;
  Time seen{};       // its first event
  pid_t ns_pid = 0;  // 0 unknown
  uint64_t cgroup_id = 0;
  std::optional<uid_t> uid;
  std::string command;
  bool is_late_attach = false;  // was there before the agent
  std::vector<Holder> holders;  // ascending by gpu
  // Since when it has ended, or has another program; something of it may still be on the GPU.
  std::optional<Time> ended{};
  std::set<pid_t> heirs{};  // some of those in which clients of it were found
};

// A process that an agent before us has seen to have these clients.
struct FormerOwner {
  ProcessId process;
  std::vector<uint32_t> clients;
};

class Registry {
 public:
  enum class Source { kLive, kAttach };
  struct Owned {
    ProcessId owner;
    uint32_t client = 0;
    auto operator<=>(const Owned&) const = default;
  };

  // GPUs whose instance is not known yet have no holders before learn().
  explicit Registry(std::span<const GpuInfo> gpus);
  // The instance of a GPU is known now: what processes have on it becomes holders.
  void learn(const GpuInfo& gpu);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  void apply(const DriverEvent& event, Source source = Source::kLive);
  // Takes over what Gpu::attach() has found of `process`. Of the objects `known`, those that were
  // not found are forgotten; a client's memory, which attach cannot see, goes with the client. A
  // client that RM shows in several processes, because they inherited its descriptor, has one
  // owner: the process that was seen to make it, by us or by an agent before us, otherwise the
  // oldest one. Returns the clients, and their owners, that were found in `process` and are not its
  // own. `works_unseen`: it works on a GPU where nothing of it is known; then a client that another
  // one is thought to have left is its own, unless it has a group of its own besides.
  std::vector<Owned> reconcile(const ProcessId& process, std::span<const DriverEvent> found,
                               std::span<const ObjectRef> known, bool works_unseen = false);
  // For who is found to hold clients of this process, before anything is.
  void remember(const FormerOwner& former);
  // The process has ended. It is forgotten with the last client that it has left.
  void end(const ProcessId& process, Time now);
  void close(ProcessId process);
  // Whether that is remembered, and neither was the client found nor is it known to be gone.
  bool remembers(const Owned& owned) const;
  // What the driver is to be asked about: the clients that were left, with their groups and
  // channels, and those that are remembered; whether there are any. leavings() moves when another
  // one is, or something in one is said to be freed.
  std::vector<ObjectRef> unsettled() const;
  bool has_unsettled() const { return !left_.empty() || !former_.empty(); }
  uint64_t leavings() const { return leavings_; }
  // Moves when an object appears.
  uint64_t last_serial() const { return last_serial_; }
  // These, of unsettled(), the driver did not have when last_serial() was `as_of`.
  void gone(std::span<const ObjectRef> objects, uint64_t as_of);
  // The processes that have ended and stay.
  std::set<pid_t> ended() const;
  // The processes whose clients are remembered, and of what is in one nothing was found yet.
  std::set<pid_t> remembered() const;
  // The clients (with the same handle twice), groups and channels of a process.
  std::vector<ObjectRef> objects(pid_t pid) const;
  bool owns(const Owned& owned) const;
  // Events of this process, or of all, were lost: any channel may have been freed, and its handle
  // used again. All of them count as others than before (ComputeGroup::serials).
  void doubt(pid_t pid);
  void doubt_all();

  // By ascending pid. References hold until the next change.
  const std::map<pid_t, Process>& processes() const { return processes_; }
  const Process* find(pid_t pid) const;
  // The same; nullptr also where another process has the pid now.
  const Process* find(const ProcessId& process) const;
  const Holder* holder(const ProcessId& process, uint32_t gpu) const;

  // Whether the present bearer of the pid has a holder there.
  bool is_on(pid_t pid, uint32_t gpu) const;
  // The process that has this client; nullopt: none is known to.
  std::optional<ProcessId> owner_of(uint32_t client) const;
  bool has_channel(const ProcessId& owner, const ChannelRef& channel) const;
  // All that it has on this GPU, those of its copies too.
  std::vector<ChannelRef> channels(const ProcessId& owner, uint32_t gpu) const;

  // Moves whenever a process or holder appears, changes or goes (memory sums excepted).
  uint64_t generation() const { return generation_; }
  // True once after events of unknown processes were lost.
  bool take_rescan_request();
  // True once after another process got the pid of one that had something: if that remains, it is
  // the heir's in which it is found.
  bool take_heirs_request();
  // How many groups, channels and allocations were gone through to make holders anew.
  uint64_t looked_at() const { return looked_at_; }

 private:
  struct Channel {
    uint32_t class_id = 0;
    uint64_t serial = 0;
  };
  struct Group {
    uint32_t device = 0;
    Engine engine = Engine::kOther;
    int fd = -1;
    uint64_t serial = 0;
    std::map<uint32_t, Channel> channels;
    std::optional<Micros> own_slice;
    uint32_t own_slice_count = 0;
  };
  struct Memory {
    uint32_t device = 0;
    uint64_t bytes = 0;
  };
  struct Client {
    std::map<uint32_t, uint32_t> devices;  // handle -> RM instance
    std::map<uint32_t, Group> groups;
    std::map<uint32_t, Memory> memory;  // video memory only
    bool was_seen_made = false, was_remembered = false;
    bool is_left = false;
  };
  using Clients = std::map<uint32_t, Client>;

  Process& opened(const DriverEvent& event, Source source);
  Process* left_by(const DriverEvent& event);
  void leave(Process& process, uint32_t client);
  void give_back(const Process& process, uint32_t client);
  void note_use_of_remembered(const DriverEvent& event);
  void drop_left(uint32_t client);
  bool has_own_group(const ProcessId& process, std::span<const DriverEvent> found) const;
  void close_if_over(Process& process);
  static bool is_younger(const Client& client, uint32_t object, uint64_t as_of);
  const Process* former_owner(const ProcessId& process, uint32_t client);
  void learn(const ProcessId& owner, uint32_t client, std::span<const DriverEvent> found);
  void forget(Process& process, std::span<const DriverEvent> found,
              std::span<const ObjectRef> known);
  const Process* other_owner(const ProcessId& process, uint32_t client) const;
  void made(Process& process, uint32_t client, Source source);
  void add(Process& process, const DeviceCreated& made, Source source);
  void add(Process& process, const GroupCreated& made);
  void add(Process& process, const ChannelCreated& made);
  void add(Process& process, const MemoryAllocated& made);
  void note(Process& process, const ControlMade& made);
  void free(Process& process, const ObjectFreed& freed);
  std::optional<uint32_t> gpu_of(const Client& client, uint32_t device) const;
  void charge_memory(Process& process, const Client& client, const Memory& memory, int sign);
  // A compute group as its holder shows it; nullptrs: none does.
  struct Shown {
    Holder* holder = nullptr;
    ComputeGroup* group = nullptr;
  };
  static Shown shown(Process& process, uint32_t client, uint32_t group);
  static ComputeGroup show(const Process& process, uint32_t client, uint32_t handle,
                           const Group& group);
  // In a holder that exists, whose other groups are not gone through. False: there is none.
  bool show_new(Process& process, uint32_t client, uint32_t handle);
  bool hide(Process& process, uint32_t client, uint32_t handle);
  bool hide_channel(Process& process, uint32_t client, uint32_t group, uint32_t channel);
  void changed(Holder& holder);
  void rebuild_holders(Process& process);
  void doubt(Process& process);

  const std::size_t gpus_;  // how many there are
  std::map<uint32_t, uint32_t> gpu_by_instance_;
  std::map<pid_t, Process> processes_;
  std::unordered_map<pid_t, const Process*> by_pid_;  // the same: they are looked up all the time
  std::map<pid_t, Clients> clients_;                  // same keys as processes_
  std::unordered_map<uint32_t, pid_t> left_;          // clients that were left, and whose they are
  std::unordered_map<uint32_t, ProcessId> former_;    // remembered owners of clients not seen yet
  uint64_t generation_ = 0, last_serial_ = 0, looked_at_ = 0, leavings_ = 0;
  bool rescan_requested_ = false, heirs_requested_ = false;
};

}  // namespace gpushare
