// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace gpushare {
namespace {

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool matches(const ProcessRow& row, const std::string& filter) {
  for (Field field : {Field::kPid, Field::kTenant, Field::kCommand, Field::kState})
    if (lowered(field_text(row, field, Glyphs::kAscii)).find(filter) != std::string::npos)
      return true;
  return false;
}

std::string name_of(const TenantRecord& tenant) {
  return printable({tenant.name, sizeof(tenant.name)});
}

}  // namespace

void TopModel::update(Result<Status> status, Time now, SensorsLook sensors) {
  if (!status) {
    failure_ = std::move(status.error());
    status_.health = judge_agent(status_.snapshot.agent, now, /*is_process_there=*/false,
                                 status_.snapshot.ending);
    status_.taken = now;
    return;
  }
  failure_.reset();
  status_ = *std::move(status);
  std::erase_if(status_.snapshot.gpus, [](const GpuRecord& gpu) { return gpu.index >= kMaxGpus; });
  past_.update(status_.snapshot, now);
  sensors_ = std::move(sensors);
  rows_ = process_rows(status_.snapshot);
  rebuild();
}

Ink TopModel::ink_of(const ProcessRow& row) const {
  const auto tenant = std::ranges::lower_bound(status_.snapshot.tenants, row.record.tenant, {},
                                               &Numbered<TenantRecord>::slot);
  return tenant == status_.snapshot.tenants.end() || tenant->slot != row.record.tenant
             ? kOthers
             : past_.ink_of(tenant->record);
}

GpuSensors TopModel::sensors(size_t place) const {
  return place < sensors_.gpus.size() ? sensors_.gpus[place] : GpuSensors{};
}

TopModel::Choice TopModel::choice_of(const TopLine& line) {
  if (line.process != nullptr)
    return {.gpu = line.process->record.gpu, .pid = line.process->record.pid, .tenant = {}};
  return {.gpu = line.gpu, .pid = 0, .tenant = name_of(*line.tenant)};
}

void TopModel::rebuild() {
  std::ranges::sort(rows_, [this](const ProcessRow& a, const ProcessRow& b) {
    return is_reversed_ ? row_before(b, a, sort_field_) : row_before(a, b, sort_field_);
  });
  const std::string filter = lowered(filter_);
  std::vector<const ProcessRow*> shown;
  for (const ProcessRow& row : rows_)
    if (filter.empty() || matches(row, filter)) shown.push_back(&row);

  lines_.clear();
  if (is_grouped_) {
    for (const auto& [slot, tenant] : status_.snapshot.tenants) {
      const size_t head = lines_.size();
      for (const GpuRecord& gpu : status_.snapshot.gpus)
        if (gpu.index < kMaxGpus && tenant.gpu[gpu.index].slo_state != SloState::kNone)
          lines_.push_back({.tenant = &tenant, .use = &tenant.gpu[gpu.index], .gpu = gpu.index});
      if (lines_.size() == head) lines_.push_back({.tenant = &tenant});
      const size_t first = lines_.size();
      for (const ProcessRow* row : shown)
        if (row->record.tenant == slot) lines_.push_back({.process = row});
      // With a filter, tenants without a match would only be in the way.
      if (!filter.empty() && lines_.size() == first) lines_.resize(head);
    }
    for (const ProcessRow* row : shown)
      if (row->tenant == kUnknownText) lines_.push_back({.process = row});
  } else {
    for (const ProcessRow* row : shown) lines_.push_back({.process = row});
  }

  const auto same = std::ranges::find(lines_, choice_, choice_of);
  if (same != lines_.end()) {
    selected_ = static_cast<size_t>(same - lines_.begin());
  } else {
    selected_ = std::min(selected_, lines_.empty() ? 0 : lines_.size() - 1);
    if (!lines_.empty()) choice_ = choice_of(lines_[selected_]);
  }
}

void TopModel::move(ptrdiff_t by) {
  if (lines_.empty()) return;
  const auto last = static_cast<ptrdiff_t>(lines_.size()) - 1;
  selected_ =
      static_cast<size_t>(std::clamp<ptrdiff_t>(static_cast<ptrdiff_t>(selected_) + by, 0, last));
  choice_ = choice_of(lines_[selected_]);
}

void TopModel::sort_by(Field field) {
  is_reversed_ = field == sort_field_ && !is_reversed_;
  sort_field_ = field;
  rebuild();
}

void TopModel::say(std::string text, bool is_bad) {
  message_ = std::move(text);
  is_message_bad_ = is_bad;
}

