// SPDX-License-Identifier: Apache-2.0
// What scenes are made of: streams and events that go when the scene ends, holds that keep a stream
// from going on until they are told to, and one list in which kernels, host functions and the
// program note what happened, in the order in which it happened.
//
// A hold is a kernel that runs until the program writes a word. With it both answers are facts, not
// measurements: what may pass a held stream is waited for while the hold lasts, and what must wait
// is put in line before the hold ends and has its note behind that of the held stream. Nothing
// sleeps. Where something waits that should not, a watchdog ends the holds, and the scene failed.
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

// Ends the scene when the call failed.
void must(CUresult result, const char* call);
// "SUCCESS", "ERROR_NOT_READY".
std::string name_of(CUresult result);
void record(CUevent event, CUstream stream);
// Everything that `stream` gets from now on.
void wait(CUstream stream, CUevent event);

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
  CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING);
  // A word of device memory, 0.
  CUdeviceptr word();
  uint32_t read(CUdeviceptr word);
  const workloads::GpuSession& session() const { return session_; }
  CUfunction note_kernel() const { return note_; }
  CUdeviceptr list() const { return list_on_gpu_; }

  // A kernel, a host function, the caller itself.
  void note(CUstream stream, char what);
  void note_on_host(CUstream stream, char what);
  void note_now(char what);
  // Until something is in the list, without a call of the driver.
  void await_note();
  // Data for a host function of one's own.
  struct HostNote {
    Stage* stage;
    char what;
  };
  HostNote* host_note(char what);
  static void run_host_note(void* host_note);

  // Time for what should wait to go wrong: work in a stream that waits for nobody, from submission
  // to end.
  void witness();
  void synchronize(CUstream stream) { must(cuStreamSynchronize(stream), "cuStreamSynchronize"); }
  // A thread with the context.
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
  uint32_t* stops_ = nullptr;  // for each hold: turns (8 bytes), stop word, nothing
  CUdeviceptr stops_on_gpu_ = 0;
  CUdeviceptr words_ = 0;
  uint32_t words_used_ = 0;
  int holds_ = 0;
  std::mutex list_mutex_;  // between host functions and threads of the program

  std::string line_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<std::unique_ptr<HostNote>> host_notes_;  // all: a scene that failed may leave work

  std::mutex watch_mutex_;  // of what follows
  std::condition_variable watch_changed_;
  bool is_playing_ = false, is_over_ = false;
  uint64_t scene_ = 0;
  std::atomic<bool> was_too_long_{false};
  std::thread watchdog_;
};

// Keeps what is behind it in the stream from running, until it ends.
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
