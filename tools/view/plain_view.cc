// SPDX-License-Identifier: Apache-2.0
#include "tools/view/plain_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "kmod/uapi/settings.h"
#include "shmctl/plane/status_json.h"
#include "tools/base/users.h"
#include "tools/view/slo_view.h"
#include "tools/view/tenant_tree_order.h"

namespace gpushare {
namespace {

std::string agent_line(const Status& status, const Screen& screen) {
  const AgentRecord& agent = status.snapshot.agent;
  const std::string text =
      "gpushared: " + health_text(agent, status.health, status.taken, status.snapshot.ending);
  return in_tone(clipped(text, screen.width), status.health.is_live() ? Tone::kPlain : Tone::kBad,
                 screen);
}

Table gpu_table(const PlaneSnapshot& snapshot) {
  const bool do_all_take_turns = std::ranges::all_of(
      snapshot.gpus, [](const GpuRecord& gpu) { return gpu.sharing == GpuSharing::kTime; });
  std::vector<Column> columns({{"GPU", 3, 3, Align::kRight, Column::kAlways},
                               {"NAME", 4, 32, Align::kLeft, 50},
                               {"BUSY", 5, 6, Align::kRight, 90},
                               {"SWITCHES/S", 10, 10, Align::kRight, 60},
                               {"MEMORY", 8, 11, Align::kRight, 80},
                               {"PROCS", 5, 5, Align::kRight, 70},
                               {"TENANTS", 7, 7, Align::kRight, 40}});
  if (!do_all_take_turns) columns.push_back({"SHARING", 7, 7, Align::kLeft, 55});
  columns.push_back({"POLICY", 6, 15, Align::kLeft, 65});
  const bool has_gaps = std::ranges::any_of(snapshot.gpus, &GpuRecord::gaps);
  if (has_gaps) columns.push_back({"GAP P50/P99", 11, 15, Align::kRight, 45});
  Table table(std::move(columns));
  for (const GpuRecord& gpu : snapshot.gpus) {
    const std::string name = printable({gpu.name, sizeof(gpu.name)});
    std::vector<std::string> cells{
        fmt::format("{}", gpu.index),
        name.empty() ? kUnknownText : name,
        percent_text(gpu.busy_permille),
        count_text(gpu.switches_per_s),
        bytes_text(gpu.memory_used_bytes) + "/" + bytes_text(gpu.memory_bytes),
        fmt::format("{}", gpu.process_count),
        fmt::format("{}", gpu.tenant_count)};
    if (!do_all_take_turns) cells.emplace_back(sharing_text(gpu.sharing));
    cells.push_back(printable({gpu.policy, sizeof gpu.policy}));
    if (has_gaps)
      cells.push_back(
          gpu.gaps == 0 ? "-" : micros_text(gpu.gap_p50_us) + "/" + micros_text(gpu.gap_p99_us));
    table.add(std::move(cells));
  }
  return table;
}

bool is_any_use(const PlaneSnapshot& snapshot, bool (*is_so)(const TenantGpuUse&)) {
  return std::ranges::any_of(snapshot.tenants, [&](const auto& tenant) {
    return std::ranges::any_of(tenant.record.gpu, is_so);
  });
}

// Tenants on GPUs that are divided by target times. Numbers are not cut: where there is too little
// room, columns are left out, and the reason is shortened.
Table slo_table(const PlaneSnapshot& snapshot) {
  const bool has_phases =
      is_any_use(snapshot, [](const TenantGpuUse& use) { return use.phase != 0; });
  Table table({{"TENANT", 8, 24, Align::kLeft, Column::kAlways},
               {"GPU", 3, 3, Align::kRight, snapshot.gpus.size() > 1 ? 92 : 20},
               {"PHASE", 7, 7, Align::kLeft, has_phases ? 88 : 1},
               {"SLO", 7, 7, Align::kRight, 90},
               {"MEAN", 7, 7, Align::kRight, 95},
               {"P99", 7, 7, Align::kRight, 60},
               {"ITER/S", 8, 9, Align::kRight, 50},
               {"SMS", is_any_use(snapshot, does_share_sms) ? 14U : 7U, 14, Align::kLeft, 85},
               {"KNEE", 4, 4, Align::kRight, 40},
               {"SEEN", 15, 15, Align::kLeft, 30},
               {"WHY", 22, 48, Align::kLeft, 80}});
  for (const auto& [slot, tenant] : snapshot.tenants) {
    for (const GpuRecord& gpu : snapshot.gpus) {
      if (gpu.index >= kMaxGpus) continue;
      const TenantGpuUse& use = tenant.gpu[gpu.index];
      if (use.slo_state == SloState::kNone) continue;
      table.add({tenant_text(tenant), fmt::format("{}", gpu.index),
                 use.phase == 0 ? "-" : std::string(phase_text(use.phase)), target_text(use),
                 micros_text(use.latency_us), micros_text(use.p99_us), rate_text(use),
                 sms_text(use), count_text(use.sms_knee),
                 use.confidence_permille == kUnknown32
                     ? kUnknownText
                     : fmt::format("{} {}%", iteration_source_text(use.iteration_source),
                                   use.confidence_permille / 10),
                 slo_reason(use)});
    }
  }
  return table;
}

void add_use(TenantRecord& sum, const TenantRecord& more) {
  const auto add_known = [](uint32_t& known, uint32_t value) {
    if (value != kUnknown32) known = known == kUnknown32 ? value : known + value;
  };
  for (size_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    add_known(sum.gpu[gpu].target_permille, more.gpu[gpu].target_permille);
    add_known(sum.gpu[gpu].share_permille, more.gpu[gpu].share_permille);
  }
  sum.process_count += more.process_count;
  sum.memory_bytes += more.memory_bytes;
  sum.throttled_ns += more.throttled_ns;
  sum.turns += more.turns;
  sum.held_ns += more.held_ns;
}

// The tenants with what all below them have.
std::vector<TenantRecord> tenants_with_below(const PlaneSnapshot& snapshot) {
  const std::vector<TenantInTree> all = in_order_of_tree(snapshot);
  std::vector<TenantRecord> sums;
  for (std::size_t i = 0; i < all.size(); ++i) {
    TenantRecord& sum = sums.emplace_back(*all[i].tenant);
    for (std::size_t k = 1; k <= all[i].below; ++k) add_use(sum, *all[i + k].tenant);
  }
  return sums;
}

}  // namespace

std::string shares_text(const TenantRecord& tenant, const PlaneSnapshot& snapshot,
                        uint32_t TenantGpuUse::* member) {
  std::string text;
  for (const GpuRecord& gpu : snapshot.gpus) {
    if (gpu.index >= kMaxGpus) continue;
    const uint32_t permille = tenant.gpu[gpu.index].*member;
    if (permille == kUnknown32 && snapshot.gpus.size() > 1) continue;
    if (!text.empty()) text.back() = '+';  // one sign of percent, at the end
    text += percent_text(permille);
  }
  return text.empty() ? kUnknownText : text;
}

std::string parts_text(const TenantRecord& tenant, const PlaneSnapshot& snapshot) {
  std::string text;
  for (const GpuRecord& gpu : snapshot.gpus) {
    if (gpu.index >= kMaxGpus) continue;
    const TenantGpuUse& use = tenant.gpu[gpu.index];
    if (use.sms_entitled == kUnknown32) continue;
    if (!text.empty()) text += '+';
    text += sms_text(use);
  }
  return text.empty() ? "-" : text;
}

std::vector<std::string> warning_lines(const PlaneSnapshot& snapshot) {
  std::vector<std::string> lines;
  const AgentRecord& agent = snapshot.agent;
  if (agent.observe_only_reason[0] != '\0')
    lines.push_back("observe only: " + printable(agent.observe_only_reason));
  for (const auto& [slot, tenant] : snapshot.tenants)
    for (const GpuRecord& gpu : snapshot.gpus) {
      if (gpu.index >= kMaxGpus) continue;
      const std::string obstacle = obstacle_text(tenant.gpu[gpu.index]);
      if (!obstacle.empty())
        lines.push_back(fmt::format("{} stays on its former SMs of GPU {}: {}", tenant_text(tenant),
                                    gpu.index, obstacle));
    }
  constexpr uint32_t kMissing = 1;  // MpsState
  if (agent.mps_state == kMissing)
    lines.push_back("GPUs are shared spatially without MPS: programs take turns; see doctor");
  if (agent.mps_faults > 0)
    lines.push_back(fmt::format("MPS: {} fault{} of clients; doctor says whom the last ended",
                                agent.mps_faults, agent.mps_faults == 1 ? "" : "s"));
  if (agent.events_dropped > 0)
    lines.push_back(fmt::format("{} driver events were lost", agent.events_dropped));
  if (agent.interferences > 0)
    lines.push_back(fmt::format(
        "others froze programs or changed their slices {} times; see doctor", agent.interferences));
  if (agent.false_claims > 0)
    lines.push_back(
        fmt::format("{} claims of others' channels were refused; see doctor", agent.false_claims));
  uint64_t lost = 0;
  for (const GpuRecord& gpu : snapshot.gpus) lost += gpu.log_lost;
  if (lost > 0) lines.push_back(fmt::format("{} records of the switch log were lost", lost));
  if (snapshot.rejected > 0)
    lines.push_back(
        fmt::format("{} records of the control plane make no sense", snapshot.rejected));
  return lines;
}

void add_head(std::vector<std::string>& lines, const Status& status, const Screen& screen) {
  lines.push_back(agent_line(status, screen));
  if (!status.health.is_live()) {
    const bool is_empty = status.snapshot.gpus.empty() && status.snapshot.processes.empty();
    lines.push_back(
        clipped(is_empty ? "this stops no program; who uses the GPUs is known when an agent runs"
                         : "below is what it knew last; what is so now is known when an agent runs",
                screen.width));
  }
  for (const std::string& warning : warning_lines(status.snapshot))
    lines.push_back(in_tone(clipped(warning, screen.width), Tone::kWarning, screen));
}

std::vector<std::string> status_lines(const Status& status, const Screen& screen,
                                      const RowChoice& choice) {
  std::vector<std::string> lines;
  add_head(lines, status, screen);
  const bool is_live = status.health.is_live();
  if (!status.snapshot.gpus.empty())
    add_table(lines, gpu_table(status.snapshot), screen);
  else if (is_live)
    lines.push_back("no GPU is known");
  else if (status.snapshot.processes.empty())
    return lines;
  lines.push_back("");
  if (const Table table = slo_table(status.snapshot); !table.is_empty()) {
    add_table(lines, table, screen);
    lines.push_back("");
  }

  std::vector<ProcessRow> rows = process_rows(status.snapshot, user_name);
  if (rows.empty()) {
    if (is_live) lines.push_back("no process uses a GPU");
    return lines;
  }
  std::erase_if(rows, [filter = lowered(choice.filter)](const ProcessRow& row) {
    return !does_match(row, filter);
  });
  if (rows.empty()) {
    lines.push_back("nothing matches the filter");
    return lines;
  }
  std::ranges::sort(
      rows, [order = choice.sort.value_or(Field::kGpu)](const ProcessRow& a, const ProcessRow& b) {
        return row_before(a, b, order);
      });
  const bool takes_turns = does_any_take_turns(rows);
  const auto is_shown = [&](const FieldSpec& spec) {
    return spec.field != Field::kPast &&
           (takes_turns || (spec.field != Field::kTurn && spec.field != Field::kLeft));
  };
  std::vector<Column> columns;
  for (const FieldSpec& spec : kFields)
    if (is_shown(spec)) columns.push_back(spec.column);
  Table table(std::move(columns));
  for (const ProcessRow& row : rows) {
    std::vector<std::string> cells;
    for (const FieldSpec& spec : kFields)
      if (is_shown(spec)) cells.push_back(field_text(row, spec.field, Glyphs::kAscii));
    table.add(std::move(cells));
  }
  add_table(lines, table, screen);
  return lines;
}

namespace {

bool does_set(const TenantRecord& tenant, std::string_view key) {
  if (key == "weight") return tenant.weight != GPUSHARE_WEIGHT_DEFAULT;
  if (key == "max") return tenant.quota_us != kUnknown64;
  if (key == "priority") return tenant.priority != Priority::kNormal;
  if (key == "memory_max") return tenant.memory_max_bytes != kUnknown64;
  if (key == "sm_percent") return tenant.sm_percent != kUnknown32;
  return key == "slo_us" && tenant.slo_us != 0;
}

}  // namespace

std::vector<std::string> mark_lines(const Status& status, const Screen& screen,
                                    const std::vector<IdleSetting>& idle) {
  std::vector<std::string> lines;
  for (const auto& [key, why] : idle)
    if (std::ranges::any_of(status.snapshot.tenants,
                            [&](const auto& tenant) { return does_set(tenant.record, key); }))
      lines.push_back(
          in_tone(clipped(fmt::format("! {} does not bind: {}", key, why), screen.width),
                  Tone::kWarning, screen));
  return lines;
}

std::vector<std::string> tenant_lines(const Status& status, const Screen& screen,
                                      const std::vector<IdleSetting>& idle) {
  std::vector<std::string> lines;
  if (!status.health.is_live()) add_head(lines, status, screen);
  const bool has_turns = std::ranges::any_of(
      status.snapshot.tenants, [](const auto& tenant) { return tenant.record.turns > 0; });
  Table table({{"TENANT", 7, 24, Align::kLeft, Column::kAlways},
               {"WEIGHT", 6, 7, Align::kRight, 90},
               {"MAX", 4, 17, Align::kRight, 85},
               {"PRIORITY", 6, 9, Align::kLeft, 80},
               {"TARGET", 6, 24, Align::kRight, 70},
               {"SHARE", 6, 24, Align::kRight, 95},
               {"PROCS", 5, 5, Align::kRight, 60},
               {"MEM", 4, 5, Align::kRight, 50},
               {"MEMMAX", 4, 7, Align::kRight, 30},
               {"SM%", 3, 4, Align::kRight, 20},
               {"SMS", 3, 24, Align::kRight, 25},
               {"SLO", 3, 8, Align::kRight, 10},
               {"THROTTLED", 6, 9, Align::kRight, 40},
               {"TURNS", 5, 9, Align::kRight, has_turns ? 42 : 4},
               {"HELD", 4, 9, Align::kRight, has_turns ? 41 : 3},
               {"FROZEN", 4, 6, Align::kLeft, 45}});
  for (const TenantRecord& tenant : tenants_with_below(status.snapshot)) {
    const auto cell = [&](std::string text, const char* key) {
      const bool is_idle = std::ranges::find(idle, key, &IdleSetting::key) != idle.end();
      return is_idle && does_set(tenant, key) ? text + "!" : text;
    };
    table.add({tenant_text(tenant), cell(fmt::format("{}", tenant.weight), "weight"),
               cell(cap_text(tenant.quota_us, tenant.period_us), "max"),
               cell(std::string(priority_text(tenant.priority)), "priority"),
               shares_text(tenant, status.snapshot, &TenantGpuUse::target_permille),
               shares_text(tenant, status.snapshot, &TenantGpuUse::share_permille),
               fmt::format("{}", tenant.process_count), bytes_text(tenant.memory_bytes),
               tenant.memory_max_bytes == kUnknown64
                   ? "max"
                   : cell(bytes_text(tenant.memory_max_bytes), "memory_max"),
               tenant.sm_percent == kUnknown32
                   ? "max"
                   : cell(fmt::format("{}", tenant.sm_percent), "sm_percent"),
               parts_text(tenant, status.snapshot),
               tenant.slo_us == 0 ? "-" : cell(micros_text(tenant.slo_us), "slo_us"),
               micros_text(tenant.throttled_ns / 1000), fmt::format("{}", tenant.turns),
               micros_text(tenant.held_ns / 1000), tenant.frozen_by_user != 0 ? "user" : "-"});
  }
  if (!table.is_empty())
    add_table(lines, table, screen);
  else if (status.health.is_live())
    lines.push_back(status.snapshot.gpus.empty() ? "no GPU is known, so tenants are not shown"
                                                 : "no tenants are known");
  return lines;
}

ExitCode print_status(const Status& status, const Invocation& invocation,
                      const StatusLines& lines) {
  if (invocation.has("json")) {
    fmt::print("{}\n", status_json(status.snapshot));
  } else {
    const Screen screen = stdout_table_screen(invocation.has("wide"));
    for (const std::string& line : lines(status, screen)) fmt::print("{}\n", line);
  }
  return status.health.is_live() ? kExitOk : kExitFailure;
}

}  // namespace gpushare
