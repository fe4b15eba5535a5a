// SPDX-License-Identifier: Apache-2.0
// Recoveries: undoes what the ledger lists (recovery.h), for whoever may not wait for the driver:
// on each GPU on a thread of its own, so that a GPU that does not answer keeps nobody frozen on the
// others. All functions are called on one thread, which alone reads and writes the ledger; the
// threads ask the driver. A thread whose call never returns stays behind, with all that it uses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/recovery.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class Recoveries {
 public:
  // `resume` lets a stopped process go on. `told` is called on other threads, each time after one
  // of them has come to its end, also after the end of this object. The others outlive it.
  Recoveries(Region& region, const ProcReader& processes, const Clock& clock,
             Recovery::Resume resume, std::function<void()> told);
  // As call_off(). Waits for nothing.
  ~Recoveries();
  Recoveries(const Recoveries&) = delete;
  Recoveries& operator=(const Recoveries&) = delete;

  // Whether the agent that has written the ledger may still have a call of the driver under way: a
  // freeze that takes effect after the thaw would be listed nowhere.
  enum class Writer {
    kDies,      // it may: what is undone stays listed, for a second time
    kHasEnded,  // all of its threads have: what is undone is cleared
  };
  // Lets stopped processes go on at once, and begins to undo everything else on each GPU that has
  // entries and on which nothing is under way. nullptr: there is no driver to ask now. Returns what
  // came of the stopped ones.
  // `but`: GPUs that are to be left alone.
  RecoveryReport begin(const std::shared_ptr<Gpu>& gpu, Writer writer,
                       const std::set<uint32_t>& but = {});

  struct Over {
    uint32_t gpu = 0;
    Writer writer{};
    const void* asked = nullptr;  // which begin() was given, for comparison
    RecoveryReport report;
  };
  // What has come to its end since the last call; the ledger is cleared of what is undone.
  std::vector<Over> collect();

  // When each began that is under way, by GPU. What the driver has not answered for long is not
  // asked for again.
  std::map<uint32_t, Time> under_way() const;

  // For whoever starts an agent, which writes the ledger from then on and undoes what is left
  // itself. Nothing that is under way is entered any more, and after the present call of the driver
  // nothing more is asked of it.
  void call_off();

 private:
  struct Job;

  void start(const std::shared_ptr<Gpu>& gpu, uint32_t index, const std::set<LedgerKey>& groups,
             Writer writer);
  RecoveryReport resume_stopped(const std::set<LedgerKey>& stopped, Writer writer);

  Region& region_;
  const ProcReader& processes_;
  const Clock& clock_;
  const Recovery::Resume resume_;
  const std::function<void()> told_;
  std::map<uint32_t, std::shared_ptr<Job>> jobs_;  // under way, by GPU
};

}  // namespace gpushare
