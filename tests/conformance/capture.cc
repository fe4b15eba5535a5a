// SPDX-License-Identifier: Apache-2.0
// Streams that capture a graph instead of running: what is captured, what is refused meanwhile, and
// what ends a capture ("CUDA Programming Guide, Creating a Graph Using Stream Capture").
#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

// What `call` gives while `stream` captures in this mode, and what ending the capture gives then.
template <class Call>
void say_while_capturing(Stage& stage, CUstream stream, CUstreamCaptureMode mode,
                         const std::string& who, const Call& call) {
  begin_capture(stream, mode);
  stage.say(who + name_of(call()));
  stage.say(end_capture(stream));
}

// Instantiates, launches in `stream`, waits and destroys.
void run(CUgraph graph, CUstream stream) {
  CUgraphExec exec = nullptr;
  must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  must(cuGraphLaunch(exec, stream), "cuGraphLaunch");
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
}

void fork_and_join(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  const CUevent forked = stage.event(), joined = stage.event();
  begin_capture(first);
  stage.note(first, 'a');
  record(forked, first);
  stage.say(capture_status(second));
  wait(second, forked);
  stage.say(capture_status(second));
  stage.note_on_host(second, 'b');
  record(joined, second);
  wait(first, joined);
  stage.note(first, 'c');
  CUgraph graph = nullptr;
  must(cuStreamEndCapture(first, &graph), "cuStreamEndCapture");
  stage.say(capture_status(first) + " " + capture_status(second));
  stage.say("nodes " + std::to_string(nodes_of(graph)));
  stage.note_now('-');  // nothing has run
  run(graph, first);
  run(graph, second);
  must(cuGraphDestroy(graph), "cuGraphDestroy");
}

void copies_and_fills(Stage& stage) {
  const CUstream stream = stage.stream();
  const CUdeviceptr word = stage.word(), copy = stage.word();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  must(cuMemsetD32Async(word, 3, 1, stream), "cuMemsetD32Async");
  must(cuMemcpyDtoDAsync_v2(copy, word, 4, stream), "cuMemcpyDtoDAsync_v2");
  must(cuMemsetD32Async(word, 4, 1, stream), "cuMemsetD32Async");
  CUgraph graph = nullptr;
  must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  stage.say("nodes " + std::to_string(nodes_of(graph)));
  stage.say("before " + std::to_string(stage.read(word)));
  run(graph, stream);
  stage.say("after " + std::to_string(stage.read(word)) + " " + std::to_string(stage.read(copy)));
  must(cuGraphDestroy(graph), "cuGraphDestroy");
}

// "...an implicit dependency on a current capture sequence": the legacy stream would have to wait
// for the capturing stream.
void legacy_while_blocking_captures(Stage& stage) {
  const CUstream stream = stage.stream();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  stage.note(stream, 'a');
  CUdeviceptr list = stage.list();
  uint32_t what = 'b';
  void* parameters[] = {&list, &what};
  stage.say(name_of(
      cuLaunchKernel(stage.note_kernel(), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr)));
  stage.say(capture_status(stream));
  stage.say(end_capture(stream));
  stage.say(capture_status(stream));
}

// "cuStreamIsCapturing: if this is called on CU_STREAM_LEGACY while a blocking stream in the same
// context is capturing, it will return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT [...] The blocking stream
// capture is not invalidated."
void status_of_legacy(Stage& stage) {
  const CUstream stream = stage.stream();
  stage.note(nullptr, 'a');
  begin_capture(stream);
  stage.say(capture_status(nullptr));
  stage.say(end_capture(stream));
  stage.say(capture_status(nullptr));
}

// The capture of a non-blocking stream does not concern the legacy stream.
void legacy_while_non_blocking_captures(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  begin_capture(stream);
  stage.note(stream, 'a');
  stage.note(nullptr, 'b');
  stage.say(capture_status(stream));
  stage.say(end_capture(stream));
}

void capture_of_legacy(Stage& stage) {
  const CUresult begun = cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED);
  stage.say(name_of(begun) + " " + capture_status(nullptr));
  if (begun == CUDA_SUCCESS) stage.say(end_capture(nullptr));
}

void begun_twice(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, "", [&] {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  });
  stage.say("again " + end_capture(stream));
}

