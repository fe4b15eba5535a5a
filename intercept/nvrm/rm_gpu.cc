// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/rm_gpu.h"

#include <array>
#include <mutex>
#include <optional>
#include <type_traits>

#include "intercept/nvrm/abi.h"
#include "intercept/nvrm/attach.h"
#include "intercept/nvrm/channels.h"
#include "intercept/nvrm/client.h"
#include "intercept/nvrm/nvml.h"
#include "intercept/nvrm/switch_log.h"
#include "intercept/nvrm/versions.h"
#include "intercept/process_stop.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using namespace nvrm;

class Users final : public UserSearch {
 public:
  explicit Users(Driver& driver) : driver_(driver) {}

  Result<std::optional<std::vector<pid_t>>> advance(Nanos budget) override {
    const Time until = std::chrono::steady_clock::now() + budget;
    if (!has_begun_) {
      auto all = driver_.processes();
      if (!all) return std::unexpected(all.error());
      left_ = std::move(*all);
    }
    has_begun_ = true;
    while (!left_.empty()) {
      if (auto looked = look(); !looked) return std::unexpected(looked.error());
      if (std::chrono::steady_clock::now() >= until && !left_.empty()) return std::nullopt;
    }
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kDescriptors = 256;  // of one look

  Result<> look() {
    const pid_t pid = left_.back();
    const bool is_own = pid == ::getpid();
    const Result<Driver::Look> seen =
        is_own ? Driver::Look{} : driver_.look_for_control_fd(pid, place_, kDescriptors);
    if (!seen) return std::unexpected(seen.error());
    if (seen->has_found) found_.push_back(pid);
    const bool is_done = seen->has_found || !seen->next;
    place_ = is_done ? 0 : *seen->next;
    if (is_done) left_.pop_back();
    return {};
  }

  Driver& driver_;
  bool has_begun_ = false;
  std::vector<pid_t> left_, found_;
  long place_ = 0;  // in the descriptors of the last of left_
};

class RmGpu final : public Gpu {
 public:
  // `load`: Driver::load().
  RmGpu(RmClient client, RmUse use, uint64_t load) : client_(std::move(client)), use_(use) {
    for (const RmGpuDevice& gpu : client_.gpus()) infos_.push_back(gpu.info);
    support_.driver_version = client_.driver_version();
    const Trust trust = driver_trust(client_.driver_version());
    support_.can_freeze = support_.can_set_slice = trust != Trust::kUnknown;
    if (trust == Trust::kUnknown)
      support_.reason =
          "driver " + client_.driver_version() + " is not one we know (535 to 595): observing only";
    support_.driver_load = load;
    if (use == RmUse::kAgent) nvml_ = Nvml::load();
  }

  // For whoever needs them all now. Error: none could be opened.
  Result<> open_all() {
    std::optional<Error> refused;
    std::string no_log;
    bool has_one = false;
    for (GpuInfo& info : infos_) {
      auto opened = open(info.index);
      if (!opened) {
        refused = opened.error();
        continue;
      }
      has_one = true;
      info = std::move(opened->info);
      if (opened->no_log_reason.empty())
        support_.has_switch_log = true;
      else if (no_log.empty())
        no_log = std::move(opened->no_log_reason);
    }
    if (!has_one) return std::unexpected(*refused);
    if (support_.reason.empty() && refused)
      support_.reason = "a GPU is left alone: " + refused->message();
    if (support_.reason.empty() && use_ == RmUse::kAgent) support_.reason = no_log;
    return {};
  }

  Result<OpenedGpu> open(uint32_t gpu) override {
    if (gpu >= infos_.size())
      return make_error(std::errc::no_such_device, "open a GPU", std::to_string(gpu));
    One& one = ones_[gpu];
    const std::lock_guard lock(one.opening);
    if (auto done = client_.open(gpu); !done) return std::unexpected(done.error());
    OpenedGpu opened{.info = client_.gpus()[gpu].info};
    if (use_ == RmUse::kRecovery) {
      opened.no_log_reason = "not for recovery";
    } else if (one.log == nullptr) {
      auto log = SwitchLog::open(client_, gpu);
      if (log)
        one.log = std::make_unique<SwitchLog>(std::move(*log));
      else
        opened.no_log_reason = "no context-switch log: " + log.error().message();
    }
    return opened;
  }

