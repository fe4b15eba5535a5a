// SPDX-License-Identifier: Apache-2.0
// PodNames: what Kubernetes calls the pods and containers of this node, of which control groups
// show only UIDs and ids. gpushare-device-plugin, which hears it of the API server, writes it to a
// file beside the agent's socket; gpushare-exporter reads that for its labels. docs/metrics.md
// describes the file.
#pragma once

#include <sys/stat.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

struct PodName {
  std::string name_space, pod;
  std::map<std::string, std::string, std::less<>> containers;  // 64 hexadecimal digits: name

  bool operator==(const PodName&) const = default;
};
// By the UID that the pod's control group shows.
using PodNames = std::map<std::string, PodName, std::less<>>;

constexpr const char* kPodNamesFile = "pods.json";  // in the folder of the agent's socket

// The file's text, and what it says. Pure; the second is defined for any text, and leaves out what
// is not of the form.
std::string pod_names_text(const PodNames& names);
Result<PodNames> parse_pod_names(std::string_view text);

// Reads the file again when it is another one, or has changed. Not thread-safe.
class PodNamesReader {
 public:
  explicit PodNamesReader(std::string path) : path_(std::move(path)) {}

  // The names that the file has now; none without a file. An error says why the file is not
  // believed: it is another's than root's or this user's, others may write it, or it has no such
  // text. The same error is said once, until the file has changed.
  Result<const PodNames*> read();

 private:
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    int64_t changed_ns = 0;
    off_t size = -1;
    bool operator==(const Version&) const = default;
  };

  std::string path_;
  Version version_;
  PodNames names_;
};

}  // namespace gpushare