// Such a wait would never end.
void waits(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_RELAXED, "synchronize ",
                      [&] { return cuStreamSynchronize(stream); });
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_RELAXED, "query ",
                      [&] { return cuStreamQuery(stream); });
}

void captured_event(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUevent event = stage.event();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  record(event, stream);
  stage.say("query " + name_of(cuEventQuery(event)));
  stage.say("wait " + name_of(cuEventSynchronize(event)));
  stage.say(end_capture(stream));
}

// `first` begins a capture, with a kernel in it or without, and `second` joins it.
void fork_to(Stage& stage, CUstream first, CUstream second, bool has_kernel) {
  const CUevent forked = stage.event();
  begin_capture(first);
  if (has_kernel) stage.note(first, 'a');
  record(forked, first);
  wait(second, forked);
}

void not_joined(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  fork_to(stage, first, second, false);
  stage.note(second, 'b');
  stage.say(end_capture(first));
  stage.say(capture_status(first) + " " + capture_status(second));
}

void ended_in_another_stream(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  fork_to(stage, first, second, false);
  stage.say("other " + end_capture(second));
  stage.say("first " + end_capture(first));
}

void event_from_outside(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  const CUevent event = stage.event();
  record(event, second);
  say_while_capturing(stage, first, CU_STREAM_CAPTURE_MODE_GLOBAL, "",
                      [&] { return cuStreamWaitEvent(first, event, 0); });
}

void two_captures(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  const CUevent event = stage.event();
  begin_capture(first);
  begin_capture(second);
  record(event, first);
  stage.say(name_of(cuStreamWaitEvent(second, event, 0)));
  stage.say(end_capture(first));
  stage.say(end_capture(second));
}

void other_thread(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  stage.thread([&] { stage.say("local, other thread: " + end_capture(stream)); }).join();
  stage.say("own thread: " + end_capture(stream));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  stage.thread([&] { stage.say("relaxed, other thread: " + end_capture(stream)); }).join();
}

// A call that might wait for the GPU is refused while a capture forbids it: one of the same thread
// that is not relaxed, or a global one of any thread.
void calls_that_may_wait(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUevent event = stage.event();
  record(event, stream);
  stage.synchronize(stream);
  const auto query = [&] { return name_of(cuEventQuery(event)); };
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  stage.thread([&] { stage.say("global, other thread: " + query()); }).join();
  stage.say(end_capture(stream));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  stage.thread([&] { stage.say("local, other thread: " + query()); }).join();
  stage.say("own: " + query());
  stage.say(end_capture(stream));
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_RELAXED,
                      "relaxed, own: ", [&] { return cuEventQuery(event); });
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  must(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  stage.say("global, thread relaxed: " + query());
  must(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  stage.say("was " + std::to_string(mode));
  stage.say(end_capture(stream));
}

void allocation(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const auto allocate = [] {
    CUdeviceptr memory = 0;
    const CUresult result = cuMemAlloc_v2(&memory, 4);
    if (result == CUDA_SUCCESS) must(cuMemFree_v2(memory), "cuMemFree_v2");
    return result;
  };
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, "global ", allocate);
  say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed ", allocate);
}

void context_wait(Stage& stage) {
  say_while_capturing(stage, stage.non_blocking(), CU_STREAM_CAPTURE_MODE_RELAXED, "",
                      cuCtxSynchronize);
}

// It ends the captures of all streams, also of a blocking one.
void context_wait_of_a_fork(Stage& stage) {
  for (const unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
    const CUstream first = stage.stream(flags), second = stage.stream(flags);
    fork_to(stage, first, second, true);
    stage.note(second, 'b');
    stage.say(name_of(cuCtxSynchronize()) + " " + capture_status(first) + " " +
              capture_status(second));
    stage.say(end_capture(first));
    stage.say("then " + name_of(cuCtxSynchronize()));
  }
}

void context_wait_of_another_thread(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  begin_capture(stream);
  stage.thread([&] { stage.say(name_of(cuCtxSynchronize())); }).join();
  stage.say(end_capture(stream));
}

// The legacy stream would wait for the blocking one. It would not wait for the other one, but a
// global capture forbids every wait.
void legacy_wait(Stage& stage) {
  const CUstream blocking = stage.stream(), other = stage.non_blocking();
  for (const CUstream stream : {blocking, other}) {
    begin_capture(stream);
    stage.note(stream, 'a');
    stage.say(name_of(cuStreamSynchronize(nullptr)));
    stage.say(end_capture(stream));
  }
  say_while_capturing(stage, other, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed ",
                      [] { return cuStreamSynchronize(nullptr); });
}

