// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/pod.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

namespace gpushare {
namespace {

using Json = nlohmann::json;

// The member at the end of a path of names; null where one of them is not there.
const Json& at(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNull;
  const Json* found = &json;
  for (const char* name : path) {
    if (!found->is_object()) return kNull;
    const auto member = found->find(name);
    if (member == found->end()) return kNull;
    found = &*member;
  }
  return *found;
}

std::string text(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }

uint64_t sum(uint64_t a, uint64_t b) {
  return b > std::numeric_limits<uint64_t>::max() - a ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

// The kubelet's name of a static pod: the MD5 of what was read for it. A pod of the API server's
// has a UID with dashes, which no annotation can name then.
bool is_static_name(std::string_view uid) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return uid.size() == 32 && std::ranges::all_of(uid, is_hex);
}

using Limits = std::map<std::string, uint64_t, std::less<>>;

Limits limits_of(const Json& container) {
  Limits limits;
  const Json& all = at(container, {"resources", "limits"});
  if (!all.is_object()) return limits;
  for (const auto& [resource, quantity] : all.items())
    if (const auto number = parse_quantity(quantity.is_string() ? text(quantity) : quantity.dump()))
      limits[resource] = *number;
  return limits;
}

void add(Limits& limits, const Limits& more) {
  for (const auto& [resource, number] : more) limits[resource] = sum(limits[resource], number);
}

void raise(Limits& limits, const Limits& least) {
  for (const auto& [resource, number] : least)
    limits[resource] = std::max(limits[resource], number);
}

// As Kubernetes counts: an init container that restarts always is a sidecar, which stays beside
// the containers and the init containers after it. Any other init container has ended before the
// next one begins.
Limits limits_of_all(const Json& spec) {
  Limits together, sidecars, beginning;
  for (const Json& container : at(spec, {"containers"})) add(together, limits_of(container));
  for (const Json& container : at(spec, {"initContainers"})) {
    const Limits own = limits_of(container);
    if (text(at(container, {"restartPolicy"})) == "Always") {
      add(together, own);
      add(sidecars, own);
    } else {
      Limits meanwhile = sidecars;
      add(meanwhile, own);
      raise(beginning, meanwhile);
    }
  }
  raise(together, beginning);
  return together;
}

Pod read_pod(const Json& json) {
  Pod pod;
  pod.object_uid = pod.uid = text(at(json, {"metadata", "uid"}));
  pod.name_space = text(at(json, {"metadata", "namespace"}));
  pod.name = text(at(json, {"metadata", "name"}));
  pod.qos = text(at(json, {"status", "qosClass"}));
  const std::string phase = text(at(json, {"status", "phase"}));
  pod.has_ended = phase == "Succeeded" || phase == "Failed";
  const Json& annotations = at(json, {"metadata", "annotations"});
  if (annotations.is_object())
    for (const auto& [key, value] : annotations.items()) pod.annotations[key] = text(value);
  // The API server shows a static pod under another UID than the kubelet knows it by. But whoever
  // makes a pod may write this annotation.
  if (const std::string* mirrored = pod.annotation("kubernetes.io/config.mirror");
      mirrored != nullptr && is_static_name(*mirrored))
    pod.uid = *mirrored;
  pod.limits = limits_of_all(at(json, {"spec"}));
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& container : at(json, {"status", list})) {
      const std::string id = text(at(container, {"containerID"}));  // "containerd://8c1f..."
      const size_t slashes = id.find("://");
      if (slashes != std::string::npos)
        pod.containers[id.substr(slashes + 3)] = text(at(container, {"name"}));
    }
  return pod;
}

Result<Json> parse(std::string_view text, const char* step) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return make_error(std::errc::bad_message, step, "it is no JSON object");
  return json;
}

bool is_whole(const Pod& pod) {
  return !pod.uid.empty() && !pod.name.empty() && !pod.name_space.empty();
}

}  // namespace

std::optional<uint64_t> Pod::limit(std::string_view resource) const {
  const auto found = limits.find(resource);
  return found == limits.end() || found->second == 0 ? std::nullopt : std::optional(found->second);
}

const std::string* Pod::annotation(std::string_view key) const {
  const auto found = annotations.find(key);
  return found == annotations.end() ? nullptr : &found->second;
}

std::optional<uint64_t> parse_quantity(std::string_view text) {
  uint64_t number = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{}) return std::nullopt;
  const std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  constexpr std::pair<std::string_view, uint64_t> kSuffixes[] = {{"", 1},
                                                                 {"k", 1000},
                                                                 {"M", 1000'000},
                                                                 {"G", 1000'000'000},
                                                                 {"T", 1000'000'000'000},
                                                                 {"Ki", 1ULL << 10},
                                                                 {"Mi", 1ULL << 20},
                                                                 {"Gi", 1ULL << 30},
                                                                 {"Ti", 1ULL << 40}};
  for (const auto& [name, factor] : kSuffixes) {
    if (name != suffix) continue;
    if (number > std::numeric_limits<uint64_t>::max() / factor) return std::nullopt;
    return number * factor;
  }
  return std::nullopt;
}

Result<PodList> parse_pod_list(std::string_view text_) {
  const auto json = parse(text_, "read the list of pods");
  if (!json) return std::unexpected(json.error());
  if (!at(*json, {"items"}).is_array() && !at(*json, {"items"}).is_null())
    return make_error(std::errc::bad_message, "read the list of pods", "it has no items");
  PodList list;
  list.version = text(at(*json, {"metadata", "resourceVersion"}));
  if (list.version.empty())
    return make_error(std::errc::bad_message, "read the list of pods", "it has no version");
  for (const Json& item : at(*json, {"items"}))
    if (Pod pod = read_pod(item); is_whole(pod)) list.pods.push_back(std::move(pod));
  return list;
}

std::string pods_path(std::string_view node) {
  // "spec.nodeName=NODE,status.phase!=Succeeded,status.phase!=Failed"
  return "/api/v1/pods?fieldSelector=spec.nodeName%3D" + std::string(node) +
         "%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
}

Result<PodEvent> parse_pod_event(std::string_view line) {
  const auto json = parse(line, "read a change of a pod");
  if (!json) return std::unexpected(json.error());
  const std::string type = text(at(*json, {"type"}));
  const Json& object = at(*json, {"object"});
  PodEvent event;
  event.version = text(at(object, {"metadata", "resourceVersion"}));
  if (type == "ERROR") {
    const Json& code = at(object, {"code"});
    event.kind =
        code.is_number_integer() && code == 410 ? PodEvent::Kind::kExpired : PodEvent::Kind::kError;
    event.message = text(at(object, {"message"}));
    return event;
  }
  if (type == "BOOKMARK") {
    event.kind = PodEvent::Kind::kBookmark;
    return event;
  }
  event.pod = read_pod(object);
  if ((type != "ADDED" && type != "MODIFIED" && type != "DELETED") || !is_whole(event.pod))
    return make_error(std::errc::bad_message, "read a change of a pod", "type '" + type + "'");
  event.kind = type == "DELETED" ? PodEvent::Kind::kDeleted : PodEvent::Kind::kChanged;
  return event;
}

}  // namespace gpushare
