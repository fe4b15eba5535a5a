// SPDX-License-Identifier: Apache-2.0
// The rule of streams_rig.h with the steps of four threads in any order. Now and then the program
// waits or asks, and one of the streams captures: what it captures runs nowhere.
#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "tests/intercept/shim/streams/streams_rig.h"
#include "tests/support/given.h"
#include "tests/support/sanitized.h"

namespace gpushare::shim {
namespace {

// Four threads, each of which may be at any step of a call when another one takes its next step.
class InterleavedTest : public StreamsTest {
 protected:
  ~InterleavedTest() override {
    other_threads = {};
    before_question = {};
  }

  void begin(uint64_t seed) {
    start_over();
    random_.seed(seed);
    handles_ = new_streams();
    handles_.push_back(GS_CU_STREAM_PER_THREAD);
    visit(kSets, handles_);
    the_gpu->is_busy = [this] { return !is_visiting_ && random_() % 2 == 0; };
    other_threads = [this] { one_of_the_others(); };
    // Not while a thread holds what another one's end would wait for.
    before_question = [this](CUstream which) {
      if (which != GS_CU_STREAM_LEGACY && !std::exchange(is_asked_, true)) {
        one_of_the_others();
        is_asked_ = false;
      }
    };
  }
  void step() {
    if (captured_ == nullptr && random_() % 64 == 0) begin_to_capture();
    if (captured_ != nullptr && random_() % 16 == 0) end_the_capture();
    if (random_() % 8 == 0)
      ask(random_() % 2 == 0 ? kLegacy : handles_[random_() % handles_.size()]);
    if (random_() % 8 == 0) move_to(random_() % std::size(kSets));
    if (random_() % 64 == 0) replace(handles_[random_() % handles_.size()]);
    if (random_() % 128 == 0) {
      end_all_calls();
      end_the_capture();
      is_visiting_ = true;
      visit(kSets, handles_);
      is_visiting_ = false;
    }
    at_work_ = random_() % kThreads;
    const CUstream handle = handles_[random_() % handles_.size()];
    if (calls_of_[at_work_] == nullptr) {
      begin_call(handle);
    } else if (!has_put_[at_work_] && random_() % 5 == 0) {
      calls_of_[at_work_]->put_at_home();
      has_put_[at_work_] = true;
    } else {
      put_or_end(at_work_);
    }
    at_work_ = kThreads;
  }
  void end_all_calls() {
    for (size_t who = 0; who < kThreads; ++who)
      while (calls_of_[who] != nullptr) put_or_end(who);
  }
  void end_the_capture() {
    if (captured_ == nullptr) return;
    the_gpu->end_capture(captured_->physical());
    streams().end_capture(*std::exchange(captured_, nullptr));
  }
  uint64_t steps_between() const { return steps_between_; }
  uint64_t captures() const { return captures_; }

 private:
  static constexpr size_t kThreads = 4;

  void one_of_the_others() {
    const size_t who = random_() % kThreads;
    if (who == at_work_ || calls_of_[who] == nullptr) return;
    put_or_end(who);
    ++steps_between_;
  }
  bool is_in_use(CUstream stream) const {
    return std::ranges::any_of(
        calls_of_, [&](const auto& call) { return call != nullptr && call->stream() == stream; });
  }
  void begin_to_capture() {
    const CUstream handle = handles_[random_() % handles_.size()];
    if (handle == kLegacy || handle == GS_CU_STREAM_PER_THREAD || is_in_use(handle)) return;
    captured_ = streams().find(handle, Flavor::kLegacy);
    streams().before_capture(*captured_);
    streams().begin_capture(*captured_);
    the_gpu->begin_capture(captured_->physical());
    ++captures_;
  }
  void begin_call(CUstream handle) {
    if (is_refused(handle)) return;
    const Use use = random_() % 4 == 0 ? Use::kOperation : Use::kLaunch;
    if (is_captured(handle)) {
      const StreamUse captured(handle, Flavor::kLegacy, use);
      return;
    }
    has_put_[at_work_] = false;
    calls_of_[at_work_] = std::make_unique<Call>(*this, handle, use);
  }
  bool is_captured(CUstream handle) const {
    return captured_ != nullptr && streams().find(handle, Flavor::kLegacy) == captured_;
  }
  // By CUDA: the legacy stream while a blocking one captures.
  bool is_refused(CUstream handle) const {
    return captured_ != nullptr && handle == kLegacy &&
           captured_->kind.load() == Stream::Kind::kBlocking;
  }
  void ask(CUstream handle) {
    if (is_refused(handle) || is_captured(handle)) return;
    const StreamUse use(handle, Flavor::kLegacy, random_() % 2 == 0 ? Use::kWait : Use::kQuery);
  }

  void put_or_end(size_t who) {
    if (has_put_[who]) return calls_of_[who].reset();
    has_put_[who] = true;
    calls_of_[who]->put();
  }
  void replace(CUstream& stream) {
    if (stream == kLegacy || stream == GS_CU_STREAM_PER_THREAD || is_in_use(stream) ||
        is_captured(stream))
      return;
    const bool is_blocking = the_gpu->is_blocking(stream);
    destroy(stream);
    stream = new_stream(is_blocking);
  }

  std::mt19937_64 random_;
  std::vector<CUstream> handles_;
  std::array<std::unique_ptr<Call>, kThreads> calls_of_;
  std::array<bool, kThreads> has_put_{};
  bool is_visiting_ = false, is_asked_ = false;
  Stream* captured_ = nullptr;  // of the stream that captures; null: none does
  size_t at_work_ = kThreads;   // the thread that is in the middle of a step
  uint64_t steps_between_ = 0, captures_ = 0;
};

TEST_F(InterleavedTest, OrderHolds) {
  constexpr int kSteps = 2000;
  const int seeds = test::number_given("GPUSHARE_TEST_SEEDS", GS_IS_SANITIZED ? 3 : 30);
  uint64_t moves = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    begin(seed);
    for (int i = 0; i < kSteps; ++i) step();
    end_all_calls();
    end_the_capture();
    moves += slot_->gpus[0].moves;
    const auto wrong = broken();
    ASSERT_TRUE(wrong.empty()) << wrong.size() << " pairs, first: " << wrong.front();
  }
  EXPECT_GT(moves, uint64_t(seeds) * kSteps / 20);
  EXPECT_GT(steps_between(), uint64_t(seeds) * kSteps / 20) << "while another one is in the shim";
  EXPECT_GT(captures(), uint64_t(seeds) * kSteps / 200);
}

}  // namespace
}  // namespace gpushare::shim
