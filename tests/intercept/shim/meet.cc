// SPDX-License-Identifier: Apache-2.0
// meet: kernels whose blocks wait for each other, so that one never ends where its blocks are not
// on the GPU all at once. Its last line says what the driver says of the GPU's size, and how many
// kernels have ended.
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

constexpr unsigned kThreads = 1024;  // two blocks fit into an SM

struct Settings {
  uint64_t launches = 1, blocks = 0, small = 0, pause_us = 0, device = 0;
  std::string how = "plain";

  explicit Settings(Flags& flags) {
    flags.add(
        "--launches", &launches, "kernels, one after the other", "--blocks", &blocks,
        "of a kernel; 0: as many as the driver says that fit", "--small", &small,
        "first so many kernels of one block", "--how", &how,
        "plain, cooperative, configured (the same by an attribute), or clusters of two blocks",
        "--pause-us", &pause_us, "between two kernels");
    flags.parse(&device);
    if (how != "plain" && how != "cooperative" && how != "configured" && how != "clusters")
      flags.fail("--how is plain, cooperative, configured or clusters");
  }
};

class Meeting {
 public:
  Meeting(const GpuSession& session, std::string how)
      : session_(session), kernel_(session.kernel("gs_meet")), how_(std::move(how)) {}

  void launch(unsigned blocks) {
    check(cuMemsetD8Async(words_, 0, sizeof(uint32_t), stream_), "cuMemsetD8Async");
    CUdeviceptr come = words_, out = words_ + sizeof(uint32_t);
    void* pointers[] = {&come, &out, nullptr};
    if (how_ == "cooperative")
      check(cuLaunchCooperativeKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, pointers),
            "cuLaunchCooperativeKernel");
    else if (how_ == "configured")
      launch_with({.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .pad = {}, .value = {.cooperative = 1}},
                  blocks, pointers);
    else if (how_ == "clusters")
      launch_with({.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                   .pad = {},
                   .value = {.clusterDim = {blocks % 2 == 0 ? 2U : 1U, 1, 1}}},
                  blocks, pointers);
    else
      check(cuLaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, pointers, nullptr),
            "cuLaunchKernel");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    met_ += blocks;
  }
  bool is_right() const { return session_.read_u32(words_ + sizeof(uint32_t)) == met_; }
  unsigned fitting() const {
    int blocks = 0, threads = 0;
    check(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, kernel_, nullptr, 0, kThreads),
          "cuOccupancyMaxPotentialBlockSize");
    return static_cast<unsigned>(blocks);
  }

 private:
  void launch_with(CUlaunchAttribute attribute, unsigned blocks, void** pointers) {
    const CUlaunchConfig config{blocks, 1, 1, kThreads, 1, 1, 0, stream_, &attribute, 1};
    check(cuLaunchKernelEx(&config, kernel_, pointers, nullptr), "cuLaunchKernelEx");
  }

  const GpuSession& session_;
  const CUfunction kernel_;
  const std::string how_;
  const CUstream stream_ = session_.new_stream();
  const CUdeviceptr words_ = session_.new_zeroed(2 * sizeof(uint32_t));
  uint32_t met_ = 0;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Meeting meeting(session, s.how);
  const unsigned fitting = meeting.fitting();
  for (uint64_t i = 0; i < s.small; ++i) meeting.launch(1);
  JsonLine().add("sms", session.sm_count()).add("fitting", fitting).print();
  for (uint64_t i = 0; i < s.launches; ++i) {
    if (s.pause_us != 0) sleep_until_ns(now_ns() + s.pause_us * 1000);
    meeting.launch(s.blocks == 0 ? fitting : static_cast<unsigned>(s.blocks));
  }
  JsonLine("meet", session.device_name())
      .add("sms", session.sm_count())
      .add("fitting", fitting)
      .add("verified", meeting.is_right())
      .print();
  return meeting.is_right() ? 0 : 1;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("meet", "kernels whose blocks wait for each other.")
