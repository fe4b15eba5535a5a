// SPDX-License-Identifier: Apache-2.0
// Undoes what the ledger lists: thaws what is frozen, restores changed slices. Called by the
// supervisor when the agent died, by `gpushared --recover`, and by an agent that starts and finds
// entries. Never while the agent that wrote them lives.
//
// Idempotent: entries go only when what they list is undone, and doing it twice does no harm (a
// surplus thaw is harmless), or gone. Channels are thawed also when their owner's end is proven,
// because a child that inherited its descriptor keeps them; nothing else is done then.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/plane/layout.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

struct RecoveryReport {
  std::vector<ProcessId> thawed;     // each once
  std::vector<ChannelRef> channels;  // that were thawed, as far as they were there, of all GPUs
  uint32_t slices_restored = 0;
  uint32_t gone = 0;                // entries of processes that have ended
  std::vector<std::string> errors;  // what could not be undone; its entries stay
};

// Thaws first, all of a GPU in one call; then the slices.
RecoveryReport recover(Gpu& gpu, Region& region, const ProcReader& processes);

// The same in steps, for one who may not wait for the driver: the one who writes the ledger makes
// it, resumes and finishes, and carry_out() is called once between, on any thread.
class Recovery {
 public:
  // `groups`: only these; nullptr: all that is listed.
  Recovery(const Ledger& ledger, const ProcReader& processes,
           const std::set<LedgerKey>* groups = nullptr);

  // Lets go on what was stopped, which is no call of the driver. Returns these processes.
  using Resume = std::function<Result<>(const ProcessId&)>;
  std::vector<ProcessId> resume(const Resume& resume);
  std::vector<ProcessId> resume(Gpu& gpu);
  // Thaws channels and restores slices. Once `stop` is requested nothing more is asked of the
  // driver, and what was not asked for counts as not undone.
  void carry_out(Gpu& gpu, const std::stop_token& stop = {});
  // Clears in the ledger what is undone. REQUIRES: nothing was begun for these groups meanwhile.
  RecoveryReport finish(Ledger& ledger, const ProcReader& processes);
  // Instead of finish(): all entries stay. For a first try, before it is proven that no call of
  // whoever has written the ledger is under way any more.
  RecoveryReport tell(const ProcReader& processes);

 private:
  struct Entry {
    uint32_t index = 0;
    LedgerRecord record;
    bool is_undone = true;
    bool has_ended = false;          // its process, when this was made
    std::optional<Error> refusal{};  // of its slice
    ProcessId process() const { return {record.pid, record.start_ticks}; }
    // Not a group's channels are frozen, but the process is stopped (an MPS client).
    bool is_stop() const { return group().is_process(); }
    LedgerKey group() const {
      return {record.pid, record.start_ticks, record.gpu, record.client, record.group};
    }
  };

  void judge_slices(const ProcReader& processes);
  RecoveryReport report();
  void thaw_once(Gpu& gpu, uint32_t index, std::span<Entry* const> entries);
  void restore(Gpu& gpu, Entry& entry);

  std::vector<Entry> entries_;
  RecoveryReport report_;
};

// Where no ledger says what is frozen: all programs that use the driver, with the channels of those
// that have any.
struct AllPrograms {
  std::vector<pid_t> users;
  std::map<pid_t, std::vector<ChannelRef>> channels;
  Result<> is_complete;  // the first refusal to say what a program has
};
// Error: the driver does not say who uses it.
Result<AllPrograms> find_all_programs(Gpu& gpu);
// Thaws them on one GPU, several times, because a surplus thaw is harmless. Processes that were
// stopped (MPS clients) are not resumed: whoever stopped them may have been somebody else. Error:
// the first refusal, after all were asked for.
Result<> thaw_all(Gpu& gpu, uint32_t index, const AllPrograms& programs);

}  // namespace gpushare
