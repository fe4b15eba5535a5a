// SPDX-License-Identifier: Apache-2.0
// One stream, and several that are independent of each other.
#include <condition_variable>
#include <mutex>

#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

// Kernels, host functions, fills and copies in one stream run in order.
void order_within(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUdeviceptr word = stage.word(), copy = stage.word();
  const Hold hold(stage, stream);
  stage.note(stream, 'a');
  stage.note_on_host(stream, 'b');
  stage.note(stream, 'c');
  must(cuMemsetD32Async(word, 1, 1, stream), "cuMemsetD32Async");
  must(cuMemcpyDtoDAsync_v2(copy, word, 4, stream), "cuMemcpyDtoDAsync_v2");
  must(cuMemsetD32Async(word, 2, 1, stream), "cuMemsetD32Async");
  stage.note_on_host(stream, 'd');
  stage.note_on_host(stream, 'e');
  stage.note(stream, 'f');
  stage.settle();
  stage.say("copied " + std::to_string(stage.read(copy)));
}

void query(Stage& stage) {
  const CUstream stream = stage.stream();
  stage.say("new " + name_of(cuStreamQuery(stream)));
  {
    const Hold hold(stage, stream);
    stage.say("held " + name_of(cuStreamQuery(stream)));
  }
  stage.synchronize(stream);
  stage.say("then " + name_of(cuStreamQuery(stream)));
}

// 'o': the hold ends. The wait is over only after what it waits for.
void context_wait(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  Hold hold(stage, stream);
  stage.note(stream, 'a');
  CUresult result = CUDA_SUCCESS;
  std::thread waiting = stage.thread([&] {
    result = cuCtxSynchronize();
    stage.note_now('s');
  });
  stage.witness();
  stage.note_now('o');
  hold.end();
  waiting.join();
  must(result, "cuCtxSynchronize");
}

// It blocks its own stream, and no kernel of another one.
void host_function_blocks(Stage& stage) {
  struct Door {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
  } door;
  const CUstream stream = stage.non_blocking(), other = stage.non_blocking();
  must(cuLaunchHostFunc(
           stream,
           [](void* data) {
             auto* closed = static_cast<Door*>(data);
             std::unique_lock lock(closed->mutex);
             closed->changed.wait(lock, [&] { return closed->is_open; });
           },
           &door),
       "cuLaunchHostFunc");
  stage.note(stream, 'a');
  stage.note(other, 'b');
  stage.synchronize(other);
  stage.say("held " + name_of(cuStreamQuery(stream)));
  {
    const std::lock_guard lock(door.mutex);
    door.is_open = true;
  }
  door.changed.notify_all();
  stage.settle();
}

// The stream ends with its work; until then the legacy stream and the context wait for that work.
void destroyed_with_work(Stage& stage) {
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");
  const Hold hold(stage, stream);
  stage.note(stream, 'a');
  must(cuStreamDestroy_v2(stream), "cuStreamDestroy_v2");
  stage.note(nullptr, 'b');
  stage.witness();
}

void flags_of(Stage& stage) {
  for (const CUstream stream : {stage.stream(), stage.non_blocking(), CUstream{nullptr},
                                GS_CU_STREAM_LEGACY, GS_CU_STREAM_PER_THREAD}) {
    unsigned flags = 9;
    must(cuStreamGetFlags(stream, &flags), "cuStreamGetFlags");
    stage.say(std::to_string(flags));
  }
}

// "Lower numbers represent greater priorities"; one beyond the range is the nearest in it.
void priorities(Stage& stage) {
  int least = 0, greatest = 0;
  must(cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
  stage.say("range " + std::to_string(least) + " to " + std::to_string(greatest) + ", streams");
  for (const int wanted : {least, greatest, greatest - 10, least + 10}) {
    CUstream stream = nullptr;
    must(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, wanted),
         "cuStreamCreateWithPriority");
    int given = 99;
    must(cuStreamGetPriority(stream, &given), "cuStreamGetPriority");
    stage.say(std::to_string(given));
    stage.note(stream, 'a');
    stage.synchronize(stream);
    must(cuStreamDestroy_v2(stream), "cuStreamDestroy_v2");
  }
}

constexpr Scene kScenes[] = {
    {"order within a stream", order_within},
    {"query of a stream", query},
    {"wait for the context", context_wait},
    {"host function blocks its stream only", host_function_blocks},
    {"stream destroyed while it has work", destroyed_with_work},
    {"flags of streams", flags_of},
    {"priorities", priorities},
};

}  // namespace

std::span<const Scene> stream_scenes() { return kScenes; }

}  // namespace gpushare::conformance
