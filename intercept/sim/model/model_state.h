// SPDX-License-Identifier: Apache-2.0
// The state of Model; only model*.cc include it. A client owns its contexts, a context its queues
// and a queue its items; every other pointer is to an object that lives at least as long.
#pragma once

#include <limits>
#include <optional>
#include <set>

#include "intercept/sim/model/model.h"

namespace gpushare::sim {

inline constexpr uint32_t kGraphicsChannels = 8;
inline constexpr uint32_t kCopyChannels = 4;
inline constexpr uint64_t kMemoryGranule = uint64_t{2} << 20;
inline constexpr size_t kLogCapacity = 65536;
inline constexpr uint32_t kNobodyComes = 0;  // Collective::ranks of one that lost a rank

struct Model::Channel {
  Group* group = nullptr;
  uint32_t handle = 0;
  uint32_t freezes = 0;     // the channel is frozen while this is above 0
  bool has_worked = false;  // true: it holds up its whole group when it is frozen
};

struct Model::Item : Job {
  Work work{};
  Queue* queue = nullptr;
  Channel* channel = nullptr;  // null for work that does not occupy the GPU
  uint64_t meeting = 0;        // of a collective: its number in its communicator
};

// The kernels of one collective operation. Kept until all of them have ended or are gone.
struct Model::Meeting {
  std::shared_ptr<Collective> state;
  std::vector<Item*> items;  // that have not ended, in the order of their submission
};

struct Model::Queue {
  Context* context = nullptr;
  std::deque<std::unique_ptr<Item>> items;
  bool has_begun = false;  // the first item is on its engine, or waits for other work or a stop()
};

struct Model::Group {
  Context* context = nullptr;
  uint32_t handle = 0;
  size_t kind = 0;  // index in Device::engines
  EntryId entry = 0;
  std::vector<Channel> channels;
};

struct Model::Context {
  Client* client = nullptr;
  Device* device = nullptr;
  uint32_t handle = 0;  // that of its graphics group
  uint32_t member = 0;  // unique in the machine
  uint32_t mps_server = 0;
  std::array<Group, kGroups> groups;
  std::map<uint32_t, Queue> queues;
  std::map<uint64_t, uint64_t> collectives;  // submitted so far, by communicator
};

struct Model::Client {
  struct Memory {
    Context* context = nullptr;
    uint64_t bytes = 0;
  };
  uint32_t handle = 0;
  int fd = -1;
  ProcessId process;
  ProcessOpened about;
  bool has_ended = false;            // its process; others have its descriptor
  std::map<pid_t, ProcessId> heirs;  // who have it, too
  bool was_found_in_heir = false;    // by a search
  uint32_t next_object = 0x5C000001;
  std::map<uint32_t, uint32_t> devices;  // the handle of the device object, by GPU
  std::map<uint32_t, std::unique_ptr<Context>> contexts;
  std::map<uint32_t, Memory> memory;
  std::unordered_map<uint64_t, Item*> work;  // unfinished work, by sequence
  // Queues whose first item waits for a piece of work, by its sequence.
  std::unordered_multimap<uint64_t, Queue*> waiters;
};

struct Model::Device {
  struct MpsServer {
    EntryId entry = 0;
    uint32_t clients = 0;
  };
  struct Name {  // how the log names an entry
    pid_t pid = 0;
    uint32_t context = 0;
  };
  uint32_t index = 0;
  std::vector<EngineModel> engines;  // by Group::kind
  SwitchLog log{kLogCapacity};
  uint64_t memory_used = 0;
  std::map<uint32_t, MpsServer> mps_servers;
  std::map<EntryId, Name> names;
  // The sample that utilisation() gives next, and when the one after it began.
  Time sampled;
  Nanos busy_then{};
  uint64_t samples = 0;  // that were asked for
  UtilisationSample sample;
};

inline uint64_t object_key(uint32_t client, uint32_t object) {
  return uint64_t{client} << 32 | object;
}

}  // namespace gpushare::sim
