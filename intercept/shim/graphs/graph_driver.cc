// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/graphs/graph_driver.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {

const GraphDriver* graph_driver() {
  static constinit DriverTable<GraphDriver> table;
  return table.get();
}

}  // namespace gpushare::shim
