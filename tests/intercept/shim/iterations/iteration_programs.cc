// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/iterations/iteration_programs.h"

#include "intercept/shim/iterations/iteration_hash.h"

#include "tests/intercept/shim/iterations/program_recorder.h"

namespace gpushare::shim {
namespace {

using Events = std::vector<ProgramEvent>;

// --- networks: numbers of functions are given out by hundreds ------------------------------------

// Convolution, batch normalisation, activation; some convolutions convert layouts first.
void resnet_forward(Recorder& r, bool is_training, uint32_t batch = 64) {
  r.launch(100, batch * 49);
  r.launch(101, batch * 98);
  for (uint32_t block = 0; block < 16; ++block) {
    for (uint32_t i = 0; i < 3; ++i) {
      if ((block + i) % 4 == 1) r.launch(102, batch * 16);
      r.launch(110 + (block * 3 + i) % 7, batch * (40 >> (block / 4)));
      r.launch(is_training ? 120 : 121, batch * 8);
      r.launch(122, batch * 8);
    }
    r.launch(123, batch * 8);
  }
  r.launch(124, batch);
  r.launch(125, 16);
}

void resnet_backward(Recorder& r) {
  r.launch(130, 64);
  r.launch(131, 8);
  for (uint32_t block = 0; block < 16; ++block) {
    for (uint32_t i = 0; i < 3; ++i) {
      r.launch(132, 512);
      r.launch(133, 512);
      r.launch(140 + (block * 3 + i) % 6, 2048);
      r.launch(150 + (block * 3 + i) % 5, 1024);
      if (r.one_in(40)) r.launch(134, 64);  // a reduction with another split
    }
    r.launch(123, 512);
  }
  r.launch(135, 3136);
}

void optimizer(Recorder& r, uint32_t launches = 12, uint32_t blocks = 4000) {
  for (uint32_t i = 0; i < launches; ++i) r.launch(160 + i % 4, blocks);
  r.launch(165, blocks);
}

// `tokens` decides which of cuBLAS's kernels run and how wide all is.
void transformer_forward(Recorder& r, uint32_t layers, uint32_t tokens, bool is_lora = false) {
  const uint32_t pick = bits_of(tokens) % 4;
  r.launch(200, tokens);
  r.launch(201, tokens);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    r.launch(202, tokens);
    for (uint32_t i = 0; i < 3; ++i) {
      r.launch(210 + (pick + i / 2) % 4, tokens * 2);
      if (is_lora) {
        r.launch(220, tokens);
        r.launch(221, tokens);
        r.launch(222, tokens);
      }
    }
    r.launch(203, tokens * 4);
    r.launch(204, tokens * 16);
    if (r.one_in(3)) r.launch(205, 32);  // split reduction
    r.launch(214 + pick % 2, tokens * 2);
    r.launch(206, tokens);
    r.launch(202, tokens);
    r.launch(210 + pick, tokens * 8);
    r.launch(207, tokens * 8);
    r.launch(210 + (pick + 1) % 4, tokens * 2);
    r.launch(206, tokens);
  }
  r.launch(202, tokens);
  r.launch(216, tokens * 64);
}

void transformer_backward(Recorder& r, uint32_t layers, uint32_t tokens, bool recompute = false) {
  const uint32_t pick = bits_of(tokens) % 4;
  r.launch(230, tokens);
  r.launch(231, tokens * 64);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (recompute) {
      r.launch(202, tokens);
      r.launch(210 + pick, tokens * 2);
      r.launch(204, tokens * 16);
      r.launch(207, tokens * 8);
    }
    for (uint32_t i = 0; i < 5; ++i) {
      r.launch(240 + (pick + i) % 5, tokens * 2);
      r.launch(246 + (pick + i) % 3, tokens * 2);
      if (i % 2 == 0) r.launch(206, tokens);
    }
    r.launch(232, tokens * 20);
    r.launch(233, tokens);
    r.launch(234, tokens);
  }
  r.launch(235, tokens);
}

void start_up(Recorder& r, uint32_t tensors) {
  for (uint32_t i = 0; i < tensors; ++i) {
    r.to_gpu(4 << (i % 20));
    r.launch(10, 256);
    if (i % 3 == 0) r.launch(11 + i % 4, 256);
  }
  r.wait();
}

// --- training
// -------------------------------------------------------------------------------------

