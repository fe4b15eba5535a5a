// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/knees/store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shmctl/program/state_file.h"

namespace gpushare {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr uint32_t kMostGroups = 64;
constexpr size_t kMostName = 128;

}  // namespace

Result<KneeStore> KneeStore::open(std::string path) {
  const auto text = read_state_file(path, kMostBytes);
  if (!text) return std::unexpected(text.error());
  KneeStore store(std::move(path));
  if (text->empty()) return store;
  if (const auto parsed = store.parse(*text); !parsed) return std::unexpected(parsed.error());
  return store;
}

Result<> KneeStore::parse(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format").get<int>() != 1)
      return make_error(std::errc::not_supported, "read known knees", path_);
    uint64_t last_run = 0;
    for (const auto& item : json.at("knees")) {
      Entry entry;
      entry.command = item.at("command").get<std::string>();
      entry.gpu = item.at("gpu").get<std::string>();
      entry.knee.knee = item.at("knee").get<uint32_t>();
      entry.knee.widest = item.at("widest").get<uint32_t>();
      entry.knee.is_bounded = item.at("is_bounded").get<bool>();
      entry.run = item.at("run").get<uint32_t>();
      if (entry.knee.knee < 1 || entry.knee.knee > entry.knee.widest ||
          entry.knee.widest > kMostGroups || entry.command.size() > kMostName ||
          entry.gpu.size() > kMostName || entries_.size() == kMostKnees)
        return make_error(std::errc::invalid_argument, "read known knees", path_);
      last_run = std::max(last_run, entry.run);
      entries_.push_back(std::move(entry));
    }
    run_ = last_run + 1;
  } catch (const nlohmann::json::exception& error) {
    return make_error(std::errc::invalid_argument, "read known knees", path_ + ": " + error.what());
  }
  return {};
}

KneeStore::Entry* KneeStore::entry(std::string_view command, std::string_view gpu) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& one) { return one.command == command && one.gpu == gpu; });
  return found == entries_.end() ? nullptr : &*found;
}

std::optional<KnownKnee> KneeStore::find(std::string_view command, std::string_view gpu) {
  Entry* const known = entry(command, gpu);
  if (!known) return std::nullopt;
  is_changed_ = is_changed_ || known->run != run_;
  known->run = run_;
  return known->knee;
}

void KneeStore::put(std::string_view command, std::string_view gpu, const KnownKnee& knee) {
  if (path_.empty()) return;
  wants_saving_ = true;
  Entry* known = entry(command, gpu);
  if (!known) {
    if (entries_.size() >= kMostKnees)
      entries_.erase(std::ranges::min_element(entries_, {}, &Entry::run));
    known = &entries_.emplace_back(Entry{
        std::string(command.substr(0, kMostName)), std::string(gpu.substr(0, kMostName)), {}, 0});
  }
  is_changed_ = is_changed_ || known->knee != knee || known->run != run_;
  known->knee = knee;
  known->run = run_;
}

std::optional<std::string> KneeStore::take_text() {
  if (!std::exchange(is_changed_, false)) return std::nullopt;
  nlohmann::json knees = nlohmann::json::array();
  for (const Entry& entry : entries_)
    knees.push_back({{"command", entry.command},
                     {"gpu", entry.gpu},
                     {"knee", entry.knee.knee},
                     {"widest", entry.knee.widest},
                     {"is_bounded", entry.knee.is_bounded},
                     {"run", entry.run}});
  const nlohmann::json json{{"format", 1}, {"knees", std::move(knees)}};
  // Names that are no UTF-8 come from the outside: replaced rather than refused.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<> KneeStore::write(const std::string& path, const std::string& text) {
  return replace_state_file(path, text, 0644);
}

Result<> KneeStore::save() {
  const std::optional<std::string> text = take_text();
  auto written = text ? write(path_, *text) : Result<>();
  if (!written) note_failure();
  return written;
}

}  // namespace gpushare
