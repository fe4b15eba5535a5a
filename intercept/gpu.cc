// SPDX-License-Identifier: Apache-2.0
#include "intercept/gpu.h"

#include <utility>

namespace gpushare {
namespace {

class FoundAtOnce final : public ObjectSearch {
 public:
  explicit FoundAtOnce(Result<Found> found) : found_(std::move(found)) {}
  Result<std::optional<Found>> advance(Nanos) override {
    if (!found_) return std::unexpected(found_.error());
    return std::move(*found_);
  }

 private:
  Result<Found> found_;
};

class UsersAtOnce final : public UserSearch {
 public:
  explicit UsersAtOnce(Result<std::vector<pid_t>> users) : users_(std::move(users)) {}
  Result<std::optional<std::vector<pid_t>>> advance(Nanos) override {
    if (!users_) return std::unexpected(users_.error());
    return std::move(*users_);
  }

 private:
  Result<std::vector<pid_t>> users_;
};

}  // namespace

std::unique_ptr<UserSearch> users_at_once(Result<std::vector<pid_t>> users) {
  return std::make_unique<UsersAtOnce>(std::move(users));
}

Result<OpenedGpu> Gpu::open(uint32_t gpu) {
  if (gpu >= gpus().size())
    return make_error(std::errc::no_such_device, "open a GPU", std::to_string(gpu));
  return OpenedGpu{.info = gpus()[gpu]};
}

Result<ObjectSearch::Found> ObjectSearch::finish() {
  for (;;) {
    auto found = advance(Nanos::max() / 2);
    if (!found) return std::unexpected(found.error());
    if (*found) return std::move(**found);
  }
}

std::unique_ptr<ObjectSearch> found_at_once(Result<ObjectSearch::Found> found) {
  return std::make_unique<FoundAtOnce>(std::move(found));
}

}  // namespace gpushare
