// SPDX-License-Identifier: Apache-2.0
// Which transitions at marks begin an iteration. A unit is what a stream launches between two
// marks; an edge is the transition between two units, from the last function of the one to the
// first function of the other. README.md has the rules ("Marks").
//
// Pure, fixed space, one caller at a time. O(1): about 100 operations for a launch after marks, one
// load for any other.
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
  // A launch after marks, which ends a unit of so many launches. Returns true if it begins an
  // iteration.
  bool arrive(uint32_t from, uint32_t to, uint8_t marks, uint32_t input_bytes,
              uint32_t unit_launches);
  // pass() notes a launch without marks. It is only needed if may_know() returns true.
  bool may_know(uint32_t transition) const {
    return (filter_[(transition >> 6) % kFilterWords] >> (transition & 63) & 1) != 0;
  }
  void pass(uint32_t from, uint32_t to);
  // How often the rule of the odd one has demoted an edge that it had not demoted before.
  uint32_t changes() const { return changes_; }

 private:
  static constexpr uint32_t kEdges = 128;
  static constexpr uint32_t kWays = 8;
  static constexpr uint32_t kLongestPeriod = 64;
  static constexpr uint32_t kString = 256;  // > 3 * kLongestPeriod
  static constexpr uint32_t kFilterWords = 16;

  struct Edge {
    uint32_t from = 0, to = 0;  // functions; to == 0: a free entry
    uint16_t marked = 0, unmarked = 0;
    uint16_t inputs = 0, scalars = 0, outputs = 0;  // how many of `marked` had such a mark
    uint16_t from_rank = 0, to_rank = 0;            // of the functions, by first appearance
    uint32_t first_unit = 0, last_unit = 0;
    float launches = 0;        // mean, of the units that end here
    float input_bytes = 0;     // mean, handed in at the marks
    uint16_t after_round = 0;  // how many of `marked` came directly after a kRound edge
    uint8_t demoted_by = kNobody;
    uint8_t last_demoted_by = kNobody;
    uint8_t times = 0;      // how often it came in a period when it was demoted
    uint8_t since_top = 0;  // how often it came since the edge `demoted_by`
    uint32_t top_unit = 0;  // the unit at which that edge came
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
  float most_input_ = 0;    // the largest input_bytes of an edge, of late
  bool was_round_ = false;  // the last edge was a kRound
  uint16_t ranks_ = 0;
  uint32_t length_ = 0;                        // edges in the string so far
  uint8_t string_[kString] = {};               // the last ones, as indices of edges_
  uint16_t repeats_[kLongestPeriod + 1] = {};  // [p]: how long string[i] == string[i - p] has held
};

}  // namespace gpushare::shim
