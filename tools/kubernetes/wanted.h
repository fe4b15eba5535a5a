// SPDX-License-Identifier: Apache-2.0
// What a pod gets: the settings of its tenant, from the shares and the memory that the kubelet
// counted for it, and from its annotations, which its owner may change while it runs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/kubernetes/pod.h"

namespace gpushare {

inline constexpr std::string_view kShareResource = "gpushare.io/share";
inline constexpr std::string_view kMemoryResource = "gpushare.io/memory";

// The administrator's.
struct ShareRules {
  uint32_t shares = 100;              // of one GPU
  uint32_t weight = 1000;             // of a tenant that has a whole GPU
  uint64_t memory_unit = 1ULL << 30;  // bytes of one gpushare.io/memory
  uint64_t memory_per_share = 0;      // bytes that go with a share; 0: none do
  double max_share = 0;               // up to which an annotation may raise a pod's shares
  bool is_hard = false;               // nobody gets more than its shares, even if the GPU is free
  bool may_be_high = false;           // by annotation
  uint64_t gpu_memory = 0;            // bytes of the smallest GPU; 0: not known
  std::string below{};                // the tenant below which pods are, with %n; empty: none
};

struct Wanted {
  double shares = 0;  // of each GPU that the pod has
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> complaints;  // of annotations, each a whole sentence

  bool operator==(const Wanted&) const = default;
};

// nullopt: the pod has asked for nothing of a GPU.
//
// A pod that asks gpushare.io/share has what it asked; an annotation lowers that, and raises it up
// to max_share. Otherwise HAMi's or KAI's words count, whose schedulers then watch over the sum,
// and our own annotations give no weight: nobody would watch over that. A word that cannot be read
// is complained of and counts as not said.
std::optional<Wanted> wanted_of(const Pod& pod, const ShareRules& rules);

// `below` with the pod's namespace in place of each %n.
std::string tenant_above(const Pod& pod, std::string_view below);
// "k8s-NAMESPACE.POD.12345678", whose end is of the UID, shortened to what a tenant's name may be;
// "ABOVE/k8s-..." where it is below another one. ABOVE has at most kLongestAbove characters.
std::string tenant_name(const Pod& pod, std::string_view above = {});
inline constexpr size_t kLongestAbove = 40;
// Whether a tenant has the name of a pod's, at the top or below another one. Pods' namespaces have
// no dots, so that the tenant of a namespace never has, whatever it is called.
bool is_pods_tenant(std::string_view name);
inline constexpr std::string_view kTenantPrefix = "k8s-";

}  // namespace gpushare
