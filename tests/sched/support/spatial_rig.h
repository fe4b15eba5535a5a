// SPDX-License-Identifier: Apache-2.0
// The steps of GPUs that are shared spatially: snapshot, a policy's plan, partitions; without the
// sockets and without anything in time. What tests bring are programs with slots.
#pragma once

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
  // Returns when the next step is wanted.
  Time step(Time now, std::vector<ShimClient> clients) {
    for (ShimClient& client : clients) client.said = read_slot(*client.slot);
    spatial_.read(now, std::move(clients));
    for (Decider& decider : deciders_) {
      const uint32_t gpu = decider.gpu.index;
      views_.clear();
      views_.join(spatial_.views(gpu));
      views_.add_tenants(gpu, tenants, *region_, this);
      Plan plan = decider.policy->plan(views_.snapshot(now, decider.gpu));
      spatial_.apply(now, gpu, plan.partitions);
      decider.statuses = std::move(plan.statuses);
    }
    return spatial_.finish(now);
  }

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
  struct Decider {
    GpuView gpu;
    std::unique_ptr<Policy> policy;
    std::vector<SloStatus> statuses;
  };

  std::vector<GpuInfo> infos_;
  std::vector<Decider> deciders_;
  Spatial spatial_{{}};
  Views views_;
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
};

}  // namespace gpushare::test
