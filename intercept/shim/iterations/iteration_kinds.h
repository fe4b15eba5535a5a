// SPDX-License-Identifier: Apache-2.0
// What the iterations of a process are like: kinds, whether one is like earlier ones of its kind,
// and which kinds are prefill and decode (README.md, "Confidence" and "Phases"). Iterations that
// begin alike are one kind. Pure, fixed space, one caller at a time; the kind that was unused for
// longest makes room for a new one.
#pragma once

#include <cstdint>

namespace gpushare::shim {

enum class Phase : uint8_t { kUnknown = 0, kPrefill = 1, kDecode = 2 };

// One iteration, gathered while it runs.
struct IterationSketch {
  uint32_t kind = 0;         // index
  uint32_t launches = 0;     // kernels; a graph counts as 64
  uint32_t width = 0;        // sum of bits_of(blocks)
  uint32_t input_bytes = 0;  // handed in before it began
  uint64_t functions = 0;    // one bit for each, by hash
  uint64_t waited_ns = 0;    // for which the GPU had nothing to do before it began
  bool has_graph = false;
};

class IterationKinds {
 public:
  enum class Outcome : uint8_t { kNew, kExpected, kUnexpected };

  // An iteration begins with `function` and so many blocks, on a stream whose iteration before was
  // of kind `before` (< 0: there was none). Returns its kind.
  uint32_t begin(uint32_t function, uint32_t blocks, int before);
  // The iteration has ended. Returns kExpected if it was like earlier ones of its kind, and kNew if
  // there was none.
  Outcome end(const IterationSketch& iteration, uint64_t busy_ns);

  Phase phase(uint32_t kind) const { return kinds_[kind].phase; }
  float launches(uint32_t kind) const { return kinds_[kind].launches; }
  // How many kinds were ever seen. A program without a loop makes ever more.
  uint32_t made() const { return made_; }

 private:
  static constexpr uint32_t kKinds = 32;

  // Training and evaluation often begin with the same launch: a kind has two shapes.
  struct Shape {
    float launches = 0;
    uint32_t count = 0;      // of iterations like it; quartered by one that is like neither shape
    uint64_t functions = 0;  // of the last such iteration
  };
  struct Kind {
    uint32_t key = 0;  // 0: a free entry
    uint32_t count = 0;
    uint32_t last_used = 0;
    uint32_t followed = 0, followed_by_like = 0, followed_by_narrow = 0, followed_by_prefill = 0;
    float launches = 0, width = 0, input_bytes = 0;  // means; width is the mean of one launch
    float busy_ns = 0, waited_ns = 0;
    Shape shapes[2];
    bool has_graph = false;
    Phase phase = Phase::kUnknown;
  };

  static bool is_wider(const Kind& wide, const Kind& narrow);
  static bool fit(Kind& kind, const IterationSketch& iteration);
  bool is_prefill(const Kind& kind, const Kind& decode) const;
  void name_phases();

  Kind kinds_[kKinds];
  uint32_t ended_ = 0;
  uint32_t made_ = 0;
};

}  // namespace gpushare::shim
