// SPDX-License-Identifier: Apache-2.0
// ConfigMistakes: what is wrong with a configuration, gathered while its tables are read. Used by
// config.cc and config_tenants.cc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "sched/tenants/config.h"
#include "sched/tenants/toml.h"
#include "shmctl/program/nearest.h"

namespace gpushare {

class ConfigMistakes {
 public:
  // `file`: its name, for the messages.
  explicit ConfigMistakes(std::string_view file) : file_(file) {}

  void add(toml::source_position where, std::string key, std::string text) {
    errors_.push_back({.file = file_,
                       .line = where.line,
                       .column = where.column,
                       .key = std::move(key),
                       .text = std::move(text)});
  }

  void wrong_type(const toml::node& node, std::string key, std::string_view wanted) {
    add(node.source().begin, std::move(key), fmt::format("must be {}", wanted));
  }

  const toml::table* need_table(const toml::node& node, std::string key) {
    const toml::table* table = node.as_table();
    if (!table) wrong_type(node, key, fmt::format("a table: [{}]", key));
    return table;
  }

  void unknown_key(const toml::key& key, std::string_view prefix,
                   std::span<const std::string_view> known) {
    const std::string_view near = nearest(key.str(), known);
    add(key.source().begin, fmt::format("{}{}", prefix, key.str()),
        near.empty() ? fmt::format("unknown key; allowed: {}", fmt::join(known, ", "))
                     : fmt::format("unknown key; did you mean '{}'?", near));
  }

  // In the order of the file.
  ConfigErrors take() {
    std::ranges::sort(errors_, {}, [](const ConfigError& error) {
      return std::tie(error.line, error.column, error.key);
    });
    return std::move(errors_);
  }
  bool is_empty() const { return errors_.empty(); }

 private:
  const std::string file_;
  ConfigErrors errors_;
};

}  // namespace gpushare
