// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "sched/policy/policies.h"
#include "sched/tenants/toml.h"
#include "shmctl/base/fd.h"
#include "shmctl/plane/layout.h"
#include "shmctl/program/nearest.h"

namespace gpushare {
namespace {

constexpr size_t kLargestFile = 1 << 20;

constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLogLevels = {{
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError},
}};

// The integers of [agent]: where they go, in which unit, what they may be.
struct AgentNumber {
  std::string_view key;
  int64_t lowest, highest;
  void (*set)(AgentConfig&, int64_t);
};
constexpr std::array kAgentNumbers = {
    AgentNumber{"tick_fast_ms", 1, 100,
                [](AgentConfig& a, int64_t ms) { a.tick_fast = std::chrono::milliseconds(ms); }},
    AgentNumber{"tick_slow_ms", 10, 1'000,
                [](AgentConfig& a, int64_t ms) { a.tick_slow = std::chrono::milliseconds(ms); }},
    AgentNumber{"round_target_ms", 2, 1'000,
                [](AgentConfig& a, int64_t ms) {
                  a.policy_options.round_target = std::chrono::milliseconds(ms);
                }},
    AgentNumber{"min_slice_us", 200, 50'000,
                [](AgentConfig& a, int64_t us) { a.policy_options.min_slice = Micros(us); }},
    AgentNumber{"idle_turn_ms", 10, 10'000,
                [](AgentConfig& a, int64_t ms) {
                  a.policy_options.idle_turn = std::chrono::milliseconds(ms);
                }},
};

constexpr auto kAgentKeys = [] {
  std::array<std::string_view, kAgentNumbers.size() + 3> keys = {"log_level", "policy", "knees"};
  std::ranges::transform(kAgentNumbers, keys.begin() + 3, &AgentNumber::key);
  return keys;
}();

constexpr std::array<std::string_view, 4> kSections = {"agent", "gpu", "mps", "tenant"};
constexpr std::array<std::string_view, 3> kMpsKeys = {"run", "users", "program"};
constexpr std::array<std::string_view, 2> kGpuKeys = {"sharing", "policy"};
constexpr std::array<std::string_view, 3> kConditions = {"cgroup", "user", "command"};

const auto kTenantKeys = [] {
  std::vector<std::string_view> keys(setting_keys().begin(), setting_keys().end());
  keys.push_back("match");
  return keys;
}();

// Walks the parsed table once, filling a Config and noting every mistake.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  std::expected<Config, ConfigErrors> read(const toml::table& root) {
    for (auto&& [key, node] : root) {
      if (key == "agent") {
        if (const auto* table = need_table(node, "agent")) read_agent(*table);
      } else if (key == "gpu") {
        if (const auto* table = need_table(node, "gpu")) read_gpus(*table);
      } else if (key == "mps") {
        if (const auto* table = need_table(node, "mps")) read_mps(*table);
      } else if (key == "tenant") {
        if (const auto* table = need_table(node, "tenant")) read_tenants(*table);
      } else {
        unknown_key(key, "", kSections);
      }
    }
    if (!errors_.empty()) {
      std::ranges::sort(errors_, {}, [](const ConfigError& error) {
        return std::tie(error.line, error.column, error.key);
      });
      return std::unexpected(std::move(errors_));
    }
    return finish();
  }

 private:
  // toml++ keeps tables sorted by name; rules count in the order of the file.
  struct PlacedRule {
    toml::source_position where;
    Rule rule;
  };
  struct PlacedTenant {
    toml::source_position where;
    TenantConfig tenant;
  };

  Config finish() {
    const auto place = [](const auto& item) {
      return std::pair(item.where.line, item.where.column);
    };
    std::ranges::sort(tenants_, {}, place);
    std::ranges::sort(rules_, {}, place);
    for (auto& item : tenants_) config_.tenants.push_back(std::move(item.tenant));
    for (auto& item : rules_) config_.rules.push_back(std::move(item.rule));
    return std::move(config_);
  }

  void error(toml::source_position where, std::string key, std::string text) {
    errors_.push_back({.file = file_,
                       .line = where.line,
                       .column = where.column,
                       .key = std::move(key),
                       .text = std::move(text)});
  }

  void wrong_type(const toml::node& node, std::string key, std::string_view wanted) {
    error(node.source().begin, std::move(key), fmt::format("must be {}", wanted));
  }

  const toml::table* need_table(const toml::node& node, std::string key) {
    const toml::table* table = node.as_table();
    if (!table) wrong_type(node, key, fmt::format("a table: [{}]", key));
    return table;
  }

  void unknown_key(const toml::key& key, std::string_view prefix,
                   std::span<const std::string_view> known) {
    const std::string_view near = nearest(key.str(), known);
    error(key.source().begin, fmt::format("{}{}", prefix, key.str()),
          near.empty() ? fmt::format("unknown key; allowed: {}", fmt::join(known, ", "))
                       : fmt::format("unknown key; did you mean '{}'?", near));
  }

  void read_agent(const toml::table& table) {
    AgentConfig& agent = config_.agent;
    for (auto&& [key, node] : table) {
      if (key == "log_level") {
        read_log_level(node);
      } else if (key == "policy") {
        read_policy(node);
      } else if (key == "knees") {
        read_knees(node);
      } else if (const auto* number =
                     std::ranges::find(kAgentNumbers, key.str(), &AgentNumber::key);
                 number != kAgentNumbers.end()) {
        read_number(node, *number);
      } else {
        unknown_key(key, "agent.", kAgentKeys);
      }
    }
    if (agent.tick_fast > agent.tick_slow) {
      error(table.source().begin, "agent.tick_fast_ms", "must not be above tick_slow_ms");
    }
    if (agent.policy_options.min_slice > agent.policy_options.round_target) {
      error(table.source().begin, "agent.min_slice_us", "must not be above round_target_ms");
    }
  }

  void read_number(const toml::node& node, const AgentNumber& number) {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < number.lowest || *value > number.highest) {
      wrong_type(node, fmt::format("agent.{}", number.key),
                 fmt::format("a whole number from {} to {}", number.lowest, number.highest));
      return;
    }
    number.set(config_.agent, *value);
  }

  void read_log_level(const toml::node& node) {
    const auto text = node.value_exact<std::string_view>();
    for (const auto& [name, level] : kLogLevels) {
      if (text == name) {
        config_.agent.log_level = level;
        return;
      }
    }
    wrong_type(node, "agent.log_level", "\"debug\", \"info\", \"warning\" or \"error\"");
  }

  void read_policy(const toml::node& node) {
    const auto text = node.value_exact<std::string_view>();
    if (!text || std::ranges::find(policy_names(), *text) == policy_names().end()) {
      wrong_type(node, "agent.policy",
                 fmt::format("one of \"{}\"", fmt::join(policy_names(), "\", \"")));
      return;
    }
    config_.agent.policy = *text;
  }

  void read_knees(const toml::node& node) {
    const auto path = node.value_exact<std::string>();
    if (!path || (!path->empty() && path->front() != '/'))
      return wrong_type(node, "agent.knees",
                        "the path of a file from the root on, or \"\" for none");
    config_.agent.knees = *path;
  }

  void read_gpus(const toml::table& gpus) {
    for (auto&& [key, node] : gpus) {
      const std::string number(key.str()), path = "gpu." + number;
      uint32_t index = 0;
      const char* const end = number.data() + number.size();
      const auto parsed = std::from_chars(number.data(), end, index);
      if (parsed.ec != std::errc{} || parsed.ptr != end || index >= kMaxGpus) {
        error(key.source().begin, path,
              fmt::format("must be the index of a GPU, 0 to {}", kMaxGpus - 1));
      } else if (const auto* table = need_table(node, path)) {
        read_gpu(index, path, *table);
      }
    }
  }

  void read_gpu(uint32_t index, const std::string& path, const toml::table& table) {
    for (auto&& [key, node] : table) {
      const auto text = node.value_exact<std::string_view>();
      if (key == "sharing") {
        if (text == "spatial")
          config_.spatial_gpus.insert(index);
        else if (text != "time")
          wrong_type(node, path + ".sharing", "\"time\" or \"spatial\"");
      } else if (key == "policy") {
        if (text == "slo")
          config_.slo_gpus.insert(index);
        else if (text != "shares")
          wrong_type(node, path + ".policy", "\"shares\" or \"slo\"");
      } else {
        unknown_key(key, path + ".", kGpuKeys);
      }
    }
    if (config_.slo_gpus.contains(index) && !config_.spatial_gpus.contains(index))
      error(table.source().begin, path + ".policy", "\"slo\" needs sharing = \"spatial\"");
  }

  void read_mps(const toml::table& table) {
    for (auto&& [key, node] : table) {
      if (key == "run") {
        read_choice(node, "mps.run", "off", "auto", config_.mps.is_ours);
      } else if (key == "users") {
        read_choice(node, "mps.users", "one", "all", config_.mps.has_all_users);
      } else if (key == "program") {
        const auto text = node.value_exact<std::string>();
        if (text && !text->empty())
          config_.mps.program = *text;
        else
          wrong_type(node, "mps.program", "a path, or a name in $PATH");
      } else {
        unknown_key(key, "mps.", kMpsKeys);
      }
    }
  }

  void read_choice(const toml::node& node, const char* path, std::string_view no,
                   std::string_view yes, bool& value) {
    const auto text = node.value_exact<std::string_view>();
    if (text != yes && text != no)
      wrong_type(node, path, fmt::format("\"{}\" or \"{}\"", yes, no));
    else
      value = text == yes;
  }

  void read_tenants(const toml::table& tenants) {
    const size_t most = kMaxTenants - (tenants.contains("default") ? 0 : 1);  // it always exists
    if (tenants.size() > most) {
      error(tenants.source().begin, "tenant", fmt::format("more than {} tenants", most));
      return;
    }
    for (auto&& [key, node] : tenants) {
      const std::string path = fmt::format("tenant.{}", key.str());
      if (const auto name = check_tenant_name(key.str()); !name) {
        error(key.source().begin, path, name.error().detail);
      } else if (const auto* table = need_table(node, path)) {
        read_tenant(key, *table);
      }
    }
  }

  void read_tenant(const toml::key& name, const toml::table& table) {
    const std::string prefix = fmt::format("tenant.{}.", name.str());
    PlacedTenant placed{name.source().begin, {std::string(name.str()), {}}};
    for (auto&& [key, node] : table) {
      if (key == "match") {
        read_match(std::string(name.str()), node);
      } else if (std::ranges::find(setting_keys(), key.str()) == setting_keys().end()) {
        unknown_key(key, prefix, kTenantKeys);
      } else if (auto setting = read_setting(prefix, key, node)) {
        placed.tenant.settings.push_back(std::move(*setting));
      }
    }
    tenants_.push_back(std::move(placed));
  }

  // Numbers may be written bare (weight = 300) or as text (max = "30%"); the parser is one.
  std::optional<Setting> read_setting(const std::string& prefix, const toml::key& key,
                                      const toml::node& node) {
    Setting setting{std::string(key.str()), {}};
    if (const auto number = node.value_exact<int64_t>()) {
      setting.value = std::to_string(*number);
    } else if (const auto text = node.value_exact<std::string>()) {
      setting.value = *text;
    } else {
      wrong_type(node, prefix + setting.key,
                 fmt::format("a number or a text; allowed: {}", allowed_values(setting.key)));
      return std::nullopt;
    }
    TenantSettings scratch;
    if (!apply_setting(scratch, setting.key, setting.value)) {
      error(node.source().begin, prefix + setting.key,
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
      wrong_type(node, path, "a list of rules: [{ cgroup = \"GLOB\" }, { user = \"NAME\" }]");
      return;
    }
    for (const toml::node& item : *rules) {
      const toml::table* table = item.as_table();
      if (!table || table->empty()) {
        wrong_type(item, path, "a rule such as { command = \"GLOB\" }");
        continue;
      }
      PlacedRule placed{item.source().begin, {tenant, {}, {}, {}}};
      for (auto&& [key, value] : *table) read_condition(placed.rule, path, key, value);
      rules_.push_back(std::move(placed));
    }
  }

  void read_condition(Rule& rule, const std::string& path, const toml::key& key,
                      const toml::node& node) {
    if (std::ranges::find(kConditions, key.str()) == kConditions.end()) {
      unknown_key(key, path + ".", kConditions);
      return;
    }
    auto text = node.value_exact<std::string>();
    if (const auto uid = node.value_exact<int64_t>(); uid && *uid >= 0 && key == "user") {
      text = std::to_string(*uid);
    }
    if (!text || text->empty()) {
      wrong_type(node, fmt::format("{}.{}", path, key.str()),
                 key == "user" ? "a user's name or uid" : "a glob (not empty)");
      return;
    }
    (key == "cgroup" ? rule.cgroup : key == "user" ? rule.user : rule.command) = std::move(*text);
  }

  std::string file_;
  Config config_;
  std::vector<PlacedTenant> tenants_;
  std::vector<PlacedRule> rules_;
  ConfigErrors errors_;
};

std::unexpected<ConfigErrors> file_error(const std::string& path, std::error_code code,
                                         std::string text) {
  return std::unexpected(
      ConfigErrors{{.file = path, .key = {}, .text = std::move(text), .code = code}});
}

}  // namespace

std::string ConfigError::message() const {
  std::string out = file;
  if (line != 0) out += fmt::format(":{}:{}", line, column);
  if (!key.empty()) out += ": " + key;
  return out + ": " + text;
}

std::expected<Config, ConfigErrors> parse_config(std::string_view text, std::string_view file) {
  try {
    return Reader(file).read(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    return std::unexpected(ConfigErrors{{.file = std::string(file),
                                         .line = where.line,
                                         .column = where.column,
                                         .key = {},
                                         .text = std::string(error.description())}});
  }
}

std::expected<Config, ConfigErrors> load_config(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto system_error = [&path] {
    const std::error_code code(errno, std::generic_category());
    return file_error(path, code, code.message());
  };
  if (!fd.is_open()) return system_error();
  std::string text(kLargestFile + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error();
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kLargestFile) {
    return file_error(path, std::make_error_code(std::errc::file_too_large), "larger than 1 MiB");
  }
  text.resize(size);
  return parse_config(text, path);
}

}  // namespace gpushare