// Mixed precision: the scaler asks for overflows before the optimizer; a step is left out now and
// then. cuDNN tries its algorithms in the first iteration.
Events resnet_amp(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t step = 0; step < 400; ++step) {
    r.think(100'000);
    r.to_gpu(38'535'168);
    r.to_gpu(512);
    r.iteration();
    if (step == 0)
      for (uint32_t i = 0; i < 60; ++i) r.launch(300 + i % 30, 500);
    resnet_forward(r, true);
    resnet_backward(r);
    r.launch(166, 40);
    r.item();
    if (!r.one_in(100)) optimizer(r);
    if (step % 10 == 9) r.item();
  }
  return r.take();
}

// A benchmark: one batch that stays on the GPU, nothing is ever read back.
Events resnet_synthetic(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t step = 0; step < 400; ++step) {
    r.iteration();
    resnet_forward(r, true);
    resnet_backward(r);
    optimizer(r);
  }
  return r.take();
}

// The loader decodes and copies on a stream of its own, at any time; the loss is printed every 50
// steps; a short evaluation every 200 reads its predictions back.
Events resnet_loader_stream(uint64_t seed) {
  constexpr uint64_t kLoader = 9;
  Recorder r(seed);
  start_up(r, 160);
  r.beside(500, [&] {
    r.to_gpu(9'000'000, kLoader);
    for (uint32_t i = 0; i < 6; ++i) r.launch(170 + i, 700, kLoader);
  });
  for (uint32_t step = 0; step < 800; ++step) {
    r.iteration();
    resnet_forward(r, true);
    resnet_backward(r);
    optimizer(r);
    if (step % 50 == 49) r.item();
    if (step % 200 != 199) continue;
    for (uint32_t batch = 0; batch < 20; ++batch) {
      r.iteration();
      resnet_forward(r, false);
      r.launch(180, 64);
      r.item(256);
    }
  }
  return r.take();
}

// Convolutions as above, evaluation every 100 steps with batches from the host and a sum at its
// end; the last batch of an epoch is smaller.
Events resnet_epochs(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t epoch = 0; epoch < 5; ++epoch) {
    for (uint32_t step = 0; step < 100; ++step) {
      r.to_gpu(38'535'168);
      r.iteration();
      resnet_forward(r, true, step == 99 ? 23 : 64);
      resnet_backward(r);
      optimizer(r);
      if (step % 20 == 19) r.item();
    }
    for (uint32_t batch = 0; batch < 20; ++batch) {
      r.to_gpu(38'535'168);
      r.iteration();
      resnet_forward(r, false);
      r.launch(180, 64);
      r.launch(181, 1);
    }
    r.launch(182, 1);
    r.item(8);
    r.think(50'000'000);  // a checkpoint
    for (uint32_t i = 0; i < 40; ++i) r.item(1 << 20);
  }
  return r.take();
}

// Sequence lengths differ from batch to batch; gradients are clipped with a look at their norm.
Events transformer_lengths(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 200);
  for (uint32_t step = 0; step < 250; ++step) {
    const uint32_t tokens = 256 + 64 * r.below(48);
    r.to_gpu(tokens * 8);
    r.to_gpu(tokens * 8);
    r.iteration();
    transformer_forward(r, 24, tokens);
    transformer_backward(r, 24, tokens);
    for (uint32_t i = 0; i < 6; ++i) r.launch(190 + i % 3, 300);
    r.item();
    optimizer(r, 24);
    r.item();
  }
  return r.take();
}

Events accumulating(uint64_t seed, uint32_t parts, uint32_t layers, bool is_lora, uint32_t steps) {
  Recorder r(seed);
  start_up(r, 200);
  for (uint32_t step = 0; step < steps; ++step) {
    r.iteration();
    for (uint32_t part = 0; part < parts; ++part) {
      const uint32_t tokens = 1024 + 64 * r.below(16);
      r.to_gpu(tokens * 8);
      transformer_forward(r, layers, tokens, is_lora);
      transformer_backward(r, layers, tokens, is_lora);
    }
    if (is_lora) {
      for (uint32_t i = 0; i < 24; ++i) r.launch(190 + i % 3, 40);
      optimizer(r, 48, 60);
    } else {
      for (uint32_t i = 0; i < 6; ++i) r.launch(190 + i % 3, 300);
      optimizer(r, 24);
    }
    r.item();
    if (step % 50 != 49) continue;
    for (uint32_t batch = 0; batch < 10; ++batch) {
      r.to_gpu(8192);
      r.iteration();
      transformer_forward(r, layers, 1024, is_lora);
      r.launch(236, 64);
      r.item();
    }
  }
  return r.take();
}

