// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/pod_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
// A node has some hundred pods; of each there are some hundred bytes.
constexpr off_t kMostBytes = 16 << 20;

std::string text_at(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

std::string pod_names_text(const PodNames& names) {
  Json pods = Json::object();
  for (const auto& [uid, name] : names)
    pods[uid] = {
        {"namespace", name.name_space}, {"pod", name.pod}, {"containers", name.containers}};
  const Json whole = {{"version", kFormat}, {"pods", pods}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<PodNames> parse_pod_names(std::string_view text) {
  const Json whole = Json::parse(text, nullptr, false);
  const auto is_of = [](const Json& json, const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_object();
  };
  if (!is_of(whole, "pods") || whole.value("version", Json()) != kFormat)
    return make_error(std::errc::invalid_argument, "names of pods",
                      "it is no JSON object with \"version\": 1 and \"pods\"");
  PodNames names;
  for (const auto& [uid, pod] : whole["pods"].items()) {
    if (!pod.is_object()) continue;
    PodName name{
        .name_space = text_at(pod, "namespace"), .pod = text_at(pod, "pod"), .containers = {}};
    if (is_of(pod, "containers"))
      for (const auto& [id, container] : pod["containers"].items())
        if (container.is_string()) name.containers[id] = container.get<std::string>();
    names[uid] = std::move(name);
  }
  return names;
}

Result<const PodNames*> PodNamesReader::read() {
  constexpr Version kUnreadable{.size = -2};
  const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file{};
  if (!fd.is_open() || ::fstat(fd.get(), &file) != 0) {
    names_.clear();
    const bool is_absent = errno == ENOENT || errno == ENOTDIR;
    if (std::exchange(version_, is_absent ? Version{} : kUnreadable) == kUnreadable || is_absent)
      return &names_;
    return errno_error("read", path_);
  }
  const Version version{file.st_dev, file.st_ino,
                        file.st_ctim.tv_sec * 1'000'000'000 + file.st_ctim.tv_nsec, file.st_size};
  if (std::exchange(version_, version) == version) return &names_;
  names_.clear();
  const auto refuse = [&](const std::string& why) {
    return make_error(std::errc::operation_not_permitted, "believe", path_ + ": " + why);
  };
  if (!S_ISREG(file.st_mode)) return refuse("it is no file");
  if (file.st_uid != 0 && file.st_uid != ::geteuid()) return refuse("it does not belong to root");
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refuse("others than its owner may write it");
  if (file.st_size > kMostBytes) return refuse("it is larger than 16 MiB");
  std::string text(static_cast<size_t>(file.st_size), '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t part =
        ::pread(fd.get(), text.data() + length, text.size() - length, static_cast<off_t>(length));
    if (part <= 0) break;
    length += static_cast<size_t>(part);
  }
  auto names = parse_pod_names(std::string_view(text).substr(0, length));
  if (!names) return refuse(names.error().detail);
  names_ = *std::move(names);
  return &names_;
}

}  // namespace gpushare
