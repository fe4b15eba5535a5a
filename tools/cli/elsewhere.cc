// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gpushare {
namespace {

using Words = std::vector<std::string_view>;

struct Row {
  Words programs;
  Words when;       // only with one of these among its words; empty: always
  Words unless;     // but not with one of these
  const char* who;  // starts the work
  const char* instead;
};

constexpr const char* kCgroupOfContainers =
    "give its containers a cgroup (--cgroup-parent=NAME.slice) and the tenant a rule: match = "
    "[{ cgroup = \"/NAME.slice/*\" }]";

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {{"docker", "nerdctl", "podman", "docker-compose"},
       {"run", "start", "exec", "create", "compose", "up", "restart"},
       {},
       "the container engine",
       kCgroupOfContainers},
      {{"ctr", "crictl"}, {}, {}, "the container engine", kCgroupOfContainers},
      {{"kubectl", "oc", "helm"},
       {},
       {},
       "a node of the cluster",
       "give the tenant a rule on that node: match = [{ cgroup = \"/kubepods*\" }]"},
      {{"srun", "sbatch", "salloc", "qsub", "bsub"},
       {},
       {},
       "the batch system's daemon, maybe on another machine",
       "under Slurm each job is a tenant by its plugin (docs/slurm.md); otherwise write "
       "gpushare run into the job: srun gpushare run ..."},
      {{"systemd-run"},
       {},
       {"--scope"},
       "systemd",
       "give it a slice (systemd-run --slice=NAME.slice) and the tenant a rule: match = [{ cgroup "
       "= "
       "\"/NAME.slice/*\" }]; or use gpushare run --scope"},
      {{"systemctl"},
       {"start", "restart", "reload-or-restart"},
       {},
       "systemd",
       "give the tenant a rule by the unit's cgroup: match = [{ cgroup = "
       "\"/system.slice/UNIT.service\" }]"},
      {{"run0", "machinectl"},
       {},
       {},
       "systemd",
       "put gpushare run behind it: run0 gpushare run ..."},
      {{"tmux", "screen"},
       {},
       {},
       "its server, if one runs already",
       "use gpushare run inside the session"},
      {{"at", "batch", "crontab"},
       {},
       {},
       "the daemon for timed jobs",
       "write gpushare run into the job itself"},
      {{"sudo"},
       {"-b", "--background"},
       {},
       "sudo, in the background",
       "put gpushare run behind it: sudo -b gpushare run ..."},
      {{"ssh"}, {}, {}, "the other machine", "run gpushare there: ssh HOST gpushare run ..."},
  };
  return kRows;
}

// Words that only stand before a program.
constexpr std::string_view kPrefixes[] = {"sudo",   "env",  "nice",   "ionice", "nohup",
                                          "setsid", "time", "stdbuf", "exec"};

bool has_any(std::span<const std::string> words, const Words& wanted) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return std::ranges::find(wanted, word) != wanted.end();
  });
}

}  // namespace

std::optional<std::string> starts_elsewhere(std::span<const std::string> words) {
  while (!words.empty()) {
    const std::string program = std::filesystem::path(words.front()).filename();
    const auto rest = words.subspan(1);
    for (const Row& row : rows()) {
      if (std::ranges::find(row.programs, program) == row.programs.end()) continue;
      if (!row.when.empty() && !has_any(rest, row.when)) continue;
      if (has_any(rest, row.unless)) continue;
      return fmt::format("{} has its work started by {}, where this tenant does not hold; {}",
                         program, row.who, row.instead);
    }
    const bool is_prefix = std::ranges::find(kPrefixes, program) != std::end(kPrefixes) ||
                           program.starts_with('-') || program.find('=') != std::string::npos;
    if (!is_prefix) return std::nullopt;
    words = rest;
  }
  return std::nullopt;
}

}  // namespace gpushare