Events transformer_accumulating_2(uint64_t seed) { return accumulating(seed, 2, 24, false, 200); }
Events transformer_accumulating_4(uint64_t seed) { return accumulating(seed, 4, 12, false, 200); }
Events lora_accumulating_8(uint64_t seed) { return accumulating(seed, 8, 16, true, 110); }
Events lora_plain(uint64_t seed) { return accumulating(seed, 1, 16, true, 200); }

// 48 layers, no copies, no waits.
Events transformer_synthetic(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 200);
  for (uint32_t step = 0; step < 150; ++step) {
    r.iteration();
    transformer_forward(r, 48, 2048);
    transformer_backward(r, 48, 2048);
    optimizer(r, 24);
  }
  return r.take();
}

// Each expert layer waits for its routing table.
Events mixture_of_experts(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 200);
  for (uint32_t step = 0; step < 250; ++step) {
    r.to_gpu(16384);
    r.iteration();
    r.launch(200, 2048);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      for (uint32_t i = 0; i < 8; ++i) r.launch(250 + i, 2048);
      r.item(64);
      const uint32_t experts = 3 + r.below(6);
      for (uint32_t i = 0; i < experts; ++i) {
        r.launch(260, 512);
        r.launch(261, 512);
      }
      r.launch(262, 2048);
    }
    transformer_backward(r, 16, 2048);
    optimizer(r);
  }
  return r.take();
}

// Boxes are counted on the host, as often as the images ask for it.
Events detection(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t step = 0; step < 300; ++step) {
    r.to_gpu(12'000'000);
    r.iteration();
    resnet_forward(r, true, 8);
    const uint32_t looks = 1 + r.below(6);
    for (uint32_t i = 0; i < looks; ++i) {
      for (uint32_t k = 0; k < 5; ++k) r.launch(270 + k, 30);
      r.item(8);
      const uint32_t boxes = r.below(4);
      for (uint32_t k = 0; k < boxes; ++k) r.launch(276 + k % 2, 10);
    }
    r.launch(279, 100);
    resnet_backward(r);
    optimizer(r);
  }
  return r.take();
}

// Gradients are reduced between GPUs on another stream, in buckets, while backward goes on; the
// whole device is waited for once in an iteration.
Events data_parallel(uint64_t seed) {
  constexpr uint64_t kCollective = 11;
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t step = 0; step < 300; ++step) {
    r.to_gpu(38'535'168);
    r.iteration();
    resnet_forward(r, true);
    for (uint32_t part = 0; part < 4; ++part) {
      for (uint32_t i = 0; i < 90; ++i) {
        r.launch(280 + (part * 90 + i) % 17, 600);
        if (r.one_in(30)) r.launch(299, 24, kCollective);
      }
    }
    optimizer(r);
    r.item();
    if (step % 7 == 6) {
      r.wait(kCollective);
    }
  }
  return r.take();
}

// The next batch is copied on the working stream whenever the loader's thread has it.
Events prefetching_thread(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 200);
  r.beside(300, [&] { r.to_gpu(8192); });
  for (uint32_t step = 0; step < 250; ++step) {
    r.iteration();
    transformer_forward(r, 12, 1024);
    transformer_backward(r, 12, 1024);
    optimizer(r, 24);
    r.item();
  }
  return r.take();
}

// --- inference
// ------------------------------------------------------------------------------------

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
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t request = 0; request < 1200; ++request) {
    r.think(r.below(20'000'000));
    const uint32_t batch = 1 + r.below(16);
    r.to_gpu(batch * 602'112);
    r.iteration();
    resnet_forward(r, false, batch);
    r.item(batch * 4000);
  }
  return r.take();
}

// Three models behind one server, and four threads with a stream each.
Events server_models_and_streams(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t request = 0; request < 2000; ++request) {
    r.think(r.below(3'000'000));
    const uint64_t stream = 20 + r.below(4);
    const uint32_t model = r.below(3);
    r.to_gpu(200'000, stream);
    r.iteration(stream);
    for (uint32_t i = 0; i < 40 + 30 * model; ++i)
      r.launch(600 + 40 * model + i % (20 + model), 100, stream);
    r.item(4000, stream);
  }
  return r.take();
}

