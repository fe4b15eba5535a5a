// SPDX-License-Identifier: Apache-2.0
// PlaneSnapshot: a copy of the whole control plane for a reader (gpushare, gpushare-top, the
// agent's own status); and Publication, the writer's side of it. take_snapshot() works on a
// read-only mapping and never waits for the writer. It does not trust the region's bytes: texts
// come out terminated, and records that name a GPU or tenant outside the tables are left out and
// counted. Any thread may take a snapshot; only the region's one writer makes publications.
#pragma once

#include <cstdint>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/region.h"

namespace gpushare {

template <class T>
struct Numbered {
  uint32_t slot = 0;  // index in the region's table
  T record;
};

struct PlaneSnapshot {
  AgentRecord agent;
  EndingRecord ending;                             // of the agent before
  std::vector<GpuRecord> gpus;                     // agent.gpu_count of them
  std::vector<Numbered<TenantRecord>> tenants;     // used slots, ascending
  std::vector<Numbered<ProcessRecord>> processes;  // used slots, ascending
  std::vector<LedgerRecord> ledger;                // used entries
  std::vector<WaitingRecord> waiting;              // for a GPU, in the order in which they asked
  uint32_t rejected = 0;  // records left out because they made no sense or could not be read
  // True when everything is from one publication. False when the agent was publishing, or died
  // while it did: each record is still whole, but two of them may be a tick apart.
  bool is_consistent = false;
};

// Copies the plane, and tries up to four times to get a consistent copy. Error
// resource_unavailable_try_again when the agent's record cannot be read.
Result<PlaneSnapshot> take_snapshot(const ControlPlane& plane);

// PlaneSnapshot::waiting alone. `rejected` rises by those that could not be read.
std::vector<WaitingRecord> read_waiting(const Region& region, uint32_t& rejected);

// The records of one tick are written while a Publication lives; there is one at a time. An agent
// that dies within it leaves the mark set, which costs readers `is_consistent` and nothing else.
class Publication {
 public:
  explicit Publication(Region& region);
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

 private:
  Region& region_;
};

}  // namespace gpushare
