// SPDX-License-Identifier: Apache-2.0
// The legacy default stream and the threads' own: "CUDA Driver API, Stream synchronization
// behavior". Blocking streams wait for the legacy stream and it for them; non-blocking streams are
// independent of it; a thread's own default stream is a blocking stream like any other.
#include "tests/conformance/scenes.h"

namespace gpushare::conformance {

void expect_waits(Stage& stage, CUstream held, CUstream waiting) {
  Hold hold(stage, held);
  stage.note(held, 'a');
  stage.note(waiting, 'b');
  stage.witness();
  hold.end();
  stage.synchronize(waiting);
  stage.settle();
}

void expect_passes(Stage& stage, CUstream held, CUstream passing) {
  Hold hold(stage, held);
  stage.note(passing, 'b');
  stage.synchronize(passing);
  stage.note(held, 'a');
  hold.end();
  stage.synchronize(held);
  stage.settle();
}

namespace {

const CUstream kNull = nullptr;

void legacy_after_blocking(Stage& stage) { expect_waits(stage, stage.stream(), kNull); }
void blocking_after_legacy(Stage& stage) { expect_waits(stage, kNull, stage.stream()); }
void legacy_and_non_blocking(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  expect_passes(stage, stream, kNull);
  expect_passes(stage, kNull, stream);
}
void named_legacy(Stage& stage) {
  const CUstream stream = stage.stream();
  expect_waits(stage, stream, GS_CU_STREAM_LEGACY);
  expect_waits(stage, GS_CU_STREAM_LEGACY, stream);
  expect_waits(stage, GS_CU_STREAM_LEGACY, kNull);
}
void own_stream(Stage& stage) {
  expect_waits(stage, kNull, GS_CU_STREAM_PER_THREAD);
  expect_waits(stage, GS_CU_STREAM_PER_THREAD, kNull);
  expect_passes(stage, stage.stream(), GS_CU_STREAM_PER_THREAD);
}

// Work in the legacy stream between the work of two blocking streams orders them.
void through_legacy(Stage& stage) {
  const CUstream first = stage.stream(), second = stage.stream();
  Hold hold(stage, first);
  stage.note(first, 'a');
  stage.note(kNull, 'b');
  stage.note(second, 'c');
  stage.witness();
}

// Without work in it, the legacy stream orders nothing.
void nothing_in_legacy(Stage& stage) { expect_passes(stage, stage.stream(), stage.stream()); }

void other_threads_own_stream(Stage& stage) {
  const CUstream own = GS_CU_STREAM_PER_THREAD;
  Hold hold(stage, own);
  stage
      .thread([&] {
        stage.note(own, 'b');
        stage.synchronize(own);
      })
      .join();
  stage.note(own, 'a');
  hold.end();
  stage.settle();
  // For the legacy stream, too, it is a blocking stream of another thread.
  Hold again(stage, kNull);
  stage.note(kNull, 'a');
  stage.thread([&] { stage.note(own, 'b'); }).join();
  stage.witness();
}

// A query of the legacy stream concerns everything that it would have to wait for.
void query_of_legacy(Stage& stage) {
  const CUstream blocking = stage.stream(), other = stage.non_blocking();
  {
    const Hold hold(stage, blocking);
    stage.say("blocking held " + name_of(cuStreamQuery(kNull)));
  }
  stage.settle();
  {
    const Hold hold(stage, other);
    stage.say("non-blocking held " + name_of(cuStreamQuery(kNull)));
  }
  stage.settle();
  stage.say("then " + name_of(cuStreamQuery(kNull)));
}

void query_of_legacy_about_own(Stage& stage) {
  Hold hold(stage, GS_CU_STREAM_PER_THREAD);
  stage
      .thread([&] {
        stage.say("own " + name_of(cuStreamQuery(GS_CU_STREAM_PER_THREAD)));
        stage.say("legacy " + name_of(cuStreamQuery(kNull)));
      })
      .join();
  hold.end();
  stage.synchronize(GS_CU_STREAM_PER_THREAD);
  stage.thread([&] { stage.say("then " + name_of(cuStreamQuery(kNull))); }).join();
}

// A host function in a blocking stream holds the legacy stream up like any other work.
void legacy_after_host_function(Stage& stage) {
  const CUstream stream = stage.stream();
  const Hold hold(stage, stream);
  stage.note_on_host(stream, 'a');
  stage.note(kNull, 'b');
  stage.note_on_host(kNull, 'c');
  stage.note_on_host(stream, 'd');
  stage.witness();
}

// A copy to the host without a stream is in the legacy stream and waits for its end. 'o': the hold
// ends. While one thread waits in such a copy the driver may keep other threads' launches waiting
// (bench/gpu/driver/blocking.cc): the witness is in line before.
void copy_without_stream(Stage& stage) {
  const CUstream stream = stage.stream(), other = stage.non_blocking();
  const CUdeviceptr word = stage.word();
  Hold hold(stage, stream), not_yet(stage, other);
  must(cuMemsetD32Async(word, 7, 1, stream), "cuMemsetD32Async");
  for (int i = 0; i < 16; ++i) workloads::launch(stage.session().kernel("gs_empty"), {1, 1}, other);
  stage.note(other, 'w');
  uint32_t value = 0;
  CUresult result = CUDA_SUCCESS;
  std::thread copying = stage.thread([&] {
    not_yet.end();
    result = cuMemcpyDtoH_v2(&value, word, sizeof value);
    stage.note_now('c');
  });
  stage.await_note();
  stage.note_now('o');
  hold.end();
  copying.join();
  must(result, "cuMemcpyDtoH_v2");
  stage.say("value " + std::to_string(value));
}

// "API synchronization behavior": fills of device memory and copies on the device do not wait, but
// have their place in the legacy stream.
void fill_without_stream(Stage& stage) {
  const CUstream stream = stage.stream();
  const CUdeviceptr word = stage.word(), copy = stage.word();
  Hold hold(stage, stream);
  must(cuMemsetD32Async(word, 1, 1, stream), "cuMemsetD32Async");
  must(cuMemcpyDtoD_v2(copy, word, 4), "cuMemcpyDtoD_v2");
  must(cuMemsetD32_v2(word, 2, 1), "cuMemsetD32_v2");
  stage.note_now('r');  // both are back
  stage.note(stream, 'a');
  stage.say("still " + std::to_string(stage.read(word)) + std::to_string(stage.read(copy)));
  stage.settle();
  stage.say("then " + std::to_string(stage.read(word)) + std::to_string(stage.read(copy)));
}

// When a copy from pageable memory has returned, the program may change that memory: the copy has
// already read it.
void copy_from_pageable(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUdeviceptr word = stage.word();
  uint32_t value = 5;
  must(cuMemcpyHtoDAsync_v2(word, &value, sizeof value, stream), "cuMemcpyHtoDAsync_v2");
  value = 6;
  stage.synchronize(stream);
  stage.say("value " + std::to_string(stage.read(word)));
}

constexpr Scene kScenes[] = {
    {"legacy stream waits for a blocking stream", legacy_after_blocking},
    {"blocking stream waits for the legacy stream", blocking_after_legacy},
    {"legacy stream and a non-blocking stream pass each other", legacy_and_non_blocking},
    {"legacy stream by its name", named_legacy},
    {"legacy stream between two blocking streams", through_legacy},
    {"blocking streams pass each other", nothing_in_legacy},
    {"own default stream is a blocking stream", own_stream},
    {"own default streams of two threads", other_threads_own_stream},
    {"query of the legacy stream", query_of_legacy},
    {"query of the legacy stream while another thread's own is held", query_of_legacy_about_own},
    {"legacy stream waits for host functions", legacy_after_host_function},
    {"copy to the host without a stream", copy_without_stream},
    {"fill and copy on the device without a stream", fill_without_stream},
    {"copy from pageable memory", copy_from_pageable},
};

}  // namespace

std::span<const Scene> default_stream_scenes() { return kScenes; }

}  // namespace gpushare::conformance
