// SPDX-License-Identifier: Apache-2.0
// JsonLine: one JSON object on one line, printed to standard output at once, so that a reader at
// the other end of a pipe sees it. Keys and texts must need no escaping. One thread.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace gpushare::workloads {

class JsonLine {
 public:
  JsonLine() = default;
  // The line of a result begins with these two.
  JsonLine(std::string_view workload, std::string_view device) {
    add("workload", workload).add("device", device);
  }

  JsonLine& add(std::string_view key, std::string_view value) {
    return put(key, fmt::format("\"{}\"", value));
  }
  JsonLine& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonLine& add(std::string_view key, bool value) { return put(key, value ? "true" : "false"); }
  JsonLine& add(std::string_view key, std::floating_point auto value) {
    return put(key, fmt::format("{:.3f}", value));
  }
  JsonLine& add(std::string_view key, std::integral auto value) {
    return put(key, fmt::format("{}", value));
  }
  JsonLine& add(std::string_view key, std::span<const uint64_t> values) {
    return put(key, fmt::format("[{}]", fmt::join(values, ",")));
  }

  void print() const {
    fmt::print("{{{}}}\n", members_);
    std::fflush(stdout);
  }

 private:
  JsonLine& put(std::string_view key, std::string_view value) {
    members_ += fmt::format("{}\"{}\":{}", members_.empty() ? "" : ",", key, value);
    return *this;
  }

  std::string members_;
};

}  // namespace gpushare::workloads
