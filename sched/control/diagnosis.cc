// SPDX-License-Identifier: Apache-2.0
#include "sched/control/diagnosis.h"

#include <fmt/core.h>

#include "sched/step/turn_taking.h"

namespace gpushare {
namespace {

using Severity = Finding::Severity;

Finding ability(const char* check, bool has, const std::string& what, const std::string& lost,
                const std::string& reason) {
  if (has) return {check, Severity::kOk, what, ""};
  return {check, Severity::kWarning, reason.empty() ? lost : lost + ": " + reason,
          "use a driver version that gpushare knows (see README.md, tested drivers)"};
}

void look_at_gpus(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (symptoms.gpu == nullptr) {
    findings.push_back({"gpu", Severity::kFail, symptoms.no_gpu_reason,
                        "load the NVIDIA driver, and run the agent as root"});
    return;
  }
  const GpuSupport& support = symptoms.gpu->support();
  findings.push_back(
      {"gpu", Severity::kOk,
       fmt::format("{} found, driver {}", symptoms.gpu->gpus().size(), support.driver_version),
       ""});
  findings.push_back(ability("freeze", support.can_freeze, "caps and turns are enforced",
                             "caps and turns are not enforced", support.reason));
  findings.push_back(ability("slices", support.can_set_slice, "weights and priorities are enforced",
                             "weights and priorities are not enforced", support.reason));
  findings.push_back(ability("switch log", support.has_switch_log, "shares are measured",
                             "shares are the driver's samples, a few percent off", support.reason));
}

void look_at_answers(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (symptoms.state == nullptr) return;
  for (const std::string& problem : symptoms.state->gpu_problems)
    if (!problem.empty())
      findings.push_back({"gpu", Severity::kFail, problem + "; the others are driven",
                          "see 'nvidia-smi' and 'dmesg | grep Xid'"});
}

void look_at_observer(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (symptoms.gpu == nullptr) return;
  if (symptoms.observer == nullptr) {
    findings.push_back(
        {"observer", Severity::kWarning,
         "new programs are found within a second, not at once: " + symptoms.no_observer_reason,
         "run as root on a kernel with BTF (/sys/kernel/btf/vmlinux)"});
  } else if (const uint64_t dropped = symptoms.observer->dropped(); dropped > 0) {
    findings.push_back({"observer", Severity::kWarning,
                        fmt::format("{}: {} events were lost and looked for again",
                                    symptoms.observer_name, dropped),
                        ""});
  } else {
    findings.push_back(
        {"observer", Severity::kOk, symptoms.observer_name + ": nothing was lost", ""});
  }
}

// Without the kernel module the driver lets every process freeze those of others.
void look_at_interference(const Symptoms& symptoms, std::vector<Finding>& findings) {
  constexpr const char* kCheck = "interference";
  if (symptoms.state == nullptr) return;
  const auto size = findings.size();
  for (const Interference::Deed& deed : symptoms.state->interference.deeds())
    findings.push_back({kCheck, Severity::kWarning, describe(deed) + ": undone",
                        "load the kernel module, which refuses it"});
  const Observer::FalseClaims claims =
      symptoms.observer == nullptr ? Observer::FalseClaims{} : symptoms.observer->false_claims();
  if (claims.count > 0)
    findings.push_back({kCheck, Severity::kWarning,
                        fmt::format("{} claims of objects of the driver that another process has "
                                    "were refused, the last of process {}",
                                    claims.count, claims.last.pid),
                        "look at what this process does"});
  if (findings.size() == size)
    findings.push_back({kCheck, Severity::kOk, "nobody was seen to act on others' channels", ""});
}

void look_at_module(const Symptoms& symptoms, std::vector<Finding>& findings) {
  constexpr const char* kCheck = "kernel module";
  if (!symptoms.module_problem.empty()) {
    findings.push_back({kCheck, Severity::kWarning,
                        "it does not report programs: " + symptoms.module_problem,
                        "see this machine's check of it, and 'dmesg | grep gpushare'"});
  } else if (symptoms.has_module) {
    findings.push_back({kCheck, Severity::kOk, "it reports programs, and keeps the settings", ""});
  } else {
    findings.push_back({kCheck, Severity::kOk, "not used: the agent keeps the settings", ""});
  }
}

void look_at_lineage(const Symptoms& symptoms, std::vector<Finding>& findings) {
  constexpr const char* kCheck = "daemons";
  if (symptoms.no_lineage_reason.empty()) {
    findings.push_back({kCheck, Severity::kOk, "they stay in the tenant that started them", ""});
  } else {
    findings.push_back({kCheck, Severity::kWarning,
                        "they leave the tenant that started them: " + symptoms.no_lineage_reason,
                        "run the agent as root on Linux 5.15 or later with BTF; until then place "
                        "daemons by a rule on their cgroup"});
  }
}

// Jobs that have had the GPU for so long, and whose iterations are still not known.
void look_at_boundaries(const Symptoms& symptoms, std::vector<Finding>& findings) {
  constexpr const char* kCheck = "turns";
  constexpr Nanos kLongKnown = 10s;
  if (symptoms.state == nullptr || !symptoms.state->turns->has_orders()) return;
  std::size_t jobs = 0, without = 0;
  std::string first;
  for (const Job& job : symptoms.state->turns->all()) {
    ++jobs;
    if (job.has_boundary || job.service < kLongKnown) continue;
    if (without++ == 0) first = fmt::format("{} ({})", job.name, job.command_line.substr(0, 60));
  }
  if (without == 0)
    findings.push_back({kCheck, Severity::kOk, "jobs are stopped between two iterations", ""});
  else
    findings.push_back(
        {kCheck, Severity::kWarning,
         fmt::format("{} of {} jobs are stopped in mid-kernel, which costs each hand-over more: no "
                     "iterations are recognised of {}",
                     without, jobs, first),
         "start them by 'gpushare run', which preloads the shim; a program with the shim can say "
         "its iterations (gpushare.h, gpushare.py)"});
}

void look_at_roster(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (symptoms.state == nullptr) return;
  for (const auto& [slot, count] : symptoms.state->tenants.driven_out()) {
    const Tenant* const tenant = symptoms.state->tenants.at(slot);
    findings.push_back(
        {"memberships", Severity::kWarning,
         fmt::format("{} processes of '{}' are in it only until the agent ends: there is room to "
                     "remember {} processes, and this tenant has the most",
                     count, tenant == nullptr ? "a tenant that is gone" : tenant->name,
                     kMaxRosterProcesses),
         "see what starts so many processes there; a rule by cgroup or 'gpushare run --scope' "
         "needs no room for each"});
  }
}

void look_at_mps(const Symptoms& symptoms, std::vector<Finding>& findings) {
  constexpr const char* kCheck = "spatial MPS";
  if (symptoms.mps == nullptr || symptoms.mps->state == MpsState::kOff) return;
  const MpsStatus& mps = *symptoms.mps;
  std::string detail;
  if (mps.pid != 0) detail = fmt::format("control daemon {}, {} clients", mps.pid, mps.clients);
  if (mps.faults > 0)
    detail += fmt::format("; {} faults, the last ended {}", mps.faults,
                          mps.last_fault.empty() ? "nobody yet" : mps.last_fault);
  if (mps.state == MpsState::kMissing) {
    findings.push_back({kCheck, Severity::kWarning,
                        "nvidia-cuda-mps-control is not found: parts of SMs take turns",
                        "install the driver's compute utilities (Debian: nvidia-cuda-mps, Ubuntu: "
                        "nvidia-compute-utils-VERSION)"});
  } else if (mps.state == MpsState::kOther) {
    findings.push_back({kCheck, Severity::kWarning,
                        detail + "; it serves other GPUs than those that are spatial now",
                        "end its clients: it is then replaced"});
  } else if (!mps.error.empty()) {
    findings.push_back({kCheck, Severity::kWarning, mps.error,
                        "see control.log in " + mps.pipe_directory + "-log"});
  } else if (mps.state == MpsState::kStarting) {
    findings.push_back({kCheck, Severity::kWarning, "it is being started", ""});
  } else {
    findings.push_back({kCheck, Severity::kOk, detail, ""});
  }
}

void look_at_processes(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (symptoms.state == nullptr) return;
  bool is_clean = true;
  for (const auto& [key, member] : symptoms.state->members) {
    const Holder* holder = symptoms.state->registry.holder(key.first, key.second);
    if (holder == nullptr) continue;
    const Enforcer::State enforced = symptoms.state->enforcer.state(*holder);
    if (enforced.can_control && enforced.can_set_slice) continue;
    is_clean = false;
    findings.push_back(
        {"process", Severity::kWarning,
         fmt::format("{} {}: {}", key.first.pid,
                     enforced.can_control ? "keeps its own time slices" : "is only observed",
                     enforced.note),
         ""});
  }
  if (is_clean) findings.push_back({"process", Severity::kOk, "the driver refused nothing", ""});
}

void look_at_usage(const Symptoms& symptoms, std::vector<Finding>& findings) {
  if (!symptoms.usage_problem.empty())
    findings.push_back({"usage history", Severity::kWarning, symptoms.usage_problem,
                        "make room or move the file away; it is tried again every minute"});
  else
    findings.push_back({"usage history", Severity::kOk,
                        symptoms.usage_path.empty()
                            ? "not kept: [agent] usage says so, or the GPUs "
                              "are simulated"
                            : symptoms.usage_path,
                        ""});
}

}  // namespace

std::vector<Finding> diagnose(const Symptoms& symptoms) {
  std::vector<Finding> findings;
  look_at_gpus(symptoms, findings);
  look_at_answers(symptoms, findings);
  look_at_observer(symptoms, findings);
  look_at_interference(symptoms, findings);
  look_at_module(symptoms, findings);
  look_at_lineage(symptoms, findings);
  look_at_boundaries(symptoms, findings);
  look_at_roster(symptoms, findings);
  look_at_mps(symptoms, findings);
  look_at_processes(symptoms, findings);
  look_at_usage(symptoms, findings);
  if (symptoms.config_error.empty()) {
    findings.push_back({"configuration", Severity::kOk,
                        symptoms.is_config_there
                            ? symptoms.config_path
                            : symptoms.config_path + " is not there: the defaults hold",
                        ""});
  } else {
    findings.push_back({"configuration", Severity::kFail, symptoms.config_error,
                        "correct it, then 'systemctl reload gpushared'"});
  }
  if (symptoms.has_supervisor) {
    findings.push_back({"supervisor", Severity::kOk, "stands ready", ""});
  } else {
    findings.push_back({"supervisor", Severity::kWarning,
                        "none: programs stay frozen if the agent is killed",
                        "run gpushared without --foreground"});
  }
  return findings;
}

}  // namespace gpushare
