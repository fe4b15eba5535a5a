// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/merge.h"

#include <fmt/format.h>

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

// A trace as an object with a list of events. What is wrong names it.
Result<Json> parse_trace(std::string_view text, const std::string& name) {
  Json trace = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (trace.is_array()) trace = Json{{"traceEvents", std::move(trace)}};  // the bare form
  const char* why = nullptr;
  if (trace.is_discarded())
    why = "it is no JSON, or was cut off";
  else if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    why = "it has no list \"traceEvents\"";
  if (why == nullptr) return trace;
  return make_error(std::errc::invalid_argument, kStep,
                    fmt::format("{} is no Chrome trace: {}", name, why));
}

}  // namespace

Result<std::string> merge_traces(std::string_view recording, std::string_view other,
                                 const TraceNames& names) {
  auto ours = parse_trace(recording, names.recording);
  if (!ours) return std::unexpected(ours.error());
  auto result = parse_trace(other, names.other);
  if (!result) return std::unexpected(result.error());
  const std::string* reading = &names.recording;
  try {
    if (ours->value("/otherData/producer"_json_pointer, "") != "gpushare")
      return make_error(std::errc::invalid_argument, kStep,
                        names.recording + " is no recording of 'gpushare trace'");
    reading = &names.other;
    const auto base = base_of(*result);
    if (!base)
      return make_error(std::errc::invalid_argument, kStep,
                        names.other +
                            " does not say when it was: it has no baseTimeNanoseconds, and its "
                            "times are not those of the epoch");
    reading = &names.recording;
    const double later = static_cast<double>(ours->at(kBase).get<int64_t>() - *base) / 1000;
    Json& events = result->at("traceEvents");
    for (Json& event : ours->at("traceEvents")) {
      move_event(event, later);
      events.push_back(std::move(event));
    }
    (*result)["gpushare"] = std::move((*ours)["otherData"]);
    return result->dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  } catch (const Json::exception&) {
    return make_error(std::errc::invalid_argument, kStep,
                      *reading + " is no Chrome trace: its events are not as in one");
  }
}

}  // namespace gpushare
