// SPDX-License-Identifier: Apache-2.0
// gpushare report: who used the GPUs, from the history that the agent keeps.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "tools/base/atomic_file.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/base/users.h"
#include "tools/cli/commands.h"
#include "tools/report/moment.h"
#include "tools/report/output.h"

namespace gpushare {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this machine";
}

Error explained(Error error, const std::string& path) {
  if (error.code == std::errc::no_such_file_or_directory)
    error.detail = path +
                   ": the agent keeps none here; [agent] usage in gpushare.toml says where, and a "
                   "simulation's agent keeps one only if that names a file";
  if (error.code == std::errc::permission_denied)
    error.detail = path + " is for root and the group gpushare ([agent] usage_for)";
  if (error.code == std::errc::bad_message) {
    error.detail = path + " is no history of gpushare, or is broken: " + error.detail;
    error.code.clear();  // it would add nothing
  }
  return error;
}

// An agent that makes a file has written to it, or to the log beside it, before it has used a GPU.
bool is_empty_file(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::file_size(path, failure) != 0 || failure) return false;
  return std::filesystem::file_size(path + "-wal", failure) == 0 || failure;
}

// What is wrong with a question for one tenant or one GPU. The whole history is read only where the
// answer has nothing of them.
std::string missing(const std::string& path, const UsageWindow& window,
                    const UsageHistory& history) {
  if (missing_from(history, window).empty()) return "";
  const auto whole = read_usage(path, {.since = 0, .until = window.until});
  return whole ? missing_from(*whole, window) : "";
}

ExitCode report_usage(const Invocation& invocation) {
  const WallSeconds now = std::time(nullptr);
  const auto since = parse_moment(invocation.text("since"), now);
  if (!since) return invocation.wrong("--since: " + since.error().detail);
  const auto until = parse_moment(invocation.text("until"), now);
  if (!until) return invocation.wrong("--until: " + until.error().detail);
  if (*since >= *until)
    return invocation.wrong(fmt::format("--since ({}) is not before --until ({})",
                                        wall_text(*since), wall_text(*until)));
  UsageWindow window{.since = *since, .until = *until, .tenant = invocation.value("tenant")};
  const auto gpu = gpu_option(invocation);
  if (!gpu) return invocation.wrong(gpu.error().detail);
  window.gpu = *gpu;
  const bool is_json = invocation.has("json"), is_page = invocation.has("output") && !is_json;
  std::optional<WholeFile> file;
  if (invocation.has("output")) {
    auto opened = WholeFile::open(invocation.text("output"));
    if (!opened) return report(opened.error());
    file.emplace(std::move(*opened));
  }
  const std::string path = invocation.text("file");
  const auto history = read_usage(path, window);
  if (!history) return report(explained(history.error(), path));
  if (is_empty_file(path))
    return report({{}, "read the usage history", path + " is empty: no agent has written to it"});
  if (const std::string wrong = missing(path, window, *history); !wrong.empty())
    return invocation.wrong(wrong);
  const ReportSummary summary = summarize(*history, user_name);
  const std::string out = is_json   ? report_json(summary)
                          : is_page ? report_page(summary, host_name())
                                    : report_text(summary);
  if (!file) {
    fmt::print("{}", out);
    return kExitOk;
  }
  const auto written = file->write(out);
  return written ? kExitOk : report(written.error());
}

}  // namespace

Command report_command() {
  return {
      .name = "report",
      .summary = "Show who used the GPUs: GPU hours, shares, waiting, freezes.",
      .details =
          "The agent keeps the history in a file ([agent] usage in gpushare.toml(5)); this reads a "
          "copy of it and asks the agent nothing. With --output it is one HTML page with charts "
          "that needs nothing else.\n"
          "A moment is " +
          std::string(kMomentForms) +
          ". Steps are of 10 s in windows up to 2 h 46 min, of 5 min up to 3 d 11 h, otherwise of "
          "an hour; the window is widened to whole steps.",
      .options = {{"since", 's', "MOMENT", "The begin", "24h"},
                  {"until", 'u', "MOMENT", "The end", "now"},
                  {"gpu", 0, "N", "Only this GPU; jobs are those of all GPUs"},
                  {"tenant", 't', "TENANT", "Only this tenant, and those below it"},
                  {"output", 'o', "FILE",
                   "Write an HTML page, or with --json that; - is standard "
                   "output"},
                  {"file", 0, "FILE", "The history", "/var/lib/gpushare/usage.db",
                   "GPUSHARE_USAGE"},
                  json_option()},
      .examples = {"gpushare report", "gpushare report --since 7d -o report.html",
                   "gpushare report --since '2026-11-01' --until '2026-12-01' --json | jq "
                   "'.users[]|[.user,.gpu_hours]'"},
      .run = report_usage};
}

}  // namespace gpushare
