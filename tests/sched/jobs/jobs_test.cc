// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/jobs.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kOne{100, 1}, kTwo{101, 1}, kThree{102, 1};

class JobsTest : public ::testing::Test {
 protected:
  void step(const std::vector<JobProcess>& processes) {
    jobs_.begin();
    for (const JobProcess& process : processes) jobs_.add(process);
    jobs_.end(now_);
    now_ += 2ms;
  }
  static IterationsView ended(uint64_t count) {
    return {.source = ShimSource::kRecognised, .ended = count, .period_ns = 5'000'000};
  }

  Jobs jobs_;
  Time now_{1000s};
};

TEST_F(JobsTest, WhatNoRunStartedIsAJobByItself) {
  step({{.process = kOne, .came = now_}, {.process = kTwo, .came = now_}});
  ASSERT_EQ(jobs_.all().size(), 2u);
  EXPECT_EQ(jobs_.all()[0].name, "pid-100");
  EXPECT_NE(jobs_.job_of(kOne), jobs_.job_of(kTwo));
  EXPECT_EQ(jobs_.job_of(kThree), 0u);
}

TEST_F(JobsTest, WhatOneRunStartedIsOneJobOnAllItsGpus) {
  const Time asked = now_ - 3s;
  step({{.process = kOne, .gpu = 0, .run = 77, .came = asked, .used = 3ms, .memory_bytes = 5},
        {.process = kTwo, .gpu = 1, .run = 77, .came = asked, .used = 4ms, .memory_bytes = 6},
        {.process = kThree, .gpu = 1, .came = now_}});
  ASSERT_EQ(jobs_.all().size(), 2u);
  const Job& job = jobs_.all()[0];
  EXPECT_EQ(job.name, "run-77");
  EXPECT_EQ(job.gpus, 3u);
  EXPECT_EQ(job.service, 7ms);
  EXPECT_EQ(job.memory_bytes, 11u);
  EXPECT_EQ(job.arrived, asked);
  EXPECT_EQ(job.processes, (std::vector<ProcessId>{kOne, kTwo}));
}

TEST_F(JobsTest, ServiceAddsUpAndAJobThatComesBackIsTheSame) {
  step({{.process = kOne, .run = 77, .used = 1s}});
  const uint64_t id = jobs_.job_of(kOne);
  step({});
  EXPECT_TRUE(jobs_.all().empty());
  now_ += Jobs::kRemembered / 2;
  step({{.process = kTwo, .run = 77, .used = 1s}});
  EXPECT_EQ(jobs_.job_of(kTwo), id);
  EXPECT_EQ(jobs_.all()[0].service, 2s);
  EXPECT_TRUE(jobs_.take_ended().empty());
}

TEST_F(JobsTest, AnEndedJobIsToldOnceAndItsNumberIsNotUsedAgain) {
  step({{.process = kOne, .used = 1s}});
  const uint64_t id = jobs_.job_of(kOne);
  step({});
  now_ += Jobs::kRemembered;
  step({});
  const std::vector<Job> ended = jobs_.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].id, id);
  EXPECT_EQ(ended[0].service, 1s);
  EXPECT_TRUE(jobs_.take_ended().empty());
  step({{.process = kOne}});
  EXPECT_NE(jobs_.job_of(kOne), id);
}

TEST_F(JobsTest, RanksCountTheSameIterationsAndSuccessorsAddTheirs) {
  step({{.process = kOne, .run = 7, .iterations = ended(40)},
        {.process = kTwo, .run = 7, .iterations = ended(38)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 40u);
  EXPECT_TRUE(jobs_.all()[0].has_boundary);
  EXPECT_EQ(jobs_.all()[0].period, 5ms);
  step({{.process = kTwo, .run = 7}});  // could not be read
  EXPECT_EQ(jobs_.all()[0].iterations, 40u);
  EXPECT_FALSE(jobs_.all()[0].has_boundary);
  step({{.process = kThree, .run = 7, .iterations = ended(2)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 42u);
}

}  // namespace
}  // namespace gpushare
