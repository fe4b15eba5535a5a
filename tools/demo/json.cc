// SPDX-License-Identifier: Apache-2.0
// Reads and writes the JSON of tools/demo/report.h.
#include <nlohmann/json.hpp>

#include "tools/demo/report.h"

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

Result<WorkloadResult> parse_workload_result(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("workload"))
    return make_error(std::errc::invalid_argument, "read a program's result",
                      "the last line of its output is not its result");
  const auto verified = json.find("verified");
  return WorkloadResult{.is_verified = verified != json.end() && *verified == true,
                        .progress = number(json, "gpu_share"),
                        .p50_us = number(json, "p50_us"),
                        .p99_us = number(json, "p99_us"),
                        .ns_per_unit = number(json, "ns_per_unit")};
}

std::string report_json(const DemoResult& result) {
  const DemoShares& shares = result.shares;
  Json programs = Json::array();
  for (size_t i = 0; i < shares.target.size(); ++i) {
    const DemoProgram& program = demo_programs()[i];
    programs.push_back({{"program", program.program},
                        {"tenant", program.tenant},
                        {"setting", setting_text(program.claim)},
                        {"target", shares.target[i]},
                        {"measured", shares.measured[i]},
                        {"progress", or_null(result.workloads[i].progress)},
                        {"verified", result.workloads[i].is_verified}});
  }
  const WorkloadResult& service = result.workloads[kDemoService];
  const double error = max_error_points(shares);
  const Json json{{"simulated", result.is_simulated},
                  {"gpu", result.gpu_name},
                  {"driver", result.driver},
                  {"seconds", std::chrono::duration<double>(result.measured_for).count()},
                  {"programs", programs},
                  {"switches_per_s", shares.switches_per_s},
                  {"switching", shares.switching},
                  {"latency",
                   {{"p50_us", or_null(service.p50_us)},
                    {"p99_us", or_null(service.p99_us)},
                    {"alone_p50_us", or_null(result.alone.p50_us)},
                    {"alone_p99_us", or_null(result.alone.p99_us)}}},
                  {"trace", result.trace},
                  {"max_share_error_points", error},
                  {"limit_points", kDemoLimitPoints},
                  {"ok", error <= kDemoLimitPoints}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gpushare
