// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr int64_t kPage = 4096, kLeastPages = 64;
// What the log may take beside the file: it is emptied into the file after this many pages, which a
// write of full samples may exceed.
constexpr int64_t kLogPages = 256, kLogBytes = 2 * kLogPages * kPage;
// "GPSU". It tells our file from other programs' databases.
constexpr int64_t kApplication = 0x47505355;
// In shortest steps of time, of which each write is one. By the time and not by the number of
// writes: also an agent that never lives for a minute keeps the file small.
constexpr int64_t kPackEvery = 6, kTrimEvery = 60, kStepsADay = 8640;

constexpr const char* kTables = R"(
CREATE TABLE series(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, uid INTEGER NOT NULL,
  gpu INTEGER NOT NULL, priority INTEGER NOT NULL, UNIQUE(tenant, uid, gpu, priority));
CREATE TABLE samples(tier INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(tier, start)) WITHOUT ROWID;
CREATE TABLE jobs(id INTEGER PRIMARY KEY, name TEXT NOT NULL, command TEXT NOT NULL,
  tenant TEXT NOT NULL, uid INTEGER NOT NULL, first INTEGER NOT NULL,
  UNIQUE(name, command, tenant, uid));
CREATE TABLE job_use(tier INTEGER NOT NULL, start INTEGER NOT NULL, job INTEGER NOT NULL,
  used_ms INTEGER NOT NULL, waiting_ms INTEGER NOT NULL, throttled_ms INTEGER NOT NULL,
  PRIMARY KEY(tier, start, job)) WITHOUT ROWID;
CREATE TABLE freezes(start_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL, job INTEGER NOT NULL,
  pid INTEGER NOT NULL, gpu INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE INDEX freezes_start ON freezes(start_ms);
CREATE TABLE gpus(gpu INTEGER PRIMARY KEY, uuid TEXT NOT NULL, name TEXT NOT NULL);
)";

// Every user may open the file itself, and could then lock that.
Result<Fd> lock_beside(const std::string& path) {
  const std::string name = path + ".lock";
  Fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.is_open()) return errno_error(kOpenHistory, name);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK
               ? Result<Fd>(make_error(std::errc::device_or_resource_busy, kOpenHistory,
                                       "another agent writes " + path))
               : Result<Fd>(errno_error(kOpenHistory, name));
  return lock;
}

// Made before SQLite makes it with rights of its own; the log gets the same.
Result<> make_readable(const UsageFileOptions& options) {
  const Fd file(::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file.is_open()) return errno_error(kOpenHistory, options.path);
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return errno_error(kOpenHistory, options.path);
  if (!S_ISREG(about.st_mode))
    return make_error(std::errc::invalid_argument, kOpenHistory,
                      options.path + " is no regular file");
  mode_t mode = options.is_for_all ? 0644 : 0600;
  if (!options.is_for_all) {
    const group* const admins = ::getgrnam("gpushare");
    if (admins != nullptr && ::fchown(file.get(), static_cast<uid_t>(-1), admins->gr_gid) == 0)
      mode = 0640;
  }
  if (::fchmod(file.get(), mode) != 0) return errno_error(kOpenHistory, options.path);
  const std::string log = options.path + "-wal";  // that an agent before this one has left
  if (::chmod(log.c_str(), mode) != 0 && errno != ENOENT) return errno_error(kOpenHistory, log);
  return {};
}

// The limit, or on a smaller disk what that has left: a file that has filled its disk could not
// even give up its oldest samples, as that is first written to the log.
int64_t most_bytes_on_disk(const UsageFileOptions& options) {
  const auto most = static_cast<int64_t>(std::max(options.most_bytes, kLeastUsageBytes));
  struct statvfs disk{};
  if (::statvfs(options.path.c_str(), &disk) != 0) return most;
  auto bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  for (const char* suffix : {"", "-wal"}) {
    struct stat about{};
    if (::stat((options.path + suffix).c_str(), &about) == 0) bytes += about.st_blocks * 512;
  }
  return std::min(most, bytes);
}

}  // namespace

Result<UsageStore> UsageStore::open(const UsageFileOptions& options) {
  auto lock = lock_beside(options.path);
  if (!lock) return std::unexpected(lock.error());
  auto store = open_there(options, *lock);
  if (store || store.error().code != std::errc::bad_message) return store;
  const std::string aside = options.path + ".bad";
  if (std::rename(options.path.c_str(), aside.c_str()) != 0)
    return errno_error("set aside", options.path);
  std::rename((options.path + "-wal").c_str(), (aside + "-wal").c_str());
  log_warning("the usage history begins anew: {}; the file is {} now", store.error().message(),
              aside);
  return open_there(options, *lock);
}

