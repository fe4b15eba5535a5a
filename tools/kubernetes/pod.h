// SPDX-License-Identifier: Apache-2.0
// Pod: what the API server says of a pod, as far as it matters here. Pure; defined for any text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare {

struct Pod {
  std::string uid;  // by which the kubelet names its cgroup
  // Of the object. Another one only for what says of itself that it is a static pod, whose `uid`
  // has no dashes then.
  std::string object_uid;
  std::string name_space;
  std::string name;
  std::string qos;         // "Guaranteed", "Burstable", "BestEffort"
  bool has_ended = false;  // all of its containers have, for good
  std::map<std::string, std::string, std::less<>> annotations;
  // Limits of all containers and sidecars together, or of the init container that wants more with
  // the sidecars before it; by resource, in units of the resource. What is no whole number is left
  // out.
  std::map<std::string, uint64_t, std::less<>> limits;
  // Of gpushare.io/share, where the kubelet has said which GPUs its containers have: of the GPU of
  // which it has most. The API server does not know.
  std::optional<uint64_t> most_shares_of_a_gpu;
  std::map<std::string, std::string> containers;  // 64 hexadecimal digits: name

  std::string full_name() const { return name_space + "/" + name; }
  std::optional<uint64_t> limit(std::string_view resource) const;
  const std::string* annotation(std::string_view key) const;  // nullptr: there is none
};

// A quantity of Kubernetes that is a whole number: "7", "2k", "12Gi". nullopt: it is none, or does
// not fit.
std::optional<uint64_t> parse_quantity(std::string_view text);

struct PodList {
  std::vector<Pod> pods;
  std::string version;  // from which on to watch
};
Result<PodList> parse_pod_list(std::string_view json);

struct PodEvent {
  enum class Kind { kChanged, kDeleted, kBookmark, kExpired, kError };
  Kind kind = Kind::kError;
  Pod pod;              // of kChanged and kDeleted
  std::string version;  // empty: not said
  std::string message;  // of kError
};
// Where to ask the API server for the pods of a node that have not ended. One that ends leaves the
// selection, which a watch tells as kDeleted.
std::string pods_path(std::string_view node);

// A line of a watch. kExpired: the version is too old, and the pods are to be listed again.
Result<PodEvent> parse_pod_event(std::string_view json);

}  // namespace gpushare