// Other streams run meanwhile, also blocking ones.
void others_run(Stage& stage) {
  const CUstream capturing = stage.non_blocking(), other = stage.stream();
  begin_capture(capturing);
  stage.note(capturing, 'a');
  stage.note(other, 'b');
  stage.say(name_of(cuStreamSynchronize(other)));
  stage.say(end_capture(capturing));
}

// What joined the capture with it stays in the graph.
void joined_stream_destroyed(Stage& stage) {
  const CUstream first = stage.non_blocking();
  const CUevent joined = stage.event();
  CUstream second = nullptr;
  must(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  fork_to(stage, first, second, true);
  stage.note(second, 'b');
  record(joined, second);
  wait(first, joined);
  stage.say(name_of(cuStreamDestroy_v2(second)) + " " + capture_status(first));
  stage.say(end_capture(first));
}

// A launch that is refused for another reason.
void refused_launch(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  CUdeviceptr list = stage.list();
  uint32_t what = 'a';
  void* parameters[] = {&list, &what};
  begin_capture(stream);
  stage.say(name_of(
      cuLaunchKernel(stage.note_kernel(), 0, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr)));
  stage.say(capture_status(stream) + " " + end_capture(stream));
}

// What is made and ends meanwhile, and waits for nothing.
void others_made(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  CUstream other = nullptr;
  CUevent event = nullptr;
  const auto say_of = [&](const char* name, const auto& call) {
    say_while_capturing(stage, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, name, call);
  };
  say_of("stream ", [&] { return cuStreamCreate(&other, CU_STREAM_NON_BLOCKING); });
  say_of("event ", [&] { return cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); });
  say_of("recorded ", [&] { return cuEventRecord(event, other); });
  say_of("waited for ", [&] { return cuStreamWaitEvent(other, event, 0); });
  say_of("event gone ", [&] { return cuEventDestroy_v2(event); });
  say_of("stream gone ", [&] { return cuStreamDestroy_v2(other); });
}

// A copy of which the host waits for the end.
void copies_that_wait(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUdeviceptr word = stage.word();
  uint32_t value = 5;
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED})
    say_while_capturing(stage, stream, mode, "",
                        [&] { return cuMemcpyHtoD_v2(word, &value, sizeof value); });
  stage.say(std::to_string(stage.read(word)));
}

void destroyed_while_capturing(Stage& stage) {
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  stage.note(stream, 'a');
  stage.say(name_of(cuStreamDestroy_v2(stream)));
}

constexpr Scene kScenes[] = {
    {"capture with a fork and a join", fork_and_join},
    {"capture of copies and fills", copies_and_fills},
    {"legacy stream while a blocking stream captures", legacy_while_blocking_captures},
    {"status of the legacy stream while a blocking stream captures", status_of_legacy},
    {"legacy stream while a non-blocking stream captures", legacy_while_non_blocking_captures},
    {"capture of the legacy stream", capture_of_legacy},
    {"capture begun twice", begun_twice},
    {"waits for a capturing stream", waits},
    {"event of a capture", captured_event},
    {"capture with a stream that is not joined", not_joined},
    {"capture ended in another stream", ended_in_another_stream},
    {"capture waits for an event from outside", event_from_outside},
    {"two captures wait for each other", two_captures},
    {"capture ended by another thread", other_thread},
    {"calls that may wait while a stream captures", calls_that_may_wait},
    {"allocation while a stream captures", allocation},
    {"wait for the context while a stream captures", context_wait},
    {"wait for the context while two streams capture", context_wait_of_a_fork},
    {"wait for the context while another thread captures", context_wait_of_another_thread},
    {"wait for the legacy stream while a stream captures", legacy_wait},
    {"other streams while one captures", others_run},
    {"stream destroyed while it captures", destroyed_while_capturing},
    {"stream destroyed after it has joined a capture", joined_stream_destroyed},
    {"refused launch while a stream captures", refused_launch},
    {"streams and events made while one captures", others_made},
    {"copies that wait while a stream captures", copies_that_wait},
};

}  // namespace

std::span<const Scene> capture_scenes() { return kScenes; }

}  // namespace gpushare::conformance