// One graph is the whole step, in training as in a benchmark of inference.
Events whole_graphs(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 60);
  for (uint32_t step = 0; step < 2000; ++step) {
    r.to_gpu(38'535'168);
    r.iteration();
    r.graph(700, 20'000'000);
    if (step % 25 == 24) r.item();
  }
  return r.take();
}

// A generator and a discriminator in turn, each with its optimizer.
Events adversarial_networks(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 100);
  for (uint32_t step = 0; step < 400; ++step) {
    r.to_gpu(3'000'000);
    r.iteration();
    for (uint32_t i = 0; i < 120; ++i) r.launch(800 + i % 23, 400);
    optimizer(r);
    for (uint32_t i = 0; i < 150; ++i) r.launch(830 + i % 31, 400);
    optimizer(r);
    r.item();
    r.item();
  }
  return r.take();
}

// --- without iterations
// ---------------------------------------------------------------------------

Events random_kernels(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i) {
    r.launch(r.below(300), 1 + r.below(4000));
    if (r.one_in(50)) r.item();
    if (r.one_in(70)) r.to_gpu(4096);
  }
  return r.take();
}

Events few_random_kernels(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i) {
    r.launch(r.below(3), 100);
    if (r.one_in(60)) r.item();
    if (r.one_in(60)) r.to_gpu(4096);
  }
  return r.take();
}

// The Thue-Morse word: no piece of it follows three times in a row.
Events thue_morse(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i)
    r.launch(static_cast<uint32_t>(__builtin_popcount(i)) & 1, 100);
  return r.take();
}

// Every cell of a notebook computes something else.
Events notebook(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t cell = 0; cell < 1500; ++cell) {
    r.think(1'000'000 * r.below(3000));
    const uint32_t length = 1 + r.below(300);
    const uint32_t first = r.below(2000), spread = 1 + r.below(60);
    if (r.one_in(2)) r.to_gpu(1 << r.below(24));
    for (uint32_t i = 0; i < length; ++i) r.launch(first + r.below(spread), 1 + r.below(5000));
    if (r.one_in(2)) r.item();
  }
  return r.take();
}

const Program kIterating[] = {
    {"ResNet training, mixed precision", resnet_amp},
    {"ResNet training, data stays on the GPU", resnet_synthetic},
    {"ResNet training, loader on its own stream, evaluation", resnet_loader_stream},
    {"ResNet training, epochs with evaluation and checkpoints", resnet_epochs},
    {"transformer training, lengths vary, gradients clipped", transformer_lengths},
    {"transformer training, 2 micro-batches, evaluation", transformer_accumulating_2},
    {"transformer training, 4 micro-batches, evaluation", transformer_accumulating_4},
    {"transformer training, data stays on the GPU", transformer_synthetic},
    {"transformer training, input at any time", prefetching_thread},
    {"LoRA, checkpointed layers", lora_plain},
    {"LoRA, 8 micro-batches", lora_accumulating_8},
    {"mixture of experts, a wait in each layer", mixture_of_experts},
    {"detection, waits as the data asks", detection},
    {"data-parallel training, collectives beside it", data_parallel},
    {"generator and discriminator", adversarial_networks},
    {"decoder", decoder},
    {"decoder, all answers of one length", decoder_fixed_length},
    {"decoder server, continuous batching, graphs", decoder_server},
    {"inference server, any batch size", server},
    {"inference server, three models, four streams", server_models_and_streams},
    {"one graph a step", whole_graphs},
};

const Program kAimless[] = {
    {"random kernels, random waits", random_kernels},
    {"three kernels at random, random waits", few_random_kernels},
    {"Thue-Morse word", thue_morse},
    {"notebook", notebook},
};

}  // namespace

std::span<const Program> iterating_programs() { return kIterating; }
std::span<const Program> aimless_programs() { return kAimless; }

bool feed(IterationRecogniser& recogniser, const ProgramEvent& event) {
  bool begins = false;
  switch (event.kind) {
    case ProgramEvent::Kind::kLaunch:
      begins = recogniser.launch(event.function, event.blocks, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kGraph:
      begins = recogniser.graph_launch(event.function, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kToGpu:
      recogniser.copy(CopyWay::kToGpu, event.bytes, event.waits, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kFromGpu:
      recogniser.copy(CopyWay::kFromGpu, event.bytes, event.waits, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kWait:
      recogniser.waited(event.stream, event.at_ns);
      break;
  }
  return begins && recogniser.is_trusted();
}

}  // namespace gpushare::shim
