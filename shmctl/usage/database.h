// SPDX-License-Identifier: Apache-2.0
// Database and Statement: SQLite with our errors and without its locks. SQLite's locks are of no
// use here: whoever may read a file may hold a lock on it for ever, and so keep its owner from
// writing. The one writer is alone by a lock file of its own, and readers read a copy (reader.h).
// One thread for each object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gpushare {

// What errors say was attempted, until a history is open.
inline constexpr const char* kOpenHistory = "open the usage history";

class Database;

// One prepared statement. bind() and column() count from 0.
class Statement {
 public:
  void bind(int index, int64_t value);
  // `value` must live until the statement was stepped to its end, or reset().
  void bind(int index, std::string_view text);
  void bind_bytes(int index, std::string_view bytes);
  // True: there is a row. After false or an error the statement may be bound and stepped again.
  Result<bool> step();
  // The same for a statement that has no rows.
  Result<> run();
  void reset();
  int64_t number(int column) const;
  std::string text(int column) const;
  std::string_view bytes(int column) const;  // until the next step

 private:
  friend class Database;
  struct Close {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  std::unique_ptr<sqlite3_stmt, Close> statement_;
};

class Database {
 public:
  // Makes the file if it is not there. Errors: those of the file system; bad_message if
  // it is no database.
  static Result<Database> open(const std::string& path);

  // One or more statements without parameters and results.
  Result<> run(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  // All that `changes` makes, or, when it fails or the process is killed, nothing of it.
  Result<> all_or_nothing(const std::function<Result<>()>& changes);
  // The one number that a statement gives.
  Result<int64_t> ask(std::string_view sql);

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database) : database_(database) {}

  std::unique_ptr<sqlite3, Close> database_;
};

// The error of a call of SQLite. no_space_on_device if the disk, or the file's own limit, is full;
// bad_message if the file is broken or none of SQLite's.
std::unexpected<Error> sqlite_error(sqlite3* database, const char* step);

}  // namespace gpushare
