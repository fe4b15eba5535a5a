// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/stage.h"

#include <chrono>
#include <utility>

#include "intercept/cuda/kernel_math.h"

namespace gpushare::conformance {
namespace {

using workloads::LaunchShape;

constexpr LaunchShape kOneThread{1, 1}, kOneWarp{1, 32};
constexpr size_t kListWords = 256, kWords = 256;
constexpr uint32_t kWordsOfHold = 4;
// Far longer than any scene takes, also if the GPU is shared, frozen and gated.
constexpr std::chrono::seconds kLongestScene{30};

uint32_t number_of(char note) { return static_cast<unsigned char>(note); }

template <class... Parameters>
void start(Parameters... parameters) {
  must(workloads::try_launch(parameters...), "cuLaunchKernel");
}

uint32_t* pinned(size_t words, CUdeviceptr* on_gpu) {
  void* memory = nullptr;
  must(cuMemHostAlloc(&memory, words * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
       "cuMemHostAlloc");
  must(cuMemHostGetDevicePointer_v2(on_gpu, memory, 0), "cuMemHostGetDevicePointer_v2");
  return static_cast<uint32_t*>(memory);
}

}  // namespace

std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return std::to_string(result);
  return std::string(name).substr(std::string("CUDA_").size());
}

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw Failure{std::string(call) + ": " + name_of(result)};
}

