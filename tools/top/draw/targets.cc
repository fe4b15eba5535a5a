// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shmctl/plane/status_json.h"
#include "tools/view/slo_view.h"

namespace gpushare {
namespace {

enum Cell : size_t {
  kName,
  kGpu,
  kSlo,
  kMean,
  kP99,
  kRate,
  kSms,
  kKnee,
  kWhy,
  kWeight,
  kShare,
  kProcesses,
  kCells
};
using Cells = std::array<std::string, kCells>;

// Which go first when there is little room. None is cut but the name, and the reason, of which a
// word is left.
std::array<int, kCells> importances(size_t gpus) {
  std::array<int, kCells> of{};
  of[kName] = Column::kAlways;
  of[kSms] = 95;
  of[kWhy] = 90;
  of[kMean] = 85;
  of[kSlo] = 80;
  of[kGpu] = gpus > 1 ? 75 : 5;
  of[kP99] = 60;
  of[kRate] = 50;
  of[kKnee] = 40;
  of[kWeight] = 30;
  of[kShare] = 20;
  of[kProcesses] = 10;
  return of;
}

constexpr size_t kNameWidth = 8;
constexpr size_t kWordWidth = 10;  // of the longest

// Numbers take the same room while they change, so that nothing moves under the eye.
Cells cells_of(const TenantRecord& tenant, const TenantGpuUse& use, uint32_t gpu) {
  Cells cells;
  cells[kName] = tenant_text(tenant);
  cells[kGpu] = fmt::format("GPU {}", gpu);
  cells[kSlo] = fmt::format("slo {:>6}", target_text(use));
  cells[kMean] = fmt::format("mean {:>6}", micros_text(use.latency_us));
  cells[kP99] = fmt::format("p99 {:>6}", micros_text(use.p99_us));
  cells[kRate] = fmt::format("{:>5}/s", rate_text(use));
  cells[kSms] = "SMs " + sms_text(use);
  cells[kKnee] = fmt::format("knee {:>3}", count_text(use.sms_knee));
  cells[kWhy] = tenant.frozen_by_user != 0 ? "frozen: user" : slo_reason(use);
  cells[kWeight] = sharing_text(tenant);
  if (use.phase != 0) cells[kWeight] += fmt::format(", {}", phase_text(use.phase));
  cells[kShare] = fmt::format("share {:>6}", percent_text(use.share_permille));
  cells[kProcesses] = fmt::format("{} proc", tenant.process_count);
  return cells;
}

std::string word_of(const TenantRecord& tenant, const TenantGpuUse& use) {
  return tenant.frozen_by_user != 0 ? "frozen" : std::string(slo_state_text(use.slo_state));
}

Style why_style(const TenantRecord& tenant, const TenantGpuUse& use) {
  if (tenant.frozen_by_user != 0) return Style::kBad;
  const SloState state = use.slo_state;
  if (state == SloState::kStarved || state == SloState::kAtMost) return Style::kBad;
  if (state == SloState::kGrows || state == SloState::kHeld || state == SloState::kEven)
    return Style::kWarning;
  return state == SloState::kMeets ? Style::kGood : Style::kPlain;
}

}  // namespace

TargetColumns::TargetColumns(const TopModel& model, size_t width) {
  std::array<size_t, kCells> contents{};
  for (const TopLine& line : model.lines()) {
    if (line.use == nullptr) continue;
    const Cells cells = cells_of(*line.tenant, *line.use, line.gpu);
    for (size_t i = 0; i < kCells; ++i)
      contents[i] = std::max(contents[i], display_width(cells[i]));
  }
  const auto importance = importances(model.status().snapshot.gpus.size());
  std::array<Column, kCells> columns;
  for (size_t i = 0; i < kCells; ++i)
    columns[i] = {.title = "",
                  .min_width = contents[i],
                  .max_width = contents[i],
                  .importance = importance[i]};
  columns[kName].min_width = std::min(contents[kName], kNameWidth);
  columns[kWhy].min_width = std::min(contents[kWhy], kWordWidth);
  placed_ = fit_columns(columns, contents, width);
}

FrameLine TargetColumns::line(const TopLine& of) const {
  const Cells cells = cells_of(*of.tenant, *of.use, of.gpu);
  FrameLine line;
  for (const PlacedColumn& column : placed_) {
    const bool is_why = column.index == kWhy;
    const bool fits = display_width(cells[column.index]) <= column.width;
    const std::string text = is_why && !fits ? word_of(*of.tenant, *of.use) : cells[column.index];
    const Style style = is_why                  ? why_style(*of.tenant, *of.use)
                        : column.index == kName ? Style::kBold
                                                : Style::kPlain;
    line.spans.push_back(
        {(column.x > 0 ? " " : "") + padded(text, column.width, Align::kLeft), style});
  }
  return line;
}

}  // namespace gpushare
