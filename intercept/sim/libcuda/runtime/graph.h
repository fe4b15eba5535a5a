// SPDX-License-Identifier: Apache-2.0
// Graph and GraphExec: graphs of operations, and the executables that are made of them. A node is
// added after the nodes that it depends on, so nodes may run in the order in which they were added.
// As in the driver, one thread at a time may use a Graph, and any thread a GraphExec.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {

struct Node {
  CUgraphNode handle = nullptr;
  const Graph* graph = nullptr;  // its graph
  OperationPtr operation;
  std::vector<std::shared_ptr<Node>> dependencies;
  CUgraphNode original = nullptr;  // the node of which it is a copy
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
  std::shared_ptr<Graph> clone() const;
  std::vector<OperationPtr> operations() const;

 private:
  Runtime& runtime_;
  std::vector<std::shared_ptr<Node>> nodes_;
};

class GraphExec {
 public:
  explicit GraphExec(const Graph& graph);

  // Runs the graph after the launch before it, whichever stream that was in.
  Runtime::Submitted launch(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream);
  // Takes over the operations of `graph` for later launches.
  CUgraphExecUpdateResult update(const Graph& graph);
  // Replaces the operation of the node of the original graph. INVALID_VALUE when there was no such
  // node.
  CUresult set(CUgraphNode node, OperationPtr operation);
  std::vector<OperationPtr> operations();

 private:
  struct Step {
    CUgraphNode node;
    OperationPtr operation;
    std::vector<size_t> dependencies;  // indices in the list
  };
  static std::vector<Step> steps_of(const Graph& graph);

  std::mutex mutex_;
  std::vector<Step> steps_;
  uint64_t last_ = 0;  // the sequence with which the latest launch ends
};

}  // namespace gpushare::standin
