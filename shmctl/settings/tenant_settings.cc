// SPDX-License-Identifier: Apache-2.0
#include "shmctl/settings/tenant_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "shmctl/program/nearest.h"

namespace gpushare {
namespace {

constexpr std::string_view kMax = "max";
constexpr Micros kPercentPeriod{100'000};
constexpr size_t kLongestName = 63;

// Decimal digits only: no sign, no blank, nothing behind. Empty on overflow as well.
std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const char* const begin = std::to_address(text.begin());
  const char* const end = std::to_address(text.end());
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return number;
}

std::optional<uint64_t> parse_number(std::string_view text, uint64_t lowest, uint64_t highest) {
  const auto number = parse_number(text);
  if (!number || *number < lowest || *number > highest) return std::nullopt;
  return number;
}

// "12.5" -> 12500. At most three decimals, so that 0.001 % of 100 ms is a whole microsecond.
std::optional<uint64_t> parse_thousandths(std::string_view text) {
  const size_t dot = text.find('.');
  const auto whole = parse_number(text.substr(0, dot), 0, 1'000'000);
  if (!whole) return std::nullopt;
  if (dot == std::string_view::npos) return *whole * 1000;
  std::string decimals(text.substr(dot + 1));
  if (decimals.empty() || decimals.size() > 3) return std::nullopt;
  decimals.resize(3, '0');
  const auto part = parse_number(decimals);
  if (!part) return std::nullopt;
  return *whole * 1000 + *part;
}

std::optional<Cap> checked_cap(uint64_t quota_us, uint64_t period_us) {
  if (period_us < 1'000 || period_us > 1'000'000) return std::nullopt;
  if (quota_us < 1'000 || quota_us > period_us) return std::nullopt;
  return Cap{Micros(quota_us), Micros(period_us)};
}

std::optional<Cap> parse_cap(std::string_view text) {
  if (text.ends_with('%')) {
    const auto thousandths = parse_thousandths(text.substr(0, text.size() - 1));
    if (!thousandths) return std::nullopt;
    return checked_cap(*thousandths * kPercentPeriod.count() / 100'000, kPercentPeriod.count());
  }
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const size_t second = text.find_first_not_of(' ', blank);
  if (second == std::string_view::npos) return std::nullopt;
  const auto quota = parse_number(text.substr(0, blank));
  const auto period = parse_number(text.substr(second));
  if (!quota || !period) return std::nullopt;
  return checked_cap(*quota, *period);
}

constexpr std::string_view kUnits = "KMGT";

std::optional<uint64_t> parse_bytes(std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    const char last = text.back() >= 'a' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    if (const size_t unit = kUnits.find(last); unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number(text, 1, (kUnknown64 - 1) >> shift);
  if (!number) return std::nullopt;
  return *number << shift;
}

std::string format_bytes(uint64_t bytes) {
  for (size_t unit = kUnits.size(); unit > 0; --unit) {
    const uint64_t size = uint64_t{1} << (10 * unit);
    if (bytes % size == 0) return fmt::format("{}{}", bytes / size, kUnits[unit - 1]);
  }
  return fmt::format("{}", bytes);
}

std::string format_cap(const Cap& cap) {
  if (cap.period != kPercentPeriod) {
    return fmt::format("{} {}", cap.quota.count(), cap.period.count());
  }
  const auto thousandths = cap.quota.count();  // of 100 ms: 1 us is 0.001 %
  std::string text = fmt::format("{}.{:03}", thousandths / 1000, thousandths % 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + '%';
}

constexpr std::array kPriorities = {
    std::pair{std::string_view("idle"), Priority::kIdle},
    std::pair{std::string_view("normal"), Priority::kNormal},
    std::pair{std::string_view("high"), Priority::kHigh},
};

// One row per key; parse() returns false, and changes nothing, for a value that is not allowed.
struct Key {
  std::string_view name;
  std::string_view allowed;
  bool (*parse)(TenantSettings&, std::string_view);
  std::string (*format)(const TenantSettings&);
};

// "max" empties the optional; anything else is what `parse` made of it, unless that is nothing.
template <class T, class Parsed>
bool set_or_max(std::optional<T>& member, std::string_view value, const Parsed& parsed) {
  if (value == kMax) {
    member.reset();
    return true;
  }
  if (!parsed) return false;
  member = static_cast<T>(*parsed);
  return true;
}

constexpr std::array kKeys = {
    Key{"weight", "1 to 10000",
        [](TenantSettings& s, std::string_view value) {
          const auto number = parse_number(value, 1, 10'000);
          if (number) s.weight = static_cast<uint32_t>(*number);
          return number.has_value();
        },
        [](const TenantSettings& s) { return fmt::format("{}", s.weight); }},
    Key{"max",
        "max, a percentage from 1% to 100%, or 'QUOTA PERIOD' in us with period 1000 to 1000000 "
        "and quota 1000 to period",
        [](TenantSettings& s, std::string_view value) {
          return set_or_max(s.cap, value, parse_cap(value));
        },
        [](const TenantSettings& s) { return s.cap ? format_cap(*s.cap) : std::string(kMax); }},
    Key{"priority", "idle, normal or high",
        [](TenantSettings& s, std::string_view value) {
          const auto* const found =
              std::ranges::find(kPriorities, value, &std::pair<std::string_view, Priority>::first);
          if (found == kPriorities.end()) return false;
          s.priority = found->second;
          return true;
        },
        [](const TenantSettings& s) { return std::string(priority_name(s.priority)); }},
    Key{"memory_max", "max, or bytes from 1 on, with an optional suffix K, M, G or T",
        [](TenantSettings& s, std::string_view value) {
          return set_or_max(s.memory_max, value, parse_bytes(value));
        },
        [](const TenantSettings& s) {
          return s.memory_max ? format_bytes(*s.memory_max) : std::string(kMax);
        }},
    Key{"sm_percent", "max, or 1 to 100",
        [](TenantSettings& s, std::string_view value) {
          return set_or_max(s.sm_percent, value, parse_number(value, 1, 100));
        },
        [](const TenantSettings& s) {
          return s.sm_percent ? fmt::format("{}", *s.sm_percent) : std::string(kMax);
        }},
    Key{"slo_us", "0 to 1000000000",
        [](TenantSettings& s, std::string_view value) {
          const auto number = parse_number(value, 0, 1'000'000'000);
          if (number) s.slo = Micros(*number);
          return number.has_value();
        },
        [](const TenantSettings& s) { return fmt::format("{}", s.slo.count()); }},
};

constexpr auto kKeyNames = [] {
  std::array<std::string_view, kKeys.size()> names;
  std::ranges::transform(kKeys, names.begin(), &Key::name);
  return names;
}();

const Key* find_key(std::string_view name) {
  const auto* const found = std::ranges::find(kKeys, name, &Key::name);
  return found == kKeys.end() ? nullptr : found;
}

}  // namespace

std::span<const std::string_view> setting_keys() { return kKeyNames; }

std::string_view allowed_values(std::string_view key) {
  const Key* const found = find_key(key);
  return found ? found->allowed : std::string_view();
}

Result<> apply_setting(TenantSettings& settings, std::string_view key, std::string_view value) {
  const Key* const found = find_key(key);
  if (!found) {
    const std::string_view near = nearest(key, kKeyNames);
    return make_error(
        std::errc::invalid_argument, "tenant setting",
        near.empty()
            ? fmt::format("unknown setting '{}'; allowed: {}", key, fmt::join(kKeyNames, ", "))
            : fmt::format("unknown setting '{}'; did you mean '{}'?", key, near));
  }
  if (!found->parse(settings, value)) return not_allowed(key, value);
  return {};
}

std::unexpected<Error> not_allowed(std::string_view key, std::string_view value) {
  return make_error(
      std::errc::invalid_argument, "tenant setting",
      fmt::format("{}: '{}' is not allowed; allowed: {}", key, value, allowed_values(key)));
}

Result<> apply_settings(TenantSettings& settings, std::span<const Setting> changes) {
  TenantSettings changed = settings;
  for (const Setting& change : changes) {
    if (auto done = apply_setting(changed, change.key, change.value); !done) return done;
  }
  settings = changed;
  return {};
}

std::string format_setting(const TenantSettings& settings, std::string_view key) {
  const Key* const found = find_key(key);
  return found ? found->format(settings) : std::string();
}

std::vector<Setting> format_settings(const TenantSettings& settings) {
  std::vector<Setting> all;
  all.reserve(kKeys.size());
  for (const Key& key : kKeys) all.push_back({std::string(key.name), key.format(settings)});
  return all;
}

std::string_view priority_name(Priority priority) {
  const auto* const found =
      std::ranges::find(kPriorities, priority, &std::pair<std::string_view, Priority>::second);
  return found == kPriorities.end() ? "unknown" : found->first;
}

Result<> check_tenant_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  if (name.empty() || name.size() > kLongestName || name[0] == '.' || name[0] == '-' ||
      !std::ranges::all_of(name, is_allowed)) {
    return make_error(std::errc::invalid_argument, "tenant name",
                      fmt::format("'{}' is not allowed; allowed: 1 to {} of A-Z a-z 0-9 _ . -, not "
                                  "starting with . or -",
                                  name, kLongestName));
  }
  return {};
}

}  // namespace gpushare
