// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tools/top/draw/graph.h"

namespace gpushare {
namespace {

// --- the numbers of a GPU, in one line ---

enum Cell : size_t {
  kIndex,
  kName,
  kBar,
  kBusy,
  kMemory,
  kPower,
  kTemperature,
  kClock,
  kSwitches,
  kProcesses,
  kCells
};
using Cells = std::array<std::string, kCells>;

// Which go first when there is little room; none is cut.
constexpr std::array<int, kCells> kImportance{
    Column::kAlways, 50, 0, Column::kAlways, 80, 70, 65, 60, 30, 40};
constexpr size_t kSmallestBar = 8;

uint64_t memory_used(const GpuRecord& gpu, const GpuSensors& sensors) {
  return sensors.memory_used_bytes != kUnknown64 ? sensors.memory_used_bytes
                                                 : gpu.memory_used_bytes;
}

std::string power_text(const GpuSensors& sensors) {
  if (sensors.power_mw == kUnknown32) return "? W";
  if (sensors.power_limit_mw == kUnknown32) return fmt::format("{:>3} W", sensors.power_mw / 1000);
  return fmt::format("{:>3}/{} W", sensors.power_mw / 1000, sensors.power_limit_mw / 1000);
}

// Numbers take the same room while they change, so that nothing moves under the eye.
Cells cells_of(const GpuRecord& gpu, const GpuSensors& sensors, bool has_library, Glyphs glyphs) {
  const std::string name = printable({gpu.name, sizeof(gpu.name)});
  const char* const celsius = glyphs == Glyphs::kUnicode ? "°C" : " C";
  Cells cells;
  cells[kIndex] = fmt::format("GPU {}", gpu.index);
  cells[kName] = name.empty() ? kUnknownText : name;
  cells[kBusy] = fmt::format("{:>6} busy", percent_text(gpu.busy_permille));
  cells[kMemory] = fmt::format("{:>5}/{} mem", bytes_text(memory_used(gpu, sensors)),
                               bytes_text(gpu.memory_bytes));
  // Without the library all three are unknown, which is said once.
  cells[kPower] = has_library ? power_text(sensors) : "no NVML";
  if (has_library) {
    cells[kTemperature] = fmt::format("{:>2}{}", count_text(sensors.temperature_c), celsius);
    cells[kClock] = fmt::format("{:>4} MHz", count_text(sensors.sm_clock_mhz));
  }
  cells[kSwitches] = fmt::format("{:>5} switches/s", count_text(gpu.switches_per_s));
  cells[kProcesses] = fmt::format("{} proc, {} {}", gpu.process_count, gpu.tenant_count,
                                  gpu.tenant_count == 1 ? "tenant" : "tenants");
  return cells;
}

// Without the bar, which has the room that they leave.
std::vector<PlacedColumn> place_cells(std::span<const Cells> all, size_t width) {
  std::vector<size_t> shown, contents;
  std::vector<Column> columns;
  for (size_t i = 0; i < kCells; ++i) {
    size_t widest = 0;
    for (const Cells& cells : all) widest = std::max(widest, display_width(cells[i]));
    if (widest == 0) continue;
    shown.push_back(i);
    contents.push_back(widest);
    columns.push_back(
        {.title = "", .min_width = widest, .max_width = widest, .importance = kImportance[i]});
  }
  std::vector<PlacedColumn> placed = fit_columns(columns, contents, width);
  for (PlacedColumn& column : placed) column.index = shown[column.index];
  return placed;
}

PastSecond newest(const std::deque<PastSecond>& past) {
  return past.empty() ? PastSecond{} : past.back();
}

// A graph below says as much as the bar would.
std::vector<Span> bar_or_rule(const std::deque<PastSecond>& past, size_t width,
                              const TopScreen& screen) {
  if (screen.height > 0) {
    std::string rule;
    for (size_t i = 0; i < width; ++i) rule += screen.glyphs == Glyphs::kUnicode ? "─" : "-";
    return {{rule, Style::kDim}};
  }
  TopScreen part = screen;
  part.width = width;
  return draw_bar(newest(past), part);
}

std::vector<Span> numbers_line(const Cells& cells, const std::vector<PlacedColumn>& placed,
                               const std::deque<PastSecond>& past, const TopScreen& screen) {
  const size_t used = placed.empty() ? 0 : placed.back().x + placed.back().width;
  const size_t free = screen.width - std::min(screen.width, used);
  const size_t bar = free > kSmallestBar ? free - 1 : 0;
  std::vector<Span> line;
  bool has_bar = false;
  for (const PlacedColumn& column : placed) {
    if (column.x > 0) line.push_back({" "});
    // The bar stands between what names the GPU and its numbers.
    if (column.index > kBar && bar > 0 && !std::exchange(has_bar, true)) {
      for (Span& span : bar_or_rule(past, bar, screen)) line.push_back(std::move(span));
      line.push_back({" "});
    }
    line.push_back({padded(cells[column.index], column.width, Align::kLeft),
                    column.index == kIndex ? Style::kBold : Style::kPlain});
  }
  fill_line(line, used + (has_bar ? bar + 1 : 0), screen.width);
  return line;
}

// --- the graph and its legend ---

constexpr size_t kAxis = 5;  // "100% "

// The tenants that have a colour and time on this GPU, and the others together: "■ train 59.7%".
std::vector<Span> legend_line(const TopModel& model, const GpuRecord& gpu,
                              const TopScreen& screen) {
  const PastSecond now = newest(model.past().of(gpu.index));
  std::vector<std::pair<Ink, std::string>> entries;
  for (const auto& [slot, tenant] : model.status().snapshot.tenants) {
    const Ink ink = model.past().ink_of(tenant);
    const uint32_t share = tenant.gpu[gpu.index].share_permille;
    if (ink == kOthers || share == kUnknown32 || (share == 0 && tenant.process_count == 0))
      continue;
    entries.emplace_back(ink, fmt::format("{} {:>5}", tenant_text(tenant), percent_text(share)));
  }
  std::ranges::sort(entries);
  if (now.permille[kOthers] > 0)
    entries.emplace_back(kOthers, "others " + percent_text(now.permille[kOthers]));

  std::vector<Span> line;
  size_t used = 0;
  for (const auto& [ink, text] : entries) {
    const bool has_block = screen.glyphs == Glyphs::kUnicode && screen.has_colours;
    const std::string mark = has_block ? "■" : std::string(1, ink_letter(ink));
    const size_t wide = 2 + display_width(text) + (used > 0 ? 2 : 0);
    if (used + wide > screen.width) break;
    if (used > 0) line.push_back({"  "});
    line.push_back({.text = mark, .ink = ink});
    line.push_back({" " + text});
    used += wide;
  }
  const std::string span = fmt::format("last {} s", screen.width);
  if (used + span.size() + 2 <= screen.width) {
    fill_line(line, used, screen.width - span.size());
    line.push_back({span, Style::kDim});
  } else {
    fill_line(line, used, screen.width);
  }
  return line;
}

void add_graph(std::vector<std::vector<Span>>& panel, const TopModel& model, const GpuRecord& gpu,
               const TopScreen& screen) {
  TopScreen part = screen;
  part.width -= std::min(part.width, kAxis);
  part.height = screen.height - 1;
  auto lines = draw_graph(model.past().of(gpu.index), part);
  lines.push_back(legend_line(model, gpu, part));
  for (size_t y = 0; y < lines.size(); ++y) {
    const char* const mark = y == 0                     ? "100%"
                             : y + 2 == lines.size()    ? "  0%"
                             : y * 2 + 1 == part.height ? " 50%"
                                                        : "";
    std::vector<Span> line{
        {padded(mark, std::min(kAxis, screen.width), Align::kLeft), Style::kDim}};
    for (Span& span : lines[y]) line.push_back(std::move(span));
    panel.push_back(std::move(line));
  }
}

}  // namespace

void add_panels(Frame& frame, const TopModel& model, const TopLayout& layout,
                const TopScreen& screen) {
  const std::vector<GpuRecord>& gpus = model.status().snapshot.gpus;
  const size_t columns = layout.panel_columns, lines = layout.gpus.height;
  const size_t rows = lines / layout.panel_height;
  if (rows == 0) return;
  const bool are_all_shown = rows * columns >= gpus.size();
  // The last of too few lines counts the others.
  const size_t shown = are_all_shown ? gpus.size() : rows > 1 ? (rows - 1) * columns : columns;
  TopScreen part = screen;
  const size_t gap = 2;
  part.width = (screen.width - std::min(screen.width, (columns - 1) * gap)) / columns;
  part.height = layout.panel_height - 1;

  std::vector<Cells> cells;
  cells.reserve(shown);
  for (size_t g = 0; g < shown; ++g)
    cells.push_back(cells_of(gpus[g], model.sensors(g), model.has_sensors(), screen.glyphs));
  const auto placed = place_cells(cells, part.width);
  const size_t first = frame.size();
  frame.resize(first + lines);
  for (size_t g = 0; g < shown; ++g) {
    std::vector<std::vector<Span>> panel{
        numbers_line(cells[g], placed, model.past().of(gpus[g].index), part)};
    if (part.height > 0) add_graph(panel, model, gpus[g], part);
    for (size_t y = 0; y < panel.size(); ++y) {
      std::vector<Span>& line = frame[first + g / columns * layout.panel_height + y].spans;
      if (g % columns > 0) line.push_back({std::string(gap, ' ')});
      for (Span& span : panel[y]) line.push_back(std::move(span));
    }
  }
  if (!are_all_shown && rows > 1)
    frame.back().spans = {
        {clipped(fmt::format("and {} more GPUs", gpus.size() - shown), screen.width), Style::kDim}};
}

}  // namespace gpushare