Result<UsageStore> UsageStore::open_there(const UsageFileOptions& options, Fd& lock) {
  if (auto made = make_readable(options); !made) return std::unexpected(made.error());
  auto database = Database::open(options.path);
  if (!database) return std::unexpected(database.error());
  UsageStore store({}, std::move(*database), options);
  if (auto begun = store.begin_file(); !begun) {
    Error error = begun.error();
    error.detail = options.path + ": " + error.detail;
    return std::unexpected(std::move(error));
  }
  store.lock_ = std::move(lock);
  return store;
}

Result<> UsageStore::begin_file() {
  const auto layout = database_.ask("PRAGMA user_version");
  const auto application = layout ? database_.ask("PRAGMA application_id") : layout;
  if (!application) return std::unexpected(application.error());
  const auto tables = database_.ask("SELECT count(*) FROM sqlite_schema");
  if (!tables) return std::unexpected(tables.error());
  if (*tables > 0 && *application != kApplication)
    return make_error(std::errc::bad_message, kOpenHistory, "it is another program's database");
  if (*layout > kLayout)
    return make_error(
        std::errc::not_supported, kOpenHistory,
        fmt::format("a newer gpushare made it (layout {}, this one knows {})", *layout, kLayout));
  // A page that is broken shows now and not when something is added to it.
  if (*tables > 0) {
    auto check = database_.prepare("PRAGMA quick_check(1)");
    if (!check) return std::unexpected(check.error());
    const auto row = check->step();
    if (!row) return std::unexpected(row.error());
    if (*row && check->text(0) != "ok")
      return make_error(std::errc::bad_message, kOpenHistory, check->text(0));
  }
  const auto pages_of = [](int64_t bytes) {
    return std::max((bytes - kLogBytes) / kPage, kLeastPages);
  };
  const int64_t pages = pages_of(most_bytes_on_disk(options_));
  const std::string settings = fmt::format(
      "PRAGMA page_size={}; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
      "PRAGMA wal_autocheckpoint={}; PRAGMA journal_size_limit={}; PRAGMA max_page_count={}",
      kPage, kLogPages, kLogBytes, pages);
  if (auto set = database_.run(settings.c_str()); !set) return set;
  if (*tables > 0) {
    if (*layout < kLayout)
      if (auto taken = take_over(); !taken) return taken;
    return shrink(pages_of(static_cast<int64_t>(std::max(options_.most_bytes, kLeastUsageBytes))));
  }
  return database_.run(fmt::format("BEGIN; PRAGMA application_id={}; PRAGMA user_version={}; {} {}"
                                   "COMMIT",
                                   kApplication, kLayout, kTables, kPackTable)
                           .c_str());
}

// A file of the first layout. If it is full, some of its oldest samples make room for the table.
Result<> UsageStore::take_over() {
  const std::string changes = fmt::format("PRAGMA user_version={}; {}", kLayout, kPackTable);
  Result<> done;
  for (int tries = 0; tries < 8; ++tries) {
    done = database_.all_or_nothing([&] { return database_.run(changes.c_str()); });
    if (done || done.error().code != std::errc::no_space_on_device) return done;
    if (auto room = database_.run(
            "DELETE FROM samples WHERE tier=0 AND start <= (SELECT start FROM samples WHERE tier=0 "
            "ORDER BY start LIMIT 1 OFFSET (SELECT count(*)/64 FROM samples WHERE tier=0))");
        !room)
      return room;
  }
  return done;
}

// A file of a larger limit than today's, which SQLite leaves as large as it is: the oldest goes,
// and what is left is written anew. Where there is no room for that, the file only grows no more.
Result<> UsageStore::shrink(int64_t pages) {
  constexpr int kMostTries = 2000;
  const auto all = database_.ask("PRAGMA page_count");
  if (!all) return std::unexpected(all.error());
  if (*all <= pages) return {};
  for (int tries = 0; tries < kMostTries; ++tries) {
    const auto unused = database_.ask("PRAGMA freelist_count");
    const auto there = database_.ask("PRAGMA page_count");
    if (!unused || !there) return std::unexpected((unused ? there : unused).error());
    if (*there - *unused <= pages / 8 * 7) break;
    if (auto room = make_room(); !room) break;
  }
  const std::string anew = fmt::format("VACUUM; PRAGMA max_page_count={}", pages);
  const auto made = database_.run(anew.c_str());
  if (!made && made.error().code == std::errc::bad_message) return made;
  if (!made)
    log_warning("the usage history stays larger than its limit: {}", made.error().message());
  return {};
}

