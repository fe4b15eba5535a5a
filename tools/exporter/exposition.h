// SPDX-License-Identifier: Apache-2.0
// Exposition: metrics in Prometheus' text format 0.0.4. A family is begun once, with its help and
// type, and its samples follow; a family without samples is left out. Not thread-safe.
//
// This is written by hand, not by a client library: those keep an object for each series, and there
// are tens of thousands here, all of which are read anew from the control plane for each scrape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushare {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// What stands between the braces, "tenant=\"a\",gpu=\"0\"": made once for the samples that share
// it. Bytes that are not UTF-8 become '?', as one of them would spoil the whole scrape.
std::string label_text(const Labels& labels);

class Exposition {
 public:
  enum class Type { kGauge, kCounter };

  // `name` and `help` must live as long as this. A counter's name ends in "_total".
  void begin(std::string_view name, Type type, std::string_view help);
  // Of the family that was begun last. `labels` is what label_text() returns, or empty.
  void add(std::string_view labels, double value);
  void add(std::string_view labels, uint64_t value);

  std::string take() { return std::move(text_); }

 private:
  void begin_line(std::string_view labels);

  std::string text_;
  std::string_view name_, help_;
  Type type_ = Type::kGauge;
  bool has_samples_ = false;
};

}  // namespace gpushare
