// SPDX-License-Identifier: Apache-2.0
// Graphs of operations, and what is made of them to be launched. A node is added after what it
// depends on, so that the order in which nodes were added is one in which they may run. As in the
// driver a graph is not thread-safe, what was made of it is.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {

struct Node {
  CUgraphNode handle = nullptr;
  const Graph* graph = nullptr;  // whose it is
  OperationPtr operation;
  std::vector<std::shared_ptr<Node>> dependencies;
  CUgraphNode original = nullptr;  // that it is the copy of
};

class Graph {
 public:
  explicit Graph(Runtime& runtime) : runtime_(runtime) {}
  // Its nodes' handles go with it.
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

  // Behind the launch before it, in whichever stream that was.
  Runtime::Submitted launch(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream);
  // For launches from now on.
  CUgraphExecUpdateResult update(const Graph& graph);
  // Of the node that it was made from. INVALID_VALUE: there was none such.
  CUresult set(CUgraphNode node, OperationPtr operation);
  std::vector<OperationPtr> operations();

 private:
  struct Step {
    CUgraphNode node;
    OperationPtr operation;
    std::vector<size_t> dependencies;  // places in the list
  };
  static std::vector<Step> steps_of(const Graph& graph);

  std::mutex mutex_;
  std::vector<Step> steps_;
  uint64_t last_ = 0;  // sequence of the end of the latest launch
};

}  // namespace gpushare::standin
