// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/upkeep.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "shmctl/base/log.h"
#include "shmctl/usage/pack.h"

namespace gpushare {
namespace {

constexpr int64_t kMostJobUses = 100'000;  // of each length of time
constexpr int64_t kMostFreezes = 10'000;
// Fewer rows of a table than this are not worth giving up.
constexpr int64_t kLeastRows = 32;
// A row, with what its table adds; of a job beside its words, which an index has a second time.
constexpr int64_t kBytesOfJobUse = 24, kBytesOfJob = 40;

// The parts of a full file, in percent. The finest samples have the most, so that the week of them
// that is promised for 50 tenants on 8 GPUs stays when the file is years old.
constexpr int64_t kPercentOfSamples[kUsageTierCount] = {70, 10, 8};
constexpr int64_t kPercentOfJobs = 12;

Result<int64_t> count_of(Database& database, const char* table, const std::string& which) {
  return database.ask(fmt::format("SELECT count(*) FROM {} WHERE {}", table, which));
}

// The `count` oldest rows, and all that are as old as the last of them.
Result<> drop_oldest(Database& database, const char* table, const char* time,
                     const std::string& which, int64_t count) {
  return database.run(
      fmt::format("DELETE FROM {0} WHERE {2} AND {1} <= (SELECT {1} FROM {0} WHERE {2} ORDER BY "
                  "{1} LIMIT 1 OFFSET {3})",
                  table, time, which, count - 1)
          .c_str());
}

// By number and not by age: a clock that was wrong for an hour must not empty the file.
Result<> keep(Database& database, const char* table, const char* time, const std::string& which,
              int64_t most) {
  const auto count = count_of(database, table, which);
  if (!count) return std::unexpected(count.error());
  return *count <= most ? Result<>() : drop_oldest(database, table, time, which, *count - most);
}

struct PackRow {
  int64_t id, samples, bytes;
};

Result<std::vector<PackRow>> packs_of(Database& database, uint32_t tier) {
  auto question =
      database.prepare("SELECT id,count,length(data) FROM packs WHERE tier=? ORDER BY first");
  if (!question) return std::unexpected(question.error());
  question->bind(0, tier);
  std::vector<PackRow> packs;
  for (;;) {
    const auto row = question->step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return packs;
    packs.push_back(
        {.id = question->number(0), .samples = question->number(1), .bytes = question->number(2)});
  }
}

Result<> drop_packs(Database& database, const std::vector<int64_t>& ids) {
  if (ids.empty()) return {};
  return database.run(
      fmt::format("DELETE FROM packs WHERE id IN ({})", fmt::join(ids, ",")).c_str());
}

// A pack goes when as many samples as are to be kept remain without it.
Result<> keep_samples(Database& database, uint32_t tier) {
  const auto packs = packs_of(database, tier);
  if (!packs) return std::unexpected(packs.error());
  const auto loose = count_of(database, "samples", fmt::format("tier={}", tier));
  if (!loose) return std::unexpected(loose.error());
  int64_t count = *loose;
  for (const PackRow& pack : *packs) count += pack.samples;
  std::vector<int64_t> gone;
  for (const PackRow& pack : *packs) {
    if (count - pack.samples < kUsageTiers[tier].most_samples) break;
    count -= pack.samples;
    gone.push_back(pack.id);
  }
  return drop_packs(database, gone);
}

struct LooseRows {
  NumberedSamples samples;
  WallSeconds last = 0;  // of all that were read, with those that are broken
  int64_t count = 0;
};

// The oldest, as many as fit into one pack, but for the newest, which is still added to.
Result<LooseRows> oldest_rows(Database& database, uint32_t tier, int64_t most) {
  auto rows =
      database.prepare("SELECT start,data FROM samples WHERE tier=? ORDER BY start LIMIT ?");
  if (!rows) return std::unexpected(rows.error());
  rows->bind(0, tier);
  rows->bind(1, most);
  LooseRows oldest;
  std::set<uint32_t> series;
  for (;;) {
    const auto row = rows->step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return oldest;
    auto sample = decode_sample(rows->bytes(1));
    if (sample) {
      for (const auto& [number, amounts] : sample->amounts) series.insert(number);
      if (!oldest.samples.empty() && series.size() * (oldest.samples.size() + 1) > kMostPackedCells)
        return oldest;
      oldest.samples.emplace(rows->number(0), std::move(*sample));
    }
    oldest.last = rows->number(0);
    ++oldest.count;
  }
}

Result<> replace_by_pack(Database& database, uint32_t tier, const LooseRows& oldest) {
  auto gone = database.prepare("DELETE FROM samples WHERE tier=? AND start<=?");
  if (!gone) return std::unexpected(gone.error());
  gone->bind(0, tier);
  gone->bind(1, oldest.last);
  if (auto run = gone->run(); !run || oldest.samples.empty()) return run;
  auto put = database.prepare("INSERT INTO packs(tier,first,last,count,data) VALUES(?,?,?,?,?)");
  if (!put) return std::unexpected(put.error());
  const std::string bytes = encode_pack(oldest.samples);
  put->bind(0, tier);
  put->bind(1, oldest.samples.begin()->first);
  put->bind(2, oldest.samples.rbegin()->first);
  put->bind(3, static_cast<int64_t>(oldest.samples.size()));
  put->bind_bytes(4, bytes);
  return put->run();
}

}  // namespace

Result<bool> pack_samples(Database& database, uint32_t tier, const UsagePacking& packing) {
  auto question = database.prepare("SELECT count(*),sum(length(data)) FROM samples WHERE tier=?");
  if (!question) return std::unexpected(question.error());
  question->bind(0, tier);
  if (const auto row = question->step(); !row) return std::unexpected(row.error());
  const int64_t count = question->number(0);
  const auto bytes = static_cast<uint64_t>(question->number(1));
  question->reset();
  if (count < 2 || (count <= packing.samples && bytes <= packing.most_loose_bytes)) return false;
  const auto oldest = oldest_rows(database, tier, std::min<int64_t>(packing.samples, count - 1));
  if (!oldest) return std::unexpected(oldest.error());
  const auto broken = oldest->count - static_cast<int64_t>(oldest->samples.size());
  if (broken > 0) log_warning("usage history: {} samples are broken and left out", broken);
  if (auto done = database.all_or_nothing([&] { return replace_by_pack(database, tier, *oldest); });
      !done)
    return std::unexpected(done.error());
  return true;
}

Result<> trim_usage(Database& database) {
  for (uint32_t tier = 0; tier < kUsageTierCount; ++tier) {
    if (auto kept = keep_samples(database, tier); !kept) return kept;
    if (auto kept = keep(database, "job_use", "start", fmt::format("tier={}", tier), kMostJobUses);
        !kept)
      return kept;
  }
  return keep(database, "freezes", "start_ms", "true", kMostFreezes);
}

Result<> drop_unused_series(Database& database) {
  std::set<int64_t> used;
  const auto note = [&](const NumberedSample& sample) {
    for (const auto& [number, amounts] : sample.amounts) used.insert(number);
  };
  const auto read_all = [&](const char* sql, const auto& take) -> Result<> {
    auto rows = database.prepare(sql);
    if (!rows) return std::unexpected(rows.error());
    for (;;) {
      const auto row = rows->step();
      if (!row) return std::unexpected(row.error());
      if (!*row) return {};
      take(rows->bytes(0));
    }
  };
  if (auto read = read_all("SELECT data FROM samples",
                           [&](std::string_view bytes) {
                             if (const auto sample = decode_sample(bytes)) note(*sample);
                           });
      !read)
    return read;
  if (auto read = read_all("SELECT data FROM packs",
                           [&](std::string_view bytes) {
                             if (const auto samples = decode_pack(bytes))
                               for (const auto& [start, sample] : *samples) note(sample);
                           });
      !read)
    return read;
  auto known = database.prepare("SELECT id FROM series");
  if (!known) return std::unexpected(known.error());
  std::vector<int64_t> gone;
  for (;;) {
    const auto row = known->step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    if (!used.contains(known->number(0))) gone.push_back(known->number(0));
  }
  return database.all_or_nothing([&]() -> Result<> {
    auto drop = database.prepare("DELETE FROM series WHERE id=?");
    if (!drop) return std::unexpected(drop.error());
    for (const int64_t id : gone) {
      drop->bind(0, id);
      if (auto run = drop->run(); !run) return run;
    }
    return {};
  });
}

Result<> drop_unnamed_jobs(Database& database) {
  return database.run(
      "DELETE FROM jobs WHERE id NOT IN (SELECT job FROM job_use) AND "
      "id NOT IN (SELECT job FROM freezes)");
}

Result<int64_t> bytes_of_jobs(Database& database) {
  return database.ask(
      fmt::format("SELECT (SELECT count(*) FROM job_use)*{} + count(*)*{} + "
                  "2*ifnull(sum(length(name)+length(command)+length(tenant)),0) FROM jobs",
                  kBytesOfJobUse, kBytesOfJob));
}

namespace {

// The oldest uses go of the length of time that has most of them, and of shorter ones as many as
// are as old: a job goes when none of its uses is left.
Result<> drop_oldest_jobs(Database& database) {
  uint32_t fullest = 1;
  int64_t rows = 0;
  for (uint32_t tier = 1; tier < kUsageTierCount; ++tier) {
    const auto count = count_of(database, "job_use", fmt::format("tier={}", tier));
    if (!count) return std::unexpected(count.error());
    if (*count < rows) continue;
    rows = *count;
    fullest = tier;
  }
  const auto last = database.ask(
      fmt::format("SELECT start FROM job_use WHERE tier={} ORDER BY start LIMIT 1 OFFSET {}",
                  fullest, std::max<int64_t>(rows / 16, 1) - 1));
  if (!last) return std::unexpected(last.error());
  return database.all_or_nothing([&]() -> Result<> {
    if (auto gone = database.run(
            fmt::format("DELETE FROM job_use WHERE tier<={} AND start<={}", fullest, *last)
                .c_str());
        !gone)
      return gone;
    return drop_unnamed_jobs(database);
  });
}

}  // namespace

Result<> make_usage_room(Database& database, uint64_t bytes) {
  int64_t most = -1;           // by percent of its part
  std::vector<PackRow> packs;  // of the samples that have most
  int64_t rows = 0;
  uint32_t fullest = 0;
  for (uint32_t tier = 0; tier < kUsageTierCount; ++tier) {
    const std::string which = fmt::format("tier={}", tier);
    auto there = packs_of(database, tier);
    if (!there) return std::unexpected(there.error());
    const auto count = count_of(database, "samples", which);
    if (!count) return std::unexpected(count.error());
    const auto loose = database.ask("SELECT sum(length(data)) FROM samples WHERE " + which);
    if (!loose) return std::unexpected(loose.error());
    if (there->empty() && *count < kLeastRows) continue;
    int64_t all = *loose;
    for (const PackRow& pack : *there) all += pack.bytes;
    if (all / kPercentOfSamples[tier] <= most) continue;
    most = all / kPercentOfSamples[tier];
    packs = *std::move(there);
    rows = *count;
    fullest = tier;
  }
  const auto uses = count_of(database, "job_use", "true");
  if (!uses) return std::unexpected(uses.error());
  if (*uses >= kLeastRows) {
    const auto jobs = bytes_of_jobs(database);
    if (!jobs) return std::unexpected(jobs.error());
    if (*jobs / kPercentOfJobs > most) return drop_oldest_jobs(database);
  }
  if (most < 0) return make_error(std::errc::no_space_on_device, "make room in the usage history");
  if (packs.empty())
    return drop_oldest(database, "samples", "start", fmt::format("tier={}", fullest), rows / 16);
  std::vector<int64_t> gone;
  int64_t freed = 0;
  for (const PackRow& pack : packs) {
    gone.push_back(pack.id);
    freed += pack.bytes;
    if (freed >= static_cast<int64_t>(bytes)) break;
  }
  return drop_packs(database, gone);
}

}  // namespace gpushare
