// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "shmctl/base/fd.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/usage/codec.h"
#include "shmctl/usage/database.h"
#include "shmctl/usage/pack.h"
#include "shmctl/usage/store.h"

namespace gpushare {
namespace {

constexpr const char* kRead = "read the usage history";
constexpr off_t kMostBytes = off_t{1} << 34;
constexpr size_t kLogHead = 32;  // bytes; they differ each time the log begins anew

// Empty: there is no log.
Result<std::string> log_head(const std::string& path) {
  const Fd log(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!log.is_open()) return errno == ENOENT ? Result<std::string>("") : errno_error(kRead, path);
  std::string head(kLogHead, '\0');
  const ssize_t count = ::pread(log.get(), head.data(), head.size(), 0);
  if (count < 0) return errno_error(kRead, path);
  head.resize(static_cast<size_t>(count));
  return head;
}

Result<> copy(const std::string& from, const std::string& to, bool must_be_there) {
  const Fd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!in.is_open())
    return errno == ENOENT && !must_be_there ? Result<>() : errno_error(kRead, from);
  struct stat about{};
  if (::fstat(in.get(), &about) != 0) return errno_error(kRead, from);
  if (!S_ISREG(about.st_mode) || about.st_size > kMostBytes)
    return make_error(std::errc::invalid_argument, kRead, from + " is no such file");
  const Fd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out.is_open()) return errno_error(kRead, to);
  std::vector<char> part(1 << 20);
  for (;;) {
    const ssize_t count = ::read(in.get(), part.data(), part.size());
    if (count < 0) return errno_error(kRead, from);
    if (count == 0) return {};
    for (ssize_t done = 0; done < count;) {
      const ssize_t wrote =
          ::write(out.get(), part.data() + done, static_cast<size_t>(count - done));
      if (wrote < 0) return errno_error(kRead, to);
      done += wrote;
    }
  }
}

// What is moved from the log into the file stays in the log until that begins anew. So the two
// copies fit together if the log's head is the same before the first and in the second.
Result<> copy_both(const std::string& path, const std::string& to) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto before = log_head(path + "-wal");
    if (!before) return std::unexpected(before.error());
    if (auto copied = copy(path, to, true); !copied) return copied;
    ::unlink((to + "-wal").c_str());
    if (auto copied = copy(path + "-wal", to + "-wal", false); !copied) return copied;
    const auto after = log_head(to + "-wal");
    if (after && *after == *before) return {};
  }
  return make_error(std::errc::resource_unavailable_try_again, kRead,
                    path + " changes all the time");
}

bool is_of(const std::string& tenant, const std::optional<std::string>& wanted) {
  return !wanted || tenant == *wanted || tenant.starts_with(*wanted + "/");
}

class Reading {
 public:
  Reading(Database database, const UsageWindow& window)
      : database_(std::move(database)), window_(window) {}

  Result<UsageHistory> all() {
    for (const auto step : {&Reading::choose_tier, &Reading::read_series, &Reading::read_samples,
                            &Reading::read_jobs, &Reading::read_freezes, &Reading::read_gpus})
      if (auto done = (this->*step)(); !done) return std::unexpected(done.error());
    return std::move(out_);
  }

 private:
  // Calls `take` for each row of a statement whose parameters are numbers.
  Result<> each(std::string_view sql, std::initializer_list<int64_t> values, const auto& take) {
    auto statement = database_.prepare(sql);
    if (!statement) return std::unexpected(statement.error());
    int index = 0;
    for (const int64_t value : values) statement->bind(index++, value);
    for (;;) {
      const auto row = statement->step();
      if (!row) return std::unexpected(row.error());
      if (!*row) return {};
      take(*statement);
    }
  }

  // The finest that has few enough steps and reaches back as far as any other does.
  Result<> choose_tier() {
    std::array<std::optional<WallSeconds>, kUsageTierCount> first;
    for (tier_ = 0; tier_ < kUsageTierCount; ++tier_) {
      const WallSeconds since = step_begin(window_.since, kUsageTiers[tier_].step);
      // A pack that reaches into the window is taken to have a sample where that begins.
      for (const char* sql :
           {"SELECT min(start) FROM samples WHERE tier=? AND start>=? HAVING count(*)>0",
            "SELECT min(first) FROM packs WHERE tier=? AND last>=? HAVING count(*)>0"}) {
        if (auto read = each(sql, {tier_, since},
                             [&](const Statement& row) {
                               const WallSeconds begin = std::max(row.number(0), since);
                               first[tier_] = std::min(first[tier_].value_or(begin), begin);
                             });
            !read)
          return read;
      }
    }
    for (tier_ = 0; tier_ + 1 < kUsageTierCount; ++tier_) {
      const auto& next = kUsageTiers[tier_ + 1];
      const bool is_short =
          (window_.until - window_.since) / kUsageTiers[tier_].step <= UsageWindow::kMostSteps;
      const auto& coarser = first[tier_ + 1];
      const bool reaches = !coarser || (first[tier_] && *first[tier_] < *coarser + next.step);
      if (is_short && reaches) break;
    }
    out_.step = kUsageTiers[tier_].step;
    out_.since = step_begin(window_.since, out_.step);
    out_.until = step_begin(window_.until + out_.step - 1, out_.step);
    return {};
  }

  Result<> read_series() {
    return each("SELECT id,tenant,uid,gpu,priority FROM series", {}, [&](const Statement& row) {
      series_[static_cast<uint32_t>(row.number(0))] = {
          .tenant = row.text(1),
          .uid = row.number(2),
          .gpu = static_cast<uint32_t>(row.number(3)),
          .priority = static_cast<uint32_t>(row.number(4))};
    });
  }

