// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/containers/container_records.h"

#include <nlohmann/json.hpp>

namespace gpushare {
namespace {

using Json = nlohmann::json;

// As the kubelet calls a container of a pod: by containerd's plugin, and by CRI-O. And nerdctl.
constexpr const char* kNames[] = {"io.kubernetes.cri.container-name",
                                  "io.kubernetes.container.name", "nerdctl/name"};

// Nothing where there is no such member.
const Json& member(const Json& object, const char* key) {
  static const Json kNothing;
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? kNothing : *at;
}

void add_labels(const Json& object, Container& container) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (container.labels.size() >= kMostLabels) return;
    if (!value.is_string() || key.size() > kLongestLabel) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() <= kLongestLabel) container.labels.emplace(key, text);
  }
}

Json parse(std::string_view text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

}  // namespace

Container docker_container(std::string_view text) {
  const Json config = parse(text);
  Container container;
  if (const Json& name = member(config, "Name"); name.is_string()) {
    container.names.push_back(name.get<std::string>());
    if (container.names[0].starts_with('/')) container.names[0].erase(0, 1);
  }
  add_labels(member(member(config, "Config"), "Labels"), container);
  return container;
}

Container oci_container(std::string_view text) {
  const Json config = parse(text);
  const Json& annotations = member(config, "annotations");
  Container container;
  for (const char* key : kNames)
    if (const Json& name = member(annotations, key); name.is_string())
      container.names.push_back(name.get<std::string>());
  add_labels(annotations, container);
  return container;
}

std::vector<std::string> stored_names(std::string_view text, std::string_view id) {
  std::vector<std::string> names;
  const Json all = parse(text);
  if (!all.is_array()) return names;
  for (const Json& one : all) {
    const Json& own = member(one, "id");
    if (!own.is_string() || own.get_ref<const std::string&>() != id ||
        !member(one, "names").is_array())
      continue;
    for (const Json& name : member(one, "names"))
      if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace gpushare
