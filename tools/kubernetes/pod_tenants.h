// SPDX-License-Identifier: Apache-2.0
// PodTenants: the pods of this node and the tenants that they are to be, and what the agent must be
// told to make it so. It remembers what the agent was told, so that nothing is said twice. Pure;
// one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "tools/agent/protocol.h"
#include "tools/exporter/pod_names.h"
#include "tools/kubernetes/cgroup.h"
#include "tools/kubernetes/kubelet.h"
#include "tools/kubernetes/wanted.h"

namespace gpushare {

struct PodTenant {
  Pod pod;
  Wanted wanted;
  std::string name;  // of the tenant
};

class PodTenants {
 public:
  PodTenants(ShareRules rules, CgroupDriver driver, std::string cgroup_root)
      : rules_(rules), driver_(driver), cgroup_root_(std::move(cgroup_root)) {}

  void set_gpu_memory(uint64_t bytes) { rules_.gpu_memory = bytes; }
  // The tenants that the agent has. A pod is below the one that is to be above it where there is
  // such a one when the pod comes, and otherwise at the top; there it stays.
  void set_present(const std::vector<std::string>& names);
  // The pods that there are now; others have gone.
  void replace(const std::vector<Pod>& pods);
  void change(const Pod& pod);
  void remove(const Pod& pod);
  // Pods may come and go unseen from now on, until replace().
  void lose_sight() { is_in_sight_ = false; }
  // Which devices containers have, by the kubelet's word: a pod weighs on each of its GPUs what it
  // has of the one of which it has most. Before it is known it weighs what it has in all.
  void see_devices(const std::vector<ContainerDevices>& all);
  bool has_unplaced() const;  // a pod with shares of which that is not known

  // A request, and the tenant for which it is.
  struct Step {
    std::string tenant;
    Request request;
  };
  // What the agent is to be told now. A tenant is made before its cgroups are attached.
  std::vector<Step> steps(Time now) const;
  // The agent has done it.
  void told(const Step& step);
  // The agent has not: it is asked again after a while, and ever more rarely, or at once when the
  // step is another. Returns whether `why` is new for this step.
  bool refused(const Step& step, const std::string& why, Time now);
  static constexpr Nanos kFirstRetry = std::chrono::seconds{1};
  static constexpr Nanos kLastRetry = std::chrono::seconds{60};
  // Another agent answers, which may know nothing. `present`: the tenants that it has. Those of
  // pods that are gone will be removed.
  void forget_told(const std::vector<std::string>& present);

  // Whether the agent was told all of this pod; a pod that asks for nothing is settled.
  bool is_settled(const std::string& name_space, const std::string& name) const;
  // The same, and no other pod of this name can have come unseen.
  bool is_surely_settled(const std::string& name_space, const std::string& name) const {
    return is_in_sight_ && is_settled(name_space, name);
  }
  bool is_in_sight() const { return is_in_sight_; }
  bool is_known(const std::string& name_space, const std::string& name) const;
  const std::map<std::string, PodTenant>& tenants() const { return tenants_; }  // by UID
  // What the pods and their containers are called, all of the node's, by their cgroups' UIDs.
  PodNames names() const;
  // New complaints, each once, as "NAMESPACE/POD: ...".
  std::vector<std::string> take_complaints();

 private:
  struct Told {
    std::vector<std::pair<std::string, std::string>> settings;
    std::set<std::string> cgroups;
  };

  struct StepName {
    std::string tenant, op, cgroup;
    auto operator<=>(const StepName&) const = default;
  };
  struct Refusal {
    std::vector<std::pair<std::string, std::string>> settings;
    std::string why;
    Nanos pause{};
    Time next{};
  };
  static StepName name_of(const Step& step);
  void complain(const Pod& pod, std::string_view what);
  std::string name_for(const Pod& pod) const;
  // By which the kubelet knows it. A static pod's is the pod's own word: where two say the same,
  // neither is believed, and each has the UID of its object, of which it can have no other's.
  const std::string& uid_of(const Pod& pod) const;
  std::vector<std::string> cgroups_of(const Pod& pod) const;
  void forget_tenant(const std::string& uid);  // of the pod's object

  bool is_in_sight_ = false;
  ShareRules rules_;
  CgroupDriver driver_;
  std::string cgroup_root_;
  std::map<std::string, Pod> pods_;                       // by the object's UID
  std::map<std::string, PodTenant> tenants_;              // of those that ask for something
  std::map<std::string, uint64_t> most_shares_of_a_gpu_;  // by the object's UID
  std::map<std::string, Told> told_;                      // by tenant
  std::set<std::string, std::less<>> present_;
  std::map<StepName, Refusal> refused_;
  std::set<std::string> complained_;
  std::vector<std::string> complaints_;
};

}  // namespace gpushare
