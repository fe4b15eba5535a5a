// SPDX-License-Identifier: Apache-2.0
// What keeps the file of the usage history small, for its one writer (store.h), between two writes:
// samples that have a row each are packed, what is beyond its number goes, and a full file gives up
// its oldest. Each is all done or not at all, whenever the process is killed. A sample that is
// split between a pack and a row, because a clock was set back, is the sum of both.
#pragma once

#include "shmctl/base/error.h"
#include "shmctl/usage/database.h"
#include "shmctl/usage/usage.h"

namespace gpushare {

// The table of packs, which files have since layout 2. Packs may overlap, where a clock was set
// back.
inline constexpr const char* kPackTable = R"(
CREATE TABLE IF NOT EXISTS packs(id INTEGER PRIMARY KEY, tier INTEGER NOT NULL,
  first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS packs_first ON packs(tier, first);
)";

struct UsagePacking {
  uint32_t samples = 180;  // in one pack, at most
  // Rows of one length of time are packed when there are more than so many samples of them, or when
  // they take more bytes than this.
  uint64_t most_loose_bytes = 2 << 20;
};

// Packs the oldest rows of a length of time if there are enough. True: it has.
Result<bool> pack_samples(Database& database, uint32_t tier, const UsagePacking& packing);

// Of samples, uses of jobs and freezes those go that are beyond their numbers, the oldest first.
Result<> trim_usage(Database& database);

// Series that no sample has any more go. It reads all samples, which may take seconds.
Result<> drop_unused_series(Database& database);

// Jobs that nothing names any more go.
Result<> drop_unnamed_jobs(Database& database);

// What jobs and their use take of the file, about.
Result<int64_t> bytes_of_jobs(Database& database);

// The oldest of what takes most beyond its part of the file goes: about `bytes` of it if that is
// samples, and a sixteenth of the uses of jobs otherwise, with the jobs that have no other. Errors:
// no_space_on_device, nothing is there that could go.
Result<> make_usage_room(Database& database, uint64_t bytes);

}  // namespace gpushare
