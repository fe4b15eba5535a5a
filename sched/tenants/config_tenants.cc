// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/config_tenants.h"

#include <array>
#include <optional>

#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

constexpr std::array<std::string_view, 5> kConditions = {"cgroup", "user", "command", "container",
                                                         "label"};

const auto kTenantKeys = [] {
  std::vector<std::string_view> keys(setting_keys().begin(), setting_keys().end());
  keys.push_back("match");
  return keys;
}();

// toml++ keeps tables sorted by name; tenants and rules count in the order of the file.
template <class Item>
struct Placed {
  toml::source_position where;
  Item item;
};

template <class Item>
std::vector<Item> in_file_order(std::vector<Placed<Item>> placed) {
  std::ranges::sort(placed, {}, [](const Placed<Item>& one) {
    return std::pair(one.where.line, one.where.column);
  });
  std::vector<Item> items;
  items.reserve(placed.size());
  for (Placed<Item>& one : placed) items.push_back(std::move(one.item));
  return items;
}

class TenantReader {
 public:
  explicit TenantReader(ConfigMistakes& mistakes) : mistakes_(mistakes) {}

  void finish(Config& config) {
    config.tenants = in_file_order(std::move(tenants_));
    config.rules = in_file_order(std::move(rules_));
  }

  void read_tenants(const toml::table& tenants) {
    const size_t most = kMaxTenants - (tenants.contains("default") ? 0 : 1);  // it always exists
    if (tenants.size() > most) {
      mistakes_.add(tenants.source().begin, "tenant", fmt::format("more than {} tenants", most));
      return;
    }
    for (auto&& [key, node] : tenants) {
      const std::string path = fmt::format("tenant.{}", key.str());
      if (const auto name = check_tenant_name(key.str()); !name) {
        mistakes_.add(key.source().begin, path, name.error().detail);
      } else if (const auto above = name_above(key.str());
                 !above.empty() && above != "default" && !tenants.contains(above)) {
        mistakes_.add(key.source().begin, path,
                      fmt::format("there is no tenant above it; write [tenant.\"{}\"] too", above));
      } else if (const auto* table = mistakes_.need_table(node, path)) {
        read_tenant(key, *table);
      }
    }
  }

 private:
  void read_tenant(const toml::key& name, const toml::table& table) {
    const std::string prefix = fmt::format("tenant.{}.", name.str());
    Placed<TenantConfig> placed{name.source().begin, {std::string(name.str()), {}}};
    for (auto&& [key, node] : table) {
      if (key == "match") {
        read_match(std::string(name.str()), node);
      } else if (std::ranges::find(setting_keys(), key.str()) == setting_keys().end()) {
        mistakes_.unknown_key(key, prefix, kTenantKeys);
      } else if (auto setting = read_setting(prefix, key, node)) {
        placed.item.settings.push_back(std::move(*setting));
      }
    }
    tenants_.push_back(std::move(placed));
  }

  // Numbers and truth may be written bare (weight = 300, gang = true) or as text (max = "30%"); the
  // parser is one.
  std::optional<Setting> read_setting(const std::string& prefix, const toml::key& key,
                                      const toml::node& node) {
    Setting setting{std::string(key.str()), {}};
    if (const auto number = node.value_exact<int64_t>()) {
      setting.value = std::to_string(*number);
    } else if (const auto text = node.value_exact<std::string>()) {
      setting.value = *text;
    } else if (const auto flag = node.value_exact<bool>()) {
      setting.value = *flag ? "true" : "false";
    } else {
      mistakes_.wrong_type(
          node, prefix + setting.key,
          fmt::format("a number, a text, true or false; allowed: {}", allowed_values(setting.key)));
      return std::nullopt;
    }
    TenantSettings scratch;
    if (!apply_setting(scratch, setting.key, setting.value)) {
      mistakes_.add(node.source().begin, prefix + setting.key,
                    fmt::format("'{}' is not allowed; allowed: {}", setting.value,
                                allowed_values(setting.key)));
      return std::nullopt;
    }
    return setting;
  }

  void read_match(const std::string& tenant, const toml::node& node) {
    const std::string path = fmt::format("tenant.{}.match", tenant);
    const toml::array* rules = node.as_array();
    if (!rules) {
      mistakes_.wrong_type(node, path,
                           "a list of rules: [{ cgroup = \"GLOB\" }, { user = \"NAME\" }]");
      return;
    }
    for (const toml::node& item : *rules) {
      const toml::table* table = item.as_table();
      if (!table || table->empty()) {
        mistakes_.wrong_type(item, path, "a rule such as { command = \"GLOB\" }");
        continue;
      }
      Placed<Rule> placed{item.source().begin, {tenant, {}, {}, {}}};
      for (auto&& [key, value] : *table) read_condition(placed.item, path, key, value);
      rules_.push_back(std::move(placed));
    }
  }

  void read_condition(Rule& rule, const std::string& path, const toml::key& key,
                      const toml::node& node) {
    if (std::ranges::find(kConditions, key.str()) == kConditions.end()) {
      mistakes_.unknown_key(key, path + ".", kConditions);
      return;
    }
    auto text = node.value_exact<std::string>();
    if (const auto uid = node.value_exact<int64_t>(); uid && *uid >= 0 && key == "user") {
      text = std::to_string(*uid);
    }
    const bool is_label = key == "label";
    if (!text || text->empty() || (is_label && !is_label_condition(*text))) {
      mistakes_.wrong_type(node, fmt::format("{}.{}", path, key.str()),
                           key == "user" ? "a user's name or uid"
                           : is_label    ? "KEY=GLOB, as in \"team=vision*\""
                                         : "a glob (not empty)");
      return;
    }
    *condition_of(rule, key.str()) = std::move(*text);
  }

  static bool is_label_condition(std::string_view text) {
    const std::size_t equals = text.find('=');
    return equals != std::string_view::npos && equals > 0;
  }

  // REQUIRES: `key` is one of kConditions.
  static std::optional<std::string>* condition_of(Rule& rule, std::string_view key) {
    if (key == "cgroup") return &rule.cgroup;
    if (key == "user") return &rule.user;
    if (key == "command") return &rule.command;
    return key == "container" ? &rule.container : &rule.label;
  }

  ConfigMistakes& mistakes_;
  std::vector<Placed<TenantConfig>> tenants_;
  std::vector<Placed<Rule>> rules_;
};

}  // namespace

void read_tenants(const toml::table& table, Config& config, ConfigMistakes& mistakes) {
  TenantReader reader(mistakes);
  reader.read_tenants(table);
  reader.finish(config);
}

}  // namespace gpushare