Result<> UsageStore::write(const UsageWrite& what) {
  Result<> written = write_once(what);
  for (int tries = 0;
       !written && written.error().code == std::errc::no_space_on_device && tries < 8; ++tries) {
    if (auto room = make_room(); !room) return room;
    written = write_once(what);
  }
  if (!written) return written;
  step_ = what.start / kUsageTiers[0].step;
  if (step_ % kPackEvery == 0)
    if (auto packed = pack(); !packed) return std::unexpected(packed.error());
  return step_ % kTrimEvery == 0 ? trim() : Result<>();
}

Result<> UsageStore::write_once(const UsageWrite& what) {
  Result<> done = database_.all_or_nothing([&]() -> Result<> {
    NumberedSample sample{.watched_ms = what.sample.watched_ms, .amounts = {}};
    for (const auto& [series, amounts] : what.sample.amounts) {
      const auto number = number_of(series);
      if (!number) return std::unexpected(number.error());
      sample.amounts[*number] = amounts;
    }
    for (uint32_t tier = 0; tier < kUsageTierCount; ++tier)
      if (auto added = add_sample(tier, step_begin(what.start, kUsageTiers[tier].step), sample);
          !added)
        return added;
    if (auto added = add_jobs(what); !added) return added;
    for (const auto& [gpu, about] : what.gpus) {
      if (const auto known = gpus_.find(gpu); known != gpus_.end() && known->second == about)
        continue;
      auto set = database_.prepare("INSERT OR REPLACE INTO gpus VALUES(?,?,?)");
      if (!set) return std::unexpected(set.error());
      set->bind(0, gpu);
      set->bind(1, std::string_view(about.uuid));
      set->bind(2, std::string_view(about.name));
      if (auto run = set->run(); !run) return run;
      gpus_[gpu] = about;
    }
    return {};
  });
  if (!done) forget_numbers();
  return done;
}

Result<> UsageStore::add_sample(uint32_t tier, WallSeconds start, const NumberedSample& sample) {
  NumberedSample sum = sample;
  auto before = database_.prepare("SELECT data FROM samples WHERE tier=? AND start=?");
  if (!before) return std::unexpected(before.error());
  before->bind(0, tier);
  before->bind(1, start);
  const auto is_there = before->step();
  if (!is_there) return std::unexpected(is_there.error());
  if (*is_there) {
    if (const auto known = decode_sample(before->bytes(0))) {
      sum.watched_ms += known->watched_ms;
      for (const auto& [number, amounts] : known->amounts) {
        UsageAmounts both = amounts;  // the later target is this sample's
        both += sum.amounts[number];
        sum.amounts[number] = both;
      }
    }
  }
  auto set = database_.prepare("INSERT OR REPLACE INTO samples VALUES(?,?,?)");
  if (!set) return std::unexpected(set.error());
  const std::string bytes = encode_sample(sum);
  set->bind(0, tier);
  set->bind(1, start);
  set->bind_bytes(2, bytes);
  return set->run();
}

Result<> UsageStore::add_jobs(const UsageWrite& what) {
  auto add = database_.prepare(
      "INSERT INTO job_use VALUES(?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
      "used_ms=used_ms+excluded.used_ms, waiting_ms=waiting_ms+excluded.waiting_ms, "
      "throttled_ms=throttled_ms+excluded.throttled_ms");
  if (!add) return std::unexpected(add.error());
  for (const auto& [job, amounts] : what.jobs) {
    const auto number = number_of(job, what.start);
    if (!number) return std::unexpected(number.error());
    for (uint32_t tier = 1; tier < kUsageTierCount; ++tier) {
      add->bind(0, tier);
      add->bind(1, step_begin(what.start, kUsageTiers[tier].step));
      add->bind(2, *number);
      add->bind(3, static_cast<int64_t>(amounts.used_ms));
      add->bind(4, static_cast<int64_t>(amounts.waiting_ms));
      add->bind(5, static_cast<int64_t>(amounts.throttled_ms));
      if (auto run = add->run(); !run) return run;
    }
  }
  for (const UsageFreeze& freeze : what.freezes) {
    const auto number = number_of(freeze.job, what.start);
    if (!number) return std::unexpected(number.error());
    auto note = database_.prepare("INSERT INTO freezes VALUES(?,?,?,?,?,?)");
    if (!note) return std::unexpected(note.error());
    note->bind(0, freeze.start_ms);
    note->bind(1, static_cast<int64_t>(freeze.duration_ms));
    note->bind(2, *number);
    note->bind(3, freeze.pid);
    note->bind(4, freeze.gpu);
    note->bind(5, std::string_view(freeze.reason));
    if (auto run = note->run(); !run) return run;
  }
  return {};
}