size_t nodes_of(CUgraph graph) {
  size_t count = 0;
  must(cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  return count;
}

void record(CUevent event, CUstream stream) { must(cuEventRecord(event, stream), "cuEventRecord"); }
void wait(CUstream stream, CUevent event) {
  must(cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

void begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  must(cuStreamBeginCapture_v2(stream, mode), "cuStreamBeginCapture_v2");
}
std::string capture_status(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuStreamIsCapturing(stream, &status);
  if (result != CUDA_SUCCESS) return name_of(result);
  constexpr const char* kNames[] = {"none", "active", "invalidated"};
  return status < 3 ? kNames[status] : "?";
}
std::string end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(stream, &graph);
  const std::string text = name_of(result) + (graph == nullptr ? " no graph" : " graph");
  if (graph != nullptr) static_cast<void>(cuGraphDestroy(graph));
  return text;
}

// Uses everything once before the first hold: when a kernel is first launched, a driver may load it
// or make room for it, and wait until the GPU is idle.
Stage::Stage(const workloads::GpuSession& session)
    : session_(session),
      note_(session.kernel("gs_note")),
      endless_(session.kernel("gs_endless")),
      empty_(session.kernel("gs_empty")),
      witness_(session.new_stream(CU_STREAM_NON_BLOCKING)),
      words_(session.new_zeroed(kWords * sizeof(uint32_t))) {
  list_ = pinned(kListWords, &list_on_gpu_);
  stops_ = pinned(size_t{kMostHolds} * kWordsOfHold, &stops_on_gpu_);
  static_cast<void>(play([](Stage& stage) {
    const CUstream stream = stage.stream();
    {
      const Hold hold(stage, stream);
    }
    stage.note(stream, '-');
    stage.note_on_host(stream, '-');
    stage.witness();
    const CUdeviceptr from = stage.word(), to = stage.word();
    must(cuMemsetD32Async(from, 1, 1, stream), "cuMemsetD32Async");
    must(cuMemsetD8Async(from, 1, 1, stream), "cuMemsetD8Async");
    must(cuMemcpyDtoDAsync_v2(to, from, 4, stream), "cuMemcpyDtoDAsync_v2");
  }));
  watchdog_ = std::thread([this] { watch(); });
}

Stage::~Stage() {
  {
    const std::lock_guard lock(watch_mutex_);
    is_over_ = true;
  }
  watch_changed_.notify_all();
  watchdog_.join();
}

std::string Stage::play(const std::function<void(Stage&)>& scene) {
  was_too_long_ = false;
  {
    const std::lock_guard lock(watch_mutex_);
    is_playing_ = true;
    ++scene_;
  }
  watch_changed_.notify_all();
  Failure failure;
  try {
    scene(*this);
    settle();
  } catch (const Failure& failed) {
    failure = failed;
  }
  end_all_holds();
  for (const CUstream each : streams_) static_cast<void>(cuStreamDestroy_v2(each));
  for (const CUevent each : events_) static_cast<void>(cuEventDestroy_v2(each));
  streams_.clear();
  events_.clear();
  {
    const std::lock_guard lock(watch_mutex_);
    is_playing_ = false;
  }
  watch_changed_.notify_all();
  const CUresult rest = cuCtxSynchronize();
  const std::string left = take_notes(), line = std::exchange(line_, {});
  holds_ = 0;
  words_used_ = 0;
  if (failure.what.empty() && rest != CUDA_SUCCESS)
    failure.what = "cuCtxSynchronize: " + name_of(rest);
  if (was_too_long_)
    failure.what = "something waited for what was to pass it: " + line + " " + left;
  if (!failure.what.empty()) throw failure;
  return line;
}

CUstream Stage::stream(unsigned flags) {
  CUstream created = nullptr;
  must(cuStreamCreate(&created, flags), "cuStreamCreate");
  streams_.push_back(created);
  return created;
}

CUevent Stage::event(unsigned flags) {
  CUevent created = nullptr;
  must(cuEventCreate(&created, flags), "cuEventCreate");
  events_.push_back(created);
  return created;
}

CUdeviceptr Stage::word() {
  const CUdeviceptr word = words_ + uint64_t{words_used_++} * sizeof(uint32_t);
  must(cuMemsetD32Async(word, 0, 1, witness_), "cuMemsetD32Async");
  synchronize(witness_);
  return word;
}

// The witness has a stream of its own, which waits for no other and for which no other waits.
uint32_t Stage::read(CUdeviceptr word) {
  uint32_t value = 0;
  must(cuMemcpyDtoHAsync_v2(&value, word, sizeof value, witness_), "cuMemcpyDtoHAsync_v2");
  synchronize(witness_);
  return value;
}

void Stage::note(CUstream stream, char what) {
  start(note_, kOneThread, stream, list_on_gpu_, number_of(what));
}

Stage::HostNote* Stage::host_note(char what) {
  host_notes_.push_back(std::make_unique<HostNote>(this, what));
  return host_notes_.back().get();
}

void Stage::run_host_note(void* host_note) {
  const auto* note = static_cast<HostNote*>(host_note);
  note->stage->note_now(note->what);
}

void Stage::note_on_host(CUstream stream, char what) {
  must(cuLaunchHostFunc(stream, run_host_note, host_note(what)), "cuLaunchHostFunc");
}

void Stage::note_now(char what) {
  const std::lock_guard lock(list_mutex_);
  volatile uint32_t* list = list_;  // kernels write it, too, but never at the same time
  const uint32_t length = list[0] + 1;
  list[length] = number_of(what);
  list[0] = length;
}

void Stage::await_note() {
  while (std::atomic_ref(list_[0]).load(std::memory_order_acquire) == 0 && !was_too_long_)
    std::this_thread::yield();
}

std::string Stage::take_notes() {
  const std::lock_guard lock(list_mutex_);
  const volatile uint32_t* list = list_;
  std::string notes;
  for (uint32_t i = 1; i <= list[0] && i < kListWords; ++i) notes += static_cast<char>(list[i]);
  list_[0] = 0;
  return notes;
}

void Stage::witness() {
  start(empty_, kOneThread, witness_);
  synchronize(witness_);
}

std::thread Stage::thread(std::function<void()> body) {
  CUcontext context = nullptr;
  must(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return std::thread([context, body = std::move(body)] {
    if (cuCtxSetCurrent(context) == CUDA_SUCCESS) body();
  });
}

void Stage::say(const std::string& text) { line_ += (line_.empty() ? "" : " ") + text; }

void Stage::settle() {
  end_all_holds();
  must(cuCtxSynchronize(), "cuCtxSynchronize");
  if (const std::string notes = take_notes(); !notes.empty()) say(notes);
}

// --- holds --------------------------------------------------------------------------------------

void Stage::begin_hold(CUstream stream, int* index) {
  if (holds_ == kMostHolds) throw Failure{"too many holds in one scene"};
  *index = holds_++;
  const uint32_t first = static_cast<uint32_t>(*index) * kWordsOfHold;
  std::atomic_ref(stops_[first + 2]).store(0);
  const CUdeviceptr turns = stops_on_gpu_ + uint64_t{first} * sizeof(uint32_t);
  const CUdeviceptr out = words_ + (kWords - 1) * sizeof(uint32_t);
  start(endless_, kOneWarp, stream, turns, turns + 2 * sizeof(uint32_t), out, 1u, 16u,
        kernels::kRound.mul, kernels::kRound.add);
}

void Stage::end_hold(int index) {
  std::atomic_ref(stops_[static_cast<uint32_t>(index) * kWordsOfHold + 2]).store(1);
}

void Stage::end_all_holds() {
  for (int i = 0; i < kMostHolds; ++i) end_hold(i);
}

void Stage::watch() {
  std::unique_lock lock(watch_mutex_);
  while (!is_over_) {
    watch_changed_.wait(lock, [&] { return is_playing_ || is_over_; });
    const uint64_t scene = scene_;
    const auto has_ended = [&] { return !is_playing_ || is_over_ || scene_ != scene; };
    if (watch_changed_.wait_for(lock, kLongestScene, has_ended)) continue;
    was_too_long_ = true;
    end_all_holds();
    watch_changed_.wait(lock, has_ended);
  }
}

}  // namespace gpushare::conformance
