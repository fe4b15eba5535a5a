// SPDX-License-Identifier: Apache-2.0
// execs: executable graphs that are launched in streams of every kind, changed in every way and
// destroyed, at random. Each has two buffers that its kernels mix with each other, so that every
// launch depends on the one before. Nothing orders two launches of a graph in different streams but
// the driver's own rule: launches of one executable graph run one after the other. The same steps
// on the host give what must be in the buffers.
#include <fmt/format.h>

#include <array>
#include <deque>
#include <thread>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/random.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

constexpr size_t kMixes = 4;  // kernels that mix, of a graph
constexpr uint32_t kFill = 7;

struct Settings {
  uint64_t steps = 400, graphs = 4, words = 256, units = 50, pause_us = 0, threads = 1, seed = 1,
           device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--steps", &steps, "launches, changes and ends of graphs and streams", "--graphs",
              &graphs, "executable graphs", "--words", &words, "in each buffer of a graph",
              "--units", &units, "how long the first kernel of a graph takes", "--pause-us",
              &pause_us, "between two steps", "--threads", &threads,
              "that do this at the same time, with graphs and streams of their own", "--seed",
              &seed, "of what is random");
    flags.limit("--graphs", 1, 1000);
    flags.limit("--words", 2, 1u << 20);
    flags.limit("--threads", 1, 64);
    flags.parse(&device);
  }
};

using Shifts = std::array<uint32_t, kMixes>;

// What a launch of a graph does: its first word gets a number, and then each buffer is mixed into
// the other one, twice.
struct Model {
  kernels::Buffers buffers;
  void launch(const Shifts& shifts) {
    const auto words = static_cast<uint32_t>(buffers[0].size());
    buffers[0][0] = kFill;
    for (size_t mix = 0; mix < kMixes; ++mix) {
      auto& to = buffers[mix % 2];
      const auto& from = buffers[(mix + 1) % 2];
      for (uint32_t i = 0; i < words; ++i)
        to[i] = kernels::mix_value(to[i], from[(i + shifts[mix]) % words]);
    }
  }
};

