// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/runtime/graph.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

namespace gpushare::standin {
namespace {

// Where a kernel runs; null for other operations.
CUcontext context_of(const Operation& operation) {
  return operation.kernel() == nullptr ? nullptr : operation.kernel()->context;
}

std::vector<OperationPtr> operations_of(const auto& list, auto operation) {
  std::vector<OperationPtr> all;
  all.reserve(list.size());
  std::ranges::transform(list, std::back_inserter(all), operation);
  return all;
}

}  // namespace

Graph::~Graph() {
  for (const auto& node : nodes_) runtime_.nodes.remove(node->handle);
  // Otherwise the destructor of a node would destroy its dependencies, and so on, one within the
  // other.
  for (const auto& node : nodes_) node->dependencies.clear();
}

std::shared_ptr<Node> Graph::add(OperationPtr operation, std::vector<std::shared_ptr<Node>> after) {
  auto node = std::make_shared<Node>();
  node->graph = this;
  node->operation = std::move(operation);
  node->dependencies = std::move(after);
  node->handle = runtime_.nodes.add(node);
  nodes_.push_back(node);
  return node;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>(runtime_);
  for (const auto& node : nodes_) {
    const auto added = copy->add(node->operation, {});
    added->original = node->handle;
    added->attributes = node->attributes;
  }
  for (size_t i = 0; i < nodes_.size(); ++i)
    for (const auto& each : nodes_[i]->dependencies) {
      const auto at = std::ranges::find(nodes_, each) - nodes_.begin();
      copy->nodes_[i]->dependencies.push_back(copy->nodes_[static_cast<size_t>(at)]);
    }
  return copy;
}

std::vector<OperationPtr> Graph::operations() const {
  return operations_of(nodes_, &Node::operation);
}

void Graph::remove(const std::shared_ptr<Node>& node) {
  for (const auto& each : nodes_) std::erase(each->dependencies, node);
  runtime_.nodes.remove(node->handle);
  std::erase(nodes_, node);
}

std::shared_ptr<GraphExec> GraphExec::make(const Graph& graph) {
  auto steps = steps_of(graph);
  if (steps.size() != graph.nodes().size()) return nullptr;
  return std::shared_ptr<GraphExec>(new GraphExec(std::move(steps)));
}

std::vector<GraphExec::Step> GraphExec::steps_of(const Graph& graph) {
  std::vector<Step> steps;
  std::map<const Node*, size_t> places;  // in `steps`
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const auto& node : std::views::reverse(graph.nodes())) {
      const auto is_there = [&](const auto& each) { return places.contains(each.get()); };
      if (is_there(node) || !std::ranges::all_of(node->dependencies, is_there)) continue;
      Step step{node->handle, node->operation, {}};
      for (const auto& each : node->dependencies) step.dependencies.push_back(places[each.get()]);
      std::ranges::sort(step.dependencies);
      places[node.get()] = steps.size();
      steps.push_back(std::move(step));
      has_grown = true;
    }
  }
  return steps;
}

Runtime::Submitted GraphExec::launch(Runtime& runtime, const std::shared_ptr<Context>& context,
                                     Stream& stream) {
  const std::lock_guard lock(mutex_);
  const std::lock_guard whole(context->order);  // no other work comes between its nodes
  const uint64_t before = stream.last_for_context;
  if (last_ != 0) {
    Work wait{};
    wait.kind = WorkKind::kWait;
    wait.amount = last_;
    if (const auto waits = runtime.submit(*context, stream, wait); waits.first != CUDA_SUCCESS)
      return waits;
  }
  const auto submitted =
      make_child(operations_of(steps_, &Step::operation))->submit(runtime, context, stream);
  if (stream.green != nullptr) stream.last_for_context = before;
  if (submitted.first == CUDA_SUCCESS) last_ = submitted.second;
  return submitted;
}

CUgraphExecUpdateResult GraphExec::update(const Graph& graph) {
  auto steps = steps_of(graph);
  const std::lock_guard lock(mutex_);
  if (!std::ranges::equal(steps, steps_, {}, &Step::dependencies, &Step::dependencies))
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  const auto type = [](const Step& step) { return step.operation->type(); };
  if (!std::ranges::equal(steps, steps_, {}, type, type))
    return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  // As the driver of an H200 does (bench/results/graphs.jsonl).
  const auto place = [](const Step& step) { return context_of(*step.operation); };
  if (!std::ranges::equal(steps, steps_, {}, place, place))
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  for (size_t i = 0; i < steps_.size(); ++i) steps_[i].operation = std::move(steps[i].operation);
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult GraphExec::set(CUgraphNode node, OperationPtr operation) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(steps_, node, &Step::node);
  if (found == steps_.end() || found->operation->type() != operation->type() ||
      context_of(*found->operation) != context_of(*operation))
    return CUDA_ERROR_INVALID_VALUE;
  found->operation = std::move(operation);
  return CUDA_SUCCESS;
}

std::vector<OperationPtr> GraphExec::operations() {
  const std::lock_guard lock(mutex_);
  return operations_of(steps_, &Step::operation);
}

}  // namespace gpushare::standin
