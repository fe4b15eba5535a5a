// SPDX-License-Identifier: Apache-2.0
// gpushare doctor: shows this machine as this program sees it and as the agent sees it, and the
// limits.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "shmctl/program/help.h"
#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/format.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/doctor/limits.h"

namespace gpushare {
namespace {

DoctorInput look(Endpoints endpoints) {
  const auto agent = ask_hello(endpoints.socket);
  if (agent && endpoints.region.empty()) endpoints.region = agent->region;
  auto plane = ControlPlane::open_read_only(endpoints.region);
  return {.root = "/",
          .uid = ::geteuid(),
          .socket = endpoints.socket,
          .agent = agent,
          .status = StatusSource(endpoints).read(),
          .region = plane ? Result<>() : std::unexpected(plane.error())};
}

// What it found may name programs, which choose their own names.
void print_finding(const Finding& finding, const Screen& screen) {
  const bool is_ok = finding.severity == Finding::Severity::kOk;
  const Tone tone = is_ok                                             ? Tone::kGood
                    : finding.severity == Finding::Severity::kWarning ? Tone::kWarning
                                                                      : Tone::kBad;
  constexpr size_t kColumn = 25;
  fmt::print("{} {}{}\n",
             in_tone(fmt::format("{:<7}", severity_name(finding.severity)), tone, screen),
             padded(printable(finding.check), kColumn - 8, Align::kLeft),
             wrap(printable(finding.detail), screen.width, kColumn).substr(kColumn));
  if (!finding.fix.empty())
    fmt::print("{}\n", wrap("fix: " + printable(finding.fix), screen.width, kColumn));
}

void print_limit(const LimitFinding& limit, const Screen& screen) {
  const bool is_missed = !limit.is_binding && !limit.used_by.empty();
  constexpr size_t kColumn = 25;
  std::string text = printable(limit.where + "; " + limit.why);
  if (is_missed)
    text += fmt::format("; set for {}, without effect", fmt::join(limit.used_by, ", "));
  fmt::print("{} {}{}\n",
             in_tone(limit.is_binding ? "binds  "
                     : is_missed      ? "WARNING"
                                      : "no     ",
                     limit.is_binding ? Tone::kGood
                     : is_missed      ? Tone::kWarning
                                      : Tone::kDim,
                     screen),
             padded(limit.limit, kColumn - 8, Align::kLeft),
             wrap(text, screen.width, kColumn).substr(kColumn));
}

std::string limits_json(const std::vector<LimitFinding>& limits) {
  std::string out = "[";
  for (const LimitFinding& limit : limits) {
    std::string users;
    for (const std::string& name : limit.used_by)
      users += (users.empty() ? "" : ",") + json_quoted(name);
    out += fmt::format(R"({}{{"limit":{},"is_binding":{},"where":{},"why":{},"used_by":[{}]}})",
                       out.size() == 1 ? "" : ",", json_quoted(limit.limit), limit.is_binding,
                       json_quoted(limit.where), json_quoted(limit.why), users);
  }
  return out + "]";
}

bool has_failure(const std::vector<Finding>& findings) {
  return std::ranges::find(findings, Finding::Severity::kFail, &Finding::severity) !=
         findings.end();
}

ExitCode doctor(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  const DoctorInput input = look(endpoints);
  const std::vector<Finding> machine = check_machine(input);
  const auto agent = ask_doctor(endpoints.socket);
  const std::vector<LimitFinding> limits = check_limits(input);
  // What this user may not see is no failure of the machine.
  const bool has_failed =
      has_failure(machine) || (agent ? has_failure(*agent) : !may_not_ask(input));

  if (invocation.has("json")) {
    fmt::print(R"({{"checks":{},"agent_checks":{},"limits":{}}})"
               "\n",
               findings_json(machine), agent ? findings_json(*agent) : "null", limits_json(limits));
    return has_failed ? kExitFailure : kExitOk;
  }
  const Screen screen = stdout_screen();
  for (const Finding& finding : machine) print_finding(finding, screen);
  fmt::print("\nAs the agent sees it:\n");
  if (agent) {
    for (const Finding& finding : *agent) print_finding(finding, screen);
  } else {
    fmt::print("{}\n", wrap("unknown: " + printable(agent.error().message()), screen.width, 0));
  }
  fmt::print("\nLimits:\n");
  for (const LimitFinding& limit : limits) print_limit(limit, screen);
  return has_failed ? kExitFailure : kExitOk;
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .summary = "Check everything gpushare needs, and say how to fix what is missing.",
          .details =
              "Also lists every limit: whether it binds, where it is enforced, and why not. "
              "The exit code is 1 if any check fails; warnings do not count.",
          .options = {json_option()},
          .examples = {"gpushare doctor", "sudo gpushare doctor  # sees more"},
          .run = doctor};
}

}  // namespace gpushare
