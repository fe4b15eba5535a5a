// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/run_file.h"

namespace gpushare::bench {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + "\"";
}

std::string number_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

}  // namespace

Record& Record::put(std::string_view key, std::string_view json) {
  members_ += fmt::format("{}{}: {}", members_.empty() ? "" : ", ", quoted(key), json);
  return *this;
}

Record& Record::add(std::string_view key, double value) { return put(key, number_text(value)); }

Record& Record::add(std::string_view key, std::string_view value) {
  return put(key, quoted(value));
}

Record& Record::add(std::string_view key, std::span<const double> values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(number_text(value));
  return put(key, fmt::format("[{}]", fmt::join(texts, ", ")));
}

Record& Record::add(std::string_view key, const std::vector<Record>& records) {
  std::vector<std::string> texts;
  for (const Record& record : records) texts.push_back(record.text());
  return put(key, fmt::format("[{}]", fmt::join(texts, ", ")));
}

void Report::begin(std::string_view scenario) {
  scenario_ = scenario;
  numbers_ = Record();
  first_check_ = checks_.size();
  fmt::print(stderr, "{:<18} ...\n", scenario_);
}

void Report::must(std::string what, std::string must, std::string native, std::string ours,
                  bool kept) {
  fmt::print(stderr, "{:<18} {} {}: {} (native {}, must {})\n", "", kept ? "ok  " : "FAIL", what,
             ours, native, must);
  checks_.push_back(
      {scenario_, std::move(what), std::move(must), std::move(native), std::move(ours), kept});
}

void Report::failed(const Error& error) {
  must("the scenario itself", "runs to its end", "-", error.message(), false);
}

void Report::skipped(std::string_view why) {
  numbers_.add("skipped", why);
  fmt::print(stderr, "{:<18} skipped: {}\n", "", why);
}

void Report::end(double seconds) {
  std::vector<Record> rows;
  for (const Check& check : std::span(checks_).subspan(first_check_))
    rows.push_back(Record()
                       .add("what", check.what)
                       .add("must", check.must)
                       .add("native", check.native)
                       .add("ours", check.ours)
                       .add("kept", check.is_kept));
  scenarios_.push_back(Record()
                           .add("name", scenario_)
                           .add("seconds", seconds)
                           .add("checks", rows)
                           .add("numbers", numbers_));
}

bool Report::all_kept() const {
  return std::ranges::all_of(checks_, [](const Check& check) { return check.is_kept; });
}

std::string Report::table() const {
  std::vector<Check> rows{{"scenario", "what", "must", "native", "ours", true}};
  rows.insert(rows.end(), checks_.begin(), checks_.end());
  size_t width[5] = {};
  for (const Check& row : rows) {
    const std::string* cells[] = {&row.scenario, &row.what, &row.must, &row.native, &row.ours};
    for (size_t i = 0; i < 5; ++i) width[i] = std::max(width[i], cells[i]->size());
  }
  std::string text;
  for (const Check& row : rows)
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}  {}\n", row.scenario, width[0],
                        row.what, width[1], row.must, width[2], row.native, width[3], row.ours,
                        width[4],
                        &row == &rows.front() ? ""
                        : row.is_kept         ? "PASS"
                                              : "FAIL");
  return text;
}

Result<> Report::append_to(const std::string& path, Record head) const {
  head.add("all_kept", all_kept()).add("scenarios", scenarios_);
  return append_run(path, head.text());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<double> parts_of_sum(std::span<const double> values) {
  const double total = sum(values);
  std::vector<double> parts;
  for (const double value : values) parts.push_back(total > 0 ? value / total : 0);
  return parts;
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string percents(std::span<const double> fractions) {
  std::vector<std::string> texts;
  for (const double fraction : fractions) texts.push_back(fmt::format("{:.1f}", 100 * fraction));
  return fmt::format("{} %", fmt::join(texts, " / "));
}

}  // namespace gpushare::bench
