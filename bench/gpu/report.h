// SPDX-License-Identifier: Apache-2.0
// Report collects what the scenarios found: the numbers for the JSON file and, for the table, which
// promises were kept. The scenarios call it on the main thread.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare::bench {

// A JSON object to which members are added; they keep their order.
class Record {
 public:
  Record& add(std::string_view key, double value);
  Record& add(std::string_view key, std::integral auto value) {
    return put(key, std::to_string(value));
  }
  Record& add(std::string_view key, bool value) { return put(key, value ? "true" : "false"); }
  Record& add(std::string_view key, std::string_view value);
  Record& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  Record& add(std::string_view key, std::span<const double> values);
  Record& add(std::string_view key, const std::vector<double>& values) {
    return add(key, std::span(values));
  }
  Record& add(std::string_view key, const Record& record) { return put(key, record.text()); }
  Record& add(std::string_view key, const std::vector<Record>& records);
  // `json` is JSON already, for example the last line of a workload.
  Record& add_json(std::string_view key, std::string_view json) { return put(key, json); }

  std::string text() const { return "{" + members_ + "}"; }

 private:
  Record& put(std::string_view key, std::string_view json);
  std::string members_;
};

// One promise, in texts for people; the numbers behind them are in the record.
struct Check {
  std::string scenario{}, what{}, must{}, native{}, ours{};
  bool is_kept = false;
};

class Report {
 public:
  void begin(std::string_view scenario);
  Record& numbers() { return numbers_; }
  void must(std::string what, std::string must, std::string native, std::string ours, bool kept);
  void failed(const Error& error);
  void skipped(std::string_view why);
  void end(double seconds);

  bool all_kept() const;
  std::string table() const;
  // Adds the run to the end of a file of results; it begins with the members of `head` (date,
  // machine, command). An error is the file system's.
  Result<> append_to(const std::string& path, Record head) const;

 private:
  std::string scenario_;
  Record numbers_;
  size_t first_check_ = 0;
  std::vector<Check> checks_;
  std::vector<Record> scenarios_;
};

double median(std::vector<double> values);  // 0 when there are none
double sum(std::span<const double> values);
// Returns each value as a part of their sum; all are 0 where the sum is 0.
std::vector<double> parts_of_sum(std::span<const double> values);
std::string percent(double fraction);
std::string percents(std::span<const double> fractions);  // "30.1 / 69.9 %"

}  // namespace gpushare::bench
