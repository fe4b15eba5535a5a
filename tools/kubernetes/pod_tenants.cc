// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/pod_tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/kubernetes/devices.h"

namespace gpushare {
namespace {

std::vector<std::string> sorted(std::vector<std::string> all) {
  std::ranges::sort(all);
  return all;
}

}  // namespace

void PodTenants::replace(const std::vector<Pod>& pods) {
  is_in_sight_ = true;
  std::set<std::string> present;
  for (const Pod& pod : pods) present.insert(pod.object_uid);
  std::vector<Pod> gone;
  for (const auto& [uid, pod] : pods_)
    if (!present.contains(uid)) gone.push_back(pod);
  for (const Pod& pod : gone) remove(pod);
  for (const Pod& pod : pods) change(pod);
}

void PodTenants::change(const Pod& pod) {
  if (pod.has_ended) return remove(pod);
  pods_.insert_or_assign(pod.object_uid, pod);
  if (uid_of(pod) != pod.uid)
    complain(pod,
             fmt::format("annotation kubernetes.io/config.mirror: another pod has '{}' too, and "
                         "neither is believed",
                         pod.uid));
  Pod placed = pod;
  if (const auto most = most_shares_of_a_gpu_.find(pod.object_uid);
      most != most_shares_of_a_gpu_.end())
    placed.most_shares_of_a_gpu = most->second;
  auto wanted = wanted_of(placed, rules_);
  if (!wanted) {
    forget_tenant(pod.object_uid);
    return;
  }
  for (const std::string& complaint : wanted->complaints) complain(pod, complaint);
  if (const std::string above = tenant_above(pod, rules_.below); above.size() > kLongestAbove)
    complain(pod, fmt::format("its tenant is at the top: the one above it, '{}', would have {} "
                              "characters, and may have {}",
                              above, above.size(), kLongestAbove));
  const auto known = tenants_.find(pod.object_uid);
  std::string name = known == tenants_.end() ? name_for(pod) : known->second.name;
  tenants_.insert_or_assign(
      pod.object_uid, PodTenant{.pod = pod, .wanted = *std::move(wanted), .name = std::move(name)});
}

const std::string& PodTenants::uid_of(const Pod& pod) const {
  if (pod.uid == pod.object_uid) return pod.uid;
  const bool is_shared = std::ranges::any_of(pods_, [&](const auto& entry) {
    return entry.first != pod.object_uid && entry.second.uid == pod.uid;
  });
  return is_shared ? pod.object_uid : pod.uid;
}

std::vector<std::string> PodTenants::cgroups_of(const Pod& pod) const {
  Pod known = pod;
  known.uid = uid_of(pod);
  return pod_cgroups(known, driver_, cgroup_root_);
}

// Each is made once.
void PodTenants::complain(const Pod& pod, std::string_view what) {
  std::string whole = fmt::format("{}: {}", pod.full_name(), what);
  if (complained_.insert(whole).second) complaints_.push_back(std::move(whole));
}

// One that the agent has already, as that of this pod, goes on.
std::string PodTenants::name_for(const Pod& pod) const {
  const std::string at_the_top = tenant_name(pod);
  const std::string above = tenant_above(pod, rules_.below);
  if (present_.contains(at_the_top) || above.empty() || above.size() > kLongestAbove)
    return at_the_top;
  return present_.contains(above) ? tenant_name(pod, above) : at_the_top;
}

void PodTenants::set_present(const std::vector<std::string>& names) {
  present_ = {names.begin(), names.end()};
  // Those of which the agent was told nothing yet.
  for (auto& [uid, tenant] : tenants_)
    if (!told_.contains(tenant.name)) tenant.name = name_for(tenant.pod);
}

void PodTenants::forget_tenant(const std::string& uid) {
  const auto tenant = tenants_.find(uid);
  if (tenant == tenants_.end()) return;
  std::erase_if(refused_,
                [&](const auto& entry) { return entry.first.tenant == tenant->second.name; });
  tenants_.erase(tenant);
}

// What does not sum up to what was counted is of two pods of one name, or not all of it is given.
void PodTenants::see_devices(const std::vector<ContainerDevices>& all) {
  std::map<std::string, std::map<std::string, uint64_t>> shares;  // by pod and GPU
  for (const ContainerDevices& container : all)
    if (container.resource == kShareResource)
      for (const std::string& id : container.ids)
        ++shares[container.name_space + "/" + container.pod][gpu_of(id)];
  std::vector<Pod> changed;
  for (const auto& [uid, tenant] : tenants_) {
    const auto given = shares.find(tenant.pod.full_name());
    if (given == shares.end()) continue;
    uint64_t sum = 0, most = 0;
    for (const auto& [gpu, count] : given->second) {
      sum += count;
      most = std::max(most, count);
    }
    if (sum == tenant.pod.limit(kShareResource)) {
      const auto known = most_shares_of_a_gpu_.find(uid);
      if (known != most_shares_of_a_gpu_.end() && known->second == most) continue;
      most_shares_of_a_gpu_[uid] = most;
      changed.push_back(tenant.pod);
    } else if (given->second.size() > 1 && !tenant.pod.containers.empty()) {
      complain(tenant.pod,
               fmt::format("it has {} shares of several GPUs in place of {}, all of which weigh on "
                           "each of them",
                           sum, tenant.pod.limit(kShareResource).value_or(0)));
    }
  }
  for (const Pod& pod : changed) change(pod);
}

bool PodTenants::has_unplaced() const {
  return std::ranges::any_of(tenants_, [&](const auto& entry) {
    return entry.second.pod.limit(kShareResource) && !most_shares_of_a_gpu_.contains(entry.first);
  });
}

void PodTenants::remove(const Pod& pod) {
  most_shares_of_a_gpu_.erase(pod.object_uid);
  pods_.erase(pod.object_uid);
  forget_tenant(pod.object_uid);
  std::erase_if(complained_, [&](const std::string& complaint) {
    return complaint.starts_with(pod.full_name() + ": ");
  });
}

PodTenants::StepName PodTenants::name_of(const Step& step) {
  return {.tenant = step.tenant, .op = step.request.op, .cgroup = step.request.cgroup};
}

std::vector<PodTenants::Step> PodTenants::steps(Time now) const {
  std::vector<Step> steps;
  std::set<std::string> wanted;
  for (const auto& [uid, tenant] : tenants_) wanted.insert(tenant.name);
  for (const auto& [name, told] : told_)
    if (!wanted.contains(name)) steps.push_back({name, {.op = "remove", .tenant = name}});
  for (const auto& [uid, tenant] : tenants_) {
    const auto told = told_.find(tenant.name);
    if (told == told_.end() || told->second.settings != tenant.wanted.settings)
      steps.push_back({tenant.name,
                       {.op = "set",
                        .tenant = tenant.name,
                        .settings = tenant.wanted.settings,
                        .create = true}});
    for (const std::string& cgroup : cgroups_of(tenant.pod))
      if (told == told_.end() || !told->second.cgroups.contains(cgroup))
        steps.push_back({tenant.name, {.op = "attach", .tenant = tenant.name, .cgroup = cgroup}});
  }
  std::erase_if(steps, [&](const Step& step) {
    const auto refusal = refused_.find(name_of(step));
    return refusal != refused_.end() && refusal->second.settings == step.request.settings &&
           now < refusal->second.next;
  });
  return steps;
}

bool PodTenants::refused(const Step& step, const std::string& why, Time now) {
  Refusal& refusal = refused_[name_of(step)];
  refusal.pause = std::clamp(2 * refusal.pause, kFirstRetry, kLastRetry);
  refusal.next = now + refusal.pause;
  refusal.settings = step.request.settings;
  return std::exchange(refusal.why, why) != why;
}

void PodTenants::told(const Step& step) {
  refused_.erase(name_of(step));
  if (step.request.op == "remove") {
    const auto removed = told_.extract(step.tenant);
    // The agent has let its cgroups go with it. One that is a living tenant's is attached again.
    if (removed)
      for (auto& [name, told] : told_)
        for (const std::string& cgroup : removed.mapped().cgroups) told.cgroups.erase(cgroup);
  } else if (step.request.op == "set") {
    told_[step.tenant].settings = step.request.settings;
  } else {
    told_[step.tenant].cgroups.insert(step.request.cgroup);
  }
}

void PodTenants::forget_told(const std::vector<std::string>& present) {
  told_.clear();
  refused_.clear();
  for (const std::string& name : present)
    if (is_pods_tenant(name)) told_[name];
  set_present(present);
}

bool PodTenants::is_known(const std::string& name_space, const std::string& name) const {
  return std::ranges::any_of(pods_, [&](const auto& entry) {
    return entry.second.name_space == name_space && entry.second.name == name;
  });
}

bool PodTenants::is_settled(const std::string& name_space, const std::string& name) const {
  for (const auto& [uid, tenant] : tenants_) {
    if (tenant.pod.name_space != name_space || tenant.pod.name != name) continue;
    const auto told = told_.find(tenant.name);
    if (told == told_.end() || told->second.settings != tenant.wanted.settings ||
        !std::ranges::includes(told->second.cgroups, sorted(cgroups_of(tenant.pod))))
      return false;
  }
  return is_known(name_space, name);
}

PodNames PodTenants::names() const {
  PodNames names;
  for (const auto& [uid, pod] : pods_) {
    PodName& name = names[uid_of(pod)];
    name.name_space = pod.name_space;
    name.pod = pod.name;
    name.containers.insert(pod.containers.begin(), pod.containers.end());
  }
  return names;
}

std::vector<std::string> PodTenants::take_complaints() { return std::exchange(complaints_, {}); }

}  // namespace gpushare
