// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/client.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

namespace gpushare::nvrm {
namespace {

constexpr unsigned kMaxMinors = 32;

std::errc errc_of(uint32_t status) {
  switch (status) {
    case GS_NV_ERR_INSUFFICIENT_PERMISSIONS:
      return std::errc::operation_not_permitted;
    // RM answers these for a channel, a client or an object that is gone.
    case GS_NV_ERR_INVALID_CHANNEL:
    case GS_NV_ERR_INVALID_CLIENT:
    case GS_NV_ERR_INVALID_OBJECT_HANDLE:
    case GS_NV_ERR_INVALID_OBJECT_OLD:
    case GS_NV_ERR_OBJECT_NOT_FOUND:
      return std::errc::no_such_process;
    case GS_NV_ERR_INVALID_ARGUMENT:
      return std::errc::invalid_argument;
    case GS_NV_ERR_NOT_SUPPORTED:
      return std::errc::not_supported;
    case GS_NV_ERR_NO_MEMORY:
      return std::errc::not_enough_memory;
    default:
      return std::errc::io_error;
  }
}

}  // namespace

std::unexpected<Error> rm_error(uint32_t status, const char* step, const std::string& detail) {
  std::string text = fmt::format("driver status {:#x}", status);
  if (!detail.empty()) text = detail + ", " + text;
  return make_error(errc_of(status), step, std::move(text));
}

Result<> rm_control(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t command,
                    void* params, uint32_t bytes, const char* step) {
  gs_nvos54 call{client, object, command, 0, reinterpret_cast<uintptr_t>(params), bytes, 0};
  return rm_call(driver, fd, GS_NV_ESC_RM_CONTROL, call, step);
}

Result<uint32_t> make_client(Driver& driver, int fd) {
  gs_nvos64 call{};
  call.h_class = GS_CLASS_ROOT_CLIENT;
  if (auto done = rm_call(driver, fd, GS_NV_ESC_RM_ALLOC, call, "make a driver client"); !done)
    return std::unexpected(done.error());
  return call.h_new;
}

Result<RmClient> RmClient::list(Driver& driver) {
  RmClient made;
  made.driver_ = &driver;
  auto control = driver.open(GS_NV_CTL_MINOR);
  if (!control) return std::unexpected(control.error());
  made.control_ = std::move(*control);
  if (auto done = made.read_version(); !done) return std::unexpected(done.error());

  auto client = make_client(driver, made.control_.get());
  if (!client) return std::unexpected(client.error());
  made.client_ = *client;
  if (auto done = made.find_gpus(); !done) return std::unexpected(done.error());
  return made;
}

// One that does not answer must not keep the others from being driven.
Result<RmClient> RmClient::open(Driver& driver) {
  auto made = list(driver);
  if (!made) return made;
  std::optional<Error> refused;
  bool has_one = false;
  for (uint32_t gpu = 0; gpu < made->gpus_.size(); ++gpu) {
    const auto opened = made->open(gpu);
    has_one |= opened.has_value();
    if (!opened) refused = opened.error();
  }
  if (!has_one) return std::unexpected(*refused);
  if (refused) made->missing_ = fmt::format("a GPU is left alone: {}", refused->message());
  return made;
}

Result<> RmClient::open(uint32_t index) {
  if (index >= gpus_.size())
    return make_error(std::errc::no_such_device, "open a GPU", std::to_string(index));
  RmGpuDevice& gpu = gpus_[index];
  if (is_open(index)) return {};
  auto control = driver_->open(GS_NV_CTL_MINOR);
  if (!control) return std::unexpected(control.error());
  auto client = make_client(*driver_, control->get());
  if (!client) return std::unexpected(client.error());
  gpu.control = std::move(*control);
  __atomic_store_n(&gpu.client, *client, __ATOMIC_RELAXED);
  if (auto done = open_files(gpu); !done) return done;
  if (auto done = make_devices(gpu); !done) return done;
  describe(gpu);
  __atomic_store_n(&is_open_[index], true, __ATOMIC_RELEASE);  // pairs with is_open()
  return {};
}

// RM makes the devices of a GPU only for a process that has its device file open (driver-facts
// section 2). Where it is not known which one that is all are opened.
Result<> RmClient::open_files(RmGpuDevice& gpu) {
  gpu.files.clear();
  const std::optional<unsigned> own = driver_->minor_of(gpu.info.pci);
  std::optional<Error> refused;
  for (unsigned minor = own.value_or(0); minor < (own ? *own + 1 : kMaxMinors); ++minor) {
    auto fd = driver_->open(minor);
    if (fd)
      gpu.files.push_back(std::move(*fd));
    else if (fd.error().code != std::errc::no_such_device && !refused)
      refused = fd.error();
  }
  if (!gpu.files.empty()) return {};
  if (refused) return std::unexpected(*refused);
  return make_error(std::errc::no_such_device, "open a GPU", "there is no /dev/nvidiaN");
}

bool RmClient::is_own(uint32_t client) const {
  return client == client_ || std::ranges::any_of(gpus_, [client](const RmGpuDevice& gpu) {
           return __atomic_load_n(&gpu.client, __ATOMIC_RELAXED) == client;
         });
}

Result<> RmClient::read_version() {
  gs_nv_version version{};
  version.cmd = '2';
  if (int error =
          driver_->ioctl(control_.get(), GS_NV_ESC_CHECK_VERSION_STR, &version, sizeof(version)))
    return std::unexpected(
        Error{std::error_code(error, std::generic_category()), "ask the driver's version", {}});
  version_.assign(version.text, strnlen(version.text, sizeof(version.text)));
  return {};
}

Result<uint32_t> RmClient::alloc(uint32_t gpu, uint32_t parent, uint32_t class_id, void* params,
                                 uint32_t bytes, const char* step) {
  gs_nvos64 call{};
  call.h_root = gpus_[gpu].client;
  call.h_parent = parent;
  call.h_new = __atomic_fetch_add(&next_handle_, 1, __ATOMIC_RELAXED);  // a name of its own
  call.h_class = class_id;
  call.p_params = reinterpret_cast<uintptr_t>(params);
  call.params_size = bytes;
  if (auto done = rm_call(*driver_, gpus_[gpu].control.get(), GS_NV_ESC_RM_ALLOC, call, step);
      !done)
    return std::unexpected(done.error());
  return call.h_new;
}

Result<> RmClient::find_gpus() {
  // Drivers before 580 do not know the third array and refuse the longer form.
  gs_probed_ids probed{};
  auto listed = rm_control(*driver_, control_.get(), client_, client_, GS_CTRL_GPU_GET_PROBED_IDS,
                           probed, "list GPUs");
  if (!listed && listed.error().code == std::errc::invalid_argument)
    listed = rm_control(*driver_, control_.get(), client_, client_, GS_CTRL_GPU_GET_PROBED_IDS,
                        &probed, offsetof(gs_probed_ids, flags), "list GPUs");
  if (!listed) return listed;
  for (const uint32_t id : probed.ids) {
    if (id == GS_INVALID_GPU_ID || gpus_.size() >= GS_MAX_GPUS) continue;
    RmGpuDevice gpu;
    gpu.gpu_id = id;
    gpu.info.index = static_cast<uint32_t>(gpus_.size());
    gpu.info.instance = kNoInstance;
    gs_pci_info pci{};
    pci.gpu_id = id;
    if (rm_control(*driver_, control_.get(), client_, client_, GS_CTRL_GPU_GET_PCI_INFO, pci,
                   "find a GPU's address"))
      gpu.info.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.slot);
    gpus_.push_back(std::move(gpu));
  }
  if (gpus_.empty())
    return make_error(std::errc::no_such_device, "list GPUs", "the driver has none");
  return {};
}

