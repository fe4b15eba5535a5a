// SPDX-License-Identifier: Apache-2.0
// FakeRm: a Driver that plays the part of NVIDIA's resource manager that intercept/nvrm/ uses, with
// a machine and programs that the test describes. It answers as the driver was seen to, with the
// driver's status codes, and refuses what the driver refuses: wrong sizes, foreign descriptors,
// devices before they are attached. One thread.
//
// Descriptors are real ones, each of a memory file: nvrm/ closes them itself, a copy taken with
// fetch() names the same file, and a closed descriptor is not known here any more.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "intercept/nvrm/abi.h"
#include "intercept/nvrm/driver.h"

namespace gpushare::nvrm {

class FakeRm final : public Driver {
 public:
  struct GpuModel {
    unsigned minor = 0;
    uint32_t gpu_id = 0;
    uint32_t instance = 0;
    std::string name{}, uuid{};
    uint32_t pci_bus = 0;
    uint32_t memory_kib = 0;
    uint32_t sm_count = 0;
  };
  // A call. The selector is the class that RM_ALLOC makes or the command of RM_CONTROL, otherwise
  // 0.
  struct Call {
    unsigned nr = 0;
    uint32_t selector = 0;
    auto operator<=>(const Call&) const = default;
  };
  struct Failure {
    int error = 0;        // the errno with which the ioctl itself fails
    uint32_t status = 0;  // otherwise RM's status
  };
  // What a program with one CUDA context holds on one GPU.
  struct Context {
    uint32_t client = 0, device = 0, subdevice = 0;
    std::vector<uint32_t> groups;  // the first is the compute one
    std::vector<uint32_t> channels;
  };

  // --- the machine; set up before use
  void add_gpu(GpuModel gpu) { gpus_.push_back(std::move(gpu)); }
  std::string version = "580.142";
  bool takes_three_id_arrays = true;           // 580 and later
  bool has_short_names = false;                // 595 and later
  bool has_few_sms = false;                    // up to 555
  std::map<unsigned, std::errc> closed_files;  // device files (by minor) that do not open
  bool tells_minors = true;                    // /proc/driver/nvidia is there

  // --- programs
  // A descriptor of /dev/nvidiactl in the program; makes the program when it is new.
  int open_control(ProcessId process);
  // The next client in RM's own numbering, allocated on that descriptor.
  uint32_t make_client(ProcessId process, int fd);
  void make_object(uint32_t client, uint32_t handle, uint32_t parent, uint32_t class_id);
  // One compute group and three copy groups with `channels` channels each, from `first_handle` on.
  Context make_context(uint32_t client, size_t gpu, uint32_t first_handle, uint32_t channels = 2);
  // A process with a descriptor of the control file, a client on it, and a context on the first
  // GPU.
  std::tuple<int, uint32_t, Context> make_program(ProcessId process, uint32_t first_handle,
                                                  uint32_t channels = 2);
  // Makes the next client's number so much higher, as clients that came and went do.
  void pass_clients(uint32_t count) { next_client_ += count; }
  void wrap_clients() { next_client_ = 0xC1D00000; }  // as RM does after 2^20 of them
  void kill(pid_t pid);                               // its objects are gone too
  // It has ended and is not reaped: it has no descriptors, and others may have copies of them.
  void end(pid_t pid);
  void close_in(pid_t pid, int fd);
  // Gives `to` a copy of the descriptor under the same number, as fork() does.
  void share(ProcessId from, int fd, ProcessId to) { share(from, fd, to, fd); }
  void share(ProcessId from, int fd, ProcessId to, int as);
  // From now on the client is of that descriptor's file.
  void hand_over(uint32_t client, ProcessId to, int fd);
  // Called by control_fds() when it has made its list, to do what a program does at that moment.
  std::function<void()> after_listing;

  // How many copies that fetch() made are open.
  int copies() const;

  // --- faults
  std::set<pid_t> ended;
  std::optional<std::errc> fetching;  // the error with which fetch() fails
  void fail_always(Call call, Failure failure) { always_[call] = failure; }
  void fail_nth(size_t nth_from_now, Failure failure) {
    nth_[calls.size() + nth_from_now] = failure;
  }
  void forget_faults();

