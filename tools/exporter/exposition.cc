// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/exposition.h"

#include <fmt/format.h>

#include <iterator>

#include "tools/base/format.h"

namespace gpushare {

std::string label_text(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text.append(name).append("=\"");
    for (const char c : printable(value, true)) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    text += '"';
  }
  return text;
}

void Exposition::begin(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  type_ = type;
  help_ = help;
  has_samples_ = false;
}

namespace {

std::string_view word_of(Exposition::Type type) {
  switch (type) {
    case Exposition::Type::kCounter:
      return "counter";
    case Exposition::Type::kHistogram:
      return "histogram";
    default:
      return "gauge";
  }
}

}  // namespace

void Exposition::begin_line(std::string_view labels, std::string_view suffix) {
  if (!has_samples_) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help_,
                   word_of(type_));
    has_samples_ = true;
  }
  text_.append(name_).append(suffix);
  if (!labels.empty()) text_.append("{").append(labels).append("}");
  text_ += ' ';
}

void Exposition::add(std::string_view labels, double value) {
  begin_line(labels);
  fmt::format_to(std::back_inserter(text_), "{}\n", value);
}

void Exposition::add(std::string_view labels, uint64_t value) {
  begin_line(labels);
  fmt::format_to(std::back_inserter(text_), "{}\n", value);
}

void Exposition::add_histogram(std::string_view labels, std::span<const double> bounds,
                               std::span<const uint64_t> counts, double sum) {
  uint64_t count = 0;
  std::string with_bound(labels);
  if (!labels.empty()) with_bound += ',';
  const size_t own = with_bound.size();
  for (size_t i = 0; i < counts.size(); ++i) {
    with_bound.resize(own);
    if (i < bounds.size())
      fmt::format_to(std::back_inserter(with_bound), "le=\"{}\"", bounds[i]);
    else
      with_bound += "le=\"+Inf\"";
    begin_line(with_bound, "_bucket");
    fmt::format_to(std::back_inserter(text_), "{}\n", count += counts[i]);
  }
  begin_line(labels, "_sum");
  fmt::format_to(std::back_inserter(text_), "{}\n", sum);
  begin_line(labels, "_count");
  fmt::format_to(std::back_inserter(text_), "{}\n", count);
}

}  // namespace gpushare
