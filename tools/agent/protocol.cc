// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/protocol.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "shmctl/plane/status_json.h"

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Error refusal(const Json& answer) {
  std::string text = answer.value("error", "the agent refused without a reason");
  if (const std::string allowed = answer.value("allowed", ""); !allowed.empty())
    text += "; allowed: " + allowed;
  const std::string code = answer.value("code", "failed");
  Error error{{}, "gpushared", std::move(text)};
  if (code == "usage") error.code = std::make_error_code(std::errc::invalid_argument);
  if (code == "denied") error.code = std::make_error_code(std::errc::permission_denied);
  if (code == "busy") error.code = std::make_error_code(std::errc::resource_unavailable_try_again);
  return error;
}

// Parses one line, turns a refusal into its Error, and hands the rest to `read`.
template <class T, class Read>
Result<T> decode(std::string_view line, Read read) try {
  const Json answer = Json::parse(line);
  if (answer.contains("ok") && !answer.at("ok").get<bool>())
    return std::unexpected(refusal(answer));
  return read(answer);
} catch (const std::exception& error) {
  return make_error(std::errc::bad_message, "read the agent's answer", error.what());
}

Finding::Severity severity_of(const std::string& name) {
  using Severity = Finding::Severity;
  for (const auto severity : {Severity::kOk, Severity::kWarning, Severity::kFail})
    if (name == severity_name(severity)) return severity;
  throw std::runtime_error("unknown state '" + name + "'");
}

TraceAction trace_action(const Json& json) {
  TraceAction action;
  action.t_ns = json.at("t").get<uint64_t>();
  action.gpu = json.at("gpu").get<uint32_t>();
  action.pid = json.at("pid").get<pid_t>();
  const auto kind = json.at("kind").get<std::string>();
  if (kind == "slice") {
    action.kind = TraceAction::Kind::kSlice;
    action.slice_us = json.at("value").get<uint32_t>();
  } else if (kind == "thaw") {
    action.kind = TraceAction::Kind::kThaw;
  } else if (kind == "freeze") {
    action.reason = json.value("reason", "");
  } else {
    throw std::runtime_error("unknown event '" + kind + "'");
  }
  return action;
}

}  // namespace

std::string encode(const Request& request) {
  Json json{{"op", request.op}};
  if (request.pid) json["pid"] = *request.pid;
  if (request.start_ticks) json["start_ticks"] = *request.start_ticks;
  if (!request.tenant.empty()) json["tenant"] = request.tenant;
  if (!request.cgroup.empty()) json["cgroup"] = request.cgroup;
  if (request.seconds) json["seconds"] = *request.seconds;
  if (request.create) json["create"] = *request.create;
  if (request.is_scope) json["scope"] = true;
  if (!request.gpu.empty()) json["gpu"] = request.gpu;
  if (!request.command.empty()) json["command"] = request.command;
  for (const auto& [key, value] : request.settings) json["settings"][key] = value;
  return dump(json) + "\n";
}

Result<> decode_done(std::string_view line) {
  auto done = decode<bool>(line, [](const Json& answer) { return answer.at("ok").get<bool>(); });
  if (!done) return std::unexpected(done.error());
  return {};
}

Result<bool> decode_on_gpu(std::string_view line) {
  return decode<bool>(line, [](const Json& answer) { return answer.value("on_gpu", true); });
}

Result<Joined> decode_joined(std::string_view line) {
  return decode<Joined>(line, [](const Json& answer) {
    if (!answer.at("ok").get<bool>()) throw std::runtime_error("it is neither done nor refused");
    return Joined{.follows_forks = answer.value("follows_forks", false),
                  .orders_jobs = answer.value("orders_jobs", false)};
  });
}

Result<Placed> decode_placed(std::string_view line) {
  return decode<Placed>(line, [](const Json& answer) {
    const int64_t pause = std::clamp<int64_t>(answer.value("ask_again_s", 1), 1, 60);
    Placed placed{.reason = answer.value("reason", ""), .ask_again = std::chrono::seconds(pause)};
    if (!answer.contains("gpu")) return placed;
    placed.gpu = answer.at("gpu").get<uint32_t>();
    placed.uuid = answer.at("uuid").get<std::string>();
    return placed;
  });
}

Result<Hello> decode_hello(std::string_view line) {
  return decode<Hello>(line, [](const Json& answer) {
    return Hello{.version = answer.at("version").get<std::string>(),
                 .commit = answer.value("commit", ""),
                 .pid = answer.at("pid").get<pid_t>(),
                 .region = answer.value("region", ""),
                 .is_admin = answer.value("is_admin", false)};
  });
}

Result<PlaneSnapshot> decode_status(std::string_view line) {
  if (auto done = decode_done(line); !done) return std::unexpected(done.error());
  return parse_status_json(line);
}

Result<std::vector<Finding>> decode_doctor(std::string_view line) {
  return decode<std::vector<Finding>>(line, [](const Json& answer) {
    std::vector<Finding> findings;
    for (const Json& check : answer.at("checks"))
      findings.push_back({.check = check.at("check").get<std::string>(),
                          .severity = severity_of(check.at("state").get<std::string>()),
                          .detail = check.value("detail", ""),
                          .fix = check.value("fix", "")});
    return findings;
  });
}

Result<TraceLine> decode_trace(std::string_view line) {
  return decode<TraceLine>(line, [](const Json& answer) -> TraceLine {
    if (const auto found = answer.find("switch"); found != answer.end())
      return TraceSwitch{.t_ns = found->at("t").get<uint64_t>(),
                         .gpu = found->at("gpu").get<uint32_t>(),
                         .pid = found->at("pid").get<pid_t>(),
                         .is_start = found->at("start").get<bool>()};
    if (const auto found = answer.find("event"); found != answer.end()) return trace_action(*found);
    if (const auto found = answer.find("turn"); found != answer.end())
      return TraceTurn{.t_ns = found->at("t").get<uint64_t>(),
                       .gpu = found->at("gpu").get<uint32_t>(),
                       .pid = found->at("pid").get<pid_t>(),
                       .job = found->at("job").get<std::string>(),
                       .is_start = found->at("start").get<bool>()};
    if (answer.contains("end")) return TraceEnd{.lost = answer.value("lost", uint64_t{0})};
    return TraceStart{.start_ns = answer.at("start_ns").get<uint64_t>()};
  });
}

std::string json_quoted(std::string_view text) { return dump(Json(std::string(text))); }

std::string findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings)
    list.push_back({{"check", finding.check},
                    {"state", severity_name(finding.severity)},
                    {"detail", finding.detail},
                    {"fix", finding.fix}});
  return dump(list);
}

}  // namespace gpushare
