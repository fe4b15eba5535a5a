// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_claims.h"

namespace gpushare {
namespace {

class ShareClaims final : public SmClaims {
 public:
  explicit ShareClaims(const SmGeometry& geometry) : geometry_(geometry) {}

  uint32_t features(const TenantSettings& settings) const override {
    return settings.sm_percent ? kShimGate | kShimPartitions : 0;
  }
  std::vector<SmClaim> decide(Time, const std::vector<SmClaimant>& claimants) override {
    std::vector<SmClaim> claims;
    claims.reserve(claimants.size());
    for (const SmClaimant& claimant : claimants)
      claims.push_back(
          {.groups = groups_of_percent(claimant.settings.sm_percent.value_or(100), geometry_)});
    return claims;
  }

 private:
  const SmGeometry geometry_;
};

}  // namespace

std::unique_ptr<SmClaims> make_share_claims(const GpuInfo&, const SmGeometry& geometry) {
  return std::make_unique<ShareClaims>(geometry);
}

}  // namespace gpushare