  // --- what happened
  std::vector<Call> calls;       // every ioctl
  std::vector<unsigned> opened;  // the minors of device files
  size_t count(Call call) const;
  std::vector<uint32_t> disable_counts;                 // entries in each DISABLE_CHANNELS call
  int frozen(uint32_t client, uint32_t channel) const;  // freezes that wait for a thaw
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> slices_us;  // by client and group
  int mappings = 0;                                             // live ones

  // --- time and the context-switch log
  int64_t gpu_clock_ahead_ns = 0;
  std::function<void()> after_time_reading;  // between reading the GPU's clock and the answer
  uint64_t gpu_now() const;
  // Waits in the "hardware" until a flush.
  void log_switch(size_t gpu, uint8_t tag, uint32_t pid, uint32_t context, uint64_t gpu_ns);
  // The hardware drops `count` records of its own.
  void drop_switches(size_t gpu, uint16_t count) { logs_[gpu].seqno += count; }

  // --- Driver
  Result<Fd> open(unsigned minor) override;
  std::optional<unsigned> minor_of(const std::string& pci) override;
  int ioctl(int fd, unsigned nr, void* argument, size_t bytes) override;
  Result<const void*> map(int fd, size_t bytes) override;
  void unmap(const void* address, size_t bytes) override;
  Result<Fd> fetch(ProcessId process, int fd) override;
  Life life(const ProcessId& process) override {
    return ended.contains(process.pid) ? Life::kEnded : Life::kAlive;
  }
  Result<std::vector<int>> control_fds(pid_t pid, size_t most) override;
  using Driver::control_fds;
  // Always in two looks at least: the first one sees nothing.
  Result<Look> look_for_control_fd(pid_t pid, long place, size_t most) override;
  Result<std::vector<pid_t>> processes() override;

 private:
  using FileId = uint64_t;  // inode of the memory file
  struct Object {
    uint32_t parent = 0, class_id = 0;
    std::optional<size_t> gpu;  // of a device and below
  };
  struct Client {
    FileId file = 0;
    std::map<uint32_t, Object> objects;
    bool has_attached = false;
  };
  struct Program {
    uint64_t start_ticks = 0;
    std::map<int, Fd> files;
  };
  struct Log {  // one GPU's; at most one reader
    uint32_t buffer = 0, capacity = 0;
    uint32_t h_header = 0, h_records = 0;
    bool is_bound = false, is_enabled = false;
    uint16_t seqno = 0;
    std::vector<gs_switch_record> pending;
  };

  std::optional<FileId> file_of(int fd) const;
  bool is_accessible(const GpuModel& gpu) const;
  Fd make_file(unsigned minor);
  uint32_t alloc(FileId file, gs_nvos64& call);
  uint32_t control(FileId file, const gs_nvos54& call);
  template <class Params>
  std::pair<Params*, const GpuModel*> about_gpu(Params* params) const;
  uint32_t client_control(Client& client, const gs_nvos54& call);
  uint32_t subdevice_control(size_t gpu, const gs_nvos54& call);
  uint32_t buffer_control(const gs_nvos54& call);
  uint32_t disable_channels(size_t gpu, const gs_disable_channels& params);
  uint32_t timeslice(const gs_nvos54& call);
  uint32_t map_memory(FileId file, const gs_nvos33_fd& call);
  uint32_t flush(Log& log);

  std::vector<GpuModel> gpus_;
  std::map<FileId, unsigned> files_;                         // minor
  std::map<std::pair<int, FileId>, unsigned> device_files_;  // minor, by descriptor
  std::map<uint32_t, Client> clients_;
  uint32_t next_client_ = 0xC1D00001;
  std::map<pid_t, Program> programs_;
  int next_fd_ = 30;
  std::map<Call, Failure> always_;
  std::map<size_t, Failure> nth_;
  std::map<std::pair<uint32_t, uint32_t>, int> frozen_;
  std::vector<std::pair<int, FileId>> fetched_;
  std::map<size_t, Log> logs_;
  struct Memory {
    uint64_t bytes = 0;
    Fd backing;  // once mapped
  };
  std::map<uint32_t, Memory> memory_;  // DEVICELESS objects
};

}  // namespace gpushare::nvrm
