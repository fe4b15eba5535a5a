// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

// The agent publishes once in each of its steps, of which the longest takes a second.
constexpr Nanos kShownWithin = 2s;

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
  looked_ = now;
  show_weighed(now);
  past_.update(status_.snapshot, now);
  sensors_ = std::move(sensors);
  rows_ = process_rows(status_.snapshot, names_);
  rebuild();
}

GpuSensors TopModel::sensors(size_t place) const {
  return place < sensors_.gpus.size() ? sensors_.gpus[place] : GpuSensors{};
}

void TopModel::rebuild() {
  order_.sort(rows_, choices_.sort, choices_.is_reversed);
  lines_ = list_lines(rows_, status_.snapshot, choices_.grouping, lowered(filter_), folded_);
  const auto same = std::ranges::find(lines_, chosen_, key_of);
  if (same != lines_.end()) {
    selected_ = static_cast<size_t>(same - lines_.begin());
  } else {
    selected_ = std::min(selected_, lines_.empty() ? 0 : lines_.size() - 1);
    if (!lines_.empty()) chosen_ = key_of(lines_[selected_]);
  }
}

void TopModel::choose(size_t line) {
  if (line >= lines_.size()) return;
  selected_ = line;
  chosen_ = key_of(lines_[line]);
}

void TopModel::move(ptrdiff_t by) {
  if (lines_.empty()) return;
  const auto last = static_cast<ptrdiff_t>(lines_.size()) - 1;
  choose(
      static_cast<size_t>(std::clamp<ptrdiff_t>(static_cast<ptrdiff_t>(selected_) + by, 0, last)));
}

void TopModel::sort_by(Field field) {
  choices_.is_reversed = field == choices_.sort && !choices_.is_reversed;
  choices_.sort = field;
  rebuild();
}

void TopModel::sort_by_next() {
  size_t next = static_cast<size_t>(choices_.sort);
  do {
    next = (next + 1) % kFieldCount;
  } while (kFields[next].sort_key == 0);
  choices_.sort = kFields[next].field;
  choices_.is_reversed = false;
  rebuild();
}

void TopModel::fold() {
  if (lines_.empty()) return;
  const TopLine& line = lines_[selected_];
  if (line.kind == TopLine::Kind::kProcess) return;
  const LineKey key{.gpu = 0, .pid = 0, .tenant = key_of(line).tenant, .job = line.job};
  if (!folded_.erase(key)) folded_.insert(key);
  rebuild();
}

void TopModel::say(std::string text, bool is_bad) {
  message_ = std::move(text);
  is_message_bad_ = is_bad;
}

// --- what is done to the chosen line ---

const TopLine* TopModel::line_for(const char* deed) {
  if (!lines_.empty()) return &lines_[selected_];
  say("there is no row to " + std::string(deed), true);
  return nullptr;
}

void TopModel::ask(Deed deed) {
  question_ = std::move(deed);
  say(question_.about + "? y n");
  mode_ = Mode::kConfirm;
}

void TopModel::freeze(const char* op) {
  if (const TopLine* line = line_for(op)) ask(freeze_deed(target_of(*line), op));
}

void TopModel::ask_for_setting(const char* key) {
  const TopLine* const line = line_for("set anything of");
  if (line == nullptr) return;
  if (line->tenant == nullptr) return say("the tenant of this process is not known", true);
  setting_ = key;
  tenant_ = tenant_text(*line->tenant);
  input_ = {.about = fmt::format("{} of tenant {}", key, tenant_),
            .allowed = std::string(allowed_values(key)),
            .text = setting_text(*line->tenant, key)};
  has_typed_ = false;
  mode_ = Mode::kInput;
}

void TopModel::ask_for_signal() {
  const TopLine* const line = line_for("send a signal to");
  if (line == nullptr) return;
  target_ = target_of(*line);
  if (target_.processes.empty()) return say("no process is there to send a signal to", true);
  setting_.clear();
  input_ = {.about = "signal to " + target_.words,
            .allowed = "TERM, KILL, INT, ... or a number",
            .text = "TERM"};
  has_typed_ = false;
  mode_ = Mode::kInput;
}

TopModel::Effect TopModel::change_weight(bool is_up) {
  const TopLine* const line = line_for("weigh");
  if (line == nullptr || line->tenant == nullptr) return {};
  return done(weight_deed(*line->tenant, is_up));
}

TopModel::Effect TopModel::done(Deed deed) {
  doing_ = deed;
  return {.quits = false, .deed = std::move(deed)};
}

void TopModel::report_done(const Result<>& done, const std::vector<std::string>& warnings) {
  if (!done) return say(doing_.about + ": " + done.error().message(), true);
  std::string text = doing_.about + ": done";
  for (const std::string& warning : warnings) text += "; " + warning;
  say(std::move(text), !warnings.empty());
  if (doing_.requests.empty() || doing_.requests.front().settings.empty()) return;
  const Request& request = doing_.requests.front();
  const auto& [key, value] = request.settings.front();
  TenantSettings settings;
  if (key != "weight" || !apply_setting(settings, key, value)) return;
  weighed_ = {.tenant = request.tenant, .weight = settings.weight, .until = looked_ + kShownWithin};
  show_weighed(looked_);
}

void TopModel::show_weighed(Time now) {
  if (!weighed_) return;
  const auto tenant = std::ranges::find(
      status_.snapshot.tenants, weighed_->tenant,
      [](const Numbered<TenantRecord>& numbered) { return tenant_text(numbered.record); });
  const bool is_over = now >= weighed_->until || tenant == status_.snapshot.tenants.end() ||
                       tenant->record.weight == weighed_->weight;
  if (is_over)
    weighed_.reset();
  else
    tenant->record.weight = weighed_->weight;
}

}  // namespace gpushare
