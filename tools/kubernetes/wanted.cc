// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/wanted.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kMostBytes = 1ULL << 60;

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || rest != text.data() + text.size() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

class Reader {
 public:
  Reader(const Pod& pod, const ShareRules& rules, std::vector<std::string>& complaints)
      : pod_(pod), rules_(rules), complaints_(complaints) {}

  // In shares.
  std::optional<double> own_share_wish() { return number("gpushare.io/share", rules_.shares); }
  std::optional<double> others_share_wish() {
    const double whole = rules_.shares;
    if (auto said = number("nvidia.com/gpucores", 100)) return *said / 100 * whole;
    if (auto said = number("gpu-fraction", 1)) return *said * whole;
    return std::nullopt;
  }
  // In bytes.
  std::optional<uint64_t> own_memory_wish() {
    if (const std::string* text = pod_.annotation("gpushare.io/memory")) {
      const auto bytes = parse_quantity(*text);
      if (bytes && *bytes > 0 && *bytes <= kMostBytes) return bytes;
      complain("gpushare.io/memory", *text, "bytes, such as 12Gi");
    }
    return std::nullopt;
  }
  std::optional<uint64_t> others_memory_wish() {
    for (const char* key : {"nvidia.com/gpumem", "gpu-memory"})
      if (const auto mebibytes = number(key, static_cast<double>(kMostBytes / kMiB), 1))
        return static_cast<uint64_t>(*mebibytes * static_cast<double>(kMiB));
    return std::nullopt;
  }
  std::string priority() {
    const std::string* text = pod_.annotation("gpushare.io/priority");
    if (text == nullptr || *text == "normal" || *text == "idle") return text ? *text : "normal";
    if (*text == "high" && rules_.may_be_high) return *text;
    complain("gpushare.io/priority", *text,
             rules_.may_be_high ? "idle, normal, high" : "idle, normal");
    return "normal";
  }
  std::optional<std::string> cap() {
    const std::string* text = pod_.annotation("gpushare.io/max");
    TenantSettings scratch;
    if (text == nullptr || apply_setting(scratch, "max", *text))
      return text ? std::optional(*text) : std::nullopt;
    complain("gpushare.io/max", *text, allowed_values("max"));
    return std::nullopt;
  }
  void complain(std::string_view key, std::string_view value, std::string_view allowed) {
    complaints_.push_back(fmt::format("annotation {}: '{}' is not allowed; allowed: {}", key,
                                      value.substr(0, 64), allowed));
  }

 private:
  std::optional<double> number(const char* key, double most, double least = 0) {
    const std::string* text = pod_.annotation(key);
    if (text == nullptr) return std::nullopt;
    const auto number = parse_number(*text);
    if (number && *number > 0 && *number >= least && *number <= most) return number;
    complain(key, *text,
             least > 0 ? fmt::format("{:g} to {:g}", least, most)
                       : fmt::format("a number above 0, to {:g}", most));
    return std::nullopt;
  }

  const Pod& pod_;
  const ShareRules& rules_;
  std::vector<std::string>& complaints_;
};

// Of a cap as it is written: the part of the GPU's time.
double fraction_of(std::string_view cap) {
  TenantSettings scratch;
  return apply_setting(scratch, "max", cap) && scratch.cap ? scratch.cap->fraction() : 1;
}

// What was counted for the pod, in shares of each of its GPUs.
std::optional<double> counted_shares(const Pod& pod, const ShareRules& rules) {
  if (const auto shares = pod.limit(kShareResource))
    return static_cast<double>(
        std::min<uint64_t>(pod.most_shares_of_a_gpu.value_or(*shares), rules.shares));
  if (const auto percent = pod.limit("nvidia.com/gpucores"))
    return static_cast<double>(std::min<uint64_t>(*percent, 100)) / 100 * rules.shares;
  return std::nullopt;
}

std::optional<uint64_t> times(std::optional<uint64_t> count, uint64_t unit) {
  return count ? std::optional(std::min(*count, kMostBytes / unit) * unit) : std::nullopt;
}

