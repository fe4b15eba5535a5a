// SPDX-License-Identifier: Apache-2.0
// Programs that answer: decoders, inference servers, and a step that is one graph.
#include "intercept/shim/iterations/iteration_hash.h"
#include "tests/intercept/shim/iterations/iteration_networks.h"
#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {
namespace {

void decoder_pass(Recorder& r, uint32_t layers, uint32_t tokens, uint32_t context) {
  const bool is_prompt = tokens > 8;
  r.launch(is_prompt ? 400 : 401, 1 + tokens / 4);
  r.launch(402, tokens);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    r.launch(403, tokens);
    r.launch(is_prompt ? 410 : 411, is_prompt ? tokens / 2 + 20 : 1024);
    r.launch(404, tokens);
    if (is_prompt) {
      r.launch(412, tokens);
    } else {
      r.launch(context < 1024 ? 413 : 414, 8 * (1 + context / 256));
      if (context >= 1024) r.launch(415, 8);
    }
    r.launch(is_prompt ? 416 : 417, is_prompt ? tokens / 2 + 20 : 1024);
    r.launch(403, tokens);
    r.launch(is_prompt ? 418 : 419, is_prompt ? tokens + 20 : 3584);
    r.launch(405, tokens);
    r.launch(is_prompt ? 410 : 411, is_prompt ? tokens / 2 + 20 : 1024);
  }
  r.launch(403, 1);
  r.launch(406, 8000);
  for (uint32_t i = 0; i < 5; ++i) r.launch(420 + i, 64);
}

Events generate(uint64_t seed, uint32_t fixed_tokens) {
  Recorder r(seed);
  start_up(r, 300);
  while (r.size() < 400'000) {
    r.think(r.below(300'000'000));
    const uint32_t prompt = 64 + r.below(1500);
    const uint32_t answer = fixed_tokens != 0 ? fixed_tokens : 10 + r.below(200);
    r.to_gpu(prompt * 8);
    r.iteration(kMain, Phase::kPrefill);
    decoder_pass(r, 16, prompt, prompt);
    r.item(1);
    for (uint32_t i = 1; i < answer; ++i) {
      r.iteration(kMain, Phase::kDecode);
      decoder_pass(r, 16, 1, prompt + i);
      r.item(1);
    }
  }
  return r.take();
}

Events decoder(uint64_t seed) { return generate(seed, 0); }
Events decoder_fixed_length(uint64_t seed) { return generate(seed, 64); }

// Continuous batching: prompts as kernels, decoding as one graph for each batch size, small tables
// handed in before each step, sampling behind it.
Events decoder_server(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 300);
  uint32_t running = 0;
  for (uint32_t step = 0; step < 6000; ++step) {
    if (running == 0) r.think(5'000'000 + r.below(40'000'000));
    const bool is_prefill = running == 0 || (running < 16 && r.one_in(25));
    if (is_prefill) {
      const uint32_t prompt = 128 + r.below(1800);
      r.to_gpu(prompt * 8);
      r.to_gpu(prompt * 8);
      r.iteration(kMain, Phase::kPrefill);
      r.launch(430, prompt / 8 + 1);
      r.to_gpu(prompt / 16 * 4 + 64);
      decoder_pass(r, 24, prompt, prompt);
      ++running;
    } else {
      r.to_gpu(running * 8);
      r.to_gpu(running * 8);
      r.iteration(kMain, Phase::kDecode);
      r.launch(431, 1);
      r.to_gpu(running * 256);
      r.graph(500 + bits_of(running), 8'000'000);
      if (r.one_in(60)) --running;
    }
    for (uint32_t i = 0; i < 4; ++i) r.launch(440 + i, 64);
    r.item(running * 8 + 8);
  }
  return r.take();
}

// Requests arrive at random, in batches of any size.
Events server(uint64_t seed) {
  return repeat(seed, 160, 1200, [](Recorder& r, uint32_t) {
    r.think(r.below(20'000'000));
    const uint32_t batch = 1 + r.below(16);
    r.to_gpu(batch * 602'112);
    r.iteration();
    resnet_forward(r, false, batch);
    r.item(batch * 4000);
  });
}

// Three models behind one server, and four threads with a stream each.
Events server_models_and_streams(uint64_t seed) {
  return repeat(seed, 160, 2000, [](Recorder& r, uint32_t) {
    r.think(r.below(3'000'000));
    const uint64_t stream = 20 + r.below(4);
    const uint32_t model = r.below(3);
    r.to_gpu(200'000, stream);
    r.iteration(stream);
    for (uint32_t i = 0; i < 40 + 30 * model; ++i)
      r.launch(600 + 40 * model + i % (20 + model), 100, stream);
    r.item(4000, stream);
  });
}

// One graph is the whole step, in training as in a benchmark of inference.
Events whole_graphs(uint64_t seed) {
  return repeat(seed, 60, 2000, [](Recorder& r, uint32_t step) {
    r.to_gpu(38'535'168);
    r.iteration();
    r.graph(700, 20'000'000);
    if (step % 25 == 24) r.item();
  });
}

const Program kPrograms[] = {
    {"decoder", decoder},
    {"decoder, all answers of one length", decoder_fixed_length},
    {"decoder server, continuous batching, graphs", decoder_server},
    {"inference server, any batch size", server},
    {"inference server, three models, four streams", server_models_and_streams},
    {"one graph a step", whole_graphs},
};

}  // namespace

std::span<const Program> serving_programs() { return kPrograms; }

}  // namespace gpushare::shim