void TopModel::ask(const char* op) {
  if (lines_.empty()) return say("there is no row to " + std::string(op), true);
  const TopLine& line = lines_[selected_];
  if (line.process != nullptr) {
    question_ = {.op = op, .pid = line.process->record.pid};
    about_ =
        fmt::format("{} process {} {} of tenant {}", op, line.process->record.pid,
                    printable({line.process->record.command, sizeof(line.process->record.command)}),
                    line.process->tenant);
  } else {
    question_ = {.op = op, .tenant = name_of(*line.tenant)};
    about_ =
        fmt::format("{} all of tenant {} ({} {})", op, question_.tenant, line.tenant->process_count,
                    line.tenant->process_count == 1 ? "process" : "processes");
  }
  say(about_ + "? y n");
  mode_ = Mode::kConfirm;
}

TopModel::Effect TopModel::change_weight(bool up) {
  if (lines_.empty()) return {};
  const TopLine& line = lines_[selected_];
  const std::string tenant = line.tenant != nullptr ? name_of(*line.tenant) : line.process->tenant;
  if (tenant == kUnknownText) return {};
  const uint32_t weight =
      line.tenant != nullptr ? line.tenant->weight : line.process->tenant_weight;
  const uint32_t step = std::max<uint32_t>(1, weight / 10);
  const uint32_t wanted = std::clamp<uint32_t>(up ? weight + step : weight - step, 1, 10'000);
  about_ = fmt::format("weight of {} from {} to {}", tenant, weight, wanted);
  return {.quits = false,
          .request = Request{
              .op = "set", .tenant = tenant, .settings = {{"weight", fmt::format("{}", wanted)}}}};
}

void TopModel::report_done(const Result<>& done) {
  if (done)
    say(about_ + ": done");
  else
    say(about_ + ": " + done.error().message(), true);
}

TopModel::Effect TopModel::press(Key key, size_t page) {
  switch (mode_) {
    case Mode::kList:
      return press_in_list(key, page);
    case Mode::kFilter:
      return press_in_filter(key);
    case Mode::kConfirm:
      return press_in_question(key);
    case Mode::kHelp:
      mode_ = Mode::kList;
      return {.quits = key.character == 'q', .request = {}};
  }
  return {};
}

TopModel::Effect TopModel::press_in_list(Key key, size_t page) {
  say("");  // what was said about the key before
  const auto lines = static_cast<ptrdiff_t>(lines_.size());
  const auto step = static_cast<ptrdiff_t>(std::max<size_t>(1, page));
  switch (key.kind) {
    case Key::Kind::kUp:
      move(-1);
      return {};
    case Key::Kind::kDown:
      move(1);
      return {};
    case Key::Kind::kPageUp:
      move(-step);
      return {};
    case Key::Kind::kPageDown:
      move(step);
      return {};
    case Key::Kind::kHome:
      move(-lines);
      return {};
    case Key::Kind::kEnd:
      move(lines);
      return {};
    case Key::Kind::kEscape:
      filter_.clear();
      rebuild();
      return {};
    case Key::Kind::kEnter:
    case Key::Kind::kBackspace:
      return {};
    case Key::Kind::kCharacter:
      break;
  }
  switch (key.character) {
    case 'q':
      return {.quits = true, .request = {}};
    case '?':
    case 'h':
      mode_ = Mode::kHelp;
      return {};
    case 'j':
      move(1);
      return {};
    case 'k':
      move(-1);
      return {};
    case '/':
      mode_ = Mode::kFilter;
      return {};
    case 'v':
      is_grouped_ = !is_grouped_;
      rebuild();
      return {};
    case ' ':
      is_paused_ = !is_paused_;
      return {};
    case 'f':
      ask("freeze");
      return {};
    case 't':
      ask("thaw");
      return {};
    case '+':
    case '=':
      return change_weight(true);
    case '-':
      return change_weight(false);
    default:
      break;
  }
  for (const FieldSpec& spec : kFields)
    if (spec.sort_key != 0 && spec.sort_key == key.character) sort_by(spec.field);
  return {};
}

TopModel::Effect TopModel::press_in_filter(Key key) {
  switch (key.kind) {
    case Key::Kind::kCharacter:
      filter_ += key.character;
      break;
    case Key::Kind::kBackspace:
      if (!filter_.empty()) filter_.pop_back();
      break;
    case Key::Kind::kEscape:
      filter_.clear();
      mode_ = Mode::kList;
      break;
    case Key::Kind::kEnter:
      mode_ = Mode::kList;
      break;
    default:
      return {};
  }
  rebuild();
  return {};
}

TopModel::Effect TopModel::press_in_question(Key key) {
  mode_ = Mode::kList;
  if (key.kind == Key::Kind::kCharacter && (key.character == 'y' || key.character == 'Y'))
    return {.quits = false, .request = std::move(question_)};
  say("");
  return {};
}

}  // namespace gpushare
