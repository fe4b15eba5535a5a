// SPDX-License-Identifier: Apache-2.0
// UsageStore: the file of the usage history, an SQLite database in WAL mode, whose one writer this
// is. What write() has returned for is there after a crash of this process, and after one of the
// machine the file is whole and may lack the last minutes. The file never exceeds its limit: the
// oldest samples go first, those of ten seconds before the coarser ones. Every call may block for
// as long as the disk does. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/usage/codec.h"
#include "shmctl/usage/database.h"
#include "shmctl/usage/usage.h"

namespace gpushare {

struct UsageFileOptions {
  std::string path;
  uint64_t most_bytes =
      64ULL << 20;         // with SQLite's log beside the file; at least kLeastUsageBytes
  bool is_for_all = true;  // every user may read it; otherwise root and the group
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
  static constexpr int kLayout = 1;  // of the file; a newer one is left alone
  static constexpr int64_t kMostJobs = 50'000;
  static constexpr int64_t kMostJobUses = 100'000;  // of each length of time
  static constexpr int64_t kMostFreezes = 10'000;

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
  Result<> write_once(const UsageWrite& what);
  Result<> add_sample(uint32_t tier, WallSeconds start, const NumberedSample& sample);
  Result<> add_jobs(const UsageWrite& what);
  Result<uint32_t> number_of(const UsageSeries& series);
  Result<int64_t> number_of(const UsageJob& job, WallSeconds now);
  Result<> trim();
  Result<> make_room();
  void forget_numbers();

  Fd lock_;
  Database database_;
  UsageFileOptions options_;
  std::map<UsageSeries, uint32_t> series_;
  std::map<UsageJob, int64_t> jobs_;
  std::map<uint32_t, UsageGpu> gpus_;
  uint32_t writes_ = 0;
};

}  // namespace gpushare