namespace {

// The number of a row that is put in if it is not there. `bind` gives both statements their values;
// it is told whether it is the one that puts it in.
Result<int64_t> row_number(Database& database, const char* insertion, const char* question,
                           const std::function<void(Statement&, bool)>& bind) {
  int64_t number = 0;
  for (const char* sql : {insertion, question}) {
    auto statement = database.prepare(sql);
    if (!statement) return std::unexpected(statement.error());
    bind(*statement, sql == insertion);
    const auto row = statement->step();
    if (!row) return std::unexpected(row.error());
    if (*row) number = statement->number(0);
  }
  return number;
}

}  // namespace

Result<uint32_t> UsageStore::number_of(const UsageSeries& series) {
  if (const auto known = series_.find(series); known != series_.end()) return known->second;
  const auto number =
      row_number(database_, "INSERT OR IGNORE INTO series(tenant,uid,gpu,priority) VALUES(?,?,?,?)",
                 "SELECT id FROM series WHERE tenant=? AND uid=? AND gpu=? AND priority=?",
                 [&](Statement& statement, bool) {
                   statement.bind(0, std::string_view(series.tenant));
                   statement.bind(1, series.uid);
                   statement.bind(2, series.gpu);
                   statement.bind(3, series.priority);
                 });
  if (!number) return std::unexpected(number.error());
  return series_[series] = static_cast<uint32_t>(*number);
}

Result<int64_t> UsageStore::number_of(const UsageJob& job, WallSeconds now) {
  if (const auto known = jobs_.find(job); known != jobs_.end()) return known->second;
  const auto number = row_number(
      database_, "INSERT OR IGNORE INTO jobs(name,command,tenant,uid,first) VALUES(?,?,?,?,?)",
      "SELECT id FROM jobs WHERE name=? AND command=? AND tenant=? AND uid=?",
      [&](Statement& statement, bool is_new) {
        statement.bind(0, std::string_view(job.name));
        statement.bind(1, std::string_view(job.command));
        statement.bind(2, std::string_view(job.tenant));
        statement.bind(3, job.uid);
        if (is_new) statement.bind(4, now);
      });
  if (!number) return std::unexpected(number.error());
  return jobs_[job] = *number;
}

// True: some samples were packed.
Result<bool> UsageStore::pack() {
  const UsagePacking packing{
      .samples = options_.pack_samples,
      .most_loose_bytes = std::max(options_.most_bytes, kLeastUsageBytes) / 32};
  bool any = false;
  for (uint32_t tier = 0; tier < kUsageTierCount; ++tier) {
    const auto packed = pack_samples(database_, tier, packing);
    if (!packed) return packed;
    any |= *packed;
  }
  return any;
}

Result<> UsageStore::trim() {
  if (auto trimmed = trim_usage(database_); !trimmed) return trimmed;
  const auto series = database_.ask("SELECT count(*) FROM series");
  if (!series) return std::unexpected(series.error());
  if (*series > kMostUnusedSeries && step_ >= next_look_at_series_) {
    next_look_at_series_ = step_ + kStepsADay;
    forget_numbers();
    if (auto dropped = drop_unused_series(database_); !dropped) return dropped;
  }
  const auto jobs = database_.ask("SELECT count(*) FROM jobs");
  if (!jobs) return std::unexpected(jobs.error());
  if (*jobs <= kMostJobs && step_ % (kTrimEvery * 60) != 0) return {};
  forget_numbers();
  return drop_unnamed_jobs(database_);
}

// What can be packed is; otherwise the oldest goes.
Result<> UsageStore::make_room() {
  forget_numbers();
  const auto packed = pack();
  if (packed && *packed) return {};
  auto made = make_usage_room(database_, std::max(options_.most_bytes, kLeastUsageBytes) / 64);
  if (!made && made.error().detail.empty()) {
    Error error = made.error();
    error.detail = options_.path;
    return std::unexpected(std::move(error));
  }
  return made;
}

void UsageStore::forget_numbers() {
  series_.clear();
  jobs_.clear();
  gpus_.clear();
}

}  // namespace gpushare
