// SPDX-License-Identifier: Apache-2.0
// What scenes are made of: streams and events that end with the scene, holds that keep a stream
// from going on, and one list in which kernels, host functions and the program note what happened,
// in the order in which it happened. One thread, and those that thread() starts.
//
// A hold is a kernel that runs until the program writes a word. With it both answers are facts, not
// measurements: what may pass a held stream is waited for while the hold lasts, and what must wait
// is put in line before the hold ends and has its note behind that of the held stream. No scene
// rests on time. If something waits that should not, a watchdog ends the holds, and the scene has
// failed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/workloads/common/gpu_session.h"

namespace gpushare::conformance {

// Why a scene could not be played.
struct Failure {
  std::string what;
};

// Throws Failure if the call failed.
void must(CUresult result, const char* call);
// "SUCCESS", "ERROR_NOT_READY".
std::string name_of(CUresult result);
size_t nodes_of(CUgraph graph);  // how many nodes it has
void record(CUevent event, CUstream stream);
// Everything that `stream` gets from now on waits for the event.
void wait(CUstream stream, CUevent event);
void begin_capture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL);
// "none", "active", "invalidated", or why that is not known.
std::string capture_status(CUstream stream);
// Ends the capture; what that gave ("SUCCESS graph"). The graph, if there is one, is destroyed.
std::string end_capture(CUstream stream);

class Stage {
 public:
  explicit Stage(const workloads::GpuSession& session);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Plays a scene; what it said and noted. Throws Failure.
  std::string play(const std::function<void(Stage&)>& scene);

  // --- for scenes
  CUstream stream(unsigned flags = CU_STREAM_DEFAULT);
  CUstream non_blocking() { return stream(CU_STREAM_NON_BLOCKING); }
  CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING);
  // A word of device memory, 0.
  CUdeviceptr word();
  uint32_t read(CUdeviceptr word);
  const workloads::GpuSession& session() const { return session_; }
  CUfunction note_kernel() const { return note_; }
  CUdeviceptr list() const { return list_on_gpu_; }

  // `what` is noted by a kernel, by a host function, by the caller itself.
  void note(CUstream stream, char what);
  void note_on_host(CUstream stream, char what);
  void note_now(char what);
  // Waits until something is in the list, without a call of the driver.
  void await_note();
  // run_host_note() notes `what`; for scenes that hand a host function to the driver themselves.
  struct HostNote {
    Stage* stage;
    char what;
  };
  HostNote* host_note(char what);
  static void run_host_note(void* host_note);

  // Gives what should wait time to go wrong: runs work in a stream that waits for no other, and
  // returns when it has ended.
  void witness();
  void synchronize(CUstream stream) { must(cuStreamSynchronize(stream), "cuStreamSynchronize"); }
  // Starts a thread in which the context is current.
  std::thread thread(std::function<void()> body);
  // Adds to the scene's line.
  void say(const std::string& text);
  // Ends the holds, waits for everything and says what was noted since the last time.
  void settle();

 private:
  friend class Hold;
  static constexpr int kMostHolds = 8;

  void begin_hold(CUstream stream, int* index);
  void end_hold(int index);
  void end_all_holds();
  std::string take_notes();
  void watch();

  const workloads::GpuSession& session_;
  const CUfunction note_, endless_, empty_;
  const CUstream witness_;
  uint32_t* list_ = nullptr;  // the length, then the notes
  CUdeviceptr list_on_gpu_ = 0;
  uint32_t* stops_ = nullptr;  // for each hold: turns (8 bytes), stop word, an unused word
  CUdeviceptr stops_on_gpu_ = 0;
  CUdeviceptr words_ = 0;
  uint32_t words_used_ = 0;
  int holds_ = 0;
  std::mutex list_mutex_;  // between host functions and threads of the program

  std::string line_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<std::unique_ptr<HostNote>> host_notes_;  // never freed: a failed scene may leave work

  std::mutex watch_mutex_;  // protects what follows
  std::condition_variable watch_changed_;
  bool is_playing_ = false, is_over_ = false;
  uint64_t scene_ = 0;
  std::atomic<bool> was_too_long_{false};
  std::thread watchdog_;
};

// Keeps what comes after it in the stream from running until it ends.
class Hold {
 public:
  Hold(Stage& stage, CUstream stream) : stage_(stage) { stage.begin_hold(stream, &index_); }
  ~Hold() { end(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void end() { stage_.end_hold(index_); }

 private:
  Stage& stage_;
  int index_ = 0;
};

}  // namespace gpushare::conformance
