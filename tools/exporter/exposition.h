// SPDX-License-Identifier: Apache-2.0
// Exposition: metrics in Prometheus' text format 0.0.4. A family is begun once, with its help and
// type, and its samples follow; a family without samples is left out. Not thread-safe.
//
// This is written by hand, not by a client library: those keep an object for each series, and there
// are tens of thousands here, all of which are read anew from the control plane for each scrape.
#pragma once

#include <cstdint>
#include <span>
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
  enum class Type { kGauge, kCounter, kHistogram };

  // `expected`: about how many bytes there will be; room that is not used costs no memory.
  explicit Exposition(size_t expected = 0) { text_.reserve(expected); }

  // `name` and `help` must live as long as this. A counter's name ends in "_total".
  void begin(std::string_view name, Type type, std::string_view help);
  // Of the family that was begun last. `labels` is what label_text() returns, or empty.
  void add(std::string_view labels, double value);
  void add(std::string_view labels, uint64_t value);
  // Of a family of histograms: how many values were at most as large as each of the bounds and not
  // as the one before, how many were larger than all, and their sum. `counts` has one number more.
  void add_histogram(std::string_view labels, std::span<const double> bounds,
                     std::span<const uint64_t> counts, double sum);

  std::string take() { return std::move(text_); }

 private:
  void begin_line(std::string_view labels, std::string_view suffix = "");

  std::string text_;
  std::string_view name_, help_;
  Type type_ = Type::kGauge;
  bool has_samples_ = false;
};

}  // namespace gpushare
