// SPDX-License-Identifier: Apache-2.0
// The answers of FakeRm to allocations, controls and mappings.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "tests/intercept/nvrm/fake_rm.h"

namespace gpushare::nvrm {
namespace {

template <class T>
T* params_of(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

// The parameters of a control, if they have the size that this driver expects.
template <class T>
T* sized(const gs_nvos54& call) {
  return call.params_size == sizeof(T) ? params_of<T>(call.p_params) : nullptr;
}

// Calls fn(parameters), if they have that size, and returns the status.
template <class T, class Fn>
uint32_t with(const gs_nvos54& call, const Fn& fn) {
  T* const params = sized<T>(call);
  if (params == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
  fn(*params);
  return GS_NV_OK;
}

template <size_t N>
void copy_text(gs_u8 (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

bool is_channel(uint32_t class_id) { return (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE; }

}  // namespace

uint32_t FakeRm::alloc(FileId file, gs_nvos64& call) {
  if (call.h_class == GS_CLASS_ROOT_CLIENT) {
    if (call.h_root != 0 || call.h_parent != 0) return GS_NV_ERR_INVALID_ARGUMENT;
    call.h_new = next_client_++;
    clients_[call.h_new].file = file;
    clients_[call.h_new].objects[call.h_new] = {0, call.h_class, std::nullopt};
    return GS_NV_OK;
  }
  const auto client = clients_.find(call.h_root);
  if (client == clients_.end() || client->second.file != file) return GS_NV_ERR_INVALID_CLIENT;
  auto& objects = client->second.objects;
  const auto parent = objects.find(call.h_parent);
  if (parent == objects.end() || objects.contains(call.h_new))
    return GS_NV_ERR_INVALID_OBJECT_HANDLE;
  Object made{call.h_parent, call.h_class, parent->second.gpu};
  switch (call.h_class) {
    case GS_CLASS_DEVICE: {
      if (!client->second.has_attached) return GS_NV_ERR_INSUFFICIENT_PERMISSIONS;
      const auto& params = *params_of<gs_device_params>(call.p_params);
      const auto gpu = std::ranges::find(gpus_, params.device_id, &GpuModel::instance);
      if (call.params_size != sizeof(params) || gpu == gpus_.end())
        return GS_NV_ERR_INVALID_ARGUMENT;
      if (!is_accessible(*gpu)) return GS_NV_ERR_INSUFFICIENT_PERMISSIONS;
      made.gpu = static_cast<size_t>(gpu - gpus_.begin());
      break;
    }
    case GS_CLASS_SUBDEVICE:
      if (parent->second.class_id != GS_CLASS_DEVICE) return GS_NV_ERR_INVALID_OBJECT_HANDLE;
      break;
    case GS_CLASS_MEMORY_DEVICELESS:
      memory_[call.h_new].bytes = params_of<gs_memory_params>(call.p_params)->size;
      break;
    case GS_CLASS_EVENT_BUFFER: {
      const auto& params = *params_of<gs_event_buffer_params>(call.p_params);
      const auto subdevice = objects.find(params.h_subdevice);
      if (subdevice == objects.end() || !memory_.contains(params.h_header) ||
          !memory_.contains(params.h_records) || params.record_size != sizeof(gs_switch_record) ||
          uint64_t{params.record_count} * params.record_size > memory_[params.h_records].bytes)
        return GS_NV_ERR_INVALID_ARGUMENT;
      Log& log = logs_[*subdevice->second.gpu];
      log.buffer = call.h_new;
      log.capacity = params.record_count;
      log.h_header = params.h_header;
      log.h_records = params.h_records;
      break;
    }
    default:
      return GS_NV_ERR_NOT_SUPPORTED;
  }
  objects[call.h_new] = made;
  return GS_NV_OK;
}

uint32_t FakeRm::control(FileId file, const gs_nvos54& call) {
  const auto client = clients_.find(call.h_client);
  if (client == clients_.end() || client->second.file != file) return GS_NV_ERR_INVALID_CLIENT;
  const auto object = client->second.objects.find(call.h_object);
  if (object == client->second.objects.end()) return GS_NV_ERR_INVALID_OBJECT_HANDLE;
  switch (object->second.class_id) {
    case GS_CLASS_ROOT_CLIENT:
      return client_control(client->second, call);
    case GS_CLASS_SUBDEVICE:
      return subdevice_control(*object->second.gpu, call);
    case GS_CLASS_CHANNEL_GROUP:
      return timeslice(call);
    case GS_CLASS_EVENT_BUFFER:
      return buffer_control(call);
    default:
      return GS_NV_ERR_NOT_SUPPORTED;
  }
}

// The parameters with the GPU that they name; null where there are none, or no such GPU.
template <class Params>
std::pair<Params*, const FakeRm::GpuModel*> FakeRm::about_gpu(Params* params) const {
  if (params == nullptr) return {};
  const auto gpu = std::ranges::find(gpus_, params->gpu_id, &GpuModel::gpu_id);
  return {params, gpu == gpus_.end() ? nullptr : &*gpu};
}

uint32_t FakeRm::client_control(Client& client, const gs_nvos54& call) {
  switch (call.cmd) {
    case GS_CTRL_GPU_GET_PROBED_IDS: {
      const size_t size =
          takes_three_id_arrays ? sizeof(gs_probed_ids) : offsetof(gs_probed_ids, flags);
      if (call.params_size != size) return GS_NV_ERR_INVALID_ARGUMENT;
      auto* ids = params_of<gs_u32>(call.p_params);
      std::fill_n(ids, 2 * GS_MAX_GPUS, GS_INVALID_GPU_ID);
      for (const GpuModel& gpu : gpus_) *ids++ = gpu.gpu_id;
      return GS_NV_OK;
    }
    case GS_CTRL_GPU_ATTACH_IDS:
      if (sized<gs_attach_ids>(call) == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
      client.has_attached = true;
      return GS_NV_OK;
    case GS_CTRL_GPU_GET_ID_INFO_V2: {
      const auto [params, gpu] = about_gpu(sized<gs_gpu_id_info>(call));
      if (gpu == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
      params->device_instance = gpu->instance;
      return GS_NV_OK;
    }
    case GS_CTRL_GPU_GET_PCI_INFO: {
      const auto [params, gpu] = about_gpu(sized<gs_pci_info>(call));
      if (gpu == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
      params->bus = static_cast<gs_u16>(gpu->pci_bus);
      return GS_NV_OK;
    }
    case GS_CTRL_CLIENT_GET_HANDLE_INFO: {
      auto* params = sized<gs_handle_info>(call);
      if (params == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
      const auto object = client.objects.find(params->h_object);
      if (object == client.objects.end()) return GS_NV_ERR_INVALID_OBJECT_HANDLE;
      params->result =
          params->index == GS_HANDLE_INFO_PARENT ? object->second.parent : object->second.class_id;
      return GS_NV_OK;
    }
    case GS_CTRL_CLIENT_GET_ACCESS_RIGHTS: {
      const auto* params = sized<gs_access_rights>(call);
      if (params == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
      const auto asked = clients_.find(params->h_client);
      if (asked == clients_.end()) return GS_NV_ERR_INVALID_CLIENT;
      const bool is_there =
          params->h_object == params->h_client || asked->second.objects.contains(params->h_object);
      return is_there ? GS_NV_OK : GS_NV_ERR_OBJECT_NOT_FOUND;
    }
    default:
      return GS_NV_ERR_NOT_SUPPORTED;
  }
}

uint32_t FakeRm::subdevice_control(size_t gpu, const gs_nvos54& call) {
  const GpuModel& model = gpus_[gpu];
  switch (call.cmd) {
    case GS_CTRL_DISABLE_CHANNELS: {
      const auto* params = sized<gs_disable_channels>(call);
      return params == nullptr ? GS_NV_ERR_INVALID_ARGUMENT : disable_channels(gpu, *params);
    }
    case GS_CTRL_GPU_GET_NAME_STRING:
      if (has_short_names)
        return with<gs_name_string_595>(
            call, [&](auto& params) { std::ranges::copy(model.name, params.ascii); });
      return with<gs_name_string>(
          call, [&](auto& params) { std::ranges::copy(model.name, params.ascii); });
    case GS_CTRL_GPU_GET_GID_INFO:
      return with<gs_gid_info>(call, [&](auto& params) { copy_text(params.data, model.uuid); });
    case GS_CTRL_GPU_GET_ID:
      return with<gs_gpu_id>(call, [&](auto& params) { params.gpu_id = model.gpu_id; });
    case GS_CTRL_FB_GET_INFO:
      return with<gs_fb_info>(call, [&](auto& params) {
        params_of<gs_info_entry>(params.p_list)->data = model.memory_kib;
      });
    case GS_CTRL_GR_SM_MAPPINGS:
      if (has_few_sms)
        return with<gs_sm_mappings_555>(call, [&](auto& params) { params.count = model.sm_count; });
      return with<gs_sm_mappings>(call, [&](auto& params) { params.count = model.sm_count; });
    case GS_CTRL_TIMER_GET_TIME:
      return with<gs_gpu_time>(call, [&](auto& params) {
        params.ns = gpu_now();
        if (after_time_reading) after_time_reading();
      });
    case GS_CTRL_GR_BIND_SWITCH_LOG: {
      const auto* params = sized<gs_bind_switch_log>(call);
      if (params == nullptr || params->h_buffer != logs_[gpu].buffer)
        return GS_NV_ERR_INVALID_ARGUMENT;
      logs_[gpu].is_bound = params->all_users != 0 && params->level == GS_SWITCH_LOD_SIMPLE;
      return GS_NV_OK;
    }
    default:
      return GS_NV_ERR_NOT_SUPPORTED;
  }
}

// Checks the whole list before it does anything, as RM does.
uint32_t FakeRm::disable_channels(size_t gpu, const gs_disable_channels& params) {
  disable_counts.push_back(params.count);
  if (params.count > GS_DISABLE_CHANNELS_MAX) return GS_NV_ERR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < params.count; ++i) {
    const auto client = clients_.find(params.clients[i]);
    if (client == clients_.end()) return GS_NV_ERR_INVALID_CHANNEL;
    const auto channel = client->second.objects.find(params.channels[i]);
    if (channel == client->second.objects.end() || !is_channel(channel->second.class_id) ||
        channel->second.gpu != gpu)
      return GS_NV_ERR_INVALID_CHANNEL;
  }
  for (uint32_t i = 0; i < params.count; ++i) {
    int& count = frozen_[{params.clients[i], params.channels[i]}];
    count = params.disable ? count + 1 : std::max(count - 1, 0);
  }
  return GS_NV_OK;
}

uint32_t FakeRm::timeslice(const gs_nvos54& call) {
  auto* params = sized<gs_timeslice>(call);
  if (params == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
  uint64_t& slice = slices_us[{call.h_client, call.h_object}];
  if (call.cmd == GS_CTRL_SET_TIMESLICE)
    slice = params->us;
  else if (call.cmd == GS_CTRL_GET_TIMESLICE)
    params->us = slice;
  else
    return GS_NV_ERR_NOT_SUPPORTED;
  return GS_NV_OK;
}

// --- the context-switch log ----------------------------------------------------------------------

// Prepares a descriptor of /dev/nvidiactl, other than the client's own, for mapping.
uint32_t FakeRm::map_memory(FileId file, const gs_nvos33_fd& call) {
  const auto client = clients_.find(call.h_client);
  if (client == clients_.end() || client->second.file != file) return GS_NV_ERR_INVALID_CLIENT;
  const auto memory = memory_.find(call.h_memory);
  const auto target = file_of(call.fd);
  if (memory == memory_.end() || !target || *target == file || files_[*target] != GS_NV_CTL_MINOR ||
      memory->second.backing.is_open() || call.h_device != call.h_client ||
      call.length != memory->second.bytes)
    return GS_NV_ERR_INVALID_ARGUMENT;
  if (::ftruncate(call.fd, static_cast<off_t>(call.length)) != 0) return GS_NV_ERR_NO_MEMORY;
  memory->second.backing = Fd(::fcntl(call.fd, F_DUPFD_CLOEXEC, 0));
  return GS_NV_OK;
}

uint32_t FakeRm::buffer_control(const gs_nvos54& call) {
  const auto entry = std::ranges::find_if(
      logs_, [&](const auto& log) { return log.second.buffer == call.h_object; });
  if (entry == logs_.end()) return GS_NV_ERR_INVALID_OBJECT_HANDLE;
  if (call.cmd == GS_CTRL_EVENTS_FLUSH) return flush(entry->second);
  const auto* params = sized<gs_events_enable>(call);
  if (call.cmd != GS_CTRL_EVENTS_ENABLE || params == nullptr) return GS_NV_ERR_INVALID_ARGUMENT;
  entry->second.is_enabled = params->enable != 0 && params->flags == GS_EVENTS_KEEP_NEWEST;
  return GS_NV_OK;
}

uint32_t FakeRm::flush(Log& log) {
  if (!log.is_bound || !log.is_enabled) return GS_NV_ERR_INVALID_STATE;
  gs_event_buffer_header header{};
  const int header_fd = memory_.at(log.h_header).backing.get();
  const int records_fd = memory_.at(log.h_records).backing.get();
  if (::pread(header_fd, &header, sizeof(header), 0) != sizeof(header)) return GS_NV_ERR_NO_MEMORY;
  for (const gs_switch_record& record : log.pending) {
    const auto at = static_cast<off_t>(header.put * sizeof(record));
    if (::pwrite(records_fd, &record, sizeof(record), at) != sizeof(record))
      return GS_NV_ERR_NO_MEMORY;
    header.put = (header.put + 1) % log.capacity;
  }
  log.pending.clear();
  return ::pwrite(header_fd, &header, sizeof(header), 0) == sizeof(header) ? GS_NV_OK
                                                                           : GS_NV_ERR_NO_MEMORY;
}

}  // namespace gpushare::nvrm
