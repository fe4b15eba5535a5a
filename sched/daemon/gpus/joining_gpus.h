// SPDX-License-Identifier: Apache-2.0
// JoiningGpus: the GPUs of a driver, each opened on a thread of its own, so that one that hangs,
// fails or is slow holds up none of the others: it is looked for again, and joins them when it
// answers. Until then it is closed (Gpu::closed_because()), and the scheduler leaves it alone. All
// functions but those of Gpu are called on one thread, the scheduler's. A thread whose call never
// returns stays behind, with the driver.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/daemon/gpus/backend.h"

namespace gpushare {

class JoiningGpus final : public Gpu {
 public:
  // How often a GPU that refuses is tried again, and one that another may still be asking.
  static constexpr Nanos kAgain = std::chrono::seconds(2),
                         kAgainSoon = std::chrono::milliseconds(100);

  // Begins to open all of `listed`, of which none needs to be open. `may_open`: asked each time
  // before a GPU is opened; its error says why not yet. `told` is called on other threads when
  // there is something for look(), also after the end of this object. `clock` outlives it.
  JoiningGpus(std::shared_ptr<Gpu> listed, const Clock& clock,
              std::function<Result<>(uint32_t gpu)> may_open, const std::function<void()>& told);

  // Takes what has been answered, and begins what is due. Returns the GPUs that have been opened
  // since the last call, ascending: what is known of them is in gpus() from now on. As soon as one
  // is open the log tells of those that are not; before, the caller has more to say.
  std::vector<uint32_t> look();
  // When look() is due if nothing is told before; Time::max(): not at all.
  Time next() const;
  // Waits until each has been opened or has refused, but not longer. look() then takes the answers.
  void wait(Nanos patience);

  bool has_one() const;  // that is open
  // Whether the GPU is open, or is being opened for the first time and does not hang so far.
  bool is_expected(uint32_t gpu) const;
  // Whether none is open, and none is being opened.
  bool has_none() const;
  // Whether one has been opened without an answer for DriverLine::kStuck. It would not answer who
  // opens it again either.
  bool has_hanging() const;
  // Of the first that is not open, in words; empty: all are, or nothing has come of it so far.
  std::string first_problem() const;
  // From now on support() has a switch log if one of those that are open now has, whatever joins
  // later.
  void settle_support();

  std::span<const GpuInfo> gpus() const override { return infos_; }
  Result<OpenedGpu> open(uint32_t gpu) override { return listed_->open(gpu); }
  std::string closed_because(uint32_t gpu) const override;
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t class_id) const override {
    return listed_->knows_channel_class(class_id);
  }
  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return listed_->freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return listed_->thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    return listed_->set_slice(group, slice);
  }
  Result<Micros> slice(const GroupRef& group) override { return listed_->slice(group); }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    return listed_->hardware_group(group);
  }
  Result<> stop(const ProcessId& process) override { return listed_->stop(process); }
  Result<> resume(const ProcessId& process) override { return listed_->resume(process); }
  Result<SwitchBatch> read_switches(uint32_t gpu) override { return listed_->read_switches(gpu); }
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override {
    return listed_->utilisation(gpu);
  }
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override {
    return listed_->attach(pid, known);
  }
  using Gpu::attach;
  Result<std::vector<pid_t>> users() const override { return listed_->users(); }
  std::unique_ptr<UserSearch> find_users() const override { return listed_->find_users(); }
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    return listed_->missing(objects);
  }

 private:
  struct One {
    explicit One(std::function<void()> told) : opening(std::move(told)) {}
    Opening<OpenedGpu> opening;
    std::optional<Result<OpenedGpu>> answer{};  // not looked at yet
    bool is_open = false;
    bool has_log = false;
    std::string problem{};  // why it refuses; empty: it does not
    std::string said{};     // what the log says of it
    Time again_at{};        // valid while it is neither open nor being opened
  };

  void begin(uint32_t gpu, One& one);
  bool take(uint32_t gpu, One& one);
  bool hangs(const One& one) const;
  std::string problem_of(const One& one) const;
  void say(uint32_t gpu, One& one) const;

  const std::shared_ptr<Gpu> listed_;
  const Clock& clock_;
  const std::function<Result<>(uint32_t gpu)> may_open_;
  std::vector<GpuInfo> infos_;
  GpuSupport support_;
  std::deque<One> ones_;  // by GPU
};

}  // namespace gpushare
