// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/gpu/sim_gpu.h"

#include <sys/eventfd.h>

#include <limits>
#include <utility>

#include "intercept/sim/gpu/slow_search.h"

namespace gpushare::sim {

// --- SimGpu -----------------------------------------------------------------------------------

SimGpu::SimGpu(Model& model) : model_(model) {
  support_ = {.can_freeze = true,
              .can_set_slice = true,
              .has_switch_log = true,
              .driver_version = "sim",
              .reason = {},
              .driver_load = 1};
  for (const GpuInfo& gpu : model.gpus()) places_.push_back(model.switch_log(gpu.index).end());
}

Result<> SimGpu::take_fault(const char* step) {
  ++controls_;
  if (faults_.empty()) return {};
  const std::errc error = faults_.front();
  faults_.pop_front();
  return make_error(error, step, "injected fault");
}

Result<> SimGpu::freeze(uint32_t gpu, std::span<const ChannelRef> channels) {
  if (auto fault = take_fault("freeze channels"); !fault) return fault;
  for (const ChannelRef& channel : channels)
    if (refused_.contains(model_.owner(channel.client)))
      return make_error(std::errc::operation_not_permitted, "freeze channels");
  // A channel that is gone is found out before the GPU is asked, which is what costs.
  if (model_.count_there(gpu, channels) == channels.size()) spend(model_.freeze_cost(channels));
  return model_.freeze(gpu, channels);
}

Result<> SimGpu::thaw(uint32_t gpu, std::span<const ChannelRef> channels) {
  if (auto fault = take_fault("thaw channels"); !fault) return fault;
  if (model_.count_there(gpu, channels) > 0) spend(model_.thaw_cost(channels));
  return model_.thaw(gpu, channels);
}

Result<> SimGpu::set_slice(const GroupRef& group, Micros slice) {
  if (auto fault = take_fault("set time slice"); !fault) return fault;
  if (refused_.contains(group.process.pid))
    return make_error(std::errc::operation_not_permitted, "set time slice");
  // Of a process that is gone no descriptor can be taken: RM is not asked, which is what costs.
  if (const auto there = model_.slice(group); !there) return std::unexpected(there.error());
  spend(model_.parameters().control.set_slice);
  return model_.set_slice(group, slice);
}

Result<Micros> SimGpu::slice(const GroupRef& group) {
  spend(model_.parameters().control.get_slice);
  return model_.slice(group);
}

Result<uint32_t> SimGpu::hardware_group(const GroupRef& group) {
  spend(model_.parameters().control.get_slice);
  return model_.hardware_group(group);
}

Result<std::vector<ObjectRef>> SimGpu::missing(std::span<const ObjectRef> objects) {
  return model_.missing(objects);  // the agent asks on another thread
}

Result<> SimGpu::stop(const ProcessId&) {
  return make_error(std::errc::not_supported, "stop process", "it is only simulated");
}

Result<> SimGpu::resume(const ProcessId&) {
  return make_error(std::errc::not_supported, "resume process", "it is only simulated");
}

Result<SwitchBatch> SimGpu::read_switches(uint32_t gpu) {
  if (gpu >= places_.size()) return make_error(std::errc::no_such_device, "read switch log");
  spend(model_.parameters().control.read_log);
  return model_.switch_log(gpu).read(places_[gpu], std::numeric_limits<size_t>::max() / 2,
                                     model_.now());
}

std::optional<UtilisationSample> SimGpu::utilisation(uint32_t gpu) {
  if (gpu >= places_.size()) return std::nullopt;
  return model_.utilisation(gpu);
}

std::unique_ptr<ObjectSearch> SimGpu::attach(pid_t pid, std::span<const ObjectRef>) {
  ++searches_;
  if (model_.has_ended(pid)) return found_at_once(make_error(std::errc::no_such_process, "attach"));
  return found_after(model_.parameters().control.attach, model_.attach(pid),
                     [this](Nanos time) { spend(time); });
}

// --- ModelObserver ----------------------------------------------------------------------------

ModelObserver::ModelObserver(Model& model)
    : model_(model), ready_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  model.on_event([this](const DriverEvent& event) { add(event); });
}

void ModelObserver::add(DriverEvent event) {
  pending_.push_back(std::move(event));
  mark_ready();
}

void ModelObserver::mark_ready() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(ready_.get(), &one, sizeof one);
}

Result<uint64_t> ModelObserver::drain(const Sink& sink, uint64_t most) {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = ::read(ready_.get(), &ignored, sizeof ignored);
  return pending_.hand_out(sink, most);
}

void ModelObserver::lose_pending() {
  DriverEvent lost;
  lost.time = model_.now();
  lost.what = EventsLost{pending_.size()};
  dropped_ += pending_.size();
  pending_.clear();
  pending_.push_back(std::move(lost));
  mark_ready();
}

}  // namespace gpushare::sim
