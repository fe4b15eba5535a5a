// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/output.h"

#include <charconv>
#include <cstdint>
#include <sstream>
#include <vector>

#include "tests/workloads/common/progress_meter.h"

namespace gpushare {
namespace {

struct Reading {
  uint64_t t_ns = 0;
  double total = 0;
};

std::vector<Reading> readings(const std::string& output, const std::string& key) {
  std::vector<Reading> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto time = number_in(line, "t_ns"), total = number_in(line, key);
    if (time && total) found.push_back({static_cast<uint64_t>(*time), *total});
  }
  return found;
}

uint64_t ns_of(Time time) { return static_cast<uint64_t>(time.time_since_epoch().count()); }

}  // namespace

std::string text_in(const std::string& line, const std::string& key) {
  const std::string start = "\"" + key + "\":";
  const size_t at = line.rfind(start);
  if (at == std::string::npos) return "";
  size_t begin = at + start.size();
  if (begin < line.size() && line[begin] == '"') ++begin;
  return line.substr(begin, line.find_first_of("\",}", begin) - begin);
}

std::optional<double> number_in(const std::string& line, const std::string& key) {
  const std::string text = text_in(line, key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{}) return std::nullopt;
  return value;
}

double rate_between(const std::string& output, const std::string& key, Time from, Time to) {
  workloads::ProgressMeter meter(ns_of(from), ns_of(to));
  for (const Reading& reading : readings(output, key)) meter.add(reading.t_ns, reading.total);
  return meter.per_ms();
}

std::optional<Time> first_progress(const std::string& output, const std::string& key, Time since) {
  std::optional<double> base;
  for (const Reading& reading : readings(output, key)) {
    if (reading.t_ns < ns_of(since)) continue;
    if (base && reading.total > *base) return Time{Nanos{static_cast<int64_t>(reading.t_ns)}};
    if (!base) base = reading.total;
  }
  return std::nullopt;
}

}  // namespace gpushare
