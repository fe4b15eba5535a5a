// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/replay/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

// The same bits on every machine.
#pragma STDC FP_CONTRACT OFF

namespace gpushare::replay {
namespace {

// A model that Salus trained on a P100, at one batch size.
struct Model {
  const char* name;
  uint32_t peak_mib;               // its device memory
  uint32_t iterations_per_minute;  // alone
};

// Peak memory and rate as in Salus' published test data, for the batch sizes in the names.
constexpr std::array<Model, 33> kModels = {{
    {"vgg11_25", 3710, 565},      {"vgg11_50", 5088, 321},      {"vgg11_100", 9203, 178},
    {"vgg16_25", 4317, 311},      {"vgg16_50", 6183, 168},      {"vgg16_100", 10445, 90},
    {"vgg19_25", 4463, 266},      {"vgg19_50", 6359, 143},      {"vgg19_100", 12024, 76},
    {"resnet50_25", 2116, 478},   {"resnet50_50", 4008, 265},   {"resnet50_75", 5915, 183},
    {"resnet101_25", 3238, 276},  {"resnet101_50", 6106, 155},  {"resnet101_75", 8988, 108},
    {"resnet152_25", 4563, 191},  {"resnet152_50", 8637, 108},  {"resnet152_75", 12726, 75},
    {"googlenet_25", 756, 1015},  {"googlenet_50", 1411, 599},  {"googlenet_100", 2534, 332},
    {"alexnet_25", 687, 2726},    {"alexnet_50", 1155, 2067},   {"alexnet_100", 1397, 1332},
    {"overfeat_25", 3255, 1199},  {"overfeat_50", 3416, 951},   {"overfeat_100", 6240, 617},
    {"inception3_25", 2500, 303}, {"inception3_50", 4775, 165}, {"inception3_100", 9379, 86},
    {"inception4_25", 4445, 147}, {"inception4_50", 8541, 81},  {"inception4_75", 12662, 55},
}};

constexpr std::array<uint32_t, 4> kKnees = {1000, 750, 500, 250};  // round robin
constexpr Nanos kMinute = std::chrono::minutes(1);

}  // namespace

uint64_t SplitMix64::next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Jobs generate(const Generator& wanted) {
  SplitMix64 random(wanted.seed);
  std::vector<double> arrivals(wanted.n);
  for (double& arrival : arrivals) arrival = random.fraction() * wanted.span_min;
  std::ranges::sort(arrivals);
  std::vector<std::pair<double, size_t>> keys;
  for (size_t i = 0; i < arrivals.size(); ++i)
    keys.emplace_back(
        -std::log(random.fraction()) * std::exp(wanted.bias * arrivals[i] / wanted.span_min), i);
  std::ranges::sort(keys);
  std::vector<uint32_t> minutes(wanted.n, 1);
  for (size_t place = 0; place < keys.size(); ++place) {
    if (place < wanted.long_jobs)
      minutes[keys[place].second] = 10;
    else if (place < size_t{wanted.long_jobs} + wanted.mid_jobs)
      minutes[keys[place].second] = 5;
  }
  Jobs jobs;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const Model& model = kModels[i % kModels.size()];
    jobs.push_back({.name = fmt::format("job-{}", i),
                    .model = model.name,
                    .submit = std::llround(arrivals[i] * 100) * (kMinute / 100),
                    .length = minutes[i] * kMinute,
                    .iterations = uint64_t{minutes[i]} * model.iterations_per_minute,
                    .persistent_mib = model.peak_mib,
                    .knee_permille = kKnees[i % kKnees.size()]});
  }
  return jobs;
}

void jitter(Jobs& jobs, double percent, uint64_t seed) {
  SplitMix64 random(seed);
  for (Job& job : jobs) {
    const double factor = 1 + percent / 100 * (2 * random.fraction() - 1);
    job.length = Nanos(std::llround(static_cast<double>(job.length.count()) * factor));
  }
}

}  // namespace gpushare::replay
