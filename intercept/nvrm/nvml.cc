// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

namespace gpushare::nvrm {
namespace {

// nvml.h's return codes.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;  // there is no sample since the time that was asked for
constexpr int kInsufficientSize = 7;

constexpr unsigned kSpareRows = 16;  // for processes that come meanwhile
constexpr unsigned kMostRows = 65'536;
constexpr int kTries = 3;
// Of what is longer ago nothing is asked.
constexpr Nanos kLongest = std::chrono::seconds(1);
// More than it remembers, see below.
constexpr unsigned kMostLooks = 128;
// The same look may come with another stamp (up to 0.6 ms later, the same file), and no driver
// looks again so soon.
constexpr Micros kSameLook = std::chrono::milliseconds(20);
// Some drivers look once a second. If there is no look for longer nobody was there, or did nothing,
// but for the last moments.
constexpr Nanos kSilence = std::chrono::milliseconds(1100);
constexpr Nanos kLatest = std::chrono::milliseconds(300);
// If the clocks differ by so much more or less than before, the wall clock was set.
constexpr Nanos kClockSet = std::chrono::milliseconds(50);
// The driver remembers 72 or 100 looks (NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL in the
// public headers, by version).
constexpr Nanos kRemembered = std::chrono::seconds(25);
// How often a GPU that NVML does not know is looked for.
constexpr Nanos kAgain = std::chrono::seconds(10);

class Library final : public NvmlCalls {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() override {
    if (has_started_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  bool start() {
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)() = nullptr;
    if (library_ == nullptr || !find_symbol(init, "nvmlInit_v2") ||
        !find_symbol(shutdown_, "nvmlShutdown") ||
        !find_symbol(by_uuid_, "nvmlDeviceGetHandleByUUID") ||
        !find_symbol(by_pci_, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find_symbol(looks_, "nvmlDeviceGetSamples") ||
        !find_symbol(samples_, "nvmlDeviceGetProcessUtilization"))
      return false;
    has_started_ = init() == kSuccess;
    return has_started_;
  }

  // To find a UUID NVML may initialise other GPUs, of which one may be broken.
  int find(const std::string& name, void*& device) override {
    return (name.contains(':') ? by_pci_ : by_uuid_)(name.c_str(), &device);
  }
  int looks_since(void* device, NvmlLook* looks, unsigned& count,
                  unsigned long long since_us) override {
    constexpr int kGpuUtilisation = 1;  // of nvmlSamplingType_t
    int type_of_value = 0;
    return looks_(device, kGpuUtilisation, since_us, &type_of_value, &count, looks);
  }
  int samples(void* device, NvmlSample* rows, unsigned& count,
              unsigned long long since_us) override {
    return samples_(device, rows, &count, since_us);
  }
  Now now() const override {
    const Time time = MonotonicClock().now();
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    return {.time = time, .wall = std::chrono::duration_cast<Micros>(wall)};
  }

 private:
  template <class F>
  bool find_symbol(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
  bool has_started_ = false;
  int (*shutdown_)() = nullptr;
  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*by_pci_)(const char*, void**) = nullptr;
  int (*looks_)(void*, int, unsigned long long, int*, unsigned*, NvmlLook*) = nullptr;
  int (*samples_)(void*, NvmlSample*, unsigned*, unsigned long long) = nullptr;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::load() {
  auto library = std::make_unique<Library>();
  if (!library->start()) return nullptr;
  return std::make_unique<Nvml>(std::move(library));
}

// No lock of ours is held while NVML is asked.
Nvml::Device Nvml::device_of(const std::string& name, Time now) {
  Device device;
  {
    const std::lock_guard lock(mutex_);
    const auto known = devices_.find(name);
    if (known != devices_.end()) device = known->second;
    const bool was_asked = known != devices_.end() && now - device.asked < kAgain;
    if (device.handle != nullptr || was_asked) return device;
  }
  if (calls_->find(name, device.handle) != kSuccess) device.handle = nullptr;
  device.asked = now;
  note(name, device);
  return device;
}

void Nvml::note(const std::string& name, const Device& device) {
  const std::lock_guard lock(mutex_);
  devices_[name] = device;
}

// The driver stamps its looks with the wall clock. When that is set nothing is told of the time
// before; and while looks from before seem to be of the time to come, they are in every mean.
void Nvml::follow_clock(Device& device, const NvmlCalls::Now& now) {
  const Nanos ahead = now.wall - now.time.time_since_epoch();
  const Nanos set = device.told == Time{} ? Nanos{} : ahead - device.wall_ahead;
  device.wall_ahead = ahead;
  if (set < -kClockSet) device.mixed_until = now.time + std::min<Nanos>(-set, kRemembered);
  if (std::chrono::abs(set) <= kClockSet && now.time >= device.mixed_until) return;
  device.told = now.time;
  device.looked = now.time;
}

int Nvml::ask(Device& device, Micros since, std::vector<NvmlSample>& rows) {
  for (int tries = 1;; ++tries) {
    rows.assign(device.rows, NvmlSample{});
    unsigned count = device.rows;
    const int rc = calls_->samples(device.handle, rows.data(), count,
                                   static_cast<unsigned long long>(since.count()));
    if (rc == kInsufficientSize) {
      const unsigned needed = std::min(count, kMostRows) + kSpareRows;
      device.rows = std::min(std::max(needed, 2 * device.rows), kMostRows);
      if (tries < kTries) continue;
    }
    rows.resize(rc == kSuccess ? std::min<size_t>(count, rows.size()) : 0);
    return rc;
  }
}

// The mean of all that is new. A look that makes no sense ends what is told.
int Nvml::look(Device& device, Micros since, const NvmlCalls::Now& now, UtilisationSample& sample) {
  std::array<NvmlLook, kMostLooks> looks{};
  unsigned count = kMostLooks;
  const int rc = calls_->looks_since(device.handle, looks.data(), count,
                                     static_cast<unsigned long long>(since.count()));
  device.has_looks = rc != kNotSupported;
  if (rc != kSuccess) return rc;
  const Micros latest = calls_->now().wall;
  double busy_ns = 0;
  for (const NvmlLook& look : std::span(looks).first(std::min(count, kMostLooks))) {
    const Micros stamp(static_cast<int64_t>(look.timestamp_us));
    if (stamp <= since) continue;
    if (stamp > latest || look.percent > 100) break;
    const Time until = std::max<Time>(sample.until, now.time - (now.wall - stamp));
    busy_ns += static_cast<double>((until - sample.until).count()) * look.percent / 100;
    sample.until = until;
  }
  if (sample.until > sample.from)
    sample.busy = busy_ns / static_cast<double>((sample.until - sample.from).count());
  return rc;
}

// Besides, NVML gives one row for each process: the mean of the driver's looks since the instant
// that it is asked for, where each look is given to the process that the GPU holds then. Where
// there is no look at the whole GPU these rows say until when all has been told.
std::optional<UtilisationSample> Nvml::utilisation(const std::string& name) {
  const NvmlCalls::Now now = calls_->now();
  Device device = device_of(name, now.time);
  if (device.handle == nullptr) return std::nullopt;
  follow_clock(device, now);

  const Time from = std::max<Time>(device.told, now.time - kLongest);
  const Micros ago = std::chrono::duration_cast<Micros>(now.time - from);
  const Micros since = now.wall - ago + kSameLook;
  UtilisationSample result{.from = from, .until = from};
  int rc = device.has_looks ? look(device, since, now, result) : kSuccess;
  const bool has_looks = device.has_looks;
  const bool is_old = has_looks && rc != kSuccess;
  std::vector<NvmlSample> rows;
  if (!is_old) rc = ask(device, since, rows);
  if (rc != kSuccess && rc != kNotFound) {
    note(name, device);
    return std::nullopt;
  }

  const Micros latest = calls_->now().wall;
  bool makes_sense = true;
  for (const NvmlSample& row : rows) {
    const Micros stamp(static_cast<int64_t>(row.timestamp_us));
    if (row.pid == 0 || stamp <= since) continue;
    makes_sense = makes_sense && stamp <= latest && row.sm <= 100;
    if (!has_looks) result.until = std::max<Time>(result.until, now.time - (now.wall - stamp));
    result.of.push_back({static_cast<pid_t>(row.pid), row.sm / 100.0});
  }
  if (!makes_sense) {
    result.of.clear();
    if (!has_looks) result.from = result.until = now.time;
  } else if (has_looks || !result.of.empty()) {
    device.looked = result.until;
  } else if (now.time - device.looked >= kSilence) {
    result.until = std::max<Time>(from, now.time - kLatest);
  }
  device.told = result.until;
  note(name, device);
  return result;
}

}  // namespace gpushare::nvrm
