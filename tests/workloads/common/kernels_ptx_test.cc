// SPDX-License-Identifier: Apache-2.0
// Tests the kernels' PTX: NVIDIA's assembler takes it for every generation of GPUs, and the
// stand-in libcuda has a model of each kernel with the parameters that the PTX declares.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "intercept/sim/libcuda/memory/kernels.h"
#include "intercept/sim/libcuda/memory/ptx_entries.h"
#include "tests/workloads/common/kernels.ptx.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;

// The path of the toolkit's assembler; empty when none is installed.
std::string find_ptxas() {
  const char* home = std::getenv("CUDA_HOME");
  for (const fs::path& folder :
       {fs::path(home != nullptr ? home : ""), fs::path("/usr/local/cuda")})
    if (const fs::path ptxas = folder / "bin/ptxas"; fs::exists(ptxas)) return ptxas;
  return "";
}

TEST(KernelsPtx, AssemblesForEveryGeneration) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in $CUDA_HOME/bin or /usr/local/cuda/bin";
  std::string folder = (fs::temp_directory_path() / "gs-ptx-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string source = folder + "/kernels.ptx";
  std::ofstream(source) << workloads::kKernels;
  for (const char* generation : {"sm_75", "sm_80", "sm_90"}) {
    const std::string command =
        ptxas + " -Werror -arch=" + generation + " -o " + folder + "/out " + source;
    EXPECT_EQ(std::system(command.c_str()), 0) << generation;
  }
  fs::remove_all(folder);
}

std::vector<int> declared_parameter_bytes(const std::string& entry) {
  const std::string text = workloads::kKernels;
  const size_t begin = text.find(".entry " + entry + "(");
  const std::string head = text.substr(begin, text.find('{', begin) - begin);
  std::vector<int> bytes;
  for (size_t at = 0; (at = head.find(".param .u", at)) != std::string::npos; ++at)
    bytes.push_back(std::stoi(head.substr(at + std::strlen(".param .u"), 2)) / 8);
  return bytes;
}

TEST(KernelsPtx, EachKernelHasAModelWithItsParameters) {
  const auto entries = standin::ptx_entries(workloads::kKernels);
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(entries->size(), 11u);
  for (const std::string& entry : *entries) {
    const standin::KernelModel* model = standin::find_kernel(entry);
    ASSERT_NE(model, nullptr) << entry;
    EXPECT_EQ(std::vector<int>(model->parameter_bytes.begin(), model->parameter_bytes.end()),
              declared_parameter_bytes(entry))
        << entry;
  }
}

// The worked example of the cost model.
TEST(KernelsPtx, AUnitOfSpinTakes129NsOnAnH200) {
  const standin::KernelModel* spin = standin::find_kernel("gs_spin");
  standin::KernelLaunch launch{4 * 132, 256, 132, {0, 0, 100'000, 0, 0, 0, 0}, 0};
  EXPECT_NEAR(static_cast<double>(spin->cost_ns(launch)) / 100'000, 129.3, 0.1);
  launch.blocks = 16 * 132;  // 8 blocks fit at once: two waves, each as long as two of the first
  EXPECT_NEAR(static_cast<double>(spin->cost_ns(launch)) / 100'000, 4 * 129.3, 0.2);
}

}  // namespace
}  // namespace gpushare
