// SPDX-License-Identifier: Apache-2.0
// Whether the phases of language models are told right: at least 95 % of the iterations are named
// and at most 1 % wrongly, of those after the first 500. Modelled as engines of 2025 serve: batches
// that change, prompts in chunks that are mixed with tokens, drafts that are verified, programs
// that do only one of the two. GPUSHARE_TABLE=1 prints the scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "intercept/shim/iterations/iteration_hash.h"
#include "tests/intercept/shim/iterations/iteration_programs.h"
#include "tests/intercept/shim/iterations/iteration_score.h"
#include "tests/intercept/shim/iterations/program_recorder.h"

namespace gpushare::shim {
namespace {

using Events = std::vector<ProgramEvent>;

constexpr uint32_t kLayers = 24;

// What a step of kernels launches for so many words; attention has a block for each head and word.
void pass(Recorder& r, uint32_t base, uint32_t words) {
  r.launch(base, 1 + words / 4);
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (uint32_t i = 1; i < 9; ++i)
      r.launch(base + i, i == 3 ? 8 * words : 4 * (1 + words / 16) + 16 * i);
  r.launch(base + 9, 1 + words / 16);
}

void sample(Recorder& r, uint32_t batch) {
  for (uint32_t i = 0; i < 4; ++i) r.launch(240 + i, 8 + batch);
  r.item(batch * 8);
}

uint32_t graph_of(uint32_t batch) {  // 1, 2, 4 .. 64
  uint32_t size = 1;
  while (size < batch) size *= 2;
  return size;
}

void read_whole(Recorder& r, uint32_t words) {
  r.to_gpu(words * 8);
  r.to_gpu(words * 4);
  r.iteration(kMain, Phase::kPrefill);
  pass(r, 100, words);
  sample(r, 1);
}

void write_graph(Recorder& r, uint32_t batch) {
  r.to_gpu(batch * 8);
  r.to_gpu(batch * 64);
  r.iteration(kMain, Phase::kDecode);
  r.launch(200, 1 + batch / 32);
  r.graph(300 + graph_of(batch), 7'000'000);
  sample(r, batch);
}

void write_eager(Recorder& r, uint32_t batch) {
  r.to_gpu(batch * 8);
  r.iteration(kMain, Phase::kDecode);
  pass(r, 150, batch);
  sample(r, batch);
}

// A loop of `steps` steps: prompts come at random, all answers that run get a token each.
template <class Read, class Write>
Events serve(uint64_t seed, uint32_t steps, uint32_t most, const Read& read, const Write& write) {
  Recorder r(seed);
  r.think(1'000'000);
  uint32_t running = 0;
  for (uint32_t step = 0; step < steps; ++step) {
    if (running == 0) r.think(2'000'000 + r.below(30'000'000));
    if (running == 0 || (running < most && r.one_in(20))) {
      read(r, running);
      running += 1;
      continue;
    }
    write(r, running);
    for (uint32_t i = running; i > 0; --i)
      if (r.one_in(100)) --running;
  }
  return r.take();
}

Events batches_by_graphs(uint64_t seed) {
  return serve(
      seed, 3000, 64, [](Recorder& r, uint32_t) { read_whole(r, 64 + r.below(3000)); },
      write_graph);
}

Events batches_by_kernels(uint64_t seed) {
  return serve(
      seed, 1500, 48, [](Recorder& r, uint32_t) { read_whole(r, 200 + r.below(3000)); },
      write_eager);
}

// Prompts of up to four chunks; `read` is told the words of a chunk, whether it is the last, and
// how many answers run.
template <class Read>
Events serve_in_chunks(uint64_t seed, const Read& read) {
  return serve(
      seed, 2000, 32,
      [&](Recorder& r, uint32_t running) {
        const uint32_t chunks = 1 + r.below(4);
        for (uint32_t i = 1; i <= chunks; ++i)
          read(r, i < chunks ? 512 : 64 + r.below(448), i == chunks, running);
      },
      write_graph);
}

// 512 words of a prompt and a word of each running answer go through the model together: such an
// iteration reads a prompt.
Events chunks_with_tokens(uint64_t seed) {
  return serve_in_chunks(seed, [](Recorder& r, uint32_t of_prompt, bool, uint32_t running) {
    const uint32_t words = of_prompt + running;
    r.to_gpu(words * 8);
    r.to_gpu(words * 4);
    r.iteration(kMain, Phase::kPrefill);
    pass(r, 100, words);
    sample(r, running + 1);
  });
}

// Chunks of a prompt and steps of tokens take turns, as engines do that keep them apart.
Events chunks_between_tokens(uint64_t seed) {
  return serve_in_chunks(seed, [](Recorder& r, uint32_t words, bool is_last, uint32_t running) {
    read_whole(r, words);
    if (running > 0 && !is_last) write_graph(r, running);
  });
}

// A small model drafts four words, which the large one verifies at once: all of it writes tokens.
Events drafts(uint64_t seed) {
  return serve(
      seed, 2000, 16, [](Recorder& r, uint32_t) { read_whole(r, 200 + r.below(2000)); },
      [](Recorder& r, uint32_t batch) {
        r.to_gpu(batch * 8);
        r.iteration(kMain, Phase::kDecode);
        r.launch(200, 1);
        for (uint32_t i = 0; i < 4; ++i) r.graph(400 + graph_of(batch), 800'000);
        r.graph(500 + graph_of(batch), 8'000'000);
        sample(r, batch * 5);
      });
}

// What follows does only one of the two, so nothing tells it from other programs.
Events only_tokens(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t step = 0; step < 3000; ++step) write_graph(r, 1 + (step / 50) % 64);
  return r.take();
}

Events only_prompts(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t step = 0; step < 1500; ++step) {
    r.think(r.below(40'000'000));
    read_whole(r, 64 + r.below(3000));
  }
  return r.take();
}

struct Judged {
  Program program;
  bool is_known = true;  // otherwise it must not be called anything
};

const Judged kPrograms[] = {
    {{"batches of 1 to 64 by graphs", batches_by_graphs}},
    {{"batches of 1 to 48 by kernels", batches_by_kernels}},
    {{"chunks of prompts with tokens in them", chunks_with_tokens}},
    {{"chunks of prompts between tokens", chunks_between_tokens}},
    {{"drafts that are verified", drafts}},
    {{"only tokens", only_tokens}, false},
    {{"only prompts", only_prompts}, false},
};

class Phases : public testing::TestWithParam<Judged> {};

TEST_P(Phases, AreKnownAndRight) {
  const Judged& judged = GetParam();
  for (uint64_t seed = kFirstSeed; seed <= kLastSeed; ++seed) {
    Score score;
    add(score, judged.program, seed);
    ASSERT_GE(score.phases, 800u);
    if (std::getenv("GPUSHARE_TABLE") != nullptr)
      std::printf("%-40s seed %lu: accuracy %.4f, of %lu iterations %.1f %% known, %lu wrong\n",
                  judged.program.name, seed, score.accuracy(), score.phases, 100 * score.known(),
                  score.wrong_phases);
    if (judged.is_known) EXPECT_GE(score.known(), 0.95) << judged.program.name;
    EXPECT_LE(score.wrong_phases * 100, score.phases) << judged.program.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Phases, testing::ValuesIn(kPrograms));

}  // namespace
}  // namespace gpushare::shim
