// SPDX-License-Identifier: Apache-2.0
// Gives the iteration recogniser any sequence of events. It must not crash, its report must make
// sense, and both must be the same whether it gets launches one at a time or together.
#include <cstring>
#include <memory>

#include "intercept/shim/iterations/iteration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpushare::shim;
  const auto recogniser = std::make_unique<IterationRecogniser>();
  const auto at_once = std::make_unique<IterationRecogniser>(0);
  uint64_t now = 1, begun = 0;
  const auto both = [&](const auto& tell) {
    const bool begins = tell(*recogniser);
    if (tell(*at_once) != begins) __builtin_trap();
    begun += begins;
  };
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const uint8_t what = data[i], who = data[i + 1], much = data[i + 2];
    const uint64_t stream = what >> 4;
    now += data[i + 3] == 255 ? ~0ULL / 2 : 1ULL << (data[i + 3] % 40);
    // One event repeated, so that small inputs reach deep states.
    for (int times = 0; times <= (what & 8 ? much : 0); ++times) {
      switch (what & 7) {
        case 0:
          both([&](IterationRecogniser& one) {
            one.copy(CopyWay::kToGpu, 1ULL << (much % 64), (who & 1) != 0, stream, now);
            return false;
          });
          break;
        case 1:
          both([&](IterationRecogniser& one) {
            one.copy(CopyWay::kFromGpu, much, (who & 1) != 0, stream, now);
            return false;
          });
          break;
        case 2:
          both([&](IterationRecogniser& one) {
            one.waited(who & 1 ? IterationRecogniser::kAllStreams : stream, now);
            return false;
          });
          break;
        case 5:
          both([&](IterationRecogniser& one) {
            one.ordered(stream);
            return false;
          });
          break;
        case 3:
          both([&](IterationRecogniser& one) { return one.graph_launch(who, stream, now); });
          break;
        default:
          both([&](IterationRecogniser& one) {
            return one.launch(who + (what & 4 ? times : 0) * 0x10000ULL, 1U << (much % 32), stream,
                              now);
          });
      }
    }
    const IterationReport report = recogniser->report();
    if (!(report.confidence >= 0 && report.confidence < 1) || report.count > begun ||
        !(report.launches >= 0))
      __builtin_trap();
  }
  return 0;
}
