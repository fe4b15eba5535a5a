// SPDX-License-Identifier: Apache-2.0
// Graph and GraphExec: graphs of operations, and the executables that are made of them, which run
// the operations one after the other in an order that the dependencies allow: of those that could
// come next, the one that was added last, which a program that has forgotten a dependency notices.
// As in the driver, one thread at a time may use a Graph, and any thread a GraphExec.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {

struct Node {
  CUgraphNode handle = nullptr;
  Graph* graph = nullptr;  // its graph
  OperationPtr operation;
  std::vector<std::shared_ptr<Node>> dependencies;
  CUgraphNode original = nullptr;  // the node of which it is a copy
  std::map<CUlaunchAttributeID, CUlaunchAttributeValue> attributes;  // of a kernel, that were set
};

class Graph {
 public:
  explicit Graph(Runtime& runtime) : runtime_(runtime) {}
  // Removes the handles of its nodes.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::shared_ptr<Node> add(OperationPtr operation, std::vector<std::shared_ptr<Node>> after);
  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }
  // Also its handle, and what depends on it does so no more.
  void remove(const std::shared_ptr<Node>& node);
  std::shared_ptr<Graph> clone() const;
  std::vector<OperationPtr> operations() const;

 private:
  Runtime& runtime_;
  std::vector<std::shared_ptr<Node>> nodes_;
};

class GraphExec {
 public:
  // Null if nodes of the graph depend on each other in a circle.
  static std::shared_ptr<GraphExec> make(const Graph& graph);

  // Runs the graph after the launch before it, whichever stream that was in.
  Runtime::Submitted launch(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream);
  // Takes over the operations of `graph` for later launches.
  CUgraphExecUpdateResult update(const Graph& graph);
  // Replaces the operation of the node of the original graph. INVALID_VALUE when there was no such
  // node, or it is a kernel that runs in another context.
  CUresult set(CUgraphNode node, OperationPtr operation);
  std::vector<OperationPtr> operations();

 private:
  struct Step {
    CUgraphNode node;
    OperationPtr operation;
    std::vector<size_t> dependencies;  // indices in the list, all before its own
  };
  explicit GraphExec(std::vector<Step> steps) : steps_(std::move(steps)) {}
  // As many as the graph has nodes; less if some depend on each other in a circle.
  static std::vector<Step> steps_of(const Graph& graph);

  std::mutex mutex_;
  std::vector<Step> steps_;
  uint64_t last_ = 0;  // the sequence with which the latest launch ends
};

}  // namespace gpushare::standin
