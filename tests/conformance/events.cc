// SPDX-License-Identifier: Apache-2.0
// Events: a wait is for the recording that was the last one when the wait was put in line
// (cuStreamWaitEvent: "the most recent call to cuEventRecord()"); an event that was never recorded
// is done.
#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

// `waiting` waits for an event that was recorded in `recorded_in` behind the work of `held`, and
// the note in `noted_in` must come after that of `held` ("ab").
void expect_event_awaited(Stage& stage, CUstream held, CUstream recorded_in, CUstream waiting,
                          CUstream noted_in) {
  const CUevent event = stage.event();
  const Hold hold(stage, held);
  stage.note(held, 'a');
  record(event, recorded_in);
  wait(waiting, event);
  stage.note(noted_in, 'b');
  stage.witness();
}

void across_streams(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  expect_event_awaited(stage, first, first, second, second);
}
// In the legacy stream an event is behind the blocking streams, too.
void recorded_in_legacy(Stage& stage) {
  const CUstream waiting = stage.non_blocking();
  expect_event_awaited(stage, stage.stream(), nullptr, waiting, waiting);
}
// Blocking streams wait for what the legacy stream waits for.
void awaited_by_legacy(Stage& stage) {
  const CUstream held = stage.non_blocking();
  expect_event_awaited(stage, held, held, nullptr, stage.stream());
}

// Only what was in line before the recording is waited for.
void work_after_recording(Stage& stage) {
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  const CUevent passed = stage.event();
  stage.note(first, 'a');
  record(passed, first);
  Hold hold(stage, first);
  wait(second, passed);
  stage.note(second, 'b');
  stage.synchronize(second);
  stage.note(first, 'c');
}

void query(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  const CUevent event = stage.event();
  stage.say("new " + name_of(cuEventQuery(event)) + " " + name_of(cuEventSynchronize(event)));
  {
    const Hold hold(stage, stream);
    record(event, stream);
    stage.say("held " + name_of(cuEventQuery(event)));
  }
  must(cuEventSynchronize(event), "cuEventSynchronize");
  stage.say("then " + name_of(cuEventQuery(event)));
}

void never_recorded(Stage& stage) {
  const CUstream held = stage.non_blocking(), second = stage.non_blocking();
  const CUevent event = stage.event();
  const Hold hold(stage, held);
  wait(second, event);
  record(event, held);  // too late for the wait
  stage.note(second, 'b');
  stage.synchronize(second);
  stage.note(held, 'a');
}

void recorded_again(Stage& stage) {
  const CUstream held = stage.non_blocking(), free = stage.non_blocking(),
                 waiting = stage.non_blocking();
  const CUevent event = stage.event();
  const Hold hold(stage, held);
  stage.note(held, 'a');
  record(event, held);
  wait(waiting, event);
  record(event, free);
  stage.synchronize(free);
  stage.say(name_of(cuEventQuery(event)));
  stage.note(waiting, 'b');
  stage.witness();
}

// "cuEventDestroy: an event may be destroyed before it is complete": a stream that waits goes on
// waiting.
void destroyed_while_awaited(Stage& stage) {
  const CUstream held = stage.non_blocking(), waiting = stage.non_blocking();
  CUevent event = nullptr;
  must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const Hold hold(stage, held);
  stage.note(held, 'a');
  record(event, held);
  wait(waiting, event);
  must(cuEventDestroy_v2(event), "cuEventDestroy_v2");
  stage.note(waiting, 'b');
  stage.witness();
}

void time_between(Stage& stage) {
  const CUstream stream = stage.stream();
  const CUevent first = stage.event(CU_EVENT_DEFAULT), second = stage.event(CU_EVENT_DEFAULT),
                timeless = stage.event(), fresh = stage.event(CU_EVENT_DEFAULT);
  float ms = -1;
  record(first, stream);
  {
    const Hold hold(stage, stream);
    record(second, stream);
    record(timeless, stream);
    stage.say("held " + name_of(cuEventElapsedTime(&ms, first, second)));
  }
  stage.synchronize(stream);
  const CUresult done = cuEventElapsedTime(&ms, first, second);
  stage.say("then " + name_of(done) + (ms >= 0 ? " forward" : " backward"));
  stage.say("timeless " + name_of(cuEventElapsedTime(&ms, first, timeless)));
  stage.say("fresh " + name_of(cuEventElapsedTime(&ms, first, fresh)));
}

constexpr Scene kScenes[] = {
    {"event across streams", across_streams},
    {"work after the recording of an event", work_after_recording},
    {"query of an event", query},
    {"wait for an event that is recorded later", never_recorded},
    {"event recorded again", recorded_again},
    {"event of the legacy stream", recorded_in_legacy},
    {"legacy stream waits for an event", awaited_by_legacy},
    {"event destroyed while awaited", destroyed_while_awaited},
    {"time between events", time_between},
};

}  // namespace

std::span<const Scene> event_scenes() { return kScenes; }

}  // namespace gpushare::conformance
