// SPDX-License-Identifier: Apache-2.0
// PodWatch: follows the pods of one node at the API server, on a thread of its own: it lists them,
// then watches from there on, and begins again when that ends. libcurl is in pod_watch.cc only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/kubernetes/pod.h"

namespace gpushare {

struct ApiServer {
  std::string url;         // "https://10.0.0.1:443"
  std::string token_file;  // read anew for each request, because tokens are renewed; empty: none
  std::string ca_file;     // empty: those of the system
  std::string node;
};

class PodWatch {
 public:
  // Called on the watch's thread.
  struct Told {
    std::function<void(const PodList&)> listed;
    std::function<void(const PodEvent&)> changed;
    std::function<void(const Error&)> failed;  // it is tried again
  };
  PodWatch(ApiServer server, Told told);
  ~PodWatch();  // Waits for the thread, for a second at most.

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace gpushare
