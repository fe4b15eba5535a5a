// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sched/slo/knees/knee.h"

namespace gpushare {
namespace {

constexpr uint32_t kMostGroups = 64;
constexpr uint32_t kMostSms = 4096;
constexpr double kLongest = 1e12;  // us

std::unexpected<Error> bad(std::string detail) {
  return make_error(std::errc::invalid_argument, "read sweep", std::move(detail));
}

bool is_time(double us) { return std::isfinite(us) && us > 0 && us <= kLongest; }

Result<> check(const Sweep& sweep) {
  if (sweep.sms < 1 || sweep.sms > kMostSms || sweep.sms_per_group < 1 ||
      sweep.sms_per_group > sweep.sms)
    return bad("sms and sms_per_group do not fit");
  if (sweep.points.empty()) return bad("no points");
  uint32_t last = 0;
  for (const SweepPoint& point : sweep.points) {
    const std::string where = "point of " + std::to_string(point.groups) + " groups: ";
    if (point.groups <= last || point.groups > kMostGroups ||
        uint64_t{point.groups} * sweep.sms_per_group > sweep.sms)
      return bad(where + "more than the GPU has, or twice");
    if (!is_time(point.mean_us) || !is_time(point.p99_us) || point.p99_us < point.mean_us)
      return bad(where + "mean_us and p99_us must be positive, the mean not above the p99");
    last = point.groups;
  }
  if (sweep.knee_groups && (*sweep.knee_groups < 1 || *sweep.knee_groups > last))
    return bad("knee_groups outside the points");
  if (sweep.slo_us && !is_time(*sweep.slo_us)) return bad("slo_us must be positive");
  return {};
}

template <class T>
std::optional<T> optional_value(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return found->get<T>();
}

// nlohmann turns any number into any other: a negative count into a huge one.
uint32_t count_value(const nlohmann::json& json, const char* key) {
  const auto value = json.at(key).get<int64_t>();
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

}  // namespace

Result<Sweep> parse_sweep(std::string_view text) {
  Sweep sweep;
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format").get<int>() != 1) return bad("format is not 1");
    sweep.command = json.at("command").get<std::string>();
    sweep.gpu = json.at("gpu").get<std::string>();
    sweep.sms = count_value(json, "sms");
    sweep.sms_per_group = count_value(json, "sms_per_group");
    if (optional_value<double>(json, "knee_groups"))
      sweep.knee_groups = count_value(json, "knee_groups");
    sweep.slo_us = optional_value<double>(json, "slo_us");
    for (const auto& item : json.at("points"))
      sweep.points.push_back({count_value(item, "groups"), item.at("iterations").get<uint64_t>(),
                              item.at("mean_us").get<double>(), item.at("p99_us").get<double>()});
  } catch (const nlohmann::json::exception& error) {
    return bad(error.what());
  }
  std::ranges::sort(sweep.points, {}, &SweepPoint::groups);
  if (const auto checked = check(sweep); !checked) return std::unexpected(checked.error());
  return sweep;
}

std::string sweep_json(const Sweep& sweep) {
  nlohmann::ordered_json json{{"format", 1},
                              {"command", sweep.command},
                              {"gpu", sweep.gpu},
                              {"sms", sweep.sms},
                              {"sms_per_group", sweep.sms_per_group},
                              {"knee_groups", nullptr},
                              {"slo_us", nullptr},
                              {"points", nlohmann::ordered_json::array()}};
  if (sweep.knee_groups) json["knee_groups"] = *sweep.knee_groups;
  if (sweep.slo_us) json["slo_us"] = *sweep.slo_us;
  for (const SweepPoint& point : sweep.points)
    json["points"].push_back({{"groups", point.groups},
                              {"iterations", point.iterations},
                              {"mean_us", point.mean_us},
                              {"p99_us", point.p99_us}});
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool has_p99(const Sweep& sweep) {
  return std::ranges::all_of(
      sweep.points, [](const SweepPoint& point) { return point.iterations >= kFewestForP99; });
}

double noise_of(const Sweep& sweep) {
  // Of a normal distribution the p99 lies so many standard deviations above the mean.
  constexpr double kDeviations = 2.33;
  double noise = 0;
  double least = HUGE_VAL;  // on fewer groups
  for (const SweepPoint& point : sweep.points) {
    const double deviation = (point.p99_us - point.mean_us) / kDeviations;
    const double error = deviation / std::sqrt(static_cast<double>(point.iterations));
    noise = std::max({noise, 2 * error / point.mean_us, point.mean_us / least - 1});
    least = std::min(least, point.mean_us);
  }
  return noise;
}

bool is_knee_chance(const Sweep& sweep) { return noise_of(sweep) > kKneeTolerance; }

uint32_t knee_of(const Sweep& sweep) {
  std::vector<double> means;
  for (const SweepPoint& point : sweep.points) means.push_back(point.mean_us);
  return sweep.points[knee_of_sweep(means) - 1].groups;
}

std::optional<std::vector<uint32_t>> parse_groups(std::string_view text, uint32_t most) {
  const auto number = [&](uint32_t& value) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || value < 1 || value > most) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  };
  const auto take = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  std::vector<uint32_t> groups;
  do {
    uint32_t first = 0;
    if (!number(first)) return std::nullopt;
    uint32_t last = first;
    if (take('-') && (!number(last) || last < first)) return std::nullopt;
    for (uint32_t i = first; i <= last; ++i) groups.push_back(i);
  } while (take(','));
  if (!text.empty()) return std::nullopt;
  std::ranges::sort(groups);
  groups.erase(std::ranges::unique(groups).begin(), groups.end());
  return groups;
}

}  // namespace gpushare
