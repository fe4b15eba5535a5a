// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

namespace gpushare {
namespace {

constexpr const char* kUse = "use the usage history";
// As SQLite calls its way to the file system that takes no locks.
constexpr const char* kNoLocks = "unix-none";

std::errc code_of(int result) {
  switch (result & 0xFF) {
    case SQLITE_FULL:
      return std::errc::no_space_on_device;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return std::errc::bad_message;
    case SQLITE_CANTOPEN:
      return std::errc::no_such_file_or_directory;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return std::errc::permission_denied;
    case SQLITE_NOMEM:
      return std::errc::not_enough_memory;
    default:
      return std::errc::io_error;
  }
}

}  // namespace

std::unexpected<Error> sqlite_error(sqlite3* database, const char* step) {
  return make_error(code_of(sqlite3_extended_errcode(database)), step, sqlite3_errmsg(database));
}

void Statement::Close::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

void Statement::bind(int index, int64_t value) {
  sqlite3_bind_int64(statement_.get(), index + 1, value);
}
void Statement::bind(int index, std::string_view text) {
  sqlite3_bind_text(statement_.get(), index + 1, text.data(), static_cast<int>(text.size()),
                    SQLITE_STATIC);
}
void Statement::bind_bytes(int index, std::string_view bytes) {
  sqlite3_bind_blob(statement_.get(), index + 1, bytes.data(), static_cast<int>(bytes.size()),
                    SQLITE_STATIC);
}

Result<bool> Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  const auto error = sqlite_error(sqlite3_db_handle(statement_.get()), kUse);
  reset();
  if (result == SQLITE_DONE) return false;
  return error;
}

Result<> Statement::run() {
  const auto stepped = step();
  reset();
  if (!stepped) return std::unexpected(stepped.error());
  return {};
}

void Statement::reset() { sqlite3_reset(statement_.get()); }

int64_t Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
std::string Statement::text(int column) const { return std::string(bytes(column)); }
std::string_view Statement::bytes(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  return {data == nullptr ? "" : data,
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<Database> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, kNoLocks);
  Database database(handle);
  if (result != SQLITE_OK) {
    auto error = sqlite_error(handle, kOpenHistory).error();
    error.detail = path + ": " + error.detail;
    return std::unexpected(std::move(error));
  }
  // Nothing in a file may make us run its SQL.
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  // Exclusive use has no shared memory beside the file.
  if (auto set = database.run("PRAGMA locking_mode=EXCLUSIVE; PRAGMA cell_size_check=ON"); !set)
    return std::unexpected(set.error());
  return database;
}

Result<> Database::run(const char* sql) {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return sqlite_error(database_.get(), kUse);
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()), &statement,
                         nullptr) != SQLITE_OK)
    return sqlite_error(database_.get(), kUse);
  return Statement(statement);
}

Result<> Database::all_or_nothing(const std::function<Result<>()>& changes) {
  if (auto begun = run("BEGIN IMMEDIATE"); !begun) return begun;
  Result<> done = changes();
  if (done) done = run("COMMIT");
  if (!done) (void)run("ROLLBACK");
  return done;
}

Result<int64_t> Database::ask(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement) return std::unexpected(statement.error());
  const auto row = statement->step();
  if (!row) return std::unexpected(row.error());
  return *row ? statement->number(0) : 0;
}

}  // namespace gpushare
