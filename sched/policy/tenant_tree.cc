// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/tenant_tree.h"

#include <algorithm>

#include "sched/policy/shares.h"

namespace gpushare {
namespace {

constexpr double kOwnWeight = TreeTenant{}.weight;
constexpr double kMostOdds = 1e3;  // of one without work: it would get all but a thousandth

class Tree {
 public:
  explicit Tree(std::span<const TreeTenant> tenants) : tenants_(tenants), nodes_(tenants.size()) {
    for (size_t i = 0; i < tenants.size(); ++i) {
      nodes_[i].above = tenants[i].above ? index_of(*tenants[i].above) : kNone;
      below(nodes_[i].above).push_back(i);
      has_cap_ |= tenants[i].ceiling < 1;
    }
  }

  // Begins anew with nobody at work.
  void rest() {
    for (Node& node : nodes_) node.is_active = node.has_work = false;
    scale_ = 0;
  }
  void set_active(uint32_t id) {
    size_t at = index_of(id);
    if (at == kNone) return;
    nodes_[at].is_active = true;
    scale_ += weight(at);
    for (; at != kNone && !nodes_[at].has_work; at = nodes_[at].above) nodes_[at].has_work = true;
  }
  void divide() {
    if (!has_cap_) return;
    for (const size_t top : tops_) measure(top);
    hand_out(kNone, 1);
  }

  void put(TenantView& view) const {
    const size_t at = index_of(view.id);
    if (at == kNone) return;
    const bool is_active = nodes_[at].is_active;
    view.ceiling = is_active && has_cap_ ? nodes_[at].own : 1;
    view.weight = weight(at);
    if (scale_ == 0) return;
    const double part = part_of(at);
    view.weight = scale_ * (is_active ? part : std::min(part / (1 - part), kMostOdds));
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  struct Node {
    size_t above = kNone;
    std::vector<size_t> below{};
    bool is_active = false;  // its own processes have work
    bool has_work = false;   // or those of one below it
    double ceiling = 0;      // what it and all below it take at most
    double own = 0;          // share of its own processes
  };

  size_t index_of(uint32_t id) const {
    const auto found = std::ranges::lower_bound(tenants_, id, {}, &TreeTenant::id);
    return found == tenants_.end() || found->id != id
               ? kNone
               : static_cast<size_t>(found - tenants_.begin());
  }
  std::vector<size_t>& below(size_t at) { return at == kNone ? tops_ : nodes_[at].below; }
  const std::vector<size_t>& below(size_t at) const {
    return at == kNone ? tops_ : nodes_[at].below;
  }
  double weight(size_t at) const { return tenants_[at].weight; }

  // The ceilings of all that has work, from below.
  double measure(size_t at) {
    Node& node = nodes_[at];
    node.ceiling = node.is_active ? 1 : 0;
    for (const size_t one : node.below)
      if (nodes_[one].has_work) node.ceiling += measure(one);
    return node.ceiling = std::min(node.ceiling, tenants_[at].ceiling);
  }

  // Divides what `at` has, or at kNone the GPU, among its own processes and those below it.
  void hand_out(size_t at, double total) {
    std::vector<size_t> members;
    std::vector<Demand> demands;
    for (const size_t one : below(at)) {
      if (!nodes_[one].has_work) continue;
      members.push_back(one);
      demands.push_back({.weight = weight(one), .ceiling = nodes_[one].ceiling});
    }
    const bool has_own = at != kNone && nodes_[at].is_active;
    if (has_own) demands.push_back({.weight = kOwnWeight, .ceiling = 1});
    std::vector<double> shares(demands.size());
    gpushare::divide(total, demands, shares);
    if (has_own) nodes_[at].own = shares.back();
    for (size_t i = 0; i < members.size(); ++i) hand_out(members[i], shares[i]);
  }

  // What its own processes have by weights alone, or would have if they had work.
  double part_of(size_t at) const {
    double part = 1;
    const auto among = [&](double own, size_t where, size_t but) {
      double all = own;
      for (const size_t one : below(where))
        if (one != but && nodes_[one].has_work) all += weight(one);
      if (but != kNone && where != kNone && nodes_[where].is_active) all += kOwnWeight;
      part *= own / all;
    };
    if (!nodes_[at].below.empty()) among(kOwnWeight, at, kNone);
    for (; at != kNone; at = nodes_[at].above) among(weight(at), nodes_[at].above, at);
    return part;
  }

  std::span<const TreeTenant> tenants_;
  std::vector<Node> nodes_;
  std::vector<size_t> tops_;
  bool has_cap_ = false;
  double scale_ = 0;  // the sum of what the weights of those at work are set to
};

}  // namespace

void lay_flat(std::span<const TreeTenant> tenants, const std::vector<bool>& active,
              std::span<TenantView> views) {
  Tree tree(tenants);
  for (const Priority priority : {Priority::kIdle, Priority::kNormal, Priority::kHigh}) {
    tree.rest();
    for (size_t i = 0; i < views.size(); ++i)
      if (active[i] && views[i].priority == priority) tree.set_active(views[i].id);
    tree.divide();
    for (TenantView& view : views)
      if (view.priority == priority) tree.put(view);
  }
}

}  // namespace gpushare