// One executable graph, with the graph that it was made of.
class Mixer {
 public:
  Mixer(const GpuSession& session, const Settings& s, uint64_t number, Random& random)
      : random_(random),
        words_(static_cast<uint32_t>(s.words)),
        units_(static_cast<uint32_t>(s.units)),
        shape_{static_cast<unsigned>((s.words + 255) / 256), 256},
        mix_(session.kernel("gs_mix")),
        spin_(session.kernel("gs_spin")),
        sink_(session.new_zeroed(sizeof(uint32_t))) {
    const uint64_t seed = s.seed + 2 * number;
    model_.buffers = kernels::filled(2, s.words, seed);
    for (uint32_t b = 0; b < 2; ++b) {
      buffers_[b] = session.new_zeroed(s.words * sizeof(uint32_t));
      launch(session.kernel("gs_fill"), shape_, nullptr, buffers_[b], words_,
             static_cast<uint32_t>(seed) + b);
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  // Makes it of a graph that is captured or built by hand.
  void make(CUstream stream) {
    is_built_ = random_.next() % 3 == 0;
    shifts_ = new_shifts();
    graph_ = is_built_ ? built(shifts_) : captured(shifts_, stream);
    check(cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
    in_exec_ = shifts_;
  }
  // What is in line runs to its end.
  void end() {
    check(cuGraphExecDestroy(exec_), "cuGraphExecDestroy");
    check(cuGraphDestroy(graph_), "cuGraphDestroy");
    exec_ = nullptr;
  }
  void launch_in(CUstream stream) {
    check(cuGraphLaunch(exec_, stream), "cuGraphLaunch");
    model_.launch(in_exec_);
  }
  // The stream captures, so the driver refuses, and the capture comes to nothing.
  void launch_in_capture(CUstream stream) const {
    if (const CUresult answer = cuGraphLaunch(exec_, stream);
        answer != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
      die(fmt::format("a launch of a graph in a stream that captures was answered with {}",
                      static_cast<int>(answer)));
  }
  // A kernel of the executable graph alone.
  void set_in_exec() {
    const size_t which = random_.next() % kMixes;
    in_exec_[which] = new_shift();
    const Kernel kernel(*this, which, in_exec_[which]);
    check(cuGraphExecKernelNodeSetParams_v2(exec_, mixes_of(graph_)[which], &kernel.parameters),
          "cuGraphExecKernelNodeSetParams_v2");
  }
  // A kernel of the graph; then the executable graph gets all of it.
  void set_in_graph() {
    const size_t which = random_.next() % kMixes;
    shifts_[which] = new_shift();
    const Kernel kernel(*this, which, shifts_[which]);
    check(cuGraphKernelNodeSetParams_v2(mixes_of(graph_)[which], &kernel.parameters),
          "cuGraphKernelNodeSetParams_v2");
    update(graph_, shifts_);
  }
  // By another graph that was made in the same way.
  void update_by_another(CUstream stream) {
    const Shifts shifts = new_shifts();
    const CUgraph other = is_built_ ? built(shifts) : captured(shifts, stream);
    update(other, shifts);
    check(cuGraphDestroy(other), "cuGraphDestroy");
  }

  // How many words are wrong.
  uint64_t wrong() const {
    uint64_t count = 0;
    for (size_t b = 0; b < 2; ++b) {
      std::vector<uint32_t> found(words_);
      check(cuMemcpyDtoH_v2(found.data(), buffers_[b], found.size() * sizeof(uint32_t)),
            "cuMemcpyDtoH_v2");
      for (size_t i = 0; i < words_; ++i) count += found[i] != model_.buffers[b][i] ? 1 : 0;
    }
    return count;
  }
  uint32_t checksum() const { return model_.buffers[0][0] ^ model_.buffers[1][0]; }

 private:
  // Parameters of one of the kernels that mix.
  struct Kernel {
    Kernel(const Mixer& mixer, size_t which, uint32_t by)
        : to(mixer.buffers_[which % 2]),
          from(mixer.buffers_[(which + 1) % 2]),
          words(mixer.words_),
          shift(by),
          parameters(kernel_node(mixer.mix_, mixer.shape_, pointers)) {}
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    CUdeviceptr to, from;
    uint32_t words, shift;
    void* pointers[4] = {&to, &from, &words, &shift};
    CUDA_KERNEL_NODE_PARAMS_v2 parameters;
  };

  uint32_t new_shift() { return static_cast<uint32_t>(random_.next() % words_); }
  Shifts new_shifts() {
    Shifts shifts;
    for (uint32_t& shift : shifts) shift = new_shift();
    return shifts;
  }

  CUgraph captured(const Shifts& shifts, CUstream stream) {
    CUgraph graph = nullptr;
    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture_v2");
    check(cuMemsetD32Async(buffers_[0], kFill, 1, stream), "cuMemsetD32Async");
    launch(spin_, {1, 32}, stream, sink_, 1u, units_, kernels::kRound.mul, kernels::kRound.add, 1u,
           0u);
    for (size_t which = 0; which < kMixes; ++which)
      launch(mix_, shape_, stream, buffers_[which % 2], buffers_[(which + 1) % 2], words_,
             shifts[which]);
    check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    return graph;
  }

  CUgraph built(const Shifts& shifts) {
    CUgraph graph = nullptr;
    CUcontext context = nullptr;
    CUgraphNode last = nullptr;
    check(cuGraphCreate(&graph, 0), "cuGraphCreate");
    check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    const CUDA_MEMSET_NODE_PARAMS_v1 fill{
        .dst = buffers_[0], .pitch = 0, .value = kFill, .elementSize = 4, .width = 1, .height = 1};
    check(cuGraphAddMemsetNode(&last, graph, nullptr, 0, &fill, context), "cuGraphAddMemsetNode");
    for (size_t which = 0; which < kMixes; ++which) {
      const Kernel kernel(*this, which, shifts[which]);
      const CUgraphNode before = last;
      check(cuGraphAddKernelNode_v2(&last, graph, &before, 1, &kernel.parameters),
            "cuGraphAddKernelNode_v2");
    }
    return graph;
  }

  // The kernels that mix are the last ones, in the order in which they were added.
  static std::array<CUgraphNode, kMixes> mixes_of(CUgraph graph) {
    size_t count = 0;
    check(cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
    std::vector<CUgraphNode> nodes(count);
    check(cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
    std::array<CUgraphNode, kMixes> mixes;
    std::copy(nodes.end() - kMixes, nodes.end(), mixes.begin());
    return mixes;
  }

  void update(CUgraph graph, const Shifts& shifts) {
    CUgraphExecUpdateResultInfo_v1 result{};
    check(cuGraphExecUpdate_v2(exec_, graph, &result), "cuGraphExecUpdate_v2");
    in_exec_ = shifts;
  }

  Random& random_;
  const uint32_t words_, units_;
  const LaunchShape shape_;
  const CUfunction mix_, spin_;
  const CUdeviceptr sink_;
  CUdeviceptr buffers_[2] = {};
  Model model_;
  bool is_built_ = false;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  Shifts shifts_{}, in_exec_{};  // of the graph; of the executable graph
};

// While any thread captures, CUDA forbids what concerns the legacy stream and waits for the
// context, so several threads do without.
class Streams {
 public:
  Streams(const Settings& s, Random& random) : is_alone_(s.threads == 1), random_(random) {
    for (CUstream& stream : there_) stream = made();
  }
  CUstream any() {
    switch (is_alone_ ? random_.next() % 8 : 7) {
      case 0:
        return nullptr;
      case 1:
        return GS_CU_STREAM_PER_THREAD;
      default:
        return own();
    }
  }
  CUstream own() { return there_[random_.next() % there_.size()]; }
  // With what is in line in it.
  void replace_one() {
    CUstream& stream = there_[random_.next() % there_.size()];
    if (!is_alone_) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    check(cuStreamDestroy_v2(stream), "cuStreamDestroy_v2");
    stream = made();
  }

  void wait() const {
    if (is_alone_) return check(cuCtxSynchronize(), "cuCtxSynchronize");
    for (CUstream stream : there_) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

 private:
  CUstream made() {
    CUstream stream = nullptr;
    const bool is_blocking = is_alone_ && random_.next() % 2 == 0;
    check(cuStreamCreate(&stream, is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING),
          "cuStreamCreate");
    return stream;
  }

  const bool is_alone_;
  Random& random_;
  std::array<CUstream, 4> there_{};
};

// What one thread does, with streams and graphs of its own.
struct Player {
  Player(const GpuSession& session, const Settings& s, uint64_t number)
      : random(s.seed + number), streams(s, random) {
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (uint64_t i = 0; i < s.graphs; ++i)
      mixers.emplace_back(session, s, i + number * s.graphs, random);
  }
  void play(const Settings& s);
  void play_while_capturing();

  Random random;
  Streams streams;
  CUevent event = nullptr;
  std::deque<Mixer> mixers;
};

// Another stream joins the capture. Launches in these two come to nothing, and so does the capture
// then; those in others go on.
void Player::play_while_capturing() {
  const CUstream captures = streams.own(), joins = streams.own();
  CUgraph graph = nullptr;
  const auto order = [&](CUstream first, CUstream second) {
    if (first == second) return;
    check(cuEventRecord(event, first), "cuEventRecord");
    check(cuStreamWaitEvent(second, event, 0), "cuStreamWaitEvent");
  };
  check(cuStreamBeginCapture_v2(captures, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture_v2");
  order(captures, joins);
  bool is_valid = true;
  for (uint64_t i = random.next() % 8; i > 0; --i) {
    Mixer& mixer = mixers[random.next() % mixers.size()];
    const CUstream stream = streams.own();
    if (random.next() % 4 == 0) mixer.set_in_exec();
    if (stream != captures && stream != joins) {
      mixer.launch_in(stream);
      continue;
    }
    mixer.launch_in_capture(stream);
    is_valid = false;
  }
  if (is_valid) order(joins, captures);
  const CUresult ended = cuStreamEndCapture(captures, &graph);
  if (is_valid) {
    check(ended, "cuStreamEndCapture");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
  } else if (ended != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
    die(fmt::format("a capture in which a launch was refused ended with {}",
                    static_cast<int>(ended)));
  }
}

void Player::play(const Settings& s) {
  for (Mixer& mixer : mixers) mixer.make(streams.own());
  for (uint64_t step = 0; step < s.steps; ++step) {
    Mixer& mixer = mixers[random.next() % mixers.size()];
    switch (random.next() % 16) {
      case 0:
        mixer.set_in_exec();
        break;
      case 1:
        mixer.set_in_graph();
        break;
      case 2:
        mixer.update_by_another(streams.own());
        break;
      case 3:
        streams.replace_one();
        break;
      case 4:
        // Another executable graph does not wait for what is in line of this one.
        if (random.next() % 2 == 0) {
          streams.wait();
          mixer.end();
        } else {
          mixer.end();
          streams.wait();
        }
        mixer.make(streams.own());
        break;
      case 5:
        play_while_capturing();
        break;
      default:
        mixer.launch_in(streams.any());
    }
    if (s.pause_us != 0) sleep_until_ns(now_ns() + s.pause_us * 1000);
  }
  streams.wait();
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  CUcontext context = nullptr;
  check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  std::deque<Player> players;
  for (uint64_t i = 0; i < s.threads; ++i) players.emplace_back(session, s, i);
  std::vector<std::thread> others;
  for (Player& player : players)
    if (&player != &players.front())
      others.emplace_back([&] {
        check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        player.play(s);
      });
  players.front().play(s);
  for (std::thread& other : others) other.join();
  uint64_t wrong = 0;
  uint32_t checksum = 0;
  for (const Player& player : players)
    for (const Mixer& mixer : player.mixers) {
      wrong += mixer.wrong();
      checksum = checksum * 31 + mixer.checksum();
    }
  JsonLine line("execs", session.device_name());
  line.add("steps", s.steps)
      .add("graphs", s.graphs)
      .add("threads", s.threads)
      .add("wrong_words", wrong);
  return conclude(line, checksum, wrong == 0, "a launch of a graph was lost, early or another one");
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("execs", "executable graphs, launched, changed and destroyed at random.")
