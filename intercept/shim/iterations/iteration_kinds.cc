// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration_kinds.h"

#include "intercept/shim/iterations/iteration_hash.h"

namespace gpushare::shim {
namespace {

constexpr uint32_t kMemory = 16;      // iterations that a mean remembers
constexpr uint32_t kFollowers = 128;  // of a kind that are counted; then older ones count half
constexpr float kWider = 2.3F;        // in powers of two, which is five times
constexpr float kDecodeInput = 64 * 1024;
constexpr float kPromptInput = 1024 * 1024;

uint32_t ones(uint64_t bits) { return static_cast<uint32_t>(__builtin_popcountll(bits)); }

void follow(float& mean, float value, uint32_t count) {
  mean += (value - mean) / static_cast<float>(count < kMemory ? count : kMemory);
}

}  // namespace

uint32_t IterationKinds::begin(uint32_t function, uint32_t blocks, int before) {
  const uint32_t key = transition_number(function, bits_of(blocks)) | 1;
  uint32_t found = 0;
  for (uint32_t i = 0; i < kKinds; ++i) {
    if (kinds_[i].key == key) {
      found = i;
      break;
    }
    if (kinds_[i].last_used < kinds_[found].last_used) found = i;
  }
  Kind& kind = kinds_[found];
  if (kind.key != key) {
    kind = Kind{};
    kind.key = key;
    ++made_;
  }
  kind.last_used = ended_ + 1;
  if (before >= 0 && kinds_[before].count > 0 && kind.count > 0) {
    Kind& last = kinds_[before];
    if (last.followed >= kFollowers) {
      last.followed /= 2;
      last.followed_by_like /= 2;
      last.followed_by_narrow /= 2;
      last.followed_by_prefill /= 2;
    }
    ++last.followed;
    last.followed_by_prefill += kind.phase == Phase::kPrefill ? 1 : 0;
    if (is_wider(last, kind)) {
      ++last.followed_by_narrow;
    } else if (!is_wider(kind, last)) {
      ++last.followed_by_like;
    }
  }
  return found;
}

IterationKinds::Outcome IterationKinds::end(const IterationSketch& iteration, uint64_t busy_ns) {
  Kind& kind = kinds_[iteration.kind];
  Outcome outcome = fit(kind, iteration) ? Outcome::kExpected : Outcome::kUnexpected;
  if (kind.count == 0) outcome = Outcome::kNew;
  const uint32_t count = ++kind.count;
  const auto launches = static_cast<float>(iteration.launches);
  follow(kind.launches, launches, count);
  follow(kind.width, static_cast<float>(iteration.width) / launches, count);
  follow(kind.input_bytes, static_cast<float>(iteration.input_bytes), count);
  follow(kind.busy_ns, static_cast<float>(busy_ns), count);
  follow(kind.waited_ns, static_cast<float>(iteration.waited_ns), count);
  kind.has_graph = iteration.has_graph;
  ++ended_;
  if (ended_ % 64 == 0 || (ended_ < 256 && ended_ % 8 == 0)) name_phases();
  return outcome;
}

// Returns true if it is like one of the kind's shapes: it differs by at most a quarter of the
// launches, and at least half of the functions are common.
bool IterationKinds::fit(Kind& kind, const IterationSketch& iteration) {
  const auto launches = static_cast<float>(iteration.launches);
  for (Shape& shape : kind.shapes) {
    const float difference =
        launches > shape.launches ? launches - shape.launches : shape.launches - launches;
    const uint32_t common = ones(shape.functions & iteration.functions);
    if (4 * difference > shape.launches || 2 * common < ones(shape.functions | iteration.functions))
      continue;
    if (shape.count < 1000) ++shape.count;
    follow(shape.launches, launches, shape.count);
    shape.functions = iteration.functions;
    return true;
  }
  Shape& weaker = kind.shapes[kind.shapes[0].count <= kind.shapes[1].count ? 0 : 1];
  weaker.count /= 4;
  if (weaker.count == 0) weaker = {launches, 1, iteration.functions};
  return false;
}

bool IterationKinds::is_wider(const Kind& wide, const Kind& narrow) {
  if (wide.has_graph != narrow.has_graph) return narrow.has_graph;
  return wide.width >= narrow.width + kWider;
}

// The last chunk of a prompt is followed by narrow ones, and the chunks before it by chunks.
bool IterationKinds::is_prefill(const Kind& kind, const Kind& decode) const {
  return kind.followed > 0 && is_wider(kind, decode) && kind.input_bytes <= kPromptInput &&
         10 * kind.followed_by_narrow + 10 * kind.followed_by_like >= 8 * kind.followed &&
         2 * (kind.followed_by_narrow + kind.followed_by_prefill) >= kind.followed;
}

void IterationKinds::name_phases() {
  const Kind* decode = nullptr;
  for (const Kind& kind : kinds_) {
    if (kind.count >= 8 && kind.input_bytes <= kDecodeInput &&
        10 * kind.followed_by_like >= 7 * kind.followed && kind.waited_ns <= kind.busy_ns &&
        (!decode || kind.count > decode->count))
      decode = &kind;
  }
  uint32_t prefills = 0;
  for (Kind& kind : kinds_) {
    kind.phase = Phase::kUnknown;
    if (decode && kind.key != 0 && is_prefill(kind, *decode)) {
      kind.phase = Phase::kPrefill;
      prefills += kind.count;
    }
  }
  const bool is_decoder = prefills > 1 && prefills <= decode->count;
  for (Kind& kind : kinds_) {
    if (!is_decoder) {
      kind.phase = Phase::kUnknown;
    } else if (kind.key != 0 && kind.phase == Phase::kUnknown && !is_wider(kind, *decode)) {
      kind.phase = Phase::kDecode;
    }
  }
}

}  // namespace gpushare::shim