  std::span<const GpuInfo> gpus() const override { return infos_; }
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t class_id) const override {
    return is_known_channel_class(class_id);
  }

  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    if (auto allowed = check_control(gpu, support_.can_freeze); !allowed) return allowed;
    return freeze_channels(client_, gpu, channels);
  }
  // Allowed with an unknown driver, too: whatever was frozen must be thawed.
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    if (auto allowed = check_control(gpu, true); !allowed) return allowed;
    return thaw_channels(client_, gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    if (auto allowed = check_allowed(support_.can_set_slice); !allowed) return allowed;
    if (slice < Micros(1))
      return make_error(std::errc::invalid_argument, "set time slice", "at least 1 us");
    return through_holders(
        group, [&](const GroupRef& ref) { return set_group_slice(client_, ref, slice); });
  }
  Result<Micros> slice(const GroupRef& group) override {
    return through_holders(group, [&](const GroupRef& ref) { return group_slice(client_, ref); });
  }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    return through_holders(group, [&](const GroupRef& ref) { return group_number(client_, ref); });
  }
  Result<> stop(const ProcessId& process) override { return stop_process(process); }
  Result<> resume(const ProcessId& process) override { return resume_process(process); }

  Result<SwitchBatch> read_switches(uint32_t gpu) override {
    if (use_ == RmUse::kRecovery || gpu >= infos_.size() || !client_.is_open(gpu))
      return make_error(std::errc::not_supported, "read the switch log");
    One& one = ones_[gpu];
    if (one.log == nullptr) {  // it failed before
      auto log = SwitchLog::open(client_, gpu);
      if (!log) return std::unexpected(log.error());
      one.log = std::make_unique<SwitchLog>(std::move(*log));
    }
    auto batch = one.log->read();
    if (!batch) one.log.reset();
    return batch;
  }

  std::optional<UtilisationSample> utilisation(uint32_t gpu) override {
    if (!nvml_ || gpu >= infos_.size()) return std::nullopt;
    if (!client_.is_open(gpu)) return std::nullopt;
    const GpuInfo& info = client_.gpus()[gpu].info;
    return nvml_->utilisation(info.pci.empty() ? info.uuid : info.pci);
  }

  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override {
    const auto stat = read_proc_stat(pid);
    if (!stat) return found_at_once(std::unexpected(stat.error()));
    return find_objects(client_, {pid, stat->start_ticks}, known, learnt_);
  }

  Result<std::vector<pid_t>> users() const override {
    const auto all = client_.driver().processes();
    if (!all) return all;
    std::vector<pid_t> found;
    for (pid_t pid : *all) {
      if (pid == ::getpid()) continue;
      const auto fds = client_.driver().control_fds(pid);
      if (!fds) return std::unexpected(fds.error());
      if (!fds->empty()) found.push_back(pid);
    }
    return found;
  }
  std::unique_ptr<UserSearch> find_users() const override {
    return std::make_unique<Users>(client_.driver());
  }
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    std::vector<ObjectRef> gone;
    for (const ObjectRef& object : objects) {
      gs_access_rights params{.h_object = object.object, .h_client = object.client, .rights = 0};
      const auto there =
          rm_control(client_.driver(), client_.fd(), client_.client(), client_.client(),
                     GS_CTRL_CLIENT_GET_ACCESS_RIGHTS, params, "ask for an object");
      if (there) continue;
      if (!is_gone(there.error())) return std::unexpected(there.error());
      gone.push_back(object);
    }
    return gone;
  }

 private:
  // What one GPU has besides its client.
  struct One {
    std::mutex opening;
    std::unique_ptr<SwitchLog> log;  // nullptr: it is not open
  };

  Result<> check_allowed(bool is_allowed) const {
    if (!is_allowed)
      return make_error(std::errc::operation_not_permitted, "control a GPU", support_.reason);
    return {};
  }
  // Asks on the owner's descriptor; when the owner has it no more, on those that others have of it.
  template <class Ask>
  std::invoke_result_t<Ask, const GroupRef&> through_holders(const GroupRef& group,
                                                             const Ask& ask) {
    auto answer = ask(group);
    if (answer || !may_have_moved(answer.error())) return answer;
    for (const auto& [process, fd] : learnt_.holders(group.client)) {
      if (process == group.process) continue;
      auto other = ask({process, fd, group.client, group.group});
      if (other || !may_have_moved(other.error())) return other;
      if (is_gone(other.error())) learnt_.forget(process);  // others come into its place
    }
    // One that is not reaped yet has ended, too.
    if (client_.driver().life(group.process) == Life::kEnded)
      return make_error(std::errc::no_such_process, answer.error().step, answer.error().detail);
    return answer;
  }
  // Opens the GPU if it is not open: for recovery the first call is early enough.
  Result<> check_control(uint32_t gpu, bool is_allowed) {
    if (gpu >= infos_.size())
      return make_error(std::errc::no_such_device, "control a GPU", std::to_string(gpu));
    if (auto allowed = check_allowed(is_allowed); !allowed || client_.is_open(gpu)) return allowed;
    const auto opened = open(gpu);
    return opened ? Result<>{} : std::unexpected(opened.error());
  }

  RmClient client_;
  const RmUse use_;
  std::vector<GpuInfo> infos_;
  GpuSupport support_;
  Learnt learnt_;
  std::array<One, GS_MAX_GPUS> ones_;  // by GPU; after client_: they use it
  std::unique_ptr<Nvml> nvml_;
};

Result<std::unique_ptr<RmGpu>> list(Driver& driver, RmUse use) {
  auto client = RmClient::list(driver);
  if (!client) return std::unexpected(client.error());
  return std::make_unique<RmGpu>(std::move(*client), use, driver.load());
}

}  // namespace

Result<std::unique_ptr<Gpu>> make_rm_gpu(Driver& driver, RmUse use) {
  auto gpu = list(driver, use);
  if (!gpu) return std::unexpected(gpu.error());
  if (auto opened = (*gpu)->open_all(); !opened) return std::unexpected(opened.error());
  return std::move(*gpu);
}

Result<std::unique_ptr<Gpu>> list_rm_gpus(Driver& driver, RmUse use) {
  auto gpu = list(driver, use);
  if (!gpu) return std::unexpected(gpu.error());
  return std::move(*gpu);
}

Result<std::unique_ptr<Gpu>> list_rm_gpus(RmUse use) { return list_rm_gpus(system_driver(), use); }

Result<std::unique_ptr<Gpu>> make_rm_gpu(RmUse use) { return make_rm_gpu(system_driver(), use); }

Result<> look_for_driver() {
  const auto control = system_driver().open(GS_NV_CTL_MINOR);
  if (!control) return std::unexpected(control.error());
  return {};
}

}  // namespace gpushare
