// SPDX-License-Identifier: Apache-2.0
// The iteration recogniser on any sequence of events: never crashes, and its report always makes
// sense.
#include <cstring>
#include <memory>

#include "intercept/shim/iteration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpushare::shim;
  const auto recogniser = std::make_unique<IterationRecogniser>();
  uint64_t now = 1, begun = 0;
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const uint8_t what = data[i], who = data[i + 1], much = data[i + 2];
    const uint64_t stream = what >> 4;
    now += data[i + 3] == 255 ? ~0ULL / 2 : 1ULL << (data[i + 3] % 40);
    // One event repeated, so that small inputs reach deep states.
    for (int times = 0; times <= (what & 8 ? much : 0); ++times) {
      switch (what & 7) {
        case 0:
          recogniser->copy(CopyWay::kToGpu, 1ULL << (much % 64), (who & 1) != 0, stream, now);
          break;
        case 1:
          recogniser->copy(CopyWay::kFromGpu, much, (who & 1) != 0, stream, now);
          break;
        case 2:
          recogniser->waited(who & 1 ? IterationRecogniser::kAllStreams : stream, now);
          break;
        case 5:
          recogniser->ordered(stream);
          break;
        case 3:
          begun += recogniser->graph_launch(who, stream, now);
          break;
        default:
          begun += recogniser->launch(who + (what & 4 ? times : 0) * 0x10000ULL, 1U << (much % 32),
                                      stream, now);
      }
    }
    const IterationReport report = recogniser->report();
    if (!(report.confidence >= 0 && report.confidence < 1) || report.count > begun ||
        !(report.launches >= 0))
      __builtin_trap();
  }
  return 0;
}
