// SPDX-License-Identifier: Apache-2.0
// Which transitions at marks begin an iteration. A unit is what a stream launches between two
// marks; the edge between two units is (last function of the one, first function of the other).
// Edges are few, exact and hardly depend on the data, so the rules work on the string of edges:
//
//   a mark seen by chance     An edge that is more often crossed without a mark is none (a loss
//                             that is printed every 50 iterations), unless a result was read and
//                             new input given.
//   input makes iterations    Where edges with new input exist, one without begins no iteration
//                             (a wait for an overflow flag or a routing table), unless its unit
//                             ends as those before an input do: a decoding step gets its input
//                             from the step before, and ends with the same sampling kernel.
//   the odd one in a period   Edges m m m o m m m o: o, seen once in a period, begins the
//                             iteration, if the others are weaker (no result or no input at them)
//                             or lead to the same function after a shorter unit: micro-batches
//                             before the optimizer step. Of several odd ones, the one with result
//                             and input, with most input, or with the longest way back.
//     Training 20 steps and evaluating 5: t t t .. e e e: both come in runs, so neither is odd.
//   crumbs                    An input of less than a 16,000th of the largest is none.
//   more of the same round    Result and input at one edge, and only then a weaker one: it belongs
//                             to the iteration that has begun (tables copied in after the first
//                             kernel, a wait in the middle).
//
// Pure, fixed space. O(1): about 100 operations for a marked launch, one load for any other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushare::shim {

enum Mark : uint8_t {
  kMarkInput = 1,   // a copy to the GPU of 64 bytes or more
  kMarkScalar = 2,  // a smaller one
  kMarkOutput = 4,  // a wait, or a copy from the GPU
};

class IterationEdges {
 public:
  // A launch after marks, which ends a unit of so many launches. Does it begin an iteration?
  bool arrive(uint32_t from, uint32_t to, uint8_t marks, uint32_t input_bytes,
              uint32_t unit_launches);
  // A launch without marks; only needed where may_know() says so.
  bool may_know(uint32_t transition) const {
    return (filter_[(transition >> 6) % kFilterWords] >> (transition & 63) & 1) != 0;
  }
  void pass(uint32_t from, uint32_t to);
  // How often a period has been found that was not known.
  uint32_t changes() const { return changes_; }

 private:
  static constexpr uint32_t kEdges = 128;
  static constexpr uint32_t kWays = 8;
  static constexpr uint32_t kLongestPeriod = 64;
  static constexpr uint32_t kString = 256;  // > 3 * kLongestPeriod
  static constexpr uint32_t kFilterWords = 16;

  struct Edge {
    uint32_t from = 0, to = 0;  // to == 0: free
    uint16_t marked = 0, unmarked = 0;
    uint16_t inputs = 0, scalars = 0, outputs = 0;  // of `marked`
    uint16_t from_rank = 0, to_rank = 0;            // in order of first appearance
    uint32_t first_unit = 0, last_unit = 0;
    float launches = 0;        // of the units that end here
    float input_bytes = 0;     // handed in at the marks
    uint16_t after_round = 0;  // of `marked`: directly after an edge with result and input
    uint8_t demoted_by = kNobody;
    uint8_t last_demoted_by = kNobody;
    uint8_t times = 0;      // in a period of that demotion, at most
    uint8_t since_top = 0;  // times since `demoted_by`
    uint32_t top_unit = 0;  // when that was
  };
  static constexpr uint8_t kNobody = 0xFF;

  static std::size_t first_way(uint32_t from, uint32_t to);
  Edge* find(uint32_t from, uint32_t to);
  Edge& make(uint32_t from, uint32_t to);
  uint16_t rank_of(uint32_t function);
  void set_filter();
  void count(Edge& edge, uint8_t marks, uint32_t input_bytes, uint32_t unit_launches);
  bool is_more_a_top(const Edge& edge, const Edge& other) const;
  enum Strength { kNone = 0, kScalar = 1, kOutput = 2, kInput = 3, kRound = 4 };
  Strength strength(const Edge& edge) const;
  bool is_inherent(const Edge& edge) const {
    return edge.marked >= 3 * edge.unmarked || strength(edge) == kRound;
  }
  bool continues_round(const Edge& edge) const;
  bool begins(Edge& edge, uint8_t marks);
  bool is_demoted(Edge& edge);
  bool is_inside_input(const Edge& edge) const;
  bool leads_to_known_top(const Edge& edge) const;
  void append(const Edge& edge);
  void group(uint32_t period);
  bool can_demote(const Edge& edge, const Edge& top, uint32_t times) const;

  Edge edges_[kEdges];
  uint64_t filter_[kFilterWords] = {};
  uint32_t units_ = 0;
  uint32_t changes_ = 0;
  float most_input_ = 0;    // of an edge, of late
  bool was_round_ = false;  // the edge before
  uint16_t ranks_ = 0;
  uint32_t length_ = 0;                        // of the string so far
  uint8_t string_[kString] = {};               // indices of edges; the last ones
  uint16_t repeats_[kLongestPeriod + 1] = {};  // [p]: how long string[i] == string[i - p] has held
};

}  // namespace gpushare::shim
