// SPDX-License-Identifier: Apache-2.0
// Green contexts: streams in partitions of the GPU (groups of 8 SMs, as of compute capability 9.0)
// that belong to its primary context. Numbers are those of a GPU with 132 SMs.
#include <bit>

#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

// Two partitions of one group of 8 SMs each, and a stream in each of them.
class TwoPartitions {
 public:
  explicit TwoPartitions(const Stage& stage) {
    const CUdevice device = stage.session().device();
    CUdevResource whole{};
    must(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    unsigned count = 2;
    must(cuDevSmResourceSplitByCount(groups_, &count, &whole, &rest_, 0, 8),
         "cuDevSmResourceSplitByCount");
    if (count != 2) throw Failure{"no two groups of SMs"};
    for (int i = 0; i < 2; ++i) {
      CUdevResourceDesc description = nullptr;
      must(cuDevResourceGenerateDesc(&description, &groups_[i], 1), "cuDevResourceGenerateDesc");
      must(cuGreenCtxCreate(&contexts_[i], description, device, CU_GREEN_CTX_DEFAULT_STREAM),
           "cuGreenCtxCreate");
      must(cuGreenCtxStreamCreate(&streams_[i], contexts_[i], CU_STREAM_NON_BLOCKING, 0),
           "cuGreenCtxStreamCreate");
    }
  }
  ~TwoPartitions() {
    for (int i = 0; i < 2; ++i) {
      static_cast<void>(cuStreamDestroy_v2(streams_[i]));
      static_cast<void>(cuGreenCtxDestroy(contexts_[i]));
    }
  }
  TwoPartitions(const TwoPartitions&) = delete;
  TwoPartitions& operator=(const TwoPartitions&) = delete;

  CUstream stream(int which) const { return streams_[which]; }
  unsigned sms(int which) const { return groups_[which].sm.smCount; }
  unsigned other_sms() const { return rest_.sm.smCount; }

 private:
  CUdevResource groups_[2] = {}, rest_ = {};
  CUgreenCtx contexts_[2] = {};
  CUstream streams_[2] = {};
};

// How many SMs the blocks of a kernel were on.
int sms_used(Stage& stage, CUstream stream) {
  constexpr size_t kWords = 8;
  const CUdeviceptr bits = stage.session().new_zeroed(kWords * sizeof(uint32_t));
  workloads::launch(stage.session().kernel("gs_sms"), {132 * 16, 256}, stream, bits, 2000u);
  stage.synchronize(stream);
  uint32_t words[kWords] = {};
  must(cuMemcpyDtoH_v2(words, bits, sizeof words), "cuMemcpyDtoH_v2");
  must(cuMemFree_v2(bits), "cuMemFree_v2");
  int count = 0;
  for (const uint32_t word : words) count += std::popcount(word);
  return count;
}

void sizes(Stage& stage) {
  const TwoPartitions partitions(stage);
  stage.say("of 132:");
  stage.say(std::to_string(partitions.sms(0)) + " " + std::to_string(partitions.sms(1)) + " " +
            std::to_string(partitions.other_sms()));
  stage.say("used " + std::to_string(sms_used(stage, partitions.stream(0))));
}

void partitions_pass_each_other(Stage& stage) {
  const TwoPartitions partitions(stage);
  expect_passes(stage, partitions.stream(0), partitions.stream(1));
  expect_passes(stage, partitions.stream(0), stage.non_blocking());
}

// Their streams are non-blocking, as they must be.
void and_the_legacy_stream(Stage& stage) {
  const TwoPartitions partitions(stage);
  expect_passes(stage, partitions.stream(0), nullptr);
  expect_passes(stage, nullptr, partitions.stream(0));
}

// Events are the context's, so they go across.
void events_across_partitions(Stage& stage) {
  const TwoPartitions partitions(stage);
  const CUstream whole = stage.stream();
  const CUevent first = stage.event(), second = stage.event();
  Hold hold(stage, partitions.stream(0));
  stage.note(partitions.stream(0), 'a');
  record(first, partitions.stream(0));
  wait(whole, first);
  stage.note(whole, 'b');
  record(second, whole);
  wait(partitions.stream(1), second);
  stage.note(partitions.stream(1), 'c');
  stage.note_on_host(partitions.stream(1), 'd');
  stage.witness();
  hold.end();
  stage.synchronize(partitions.stream(1));
  stage.settle();
}

void blocking_streams(Stage& stage) {
  const TwoPartitions partitions(stage);
  unsigned flags = 9;
  must(cuStreamGetFlags(partitions.stream(0), &flags), "cuStreamGetFlags");
  stage.say("flags " + std::to_string(flags));
}

constexpr Scene kScenes[] = {
    {"sizes of partitions", sizes},
    {"streams in two partitions pass each other", partitions_pass_each_other},
    {"legacy stream and a stream in a partition pass each other", and_the_legacy_stream},
    {"events across partitions", events_across_partitions},
    {"flags of a stream in a partition", blocking_streams},
};

}  // namespace

std::span<const Scene> green_context_scenes() { return kScenes; }

}  // namespace gpushare::conformance
