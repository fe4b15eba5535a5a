// SPDX-License-Identifier: Apache-2.0
#include "tools/view/slo_view.h"

#include <fmt/format.h>

#include "shmctl/shim/slot.h"
#include "tools/base/format.h"

namespace gpushare {

bool does_share_sms(const TenantGpuUse& use) {
  return use.sms_sharers != kUnknown32 && use.sms_sharers > 1;
}

std::string sms_text(const TenantGpuUse& use) {
  std::string text = count_text(use.sms_in_use) + "/" + count_text(use.sms_entitled);
  if (does_share_sms(use)) text += fmt::format(" by {}", use.sms_sharers);
  return text;
}

std::string obstacle_text(const TenantGpuUse& use) {
  switch (static_cast<ShimFollows>(use.sms_follows)) {
    case ShimFollows::kUnknown:
    case ShimFollows::kFollows:
    case ShimFollows::kWaitsForRest:
    case ShimFollows::kWorkRemains:  // as long as its queue is
      return "";
    case ShimFollows::kPauses:
      return "its kernels wait for the host";
    case ShimFollows::kOwnContexts:
      return "its program has contexts of its own";
    case ShimFollows::kNoRoom:
      return "its program keeps streams in as many parts as it can have";
    case ShimFollows::kRefused:
      return "the driver makes no such part";
    case ShimFollows::kTooManyStreams:
      return "its program has too many streams";
    case ShimFollows::kLeaves:
      return "some of its launches leave its part";
    case ShimFollows::kNewerDriver:
      return "the driver is newer than the shim";
    case ShimFollows::kBypassed:
      return "a library of its program reaches the driver past the shim";
  }
  return "";
}

std::string target_text(const TenantGpuUse& use) {
  return use.slo_us == 0 ? "-" : micros_text(use.slo_us);
}

std::string rate_text(const TenantGpuUse& use) {
  if (use.iterations_per_ks == kUnknown32) return kUnknownText;
  return fmt::format("{:.1f}", use.iterations_per_ks / 1000.0);
}

std::string slo_reason(const TenantGpuUse& use) {
  const bool shares = does_share_sms(use);
  switch (use.slo_state) {
    case SloState::kNone:
      return "";
    case SloState::kRest:
      return shares ? "no target: shares what the others leave"
                    : "no target: its part of the rest by weight";
    case SloState::kUnmeasured:
      return "no iterations to measure yet: its part by weight";
    case SloState::kMeets:
      return use.latency_us != kUnknown32 && use.latency_us > use.slo_us
                 ? "as far over its target as chance makes it"
                 : "meets its target";
    case SloState::kGrows:
      return "missed its target, has got more";
    case SloState::kShrinks:
      return "needs less than it had";
    case SloState::kStarved:
      return shares ? fmt::format("not enough SMs: the {} need {}", use.sms_sharers, use.sms_needed)
                    : fmt::format("not enough SMs: needs {}", use.sms_needed);
    case SloState::kAtMost:
      return use.sms_knee != kUnknown32 && use.sms_entitled >= use.sms_knee
                 ? "misses its target, more SMs do not help"
                 : "misses its target on the most it may have";
    case SloState::kSampling:
      return "tried on fewer and more SMs: where is its knee?";
    case SloState::kYields:
      return "reads prompts: has what decoding leaves";
    case SloState::kHeld:
      return "its next prompts wait: tokens are late";
    case SloState::kEven:
      return "a prompt waits for half of its target: equal parts";
  }
  return "?";
}

}  // namespace gpushare
