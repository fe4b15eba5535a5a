// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/merge.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStep = "merge traces";
constexpr const char* kBase = "baseTimeNanoseconds";
// Numbers of "processes" that are GPUs are small, and so are those of other profilers' GPUs.
constexpr int64_t kOurGpus = 1'000'000'000;
// 2001-09-09 in microseconds of the epoch. A time since a machine's boot is far below it.
constexpr double kSurelyEpoch = 1e15;

// When the times of the trace begin, in nanoseconds of the epoch.
std::optional<int64_t> base_of(const Json& trace) {
  if (const auto base = trace.find(kBase); base != trace.end() && base->is_number_integer())
    return base->get<int64_t>();
  for (const Json& event : trace.at("traceEvents")) {
    const auto time = event.find("ts");
    if (time == event.end() || event.value("ph", "") == "M") continue;
    return time->is_number() && time->get<double>() >= kSurelyEpoch ? std::optional<int64_t>(0)
                                                                    : std::nullopt;
  }
  return std::nullopt;
}

void move_event(Json& event, double microseconds) {
  if (const auto time = event.find("ts"); time != event.end())
    *time = time->get<double>() + microseconds;
  event["pid"] = event.at("pid").get<int64_t>() + kOurGpus;
}

}  // namespace

Result<std::string> merge_traces(std::string_view recording, std::string_view other) try {
  Json ours = Json::parse(recording);
  if (!ours.is_object() || ours.value("/otherData/producer"_json_pointer, "") != "gpushare")
    return make_error(std::errc::invalid_argument, kStep,
                      "the recording is not one of 'gpushare trace'");
  Json result = Json::parse(other);
  if (result.is_array()) result = Json{{"traceEvents", std::move(result)}};  // the bare form
  const auto base = base_of(result);
  if (!base)
    return make_error(std::errc::invalid_argument, kStep,
                      "the other trace does not say when it was: it has no baseTimeNanoseconds, "
                      "and its times are not those of the epoch");
  const double later = static_cast<double>(ours.at(kBase).get<int64_t>() - *base) / 1000;
  Json& events = result.at("traceEvents");
  for (Json& event : ours.at("traceEvents")) {
    move_event(event, later);
    events.push_back(std::move(event));
  }
  result["gpushare"] = std::move(ours["otherData"]);
  return result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
} catch (const Json::exception& error) {
  return make_error(std::errc::invalid_argument, kStep,
                    std::string("this is no Chrome trace: ") + error.what());
}

}  // namespace gpushare
