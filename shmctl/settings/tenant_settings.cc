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
constexpr Micros kPercentPeriod{GPUSHARE_PERIOD_US_DEFAULT};
constexpr size_t kLongestName = 63;
constexpr int kDeepestName = 4;
constexpr uint64_t kLargestNumber = UINT64_MAX;

// Takes decimal digits only: no sign, no blank, nothing behind them. Nothing on overflow as well.
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

// "12.5" is 12500. At most three decimals are taken, so that 0.001 % of 100 ms is a whole
// microsecond.
std::optional<uint64_t> parse_thousandths(std::string_view text) {
  constexpr uint64_t kMost = 1'000'000'000'000;  // a million million
  const size_t dot = text.find('.');
  const auto whole = parse_number(text.substr(0, dot), 0, kMost);
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
  if (period_us < GPUSHARE_PERIOD_US_MIN || period_us > GPUSHARE_PERIOD_US_MAX) return std::nullopt;
  if (quota_us < GPUSHARE_QUOTA_US_MIN || quota_us > period_us) return std::nullopt;
  return Cap{Micros(quota_us), Micros(period_us)};
}

std::optional<Cap> parse_cap(std::string_view text) {
  if (text.ends_with('%')) {
    const auto thousandths = parse_thousandths(text.substr(0, text.size() - 1));
    if (!thousandths || *thousandths > 100'000) return std::nullopt;
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

constexpr std::string_view kSuffixes = GPUSHARE_BYTE_SUFFIXES;  // two for each power of 1024

// "8G" and "8GiB" are the same, and "1.5G" is 1536M.
std::optional<uint64_t> parse_bytes(std::string_view text) {
  unsigned shift = 0;
  const bool is_long = text.ends_with("iB");
  if (is_long) text.remove_suffix(2);
  if (!text.empty()) {
    if (const size_t at = kSuffixes.find(text.back()); at != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(at) / 2 + 1);
      text.remove_suffix(1);
    }
  }
  if (is_long && shift == 0) return std::nullopt;
  if (shift != 0 && text.contains('.')) {
    const auto thousandths = parse_thousandths(text);
    const uint64_t most = kLargestNumber >> shift;
    if (!thousandths || *thousandths == 0 || *thousandths > most) return std::nullopt;
    return (*thousandths << shift) / 1000;
  }
  const auto number = parse_number(text, GPUSHARE_MEMORY_MAX_MIN, GPUSHARE_MEMORY_MAX_MAX >> shift);
  if (!number) return std::nullopt;
  return *number << shift;
}

// "5ms", "1.5s", "200us", or a plain number of microseconds.
std::optional<uint64_t> parse_micros(std::string_view text, uint64_t lowest, uint64_t highest) {
  constexpr std::array<std::pair<std::string_view, uint64_t>, 3> kUnits = {
      {{"us", 1}, {"ms", 1'000}, {"s", 1'000'000}}};
  for (const auto& [suffix, unit] : kUnits) {
    if (!text.ends_with(suffix)) continue;
    text.remove_suffix(suffix.size());
    const auto thousandths = parse_thousandths(text);
    if (!thousandths || *thousandths > kLargestNumber / unit) return std::nullopt;
    const uint64_t scaled = *thousandths * unit;
    const bool is_whole = scaled % 1000 == 0 && scaled / 1000 >= lowest && scaled / 1000 <= highest;
    return is_whole ? std::optional(scaled / 1000) : std::nullopt;
  }
  return parse_number(text, lowest, highest);
}

// As parse_micros(), and minutes and hours: "10m", "1.5h".
std::optional<uint64_t> parse_long_micros(std::string_view text, uint64_t lowest,
                                          uint64_t highest) {
  constexpr std::array<std::pair<char, uint64_t>, 2> kUnits = {
      {{'m', 60'000'000}, {'h', 3'600'000'000}}};
  for (const auto& [suffix, unit] : kUnits) {
    if (!text.ends_with(suffix)) continue;
    const auto thousandths = parse_thousandths(text.substr(0, text.size() - 1));
    if (!thousandths) return std::nullopt;
    const uint64_t micros = *thousandths * (unit / 1000);
    return micros >= lowest && micros <= highest ? std::optional(micros) : std::nullopt;
  }
  return parse_micros(text, lowest, highest);
}

std::string format_bytes(uint64_t bytes) {
  for (size_t unit = kSuffixes.size() / 2; unit > 0; --unit) {
    const uint64_t size = uint64_t{1} << (10 * unit);
    if (bytes % size == 0) return fmt::format("{}{}", bytes / size, kSuffixes[2 * unit - 2]);
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

constexpr std::array<std::string_view, 3> kPriorities = GPUSHARE_PRIORITY_NAMES;
constexpr std::array<std::string_view, 4> kPhases = GPUSHARE_PHASE_NAMES;
constexpr std::array<std::string_view, 3> kGangs = GPUSHARE_GANG_NAMES;
constexpr std::array<std::string_view, 2> kShown = GPUSHARE_SM_SHOWN_NAMES;

// Sets the member to the number that `value` has among the names.
template <size_t N, class T>
bool set_named(T& member, const std::array<std::string_view, N>& names, std::string_view value) {
  const auto* const found = std::ranges::find(names, value);
  if (found == names.end()) return false;
  member = static_cast<T>(found - names.begin());
  return true;
}

template <size_t N, class T>
std::string_view name_among(const std::array<std::string_view, N>& names, T value) {
  const auto number = static_cast<size_t>(value);
  return number < names.size() ? names[number] : "unknown";
}

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

template <class T>
bool set_number(T& member, std::string_view value, uint64_t least, uint64_t most) {
  const auto number = parse_number(value, least, most);
  if (number) member = static_cast<T>(*number);
  return number.has_value();
}

// For each row of the table: set_KEY() returns false, and changes nothing, for a value that is not
// allowed; text_KEY() writes the value as set_KEY() reads it.
bool set_weight(TenantSettings& s, std::string_view value) {
  return set_number(s.weight, value, GPUSHARE_WEIGHT_MIN, GPUSHARE_WEIGHT_MAX);
}
std::string text_weight(const TenantSettings& s) { return fmt::format("{}", s.weight); }

bool set_max(TenantSettings& s, std::string_view value) {
  return set_or_max(s.cap, value, parse_cap(value));
}
std::string text_max(const TenantSettings& s) {
  return s.cap ? format_cap(*s.cap) : std::string(kMax);
}

bool set_priority(TenantSettings& s, std::string_view value) {
  return set_named(s.priority, kPriorities, value);
}
std::string text_priority(const TenantSettings& s) {
  return std::string(priority_name(s.priority));
}

bool set_memory_max(TenantSettings& s, std::string_view value) {
  return set_or_max(s.memory_max, value, parse_bytes(value));
}
std::string text_memory_max(const TenantSettings& s) {
  return s.memory_max ? format_bytes(*s.memory_max) : std::string(kMax);
}

bool set_sm_percent(TenantSettings& s, std::string_view value) {
  return set_or_max(s.sm_percent, value,
                    parse_number(value, GPUSHARE_SM_PERCENT_MIN, GPUSHARE_SM_PERCENT_MAX));
}
std::string text_sm_percent(const TenantSettings& s) {
  return s.sm_percent ? fmt::format("{}", *s.sm_percent) : std::string(kMax);
}

bool set_slo_us(TenantSettings& s, std::string_view value) {
  const auto number = parse_micros(value, GPUSHARE_SLO_US_MIN, GPUSHARE_SLO_US_MAX);
  if (number) s.slo = Micros(*number);
  return number.has_value();
}
std::string text_slo_us(const TenantSettings& s) { return fmt::format("{}", s.slo.count()); }

bool set_length_us(TenantSettings& s, std::string_view value) {
  const auto number = parse_long_micros(value, GPUSHARE_LENGTH_US_MIN, GPUSHARE_LENGTH_US_MAX);
  if (number) s.length = Micros(*number);
  return number.has_value();
}
std::string text_length_us(const TenantSettings& s) { return fmt::format("{}", s.length.count()); }

bool set_iterations(TenantSettings& s, std::string_view value) {
  return set_number(s.iterations, value, GPUSHARE_ITERATIONS_MIN, GPUSHARE_ITERATIONS_MAX);
}
std::string text_iterations(const TenantSettings& s) { return fmt::format("{}", s.iterations); }

bool set_phase(TenantSettings& s, std::string_view value) {
  return set_named(s.phase, kPhases, value);
}
std::string text_phase(const TenantSettings& s) { return std::string(phase_name(s.phase)); }

bool set_gang(TenantSettings& s, std::string_view value) {
  return set_named(s.gang, kGangs, value);
}
std::string text_gang(const TenantSettings& s) { return std::string(name_among(kGangs, s.gang)); }

bool set_sm_min(TenantSettings& s, std::string_view value) {
  return set_number(s.sm_min, value, GPUSHARE_SM_MIN_MIN, GPUSHARE_SM_MIN_MAX);
}
std::string text_sm_min(const TenantSettings& s) { return fmt::format("{}", s.sm_min); }

bool set_sm_shown(TenantSettings& s, std::string_view value) {
  return set_named(s.sm_shown, kShown, value);
}
std::string text_sm_shown(const TenantSettings& s) {
  return std::string(name_among(kShown, s.sm_shown));
}

// What is allowed, with the units that this parser takes beside the plain numbers of the module's.
constexpr std::string_view with_units(std::string_view key, std::string_view allowed) {
  if (key == "slo_us")
    return GPUSHARE_RANGE_TEXT(GPUSHARE_SLO_US_MIN,
                               GPUSHARE_SLO_US_MAX) " us, or with a unit (200us, 5ms, 1.5s)";
  if (key == "length_us")
    return GPUSHARE_RANGE_TEXT(GPUSHARE_LENGTH_US_MIN,
                               GPUSHARE_LENGTH_US_MAX) " us, or with a unit (90s, 10m, 1.5h)";
  return allowed;
}

struct Key {
  SettingHelp help;
  bool (*set)(TenantSettings&, std::string_view);
  std::string (*text)(const TenantSettings&);
};

#define GS_KEY(key, NAME, value, allowed, initial, about) \
  Key{{#key, value, with_units(#key, allowed), initial, about}, set_##key, text_##key},
constexpr std::array kKeys = {GPUSHARE_SETTINGS(GS_KEY)};
#undef GS_KEY

constexpr auto kHelp = [] {
  std::array<SettingHelp, kKeys.size()> help;
  std::ranges::transform(kKeys, help.begin(), &Key::help);
  return help;
}();

constexpr auto kKeyNames = [] {
  std::array<std::string_view, kKeys.size()> names;
  std::ranges::transform(kHelp, names.begin(), &SettingHelp::key);
  return names;
}();

// What people write for a value of a setting where it takes another form: a percentage without its
// sign, with one too many or as a part of 1, or bytes by the suffix of powers of 1000 or in small
// letters. Empty: nothing is likely.
std::string likely_value(const Key& key, std::string_view value) {
  const std::string less(value.substr(0, value.size() - std::min<size_t>(1, value.size())));
  std::vector<std::string> forms{std::string(value) + "%"};
  if (value.ends_with('%')) forms.push_back(less);
  if (value.ends_with('B')) forms.push_back(less + "iB");
  if (value.size() > 3 && value.ends_with("ib")) {
    forms.push_back(less + "B");
    char& power = forms.back()[value.size() - 3];
    if (power >= 'a' && power <= 'z') power = static_cast<char>(power - 'a' + 'A');
  }
  if (const auto part = parse_thousandths(value); part && *part <= 1000)
    forms.push_back(fmt::format("{}%", static_cast<double>(*part) / 10));
  for (std::string& form : forms)
    if (TenantSettings scratch; key.set(scratch, form)) return std::move(form);
  return "";
}

const Key* find_key(std::string_view name) {
  const auto* const found = std::ranges::find(kKeyNames, name);
  return found == kKeyNames.end() ? nullptr : &kKeys[found - kKeyNames.begin()];
}

}  // namespace

std::span<const SettingHelp> settings_help() { return kHelp; }

std::span<const std::string_view> setting_keys() { return kKeyNames; }

std::string_view allowed_values(std::string_view key) {
  const Key* const found = find_key(key);
  return found ? found->help.allowed : std::string_view();
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
  if (found->set(settings, value)) return {};
  auto refused = not_allowed(key, value);
  if (const std::string likely = likely_value(*found, value); !likely.empty()) {
    Error error = refused.error();
    error.detail += fmt::format("; did you mean '{}'?", likely);
    return std::unexpected(std::move(error));
  }
  return refused;
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
  return found ? found->text(settings) : std::string();
}

std::vector<Setting> format_settings(const TenantSettings& settings) {
  std::vector<Setting> all;
  all.reserve(kKeys.size());
  for (const Key& key : kKeys) all.push_back({std::string(key.help.key), key.text(settings)});
  return all;
}

std::string_view priority_name(Priority priority) { return name_among(kPriorities, priority); }

std::string_view phase_name(TenantPhase phase) { return name_among(kPhases, phase); }

Result<> check_tenant_name(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  const auto is_part = [&](std::string_view part) {
    return !part.empty() && part[0] != '.' && part[0] != '-' &&
           std::ranges::all_of(part, is_letter);
  };
  bool is_allowed = name.size() <= kLongestName && std::ranges::count(name, '/') < kDeepestName;
  for (std::string_view rest = name; is_allowed && !rest.empty();) {
    const size_t end = rest.find('/');
    is_allowed = is_part(rest.substr(0, end)) && end + 1 != rest.size();
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  if (!name.empty() && is_allowed) return {};
  return make_error(std::errc::invalid_argument, "tenant name",
                    fmt::format("'{}' is not allowed; allowed: 1 to {} of A-Z a-z 0-9 _ . -, not "
                                "starting with . or -, or up to {} such parts with / between them",
                                name, kLongestName, kDeepestName));
}

std::string_view name_above(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
}

}  // namespace gpushare
