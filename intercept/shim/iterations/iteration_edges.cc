// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration_edges.h"

#include "intercept/shim/iterations/iteration_hash.h"

namespace gpushare::shim {
namespace {

constexpr uint32_t kForgetUnits = 256;
constexpr uint16_t kHalveAt = 1024;
// An edge without input is no end of an iteration unless at least one in so many inputs comes after
// a unit that ends like it: an optimizer step that is left out now and then makes a wait look so.
constexpr uint32_t kFewAlike = 8;
constexpr float kMuchMore = 4;
constexpr float kCrumb = 16384;
constexpr float kForgetInput = 0.99F;  // most_input_ falls by this factor with every unit
// A period must repeat so often, so that a server's random requests make none.
constexpr uint16_t kFewestRepeats = 8;
// How much longer the unit before an optimizer step is than one without, at least.
constexpr float kEpilogue = 1.01F;

}  // namespace

bool IterationEdges::arrive(uint32_t from, uint32_t to, uint8_t marks, uint32_t input_bytes,
                            uint32_t unit_launches) {
  ++units_;
  Edge* known = find(from, to);
  Edge& edge = known ? *known : make(from, to);
  count(edge, marks, input_bytes, unit_launches);
  if (was_round_) ++edge.after_round;
  was_round_ = strength(edge) == kRound;
  const bool is_inside = !is_inherent(edge) || continues_round(edge) || is_inside_input(edge);
  bool result = false;
  if (!is_inside) {
    append(edge);
    result = begins(edge, marks);
  }
  edge.last_unit = units_;
  return result;
}

void IterationEdges::pass(uint32_t from, uint32_t to) {
  if (Edge* edge = find(from, to); edge && edge->unmarked < 0xFFFF) ++edge->unmarked;
}

std::size_t IterationEdges::first_way(uint32_t from, uint32_t to) {
  return std::size_t{transition_number(from, to)} % (kEdges / kWays) * kWays;
}

IterationEdges::Edge* IterationEdges::find(uint32_t from, uint32_t to) {
  Edge* const set = edges_ + first_way(from, to);
  for (Edge* edge = set; edge != set + kWays; ++edge)
    if (edge->to == to && edge->from == from) return edge;
  return nullptr;
}

IterationEdges::Edge& IterationEdges::make(uint32_t from, uint32_t to) {
  Edge* const set = edges_ + first_way(from, to);
  Edge* oldest = set;
  for (Edge* edge = set; edge != set + kWays; ++edge)
    if (edge->last_unit < oldest->last_unit) oldest = edge;
  const bool is_reused = oldest->to != 0;
  const uint16_t from_rank = rank_of(from);
  *oldest = Edge{};
  oldest->from = from;
  oldest->to = to;
  oldest->from_rank = from_rank;
  oldest->to_rank = from_rank;  // found by rank_of where to == from
  oldest->to_rank = rank_of(to);
  oldest->first_unit = units_;
  if (is_reused) {
    set_filter();
  } else {
    const uint32_t transition = transition_number(from, to);
    filter_[(transition >> 6) % kFilterWords] |= 1ULL << (transition & 63);
  }
  return *oldest;
}

uint16_t IterationEdges::rank_of(uint32_t function) {
  uint16_t rank = 0;
  const auto take = [&](uint32_t one, uint16_t its_rank) {
    if (one == function && its_rank != 0 && (rank == 0 || its_rank < rank)) rank = its_rank;
  };
  for (const Edge& edge : edges_) {
    take(edge.from, edge.from_rank);
    take(edge.to, edge.to_rank);
  }
  if (rank == 0) rank = ranks_ < 0xFFFF ? ++ranks_ : ranks_;
  return rank;
}

void IterationEdges::set_filter() {
  for (uint64_t& word : filter_) word = 0;
  for (const Edge& edge : edges_) {
    if (edge.to == 0) continue;
    const uint32_t transition = transition_number(edge.from, edge.to);
    filter_[(transition >> 6) % kFilterWords] |= 1ULL << (transition & 63);
  }
}

void IterationEdges::count(Edge& edge, uint8_t marks, uint32_t input_bytes,
                           uint32_t unit_launches) {
  ++edge.marked;
  if (marks & kMarkInput) ++edge.inputs;
  if (marks & kMarkScalar) ++edge.scalars;
  if (marks & kMarkOutput) ++edge.outputs;
  const auto memory = static_cast<float>(edge.marked < 16 ? edge.marked : 16);
  edge.launches += (static_cast<float>(unit_launches) - edge.launches) / memory;
  edge.input_bytes += (static_cast<float>(input_bytes) - edge.input_bytes) / memory;
  most_input_ *= kForgetInput;
  if (edge.input_bytes > most_input_) most_input_ = edge.input_bytes;
  if (edge.marked < kHalveAt) return;
  edge.marked /= 2, edge.unmarked /= 2;
  edge.after_round /= 2, edge.inputs /= 2, edge.scalars /= 2, edge.outputs /= 2;
}

IterationEdges::Strength IterationEdges::strength(const Edge& edge) const {
  const bool is_crumb = edge.input_bytes * kCrumb < most_input_;
  const bool has_input = !is_crumb && 2 * edge.inputs >= edge.marked;
  const bool has_output = 2 * edge.outputs >= edge.marked;
  const bool has_scalar = !is_crumb && 2 * edge.scalars >= edge.marked;
  if (has_output && (has_input || has_scalar)) return kRound;
  if (has_input) return kInput;
  if (has_output) return kOutput;
  return has_scalar ? kScalar : kNone;
}

bool IterationEdges::continues_round(const Edge& edge) const {
  return edge.marked > 1 && strength(edge) < kRound && 10 * edge.after_round >= 9 * edge.marked;
}

bool IterationEdges::begins(Edge& edge, uint8_t marks) {
  if (is_demoted(edge)) return false;
  return edge.marked > 1 || ((marks & kMarkInput) != 0 && leads_to_known_top(edge));
}

// A demotion ends when the edge comes more often than in the period that demoted it, or when the
// top of that period is not seen any more.
bool IterationEdges::is_demoted(Edge& edge) {
  if (edge.demoted_by == kNobody) return false;
  const Edge& top = edges_[edge.demoted_by];
  if (edge.top_unit != top.last_unit) {
    edge.top_unit = top.last_unit;
    edge.since_top = 0;
  }
  if (++edge.since_top <= edge.times && top.to != 0 && units_ - top.last_unit <= kForgetUnits)
    return true;
  edge.demoted_by = kNobody;
  return false;
}

bool IterationEdges::is_inside_input(const Edge& edge) const {
  if (strength(edge) >= kInput) return false;
  uint32_t inputs = 0, alike = 0;  // ends of units before an input; those like this one
  for (const Edge& other : edges_) {
    if (other.to == 0 || units_ - other.last_unit > kForgetUnits || strength(other) < kInput)
      continue;
    if (other.from == edge.from) alike += other.marked;
    if (other.marked > 1 && other.last_unit > edge.first_unit && is_inherent(other))
      inputs += other.marked;
  }
  return kFewAlike * alike < inputs;
}

// For an edge that has not been seen before: the way from an evaluation back to training, say.
bool IterationEdges::leads_to_known_top(const Edge& edge) const {
  bool is_known = false;
  for (const Edge& other : edges_) {
    if (&other == &edge || other.to != edge.to || other.marked < 2 || !is_inherent(other)) continue;
    if (other.demoted_by != kNobody) return false;
    is_known = is_known || strength(other) >= kInput;
  }
  return is_known;
}

void IterationEdges::append(const Edge& edge) {
  const auto index = static_cast<uint8_t>(&edge - edges_);
  for (uint32_t p = 1; p <= kLongestPeriod; ++p) {
    const bool is_same = length_ >= p && string_[(length_ - p) % kString] == index;
    repeats_[p] = is_same ? static_cast<uint16_t>(repeats_[p] + (repeats_[p] < 0xFFFF)) : 0;
  }
  string_[length_ % kString] = index;
  ++length_;
  // The period has repeated three times or more, and no shorter one explains it.
  for (uint32_t p = 1; p <= kLongestPeriod; ++p) {
    if (repeats_[p] < 2 * p || repeats_[p] < kFewestRepeats) continue;
    if (p > 1 && repeats_[p] % p == 0) group(p);
    return;
  }
}

void IterationEdges::group(uint32_t period) {
  uint8_t times[kEdges] = {};
  for (uint32_t i = 1; i <= period; ++i) ++times[string_[(length_ - i) % kString]];
  const Edge* top = nullptr;
  for (uint32_t i = 0; i < kEdges; ++i) {
    const Edge& edge = edges_[i];
    if (times[i] != 1) continue;
    if (!top || is_more_a_top(edge, *top)) top = &edge;
  }
  if (!top) return;
  for (uint32_t i = 0; i < kEdges; ++i) {
    if (times[i] != 0 && &edges_[i] != top && !can_demote(edges_[i], *top, times[i])) return;
  }
  for (uint32_t i = 0; i < kEdges; ++i) {
    if (times[i] == 0) continue;
    const uint8_t by = &edges_[i] == top ? kNobody : static_cast<uint8_t>(top - edges_);
    changes_ += by != kNobody && edges_[i].last_demoted_by != by;
    edges_[i].demoted_by = edges_[i].last_demoted_by = by;
    edges_[i].times = times[i];
    edges_[i].top_unit = top->last_unit;
    edges_[i].since_top = 0;
  }
}

bool IterationEdges::is_more_a_top(const Edge& edge, const Edge& other) const {
  if (strength(edge) != strength(other)) return strength(edge) > strength(other);
  if (edge.input_bytes > kMuchMore * other.input_bytes) return true;
  if (other.input_bytes > kMuchMore * edge.input_bytes) return false;
  return edge.from_rank - edge.to_rank > other.from_rank - other.to_rank;
}

bool IterationEdges::can_demote(const Edge& edge, const Edge& top, uint32_t times) const {
  if (edge.from == top.from) return false;  // their units end alike
  if (edge.to == top.to) return top.launches >= kEpilogue * edge.launches;
  const Strength how_strong = strength(edge);
  if (how_strong == kRound) return false;
  return how_strong != kInput || times == 1;
}

}  // namespace gpushare::shim