std::optional<uint64_t> counted_memory(const Pod& pod, const ShareRules& rules,
                                       std::optional<double> shares) {
  if (auto bytes = times(pod.limit(kMemoryResource), rules.memory_unit)) return bytes;
  if (auto bytes = times(pod.limit("nvidia.com/gpumem"), kMiB)) return bytes;
  if (rules.memory_per_share == 0 || !shares) return std::nullopt;
  return static_cast<uint64_t>(*shares * static_cast<double>(rules.memory_per_share));
}

}  // namespace

std::optional<Wanted> wanted_of(const Pod& pod, const ShareRules& rules) {
  Wanted wanted;
  Reader said(pod, rules, wanted.complaints);
  const auto counted = counted_shares(pod, rules);
  // What nobody counted is nobody's to change; for KAI's and HAMi's words their schedulers count.
  auto wish = counted ? said.own_share_wish() : std::nullopt;
  const bool is_own_wish = wish.has_value();
  if (!wish) wish = said.others_share_wish();
  auto memory = counted_memory(pod, rules, counted);
  auto memory_wish = said.own_memory_wish();
  const bool may_weigh = memory || !memory_wish;  // by its memory
  if (!memory_wish) memory_wish = said.others_memory_wish();
  if (!counted && !wish && !memory && !memory_wish) return std::nullopt;

  const double whole = rules.shares;
  const bool is_counted = is_own_wish || pod.limit(kShareResource).has_value();
  const double most = is_counted ? std::max(*counted, std::min(rules.max_share, whole)) : whole;
  if (wish && *wish > most)
    wanted.complaints.push_back(fmt::format(
        "{:g} shares are wished for by annotation; the pod may have at most {:g}", *wish, most));
  if (memory_wish && memory && *memory_wish > *memory)
    wanted.complaints.push_back(
        fmt::format("{} bytes of memory are wished for by annotation; the pod may have at most {}",
                    *memory_wish, *memory));
  if (memory_wish) memory = std::min(*memory_wish, memory.value_or(*memory_wish));
  if (wish) {
    wanted.shares = std::min(*wish, most);
  } else if (counted) {
    wanted.shares = *counted;
  } else if (memory && may_weigh &&
             rules.gpu_memory > 0) {  // as KAI does, the same part of the time
    wanted.shares =
        whole * std::min(1.0, static_cast<double>(*memory) / static_cast<double>(rules.gpu_memory));
  } else {
    wanted.shares = 1;
  }

  const double part = wanted.shares / whole;
  const auto weight =
      static_cast<uint32_t>(std::clamp(std::round(part * rules.weight), 1.0, 10'000.0));
  // 1% is the smallest cap that there is.
  std::string cap =
      rules.is_hard && part < 1 ? fmt::format("{:.3f}%", std::max(1.0, 100 * part)) : "max";
  if (const auto own = said.cap(); own && fraction_of(*own) < fraction_of(cap)) cap = *own;
  wanted.settings = {{"weight", std::to_string(weight)},
                     {"max", cap},
                     {"memory_max", memory ? std::to_string(*memory) : "max"},
                     {"priority", said.priority()}};
  return wanted;
}

std::string tenant_above(const Pod& pod, std::string_view below) {
  std::string above(below);
  for (size_t at = above.find("%n"); at != std::string::npos;
       at = above.find("%n", at + pod.name_space.size()))
    above.replace(at, 2, pod.name_space);
  return above;
}

bool is_pods_tenant(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with(kTenantPrefix) && std::ranges::count(name, '.') >= 2;
}

std::string tenant_name(const Pod& pod, std::string_view above) {
  constexpr size_t kLongestOfAll = 63, kUidDigits = 8, kSpaceDigits = 20;
  const size_t longest = kLongestOfAll - (above.empty() ? 0 : above.size() + 1);
  // Of what there is for them, the namespace has a half at most.
  const size_t both = longest - kTenantPrefix.size() - kUidDigits - 2;
  std::string uid;
  for (const char c : pod.object_uid)
    if (c != '-' && uid.size() < kUidDigits) uid += c;
  std::string name =
      std::string(kTenantPrefix) + pod.name_space.substr(0, std::min(kSpaceDigits, both / 2)) + ".";
  name += pod.name.substr(0, longest - 1 - kUidDigits - name.size()) + "." + uid;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '_';
  return above.empty() ? name : std::string(above) + "/" + name;
}

}  // namespace gpushare