Result<> RmClient::make_devices(RmGpuDevice& gpu) {
  gs_attach_ids attach{};
  std::fill(std::begin(attach.ids), std::end(attach.ids), GS_INVALID_GPU_ID);
  attach.ids[0] = gpu.gpu_id;
  const auto ask = [&](uint32_t command, auto& params, const char* step) {
    return rm_control(*driver_, gpu.control.get(), gpu.client, gpu.client, command, params, step);
  };
  if (auto done = ask(GS_CTRL_GPU_ATTACH_IDS, attach, "attach a GPU"); !done) return done;
  gs_gpu_id_info where{};
  where.gpu_id = gpu.gpu_id;
  if (auto done = ask(GS_CTRL_GPU_GET_ID_INFO_V2, where, "find a GPU's instance"); !done)
    return done;

  gs_device_params device{};
  device.device_id = where.device_instance;
  const uint32_t index = gpu.info.index;
  auto device_handle = alloc(index, gpu.client, GS_CLASS_DEVICE, &device, sizeof(device),
                             "open a GPU's device object");
  if (!device_handle) return std::unexpected(device_handle.error());
  gpu.device = *device_handle;
  gs_subdevice_params subdevice{};
  auto subdevice_handle = alloc(index, gpu.device, GS_CLASS_SUBDEVICE, &subdevice,
                                sizeof(subdevice), "open a GPU's subdevice object");
  if (!subdevice_handle) return std::unexpected(subdevice_handle.error());
  gpu.subdevice = *subdevice_handle;
  gpu.info.instance = where.device_instance;
  return {};
}

// Names and sizes are for people only: what the driver does not tell stays unknown.
void RmClient::describe(RmGpuDevice& gpu) const {
  const uint32_t index = gpu.info.index;
  // The driver refuses what is not of its own size.
  const auto take_name = [&](auto name) {
    const bool is_told =
        subdevice_control(index, GS_CTRL_GPU_GET_NAME_STRING, name, "name").has_value();
    const auto* const text = reinterpret_cast<const char*>(name.ascii);
    if (is_told) gpu.info.name.assign(text, strnlen(text, sizeof(gs_name_string_595::ascii)));
    return is_told;
  };
  if (!take_name(gs_name_string{})) take_name(gs_name_string_595{});
  gs_gid_info gid{};
  if (subdevice_control(index, GS_CTRL_GPU_GET_GID_INFO, gid, "uuid"))
    gpu.info.uuid.assign(reinterpret_cast<const char*>(gid.data),
                         strnlen(reinterpret_cast<const char*>(gid.data), sizeof(gid.data)));
  gs_info_entry ram{GS_FB_INFO_TOTAL_RAM_SIZE, 0};
  gs_fb_info fb{1, 0, reinterpret_cast<uintptr_t>(&ram)};
  if (subdevice_control(index, GS_CTRL_FB_GET_INFO, fb, "memory size"))
    gpu.info.memory_bytes = uint64_t{ram.data} << 10;
  const auto take_sms = [&](auto sms) {
    const bool is_told =
        subdevice_control(index, GS_CTRL_GR_SM_MAPPINGS, sms, "SM count").has_value();
    if (is_told) gpu.info.sm_count = sms.count;
    return is_told;
  };
  if (!take_sms(gs_sm_mappings{})) take_sms(gs_sm_mappings_555{});
}

}  // namespace gpushare::nvrm
