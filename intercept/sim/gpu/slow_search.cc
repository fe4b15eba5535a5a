// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/gpu/slow_search.h"

#include <algorithm>
#include <utility>

namespace gpushare::sim {
namespace {

constexpr Nanos kLeastPiece = 10us;  // what a search does whatever the budget

class SlowSearch final : public ObjectSearch {
 public:
  SlowSearch(Nanos cost, Found found, std::function<void(Nanos)> spend)
      : left_(cost), found_(std::move(found)), spend_(std::move(spend)) {}

  Result<std::optional<Found>> advance(Nanos budget) override {
    const Nanos piece = std::min(left_, std::max(budget, kLeastPiece));
    spend_(piece);
    left_ -= piece;
    if (left_ > 0ns) return std::nullopt;
    return std::move(found_);
  }

 private:
  Nanos left_;
  Found found_;
  const std::function<void(Nanos)> spend_;
};

}  // namespace

std::unique_ptr<ObjectSearch> found_after(Nanos cost, Result<ObjectSearch::Found> found,
                                          std::function<void(Nanos)> spend) {
  if (!found) return found_at_once(std::move(found));
  return std::make_unique<SlowSearch>(cost, *std::move(found), std::move(spend));
}

}  // namespace gpushare::sim
