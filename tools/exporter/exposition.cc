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

void Exposition::begin_line(std::string_view labels) {
  if (!has_samples_) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help_,
                   type_ == Type::kCounter ? "counter" : "gauge");
    has_samples_ = true;
  }
  text_ += name_;
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

}  // namespace gpushare
