// SPDX-License-Identifier: Apache-2.0
// UsageStore: the file of the usage history, an SQLite database in WAL mode, whose one writer this
// is. What write() has returned for is there after a crash of this process, and after one of the
// machine the file is whole and may lack the last minutes. Older samples are packed, many to a row.
// The file never exceeds its limit: of what takes most beyond its part the oldest goes first
// (upkeep.h). Every call may block for as long as the disk does. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/usage/codec.h"
#include "shmctl/usage/database.h"
#include "shmctl/usage/upkeep.h"
#include "shmctl/usage/usage.h"

namespace gpushare {

struct UsageFileOptions {
  std::string path;
  uint64_t most_bytes =
      64ULL << 20;              // with SQLite's log beside the file; at least kLeastUsageBytes
  bool is_for_all = true;       // every user may read it; otherwise root and the group
  uint32_t pack_samples = 180;  // so many samples are packed together
};
inline constexpr uint64_t kLeastUsageBytes = 8ULL << 20;

// What is written at once: the amounts of one sample, and what became known in its time.
struct UsageWrite {
  WallSeconds start = 0;
  UsageSample sample;
  std::map<UsageJob, UsageJobAmounts> jobs;
  std::vector<UsageFreeze> freezes;
  std::map<uint32_t, UsageGpu> gpus;
};

class UsageStore {
 public:
  // Of the file; a newer one is left alone. The first layout had no packs: such a file is taken
  // over, and its samples are packed in the course of some hours.
  static constexpr int kLayout = 2;
  static constexpr int64_t kMostJobs = 50'000;
  // Where each job is a tenant there is a new series for each; beyond this many, those that no
  // sample has are dropped, once a day.
  static constexpr int64_t kMostUnusedSeries = 20'000;

  // A file that is broken, or no such file, is set aside as PATH.bad, with a word in the log, and a
  // new one begins. Errors: not_supported, a newer gpushare made it; device_or_resource_busy,
  // another process writes it; those of the file system.
  static Result<UsageStore> open(const UsageFileOptions& options);

  // All of it or nothing. What falls into a time that was written before is added to it. Of a full
  // file or disk the oldest samples go, and it is tried once more.
  Result<> write(const UsageWrite& what);

 private:
  UsageStore(Fd lock, Database database, UsageFileOptions options)
      : lock_(std::move(lock)), database_(std::move(database)), options_(std::move(options)) {}

  static Result<UsageStore> open_there(const UsageFileOptions& options, Fd& lock);
  Result<> begin_file();
  Result<> take_over();
  Result<> shrink(int64_t pages);
  Result<> write_once(const UsageWrite& what);
  Result<> add_sample(uint32_t tier, WallSeconds start, const NumberedSample& sample);
  Result<> add_jobs(const UsageWrite& what);
  Result<uint32_t> number_of(const UsageSeries& series);
  Result<int64_t> number_of(const UsageJob& job, WallSeconds now);
  Result<bool> pack();
  Result<> trim();
  Result<> make_room();
  void forget_numbers();

  Fd lock_;
  Database database_;
  UsageFileOptions options_;
  std::map<UsageSeries, uint32_t> series_;
  std::map<UsageJob, int64_t> jobs_;
  std::map<uint32_t, UsageGpu> gpus_;
  int64_t step_ = 0;                 // number of the last one that was written, since 1970
  int64_t next_look_at_series_ = 0;  // by step_
};

}  // namespace gpushare