  Result<> read_samples() {
    if (auto read =
            each("SELECT count,data FROM packs WHERE tier=? AND last>=? AND first<? ORDER BY id",
                 {tier_, out_.since, out_.until},
                 [&](const Statement& row) {
                   const auto samples = decode_pack(row.bytes(1));
                   if (!samples) {
                     out_.broken += static_cast<uint32_t>(row.number(0));
                     return;
                   }
                   const auto end = samples->lower_bound(out_.until);
                   for (auto at = samples->lower_bound(out_.since); at != end; ++at)
                     add(at->first, at->second);
                 });
        !read)
      return read;
    return each("SELECT start,data FROM samples WHERE tier=? AND start>=? AND start<?",
                {tier_, out_.since, out_.until}, [&](const Statement& row) {
                  const auto sample = decode_sample(row.bytes(1));
                  if (sample)
                    add(row.number(0), *sample);
                  else
                    ++out_.broken;
                });
  }

  void add(WallSeconds start, const NumberedSample& numbered) {
    UsageSample& sample = out_.samples[start];
    sample.watched_ms += numbered.watched_ms;
    for (const auto& [number, amounts] : numbered.amounts) {
      const auto known = series_.find(number);
      if (known == series_.end()) continue;
      const UsageSeries& series = known->second;
      if (is_of(series.tenant, window_.tenant) && (!window_.gpu || series.gpu == *window_.gpu))
        sample.amounts[series] += amounts;
    }
  }

  static UsageJob job_of(const Statement& row, int first) {
    return {.name = row.text(first),
            .command = row.text(first + 1),
            .tenant = row.text(first + 2),
            .uid = row.number(first + 3)};
  }

  Result<> read_jobs() {
    const uint32_t tier = std::max(tier_, 1U);
    const WallSeconds step = kUsageTiers[tier].step;
    return each(
        "SELECT name,command,tenant,uid,sum(used_ms),sum(waiting_ms),sum(throttled_ms),min(start),"
        "max(start) FROM job_use JOIN jobs ON job=id WHERE tier=? AND start>=? AND start<? GROUP "
        "BY id",
        {tier, step_begin(out_.since, step), out_.until}, [&](const Statement& row) {
          UsageJobTotal total{.job = job_of(row, 0),
                              .amounts = {.used_ms = static_cast<uint64_t>(row.number(4)),
                                          .waiting_ms = static_cast<uint64_t>(row.number(5)),
                                          .throttled_ms = static_cast<uint64_t>(row.number(6))},
                              .first = row.number(7),
                              .last = std::min(row.number(8) + step, window_.until)};
          if (is_of(total.job.tenant, window_.tenant)) out_.jobs.push_back(std::move(total));
        });
  }

  Result<> read_freezes() {
    return each(
        "SELECT name,command,tenant,uid,start_ms,duration_ms,pid,gpu,reason FROM freezes JOIN jobs "
        "ON job=id WHERE start_ms<? AND start_ms+duration_ms>? ORDER BY duration_ms DESC",
        {window_.until * 1000, window_.since * 1000}, [&](const Statement& row) {
          UsageFreeze freeze{.start_ms = row.number(4),
                             .duration_ms = static_cast<uint64_t>(row.number(5)),
                             .job = job_of(row, 0),
                             .pid = static_cast<int32_t>(row.number(6)),
                             .gpu = static_cast<uint32_t>(row.number(7)),
                             .reason = row.text(8)};
          if (out_.freezes.size() < kMostFreezesRead && is_of(freeze.job.tenant, window_.tenant) &&
              (!window_.gpu || freeze.gpu == *window_.gpu))
            out_.freezes.push_back(std::move(freeze));
        });
  }

  Result<> read_gpus() {
    return each("SELECT gpu,uuid,name FROM gpus", {}, [&](const Statement& row) {
      const auto gpu = static_cast<uint32_t>(row.number(0));
      if (!window_.gpu || gpu == *window_.gpu)
        out_.gpus[gpu] = {.uuid = row.text(1), .name = row.text(2)};
    });
  }

  Database database_;
  const UsageWindow& window_;
  uint32_t tier_ = 0;
  std::map<uint32_t, UsageSeries> series_;
  UsageHistory out_;
};

}  // namespace

Result<UsageHistory> read_usage(const std::string& path, const UsageWindow& window) {
  auto folder = TempFolder::make("gpushare-usage");
  if (!folder) return std::unexpected(folder.error());
  const std::string own = folder->at("usage.db");
  if (auto copied = copy_both(path, own); !copied) return std::unexpected(copied.error());
  auto database = Database::open(own);
  if (!database) return std::unexpected(database.error());
  const auto layout = database->ask("PRAGMA user_version");
  if (!layout) return std::unexpected(layout.error());
  if (*layout > UsageStore::kLayout)
    return make_error(std::errc::not_supported, kRead,
                      fmt::format("{}: a newer gpushare made it (layout {}, this one knows {})",
                                  path, *layout, UsageStore::kLayout));
  if (*layout == 0)  // an agent makes it, and has not got so far
    return UsageHistory{.step = kUsageTiers[0].step, .since = window.since, .until = window.until};
  // A file of the first layout has none; this is a copy, and it may have one.
  if (auto made = database->run(kPackTable); !made) return std::unexpected(made.error());
  return Reading(std::move(*database), window).all();
}

}  // namespace gpushare
