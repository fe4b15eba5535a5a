// SPDX-License-Identifier: Apache-2.0
// The steps of GPUs that are shared spatially: snapshot, a policy's plan, partitions; without the
// sockets and without anything in time. What tests bring are programs with slots.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sched/step/views.h"
#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/policies.h"

namespace gpushare::test {

class SpatialRig : private NoShims {
 public:
  using Make = std::function<std::unique_ptr<Policy>(const GpuView&)>;

  // `features`: ShimFeature, that every program is asked for.
  SpatialRig(std::vector<GpuInfo> gpus, const Make& make, uint32_t features = 0) {
    restart(std::move(gpus), make, features);
  }
  explicit SpatialRig(std::vector<GpuInfo> gpus)
      : SpatialRig(std::move(gpus), [](const GpuView&) { return make_policy("fair"); }) {}

  // As a new agent, of other GPUs or with another policy. The tenants stay.
  void restart(std::vector<GpuInfo> gpus, const Make& make, uint32_t features = 0) {
    infos_ = std::move(gpus);
    deciders_.clear();
    std::vector<SpatialGpu> spatial;
    for (const GpuInfo& info : infos_) {
      spatial.push_back({.info = info, .features = features});
      const GpuView gpu{.index = info.index,
                        .name = info.name,
                        .geometry = geometry_of(info.sm_count),
                        .is_spatial = true};
      deciders_.push_back({.gpu = gpu, .policy = make(gpu), .statuses = {}});
    }
    spatial_ = Spatial(spatial);
  }

  ShimRequest wish(uint32_t tenant) const {
    return spatial_.wish(tenant, tenants.at(tenant)->settings);
  }
  // As if every process had a context, so that its iterations can be stopped.
  void give_contexts() { have_contexts_ = true; }

  // Returns when the next step is wanted.
  Time step(Time now, std::vector<ShimClient> clients) {
    for (ShimClient& client : clients) client.said = read_slot(*client.slot);
    spatial_.read(now, std::move(clients));
    Time next = Time::max();
    for (Decider& decider : deciders_) {
      const uint32_t gpu = decider.gpu.index;
      views_.clear();
      if (have_contexts_)
        for (const ShimClient& client : spatial_.clients())
          views_.add({.id = static_cast<uint32_t>(&client - spatial_.clients().data()),
                      .process = client.process,
                      .tenant = client.tenant});
      views_.join(spatial_.views(gpu));
      views_.add_tenants(gpu, tenants, *region_, this);
      Plan plan = decider.policy->plan(views_.snapshot(now, decider.gpu));
      spatial_.apply(now, gpu, plan.partitions);
      if (have_contexts_) stop(plan);
      next = std::min(next, plan.next);
      decider.statuses = std::move(plan.statuses);
    }
    return std::min(next, spatial_.finish(now));
  }
  // Whether its gate is closed until its tenant has its groups.
  bool is_held(const ProcessId& process) const { return spatial_.is_held(process); }

  TenantPartition partition(uint32_t tenant, uint32_t gpu = 0) const override {
    return spatial_.partition(tenant, gpu);
  }
  // Of the last plan; of a tenant that it does not name, nothing is known.
  SloStatus status(uint32_t tenant, uint32_t gpu = 0) const {
    for (const SloStatus& status : deciders_[gpu].statuses)
      if (status.tenant == tenant) return status;
    return {};
  }

  Tenants tenants;

 private:
  void stop(const Plan& plan) {
    for (const ShimClient& client : spatial_.clients()) client.slot->iterations.run_until = 0;
    for (const Decision& decision : plan.decisions)
      spatial_.clients()[decision.process].slot->iterations.run_until = decision.run_until;
  }

  struct Decider {
    GpuView gpu;
    std::unique_ptr<Policy> policy;
    std::vector<SloStatus> statuses;
  };

  std::vector<GpuInfo> infos_;
  std::vector<Decider> deciders_;
  bool have_contexts_ = false;
  Spatial spatial_{{}};
  Views views_;
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
};

}  // namespace gpushare::test
