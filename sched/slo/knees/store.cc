// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/knees/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr uint32_t kMostGroups = 64;
constexpr size_t kMostName = 128;

Result<std::string> read_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) {
    if (errno == ENOENT) return std::string();
    return errno_error("open known knees", path);
  }
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t count = ::read(fd.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("read known knees", path);
    if (count == 0) return text;
    text.append(part, static_cast<size_t>(count));
    if (text.size() > kMostBytes)
      return make_error(std::errc::file_too_large, "read known knees", path);
  }
}

Result<> write_all(const Fd& fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("write known knees", path);
    text.remove_prefix(static_cast<size_t>(count));
  }
  if (::fsync(fd.get()) != 0) return errno_error("sync known knees", path);
  return {};
}

uint64_t fnv1a(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ULL;
  return (hash ^ 0xFF) * 0x100000001B3ULL;  // an end: "a" "bc" is not "ab" "c"
}

}  // namespace

std::string command_signature(std::span<const std::string> arguments) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view text = arguments[i];
    if (i == 0) text.remove_prefix(text.rfind('/') + 1);
    hash = fnv1a(hash, text);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", hash);
  return digits;
}

Result<KneeStore> KneeStore::open(std::string path) {
  const auto text = read_file(path);
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
  const std::string beside = path + ".new";
  const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_open()) return errno_error("create known knees", beside);
  auto written = write_all(fd, text, beside);
  if (written && ::rename(beside.c_str(), path.c_str()) != 0)
    written = errno_error("replace known knees", path);
  if (!written) ::unlink(beside.c_str());
  return written;
}

Result<> KneeStore::save() {
  const std::optional<std::string> text = take_text();
  auto written = text ? write(path_, *text) : Result<>();
  if (!written) note_failure();
  return written;
}

}  // namespace gpushare
