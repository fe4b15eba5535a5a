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
#include <utility>

#include "sched/tenants/config_mistakes.h"
#include "sched/tenants/config_tenants.h"
#include "shmctl/base/fd.h"
#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

constexpr size_t kLargestFile = 1 << 20;

constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLogLevels = {{
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError},
}};

struct Tick {
  std::string_view key;  // in milliseconds
  int64_t least, most;
  Nanos AgentConfig::* member;
};
constexpr std::array kTicks = {Tick{"tick_fast_ms", 1, 100, &AgentConfig::tick_fast},
                               Tick{"tick_slow_ms", 10, 1'000, &AgentConfig::tick_slow}};

constexpr std::array<std::string_view, 4> kSections = {"agent", "gpu", "mps", "tenant"};
constexpr std::array<std::string_view, 3> kMpsKeys = {"run", "users", "program"};

// Walks the parsed table once, filling a Config and noting every mistake.
class Reader {
 public:
  Reader(std::string_view file, std::span<const PolicyEntry> policies)
      : policies_(policies), mistakes_(file), config_(policies) {
    for (const PolicyEntry& entry : policies_)
      for (const PolicyOption& option : entry.options)
        if (std::ranges::find(options_, option.key, &PolicyOption::key) == options_.end())
          options_.push_back(option);
  }

  std::expected<Config, ConfigErrors> read(const toml::table& root) {
    // toml++ sorts by name: what [agent] says is known when [gpu.N] is read.
    for (auto&& [key, node] : root) {
      const auto section = std::ranges::find(kSections, key.str());
      if (section == kSections.end()) {
        mistakes_.unknown_key(key, "", kSections);
      } else if (const auto* table = mistakes_.need_table(node, std::string(key.str()))) {
        if (key == "agent") read_agent(*table);
        if (key == "gpu") read_gpus(*table);
        if (key == "mps") read_mps(*table);
        if (key == "tenant") read_tenants(*table, config_, mistakes_);
      }
    }
    if (!mistakes_.is_empty()) return std::unexpected(mistakes_.take());
    return std::move(config_);
  }

 private:
  void read_agent(const toml::table& table) {
    AgentConfig& agent = config_.agent;
    for (auto&& [key, node] : table) {
      const auto tick = std::ranges::find(kTicks, key.str(), &Tick::key);
      const auto option = std::ranges::find(options_, key.str(), &PolicyOption::key);
      if (key == "log_level") {
        read_log_level(node);
      } else if (key == "knees") {
        if (auto path = read_path(node, "agent.knees")) agent.knees = std::move(*path);
      } else if (key == "jobs") {
        agent.jobs = read_path(node, "agent.jobs");
      } else if (key == "usage") {
        agent.usage = read_path(node, "agent.usage");
      } else if (key == "usage_mib") {
        if (const auto mib = read_number(node, "agent.", key.str(), 8, 65'536))
          agent.usage_bytes = static_cast<uint64_t>(*mib) << 20;
      } else if (key == "usage_for") {
        read_choice(node, "agent.usage_for", "group", "all", agent.is_usage_for_all);
      } else if (key == "gangs") {
        read_choice(node, "agent.gangs", "off", "auto", agent.gangs);
      } else if (key == "policy") {
        mistakes_.add(key.source().begin, "agent.policy",
                      "each GPU has its own policy now: [gpu.0] policy = \"fair\"");
      } else if (tick != kTicks.end()) {
        if (const auto value = read_number(node, "agent.", key.str(), tick->least, tick->most))
          agent.*tick->member = std::chrono::milliseconds(*value);
      } else if (option != options_.end()) {
        if (const auto value = read_option(node, "agent.", *option))
          for_all_gpus_.emplace_back(option->key, *value);
      } else {
        std::vector<std::string_view> known{"log_level", "knees",     "jobs", "usage",
                                            "usage_mib", "usage_for", "gangs"};
        for (const Tick& one : kTicks) known.push_back(one.key);
        for (const PolicyOption& one : options_) known.push_back(one.key);
        mistakes_.unknown_key(key, "agent.", known);
      }
    }
    if (agent.tick_fast > agent.tick_slow)
      mistakes_.add(table.source().begin, "agent.tick_fast_ms", "must not be above tick_slow_ms");
    config_.other_gpus.policy = chosen(policies_.front());
    check(config_.other_gpus.policy, table, "agent.");
  }

  // The policy with what [agent] says for all GPUs.
  PolicyChoice chosen(const PolicyEntry& entry) const {
    PolicyChoice choice(entry);
    for (const auto& [key, value] : for_all_gpus_)
      if (choice.options.has(key)) choice.options.set(key, value);
    return choice;
  }

  void check(const PolicyChoice& choice, const toml::table& table, std::string_view prefix) {
    if (!choice.entry->check) return;
    if (const auto mistake = choice.entry->check(choice.options))
      mistakes_.add(table.source().begin, fmt::format("{}{}", prefix, mistake->key),
                    std::string(mistake->text));
  }

  std::optional<int64_t> read_number(const toml::node& node, std::string_view prefix,
                                     std::string_view key, int64_t least, int64_t most) {
    const auto value = node.value_exact<int64_t>();
    if (value && *value >= least && *value <= most) return *value;
    mistakes_.wrong_type(node, fmt::format("{}{}", prefix, key),
                         fmt::format("a whole number from {} to {}", least, most));
    return std::nullopt;
  }
  std::optional<int64_t> read_option(const toml::node& node, std::string_view prefix,
                                     const PolicyOption& option) {
    return read_number(node, prefix, option.key, option.least, option.most);
  }

  void read_log_level(const toml::node& node) {
    const auto text = node.value_exact<std::string_view>();
    for (const auto& [name, level] : kLogLevels) {
      if (text == name) {
        config_.agent.log_level = level;
        return;
      }
    }
    mistakes_.wrong_type(node, "agent.log_level", "\"debug\", \"info\", \"warning\" or \"error\"");
  }

  std::optional<std::string> read_path(const toml::node& node, const char* key) {
    auto path = node.value_exact<std::string>();
    if (path && (path->empty() || path->front() == '/')) return path;
    mistakes_.wrong_type(node, key, "the path of a file from the root on, or \"\" for none");
    return std::nullopt;
  }

  void read_gpus(const toml::table& gpus) {
    for (auto&& [key, node] : gpus) {
      const std::string number(key.str()), path = "gpu." + number;
      uint32_t index = 0;
      const char* const end = number.data() + number.size();
      const auto parsed = std::from_chars(number.data(), end, index);
      if (parsed.ec != std::errc{} || parsed.ptr != end || index >= kMaxGpus) {
        mistakes_.add(key.source().begin, path,
                      fmt::format("must be the index of a GPU, 0 to {}", kMaxGpus - 1));
      } else if (const auto* table = mistakes_.need_table(node, path)) {
        read_gpu(index, path, *table);
      }
    }
  }

  void read_gpu(uint32_t index, const std::string& path, const toml::table& table) {
    GpuConfig gpu = config_.other_gpus;
    const std::string prefix = path + ".";
    if (const toml::node* node = table.get("policy"))
      if (const PolicyEntry* entry = read_policy(*node, path)) gpu.policy = chosen(*entry);
    const std::span<const PolicyOption> options = gpu.policy.entry->options;
    bool has_options = false;
    std::vector<std::string_view> spatial;  // set to another value than the default
    for (auto&& [key, node] : table) {
      const auto option = std::ranges::find(options, key.str(), &PolicyOption::key);
      if (key == "sharing") {
        bool is_by_time = !gpu.is_spatial;
        read_choice(node, prefix + "sharing", "spatial", "time", is_by_time);
        gpu.is_spatial = !is_by_time;
      } else if (key == "gate") {
        bool is_on_host = !gpu.has_credit;
        read_choice(node, prefix + "gate", "credit", "host", is_on_host);
        gpu.has_credit = !is_on_host;
      } else if (key == "overlap") {
        if (const auto value = node.value_exact<bool>())
          gpu.has_overlap = *value;
        else
          mistakes_.wrong_type(node, prefix + "overlap", "true or false");
      } else if (option != options.end()) {
        has_options = true;
        if (const auto value = read_option(node, prefix, *option)) {
          gpu.policy.options.set(option->key, *value);
          if (option->is_spatial && *value != option->otherwise) spatial.push_back(option->key);
        }
      } else if (key != "policy") {
        std::vector<std::string_view> known{"sharing", "policy", "gate", "overlap"};
        for (const PolicyOption& one : options) known.push_back(one.key);
        mistakes_.unknown_key(key, prefix, known);
      }
    }
    if (has_options) check(gpu.policy, table, prefix);
    if (gpu.policy.entry->needs.spatial && !gpu.is_spatial)
      mistakes_.add(table.source().begin, prefix + "policy",
                    fmt::format("\"{}\" needs sharing = \"spatial\"", gpu.policy.entry->name));
    for (const std::string_view key : spatial)
      if (!gpu.is_spatial)
        mistakes_.add(table.source().begin, fmt::format("{}{}", prefix, key),
                      "needs sharing = \"spatial\"");
    if (gpu.has_credit && !gpu.is_spatial)
      mistakes_.add(table.source().begin, prefix + "gate",
                    "\"credit\" needs sharing = \"spatial\"");
    if (gpu.has_overlap && !gpu.is_spatial)
      mistakes_.add(table.source().begin, prefix + "overlap", "true needs sharing = \"spatial\"");
    const PolicyNeeds& needs = gpu.policy.entry->needs;
    if (gpu.has_overlap && (needs.spatial || needs.turns))
      mistakes_.add(table.source().begin, prefix + "overlap",
                    fmt::format("true has no effect with the policy \"{}\", which decides itself "
                                "who runs at once",
                                gpu.policy.entry->name));
    config_.gpus.emplace(index, std::move(gpu));
  }

  // nullptr: there is no such policy.
  const PolicyEntry* read_policy(const toml::node& node, const std::string& path) {
    const auto text = node.value_exact<std::string_view>();
    if (text)
      if (const PolicyEntry* entry = find_policy(policies_, *text)) return entry;
    std::vector<std::string> names;
    for (const PolicyEntry& entry : policies_) names.push_back(fmt::format("\"{}\"", entry.name));
    const bool was_shares = text == "shares";
    mistakes_.wrong_type(node, path + ".policy",
                         fmt::format("one of {}{}", fmt::join(names, ", "),
                                     was_shares ? "; what was \"shares\" is \"fair\" now" : ""));
    return nullptr;
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
          mistakes_.wrong_type(node, "mps.program", "a path, or a name in $PATH");
      } else {
        mistakes_.unknown_key(key, "mps.", kMpsKeys);
      }
    }
  }

  void read_choice(const toml::node& node, const std::string& path, std::string_view no,
                   std::string_view yes, bool& value) {
    const auto text = node.value_exact<std::string_view>();
    if (text != yes && text != no)
      mistakes_.wrong_type(node, path, fmt::format("\"{}\" or \"{}\"", yes, no));
    else
      value = text == yes;
  }

  const std::span<const PolicyEntry> policies_;
  std::vector<PolicyOption> options_;  // of all policies, each key once
  std::vector<std::pair<std::string_view, int64_t>> for_all_gpus_;
  ConfigMistakes mistakes_;
  Config config_;
};

std::unexpected<ConfigErrors> file_error(const std::string& path, std::error_code code,
                                         std::string text) {
  return std::unexpected(
      ConfigErrors{{.file = path, .key = {}, .text = std::move(text), .code = code}});
}

}  // namespace

std::string Config::policy_names(std::size_t count) const {
  std::vector<std::string_view> names;
  for (uint32_t index = 0; index < count; ++index) {
    const std::string_view name = gpu(index).policy.entry->name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, "-"));
}

std::string ConfigError::message() const {
  std::string out = file;
  if (line != 0) out += fmt::format(":{}:{}", line, column);
  if (!key.empty()) out += ": " + key;
  return out + ": " + text;
}

std::expected<Config, ConfigErrors> parse_config(std::string_view text, std::string_view file,
                                                 std::span<const PolicyEntry> policies) {
  try {
    return Reader(file, policies).read(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    return std::unexpected(ConfigErrors{{.file = std::string(file),
                                         .line = where.line,
                                         .column = where.column,
                                         .key = {},
                                         .text = std::string(error.description())}});
  }
}

std::expected<Config, ConfigErrors> load_config(const std::string& path,
                                                std::span<const PolicyEntry> policies) {
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
  return parse_config(text, path, policies);
}

}  // namespace gpushare
