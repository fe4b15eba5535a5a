// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "shmctl/plane/status_json.h"
#include "tools/base/format.h"
#include "tools/view/tenant_tree_order.h"

namespace gpushare {
namespace {

// Shares of programs that want all they can get waver by about a hundredth of the GPU from second
// to second.
constexpr uint32_t kStillPermille = 20;

// Adds the processes of a tenant, below their jobs if there are lines for these.
void add_members(std::vector<TopLine>& lines, const TopLine& head, Grouping grouping,
                 const std::set<LineKey>& folded) {
  const auto process_line = [&](const ProcessRow* row, uint8_t depth) {
    return TopLine{.process = row,
                   .tenant = head.tenant,
                   .tenant_slot = head.tenant_slot,
                   .job = job_of(row->record),
                   .depth = depth};
  };
  std::vector<JobKey> done;
  size_t last = lines.size();
  for (const ProcessRow* row : head.has) {
    const JobKey key = job_of(row->record);
    if (grouping == Grouping::kJobs) {
      if (std::ranges::find(done, key) != done.end()) continue;
      done.push_back(key);
    }
    TopLine job{.kind = TopLine::Kind::kJob,
                .tenant = head.tenant,
                .tenant_slot = head.tenant_slot,
                .job = key,
                .depth = 1};
    for (const ProcessRow* other : head.has)
      if (job_of(other->record) == key) job.has.push_back(other);
    job.all = job.has;
    last = lines.size();
    // A process by itself needs no line above it.
    if (grouping != Grouping::kJobs || job.has.size() == 1) {
      lines.push_back(process_line(row, 1));
      continue;
    }
    job.is_folded = folded.contains(key_of(job));
    lines.push_back(job);
    if (job.is_folded) continue;
    for (const ProcessRow* member : job.has) lines.push_back(process_line(member, 2));
    lines.back().is_last = true;
  }
  if (last < lines.size()) lines[last].is_last = true;
}

}  // namespace

JobKey job_of(const ProcessRecord& process) {
  return process.run != 0 ? JobKey{.run = process.run} : JobKey{.pid = process.pid};
}

std::string job_name(const JobKey& job) { return job_name(job.run, job.pid); }

std::string sharing_text(const TenantRecord& tenant) {
  std::string text = fmt::format("weight {}", tenant.weight);
  if (tenant.quota_us != kUnknown64) text += ", cap " + cap_text(tenant.quota_us, tenant.period_us);
  if (tenant.priority != Priority::kNormal)
    text += fmt::format(", {}", priority_text(tenant.priority));
  return text;
}

LineKey key_of(const TopLine& line) {
  if (line.kind == TopLine::Kind::kProcess)
    return {
        .gpu = line.process->record.gpu, .pid = line.process->record.pid, .tenant = {}, .job = {}};
  return {.gpu = line.gpu, .pid = 0, .tenant = tenant_text(*line.tenant), .job = line.job};
}

void RowOrder::sort(std::vector<ProcessRow>& rows, Field field, bool is_reversed) {
  const auto before = [&](const ProcessRow& a, const ProcessRow& b) {
    return is_reversed ? row_before(b, a, field) : row_before(a, b, field);
  };
  const auto name = [](const ProcessRow& row) { return std::pair(row.record.gpu, row.record.pid); };
  const bool is_same = field == field_ && is_reversed == is_reversed_;
  std::ranges::sort(rows, before);
  if (is_same && field == Field::kShare) {
    // Those that were there before, in their old order, and each moves only as far as it clearly
    // comes before its neighbour; the others are then put where they belong.
    std::vector<ProcessRow> fresh;
    std::erase_if(rows, [&](ProcessRow& row) {
      if (places_.contains(name(row))) return false;
      fresh.push_back(std::move(row));
      return true;
    });
    std::ranges::sort(rows, {}, [&](const ProcessRow& row) { return places_.at(name(row)); });
    const auto is_clear = [](const ProcessRow& a, const ProcessRow& b) {
      const uint32_t x = a.record.share_permille, y = b.record.share_permille;
      return x == kUnknown32 || y == kUnknown32 || (x > y ? x - y : y - x) >= kStillPermille;
    };
    for (size_t i = 1; i < rows.size(); ++i)
      for (size_t k = i; k > 0 && before(rows[k], rows[k - 1]) && is_clear(rows[k], rows[k - 1]);
           --k)
        std::swap(rows[k], rows[k - 1]);
    for (ProcessRow& row : fresh)
      rows.insert(
          std::ranges::find_if(rows, [&](const ProcessRow& other) { return before(row, other); }),
          std::move(row));
  }
  field_ = field;
  is_reversed_ = is_reversed;
  places_.clear();
  for (size_t i = 0; i < rows.size(); ++i) places_.emplace(name(rows[i]), i);
}

std::vector<TopLine> list_lines(const std::vector<ProcessRow>& rows, const PlaneSnapshot& snapshot,
                                Grouping grouping, const std::string& filter,
                                const std::set<LineKey>& folded) {
  const auto tenant_of = [&](uint32_t slot) -> const TenantRecord* {
    const auto found =
        std::ranges::lower_bound(snapshot.tenants, slot, {}, &Numbered<TenantRecord>::slot);
    return found != snapshot.tenants.end() && found->slot == slot ? &found->record : nullptr;
  };
  std::vector<TopLine> lines;
  std::map<uint32_t, std::vector<const ProcessRow*>> members;  // by tenant's slot
  for (const ProcessRow& row : rows) {
    if (!filter.empty() && !does_match(row, filter)) continue;
    const TenantRecord* const tenant = tenant_of(row.record.tenant);
    if (grouping != Grouping::kNone && tenant != nullptr)
      members[row.record.tenant].push_back(&row);
    else
      lines.push_back({.process = &row,
                       .tenant = tenant,
                       .tenant_slot = row.record.tenant,
                       .job = job_of(row.record)});
  }
  if (grouping == Grouping::kNone) return lines;

  // Those whose tenant is unknown come last.
  const std::vector<TopLine> strays = std::exchange(lines, {});
  const std::vector<TenantInTree> tenants = in_order_of_tree(snapshot);
  for (size_t i = 0; i < tenants.size(); ++i) {
    const auto& [name, slot, tenant, below] = tenants[i];
    TopLine head{.kind = TopLine::Kind::kTenant,
                 .tenant = tenant,
                 .tenant_slot = slot,
                 .has = members[slot],
                 .all = members[slot]};
    for (size_t k = 1; k <= below; ++k)
      std::ranges::copy(members[tenants[i + k].slot], std::back_inserter(head.all));
    // With a filter, tenants without a match would only be in the way.
    if (!filter.empty() && head.all.empty()) continue;
    head.is_folded = folded.contains(key_of(head));
    const size_t first = lines.size();
    for (const GpuRecord& gpu : snapshot.gpus)
      if (gpu.index < kMaxGpus && tenant->gpu[gpu.index].slo_state != SloState::kNone) {
        lines.push_back(head);
        lines.back().use = &tenant->gpu[gpu.index];
        lines.back().gpu = gpu.index;
      }
    if (lines.size() == first) lines.push_back(head);
    if (head.is_folded)
      i += below;  // and those below it
    else
      add_members(lines, head, grouping, folded);
  }
  lines.insert(lines.end(), strays.begin(), strays.end());
  return lines;
}

}  // namespace gpushare
