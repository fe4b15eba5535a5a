// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/jobs.h"

#include <gtest/gtest.h>

#include <set>

#include "sched/policy/command_signature.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kOne{100, 1}, kTwo{101, 1}, kThree{102, 1};

class JobsTest : public ::testing::Test {
 protected:
  void step(const std::vector<JobProcess>& processes) {
    jobs_.begin();
    for (const JobProcess& process : processes) jobs_.add(process);
    jobs_.end(now_, [this](uint32_t run) { return living_.contains(run); });
    now_ += 2ms;
  }
  static IterationsView ended(uint64_t count) {
    return {.source = ShimSource::kRecognised, .ended = count, .period_ns = 5'000'000};
  }

  Jobs jobs_;
  std::set<uint32_t> living_{7, 77};  // runs
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

TEST_F(JobsTest, WhatItHadBeforeItWorkedIsItsStartOnEachOfItsGpus) {
  step({{.process = kOne, .gpu = 0, .run = 77, .used = 3s},
        {.process = kTwo, .gpu = 1, .run = 77, .used = 1s}});
  EXPECT_EQ(start_on_each(jobs_.all()[0]), 2s) << "it still starts";
  EXPECT_EQ(worked_on_each(jobs_.all()[0]), 0s);
  const uint64_t id = jobs_.job_of(kOne);
  jobs_.end_start(id);
  const std::vector<JobProcess> later = {{.process = kOne, .gpu = 0, .run = 77, .used = 5s},
                                         {.process = kTwo, .gpu = 1, .run = 77, .used = 5s}};
  step(later);
  jobs_.end_start(id);
  step(later);
  EXPECT_EQ(start_on_each(jobs_.all()[0]), 2s);
  EXPECT_EQ(service_on_each(jobs_.all()[0]), 12s);
  EXPECT_EQ(worked_on_each(jobs_.all()[0]), 10s);
}

TEST_F(JobsTest, NoStartTakesMoreThanTwoSeconds) {
  step({{.process = kOne, .used = 1h}});
  EXPECT_EQ(worked_on_each(jobs_.all()[0]), 1h - 2s) << "it still starts";
  jobs_.end_start(jobs_.job_of(kOne));
  step({{.process = kOne, .used = 1s}});
  EXPECT_EQ(start_on_each(jobs_.all()[0]), 2s);
  EXPECT_EQ(worked_on_each(jobs_.all()[0]), 1h - 1s);
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

// What the log tells of its last kernels still counts.
TEST_F(JobsTest, OneOfWhichAllHasEndedIsToldSoon) {
  step({{.process = kOne, .run = 77, .used = 1s}, {.process = kTwo, .used = 1s}});
  step({});
  now_ += Jobs::kRememberedEnded;
  step({});
  EXPECT_TRUE(jobs_.take_ended().empty()) << "they may come back";
  step({{.process = kOne, .run = 77, .used = 1s}, {.process = kTwo, .used = 1s}});
  jobs_.note_end(kOne, 0);
  jobs_.note_end(kTwo, 0);
  living_.erase(77);
  const uint64_t first = jobs_.job_of(kOne);
  now_ += Jobs::kRememberedEnded / 2;
  step({});
  EXPECT_TRUE(jobs_.take_ended().empty());
  jobs_.add_late(first, 1ms);
  now_ += Jobs::kRememberedEnded;
  step({});
  const std::vector<Job> ended = jobs_.take_ended();
  ASSERT_EQ(ended.size(), 2u);
  for (const Job& job : ended) EXPECT_EQ(job.service, job.id == first ? 2001ms : 2s);
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

TEST_F(JobsTest, ARankThatIsNotReadForAStepOrEndsFirstChangesNoCount) {
  step({{.process = kOne, .run = 7, .iterations = ended(105)},
        {.process = kTwo, .run = 7, .iterations = ended(98)}});
  step({{.process = kOne, .run = 7}, {.process = kTwo, .run = 7, .iterations = ended(98)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 105u);
  step({{.process = kOne, .run = 7, .iterations = ended(106)},
        {.process = kTwo, .run = 7, .iterations = ended(99)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 106u);
  step({{.process = kTwo, .run = 7, .iterations = ended(100)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 106u);
  step({{.process = kThree, .run = 7, .iterations = ended(1)}});
  EXPECT_EQ(jobs_.all()[0].iterations, 107u) << "who comes after it counts anew";
}

// It waited for others for minutes, elsewhere than at its boundary.
TEST_F(JobsTest, WhatAJobWaitedMakesItsIterationsNoLonger) {
  const auto work = [&](uint64_t count, Nanos used, uint64_t period_ns) {
    IterationsView said = ended(count);
    said.period_ns = period_ns;
    step({{.process = kOne, .run = 7, .used = used, .iterations = said}});
    return work_of_iteration(jobs_.all()[0]);
  };
  EXPECT_EQ(work(0, 0s, 100'000'000), 100ms);
  jobs_.end_start(jobs_.job_of(kOne));
  EXPECT_EQ(work(7, 700ms, 2'000'000'000), 2s) << "of so few nobody can say";
  EXPECT_EQ(work(3000, 299'300ms, 2'000'000'000), 100ms);
  EXPECT_EQ(work(3000, 0s, 1ULL << 62), 100ms);
  EXPECT_EQ(jobs_.all()[0].period, Jobs::kLongestPeriod);
  EXPECT_EQ(work(3000, 0s, 1), 100ms) << "nor does what it says";
}

TEST_F(JobsTest, TheFewestIterationsThatItHasAnnouncedAreKept) {
  IterationsView said = ended(0);
  for (const uint64_t expected : {1000, 1'000'000, 10, 500}) {
    said.expected = expected;
    step({{.process = kOne, .run = 7, .iterations = said}});
  }
  EXPECT_EQ(jobs_.all()[0].expected, 500u);
  EXPECT_EQ(jobs_.all()[0].fewest_expected, 10u);
}

// A million empty iterations first, and then one more is announced at a time.
TEST_F(JobsTest, EmptyIterationsWinNoTime) {
  IterationsView said = ended(0);
  const auto pass = [&](uint64_t count, Nanos used) {
    said.ended = count;
    said.expected = count + 1;
    step({{.process = kOne, .run = 7, .used = used, .iterations = said}});
  };
  pass(0, 0s);
  jobs_.end_start(jobs_.job_of(kOne));
  for (uint64_t i = 0; i <= 1'000'000; i += 100'000) pass(i, 0s);
  for (uint64_t i = 1; i <= 32; ++i) pass(1'000'000 + i, 500ms);
  const Job& job = jobs_.all()[0];
  EXPECT_EQ(work_of_iteration(job), 500ms) << "of the latest";
  EXPECT_LE(work_promised(job), 500ms);
  EXPECT_GE(work_beyond(job), 15s);
}

TEST_F(JobsTest, WhatItHasWorkedSinceAnIterationEndedIsKnown) {
  step({{.process = kOne, .run = 7, .used = 1s, .iterations = ended(0)}});
  jobs_.end_start(jobs_.job_of(kOne));
  step({{.process = kOne, .run = 7, .used = 3s, .iterations = ended(1)}});
  EXPECT_EQ(work_since_end(jobs_.all()[0]), 0s);
  step({{.process = kOne, .run = 7, .used = 5s, .iterations = ended(1)}});
  EXPECT_EQ(work_since_end(jobs_.all()[0]), 5s);
}

TEST_F(JobsTest, WhatAnAgentBeforeToldOfAJobGoesOn) {
  jobs_.remember(std::vector<FormerJob>{{.run = 77, .arrived = now_ - 1h, .service = 50min},
                                        {.process = kThree, .arrived = now_ - 2h, .service = 1s},
                                        {.run = 99, .arrived = now_ - 3h, .service = 9s}});
  step({{.process = kOne, .run = 77, .is_late = true, .came = now_, .used = 1s},
        {.process = kTwo, .came = now_},
        {.process = kThree, .is_late = true, .came = now_}});
  ASSERT_EQ(jobs_.all().size(), 3u);
  EXPECT_EQ(jobs_.all()[0].arrived, now_ - 2ms - 1h);
  EXPECT_EQ(jobs_.all()[0].service, 50min + 1s);
  EXPECT_FALSE(jobs_.all()[0].is_whole);
  EXPECT_EQ(jobs_.all()[1].arrived, now_ - 2ms);
  EXPECT_EQ(jobs_.all()[2].arrived, now_ - 2ms - 2h);
  EXPECT_EQ(worked_on_each(jobs_.all()[2]), 1s) << "its start is over";
  // That run has ended, and its number is another one's.
  living_.insert(99);
  step({{.process = {200, 1}, .run = 99, .came = now_}});
  EXPECT_EQ(jobs_.all()[0].service, 0s);
  now_ += Jobs::kFormer;
  step({{.process = {201, 1}, .came = now_}});
  EXPECT_EQ(jobs_.all()[0].service, 0s);
}

// Its iterations go on from where they were, and what they took is told by those that are seen.
TEST_F(JobsTest, OfAJobThatWasThereBeforeOnlyWhatIsSeenTellsHowLongAnIterationIs) {
  jobs_.remember(std::vector<FormerJob>{{.run = 7, .arrived = now_ - 1h, .service = 50min}});
  step({{.process = kOne, .run = 7, .is_late = true, .iterations = ended(10'000)}});
  step({{.process = kOne, .run = 7, .used = 2s, .iterations = ended(10'100)}});
  EXPECT_EQ(work_of_iteration(jobs_.all()[0]), 20ms);
}

class EndedJobs : public JobsTest {
 protected:
  EndedJobs() { step({}); }
  std::vector<Job> take_ended() {
    for (const Time end = now_ + Jobs::kRemembered + 1s; now_ <= end; now_ += 1s) step({});
    return jobs_.take_ended();
  }
};

TEST_F(EndedJobs, SayWhatTheyTook) {
  step({{.process = kOne,
         .gpu = 0,
         .run = 77,
         .user = 1000,
         .used = 2s,
         .memory_bytes = 5,
         .command_line = "/bin/train --epochs 3",
         .iterations = ended(30)},
        {.process = kTwo, .gpu = 1, .run = 77, .used = 2s, .iterations = ended(30)}});
  const uint64_t id = jobs_.job_of(kOne);
  step({{.process = kOne, .gpu = 0, .run = 77, .used = 1s, .memory_bytes = 4}});
  step({});
  jobs_.add_late(id, 1s);
  const std::vector<Job> all = take_ended();
  ASSERT_EQ(all.size(), 1u);
  const Job& job = all[0];
  EXPECT_TRUE(teaches(job));
  EXPECT_EQ(job.most_gpus, 2u);
  EXPECT_EQ(service_on_each(job), 3s) << "6 s of two GPUs";
  EXPECT_EQ(job.iterations, 30u);
  EXPECT_EQ(job.memory_bytes, 4u) << "as it was last";
  EXPECT_EQ(job.signature, command_signature("train --epochs 3", 1000));
}

TEST_F(EndedJobs, OneThatWasThereBeforeTheAgentTeachesNothing) {
  step({{.process = kOne, .is_late = true, .used = 5s}});
  EXPECT_FALSE(teaches(take_ended().at(0)));
}

TEST_F(EndedJobs, OneWhoseTimeWasNotSeenWhileAnotherPolicyRanTeachesNothing) {
  step({{.process = kOne, .used = 5s}});
  now_ += Jobs::kPause;
  step({{.process = kOne, .used = 5s}, {.process = kTwo, .used = 5s}});
  step({{.process = kOne, .used = 5s}, {.process = kTwo, .used = 5s}});
  for (const Job& job : take_ended()) EXPECT_FALSE(teaches(job));
}

TEST_F(EndedJobs, AFailedStartTeachesNothing) {
  step({{.process = kOne}, {.process = kTwo}, {.process = kThree, .used = 1s}});
  jobs_.end_start(jobs_.job_of(kOne));
  jobs_.end_start(jobs_.job_of(kTwo));
  const uint64_t two = jobs_.job_of(kTwo);
  step({{.process = kOne, .used = Jobs::kLeastLesson - 1ns},
        {.process = kTwo, .used = Jobs::kLeastLesson}});
  const std::vector<Job> all = take_ended();
  ASSERT_EQ(all.size(), 3u);
  for (const Job& job : all) EXPECT_EQ(teaches(job), job.id == two) << job.name;
}

TEST_F(EndedJobs, OneThatFailedOrWasKilledTeachesNothing) {
  step({{.process = kOne, .used = 5s}, {.process = kTwo, .used = 5s}});
  jobs_.note_end(kOne, 1 << 8);
  jobs_.note_end(kTwo, 9);
  for (const Job& job : take_ended()) EXPECT_FALSE(teaches(job)) << job.name;
}

TEST_F(EndedJobs, OneThatEndedWellTeachesAndSoDoesOneOfWhichThatIsNotKnown) {
  step({{.process = kOne, .used = 5s}, {.process = kTwo, .used = 5s}});
  jobs_.note_end(kOne, 0);
  jobs_.note_end(kTwo, std::nullopt);
  for (const Job& job : take_ended()) EXPECT_TRUE(teaches(job)) << job.name;
}

// A server ends its workers, and then itself.
TEST_F(EndedJobs, OfSeveralProcessesTheLastOnesStatusCounts) {
  step({{.process = kOne, .run = 5, .used = 5s}, {.process = kTwo, .run = 5, .used = 5s}});
  jobs_.note_end(kTwo, 15);
  step({{.process = kOne, .run = 5, .used = 5s}});
  jobs_.note_end(kOne, 0);
  EXPECT_TRUE(teaches(take_ended().at(0)));
}

TEST_F(EndedJobs, AHugeCommandLineIsNotCarriedAbout) {
  const std::string line(100'000, 'x');
  step({{.process = kOne, .used = 1s, .command_line = line}});
  EXPECT_EQ(jobs_.all()[0].command_line.size(), Jobs::kMostLine);
  EXPECT_EQ(jobs_.all()[0].signature, command_signature(line, std::nullopt));
}

}  // namespace
}  // namespace gpushare
