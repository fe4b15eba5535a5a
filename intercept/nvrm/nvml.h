// SPDX-License-Identifier: Apache-2.0
// Nvml: asks NVML (libnvidia-ml.so.1, which is loaded when it is there) how busy a GPU was since it
// was asked before, and each process there. Everything else comes from the resource manager itself.
// Several threads may ask for different GPUs at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "intercept/gpu.h"

namespace gpushare::nvrm {

// Our own declarations of nvmlSample_t, whose value is an unsigned int here, and of
// nvmlProcessUtilizationSample_t.
struct NvmlLook {
  unsigned long long timestamp_us = 0;  // wall clock
  unsigned percent = 0;                 // in which the GPU was busy since the look before
  unsigned unused = 0;
};
struct NvmlSample {
  unsigned pid = 0;
  unsigned long long timestamp_us = 0;                    // wall clock
  unsigned sm = 0, memory = 0, encoder = 0, decoder = 0;  // percent
};

// What Nvml asks: the library, whose return codes these are, and the machine's clocks.
class NvmlCalls {
 public:
  struct Now {
    Time time{};
    Micros wall{};  // since the epoch
  };
  virtual ~NvmlCalls() = default;
  // By its PCI address, or its UUID.
  virtual int find(const std::string& name, void*& device) = 0;
  // How busy the whole GPU was. `count`: what there is room for; afterwards what was written.
  virtual int looks_since(void* device, NvmlLook* looks, unsigned& count,
                          unsigned long long since_us) = 0;
  // `count`: the rows that there is room for; afterwards those that were written, or are needed.
  virtual int samples(void* device, NvmlSample* rows, unsigned& count,
                      unsigned long long since_us) = 0;
  virtual Now now() const = 0;
};

class Nvml {
 public:
  // nullptr when this machine has no NVML, or it does not start.
  static std::unique_ptr<Nvml> load();
  explicit Nvml(std::unique_ptr<NvmlCalls> calls) : calls_(std::move(calls)) {}
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // What is new since the last call for the GPU with this PCI address, or this UUID, as
  // Gpu::utilisation() says. Whole percent. nullopt when it does not tell now: a GPU without this
  // counter, MIG, or an error.
  std::optional<UtilisationSample> utilisation(const std::string& name);

 private:
  struct Device {
    void* handle = nullptr;  // nullptr: NVML does not know it
    Time asked{};            // for the handle
    unsigned rows = 16;      // that were enough so far
    bool has_looks = true;   // at the whole GPU
    Time told{};             // until when all has been told, or will not be; zero: not asked yet
    Time looked{};           // the newest of the driver's looks; zero: none yet
    Nanos wall_ahead{};      // of the other clock, at the last call
    Time mixed_until{};      // until then the driver has looks that seem to be of the time to come
  };
  Device device_of(const std::string& name, Time now);
  void note(const std::string& name, const Device& device);
  static void follow_clock(Device& device, const NvmlCalls::Now& now);
  int ask(Device& device, Micros since, std::vector<NvmlSample>& rows);
  int look(Device& device, Micros since, const NvmlCalls::Now& now, UtilisationSample& sample);

  const std::unique_ptr<NvmlCalls> calls_;
  std::mutex mutex_;                       // of what follows
  std::map<std::string, Device> devices_;  // by name
};

}  // namespace gpushare::nvrm
