// SPDX-License-Identifier: Apache-2.0
// What the iterations of a process are like. Iterations that begin alike (function and magnitude of
// the first launch) are one kind: the training step and the evaluation step, prefill and decode,
// one for each batch size of a server. Fixed space; the kind unused for longest makes room.
//
// Phases. A process is a decoder when one kind comes in runs without waiting for new requests, with
// hardly any input, and other kinds, whose launches are at least five times as wide in the
// geometric mean, are nearly always followed by it: those are the prefills. Growing sequences make
// a decode step's grids grow slowly; a prompt is wider by its number of tokens at once. For a
// graph, whose width is not known, being one is enough to be the narrow side.
#pragma once

#include <cstdint>

namespace gpushare::shim {

enum class Phase : uint8_t { kUnknown = 0, kPrefill = 1, kDecode = 2 };

// One iteration, gathered while it runs.
struct IterationSketch {
  uint32_t kind = 0;         // index
  uint32_t launches = 0;     // kernels; graphs weigh more
  uint32_t width = 0;        // sum of bits_of(blocks)
  uint32_t input_bytes = 0;  // handed in before it began
  uint64_t functions = 0;    // a bit for each, hashed
  uint64_t waited_ns = 0;    // with nothing to do, before it began
  bool has_graph = false;
};

class IterationKinds {
 public:
  enum class Outcome : uint8_t { kNew, kExpected, kUnexpected };

  // The kind of an iteration that begins with `function` and so many blocks, on a stream whose
  // iteration before was of kind `before` (< 0: none).
  uint32_t begin(uint32_t function, uint32_t blocks, int before);
  Outcome end(const IterationSketch& iteration, uint64_t busy_ns);

  Phase phase(uint32_t kind) const { return kinds_[kind].phase; }
  float launches(uint32_t kind) const { return kinds_[kind].launches; }
  // Kinds ever seen; a program without a loop makes ever more.
  uint32_t made() const { return made_; }

 private:
  static constexpr uint32_t kKinds = 32;

  // Training and evaluation often begin with the same launch: a kind has two shapes.
  struct Shape {
    float launches = 0;
    uint32_t count = 0;      // quartered by each that is like neither
    uint64_t functions = 0;  // of the last one
  };
  struct Kind {
    uint32_t key = 0;  // 0: free
    uint32_t count = 0;
    uint32_t last_used = 0;
    uint32_t followed = 0, followed_by_like = 0, followed_by_narrow = 0;
    float launches = 0, width = 0, input_bytes = 0;  // means; width: of one launch
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
