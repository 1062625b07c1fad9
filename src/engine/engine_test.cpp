// SPDX-License-Identifier: Apache-2.0
// Generation with a small random model: what it writes is noise, but the same noise whatever happens beside it.
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "core/threads.hpp"

namespace winnow {
namespace {

struct Text {
  std::vector<int32_t> tokens;
  std::string text;
  Finish finish = Finish::running;
  bool operator==(const Text&) const = default;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override { open("nano-glm52"); }
  void open(const std::string& name) {
    checkpoint = std::move(open_checkpoint("tests/data/nano/" + name + "-bf16.gguf")).value();
    model = std::move(Model::load(checkpoint)).value();
    tokenizer = std::make_unique<Tokenizer>(std::move(Tokenizer::load(checkpoint)).value());
  }
  std::unique_ptr<Engine> engine(EngineOptions options = {}) {
    if (options.context == 0) options.context = 256;
    Result<std::unique_ptr<Engine>> made = Engine::create(*model, *tokenizer, options);
    WINNOW_CHECK(made.ok(), made.status().message());
    return std::move(made).value();
  }
  static SequenceId add(Engine& engine, std::vector<int32_t> prompt, const SamplingOptions& sampling) {
    Result<SequenceId> id = engine.add(std::move(prompt), sampling);
    WINNOW_CHECK(id.ok(), id.status().message());
    return *id;
  }
  // Steps until idle; between steps `between` may add and cancel.
  static std::map<SequenceId, Text> drain(Engine& engine, const std::function<void(int)>& between = {}) {
    std::map<SequenceId, Text> texts;
    for (int step = 0; !engine.idle(); ++step) {
      WINNOW_CHECK(step < 2000, "the engine does not come to an end");
      Result<std::vector<Output>> outputs = engine.step();
      WINNOW_CHECK(outputs.ok(), outputs.status().message());
      for (const Output& output : *outputs) {
        Text& text = texts[output.sequence];
        if (output.token >= 0) text.tokens.push_back(output.token);
        text.text += output.text;
        text.finish = output.finish;
      }
      if (between) between(step);
    }
    return texts;
  }
  Text alone(const std::vector<int32_t>& prompt, const SamplingOptions& sampling, const EngineOptions& options = {}) {
    const std::unique_ptr<Engine> e = engine(options);
    const SequenceId id = add(*e, prompt, sampling);
    return drain(*e)[id];
  }
  static std::vector<int32_t> prompt(int64_t length, int32_t salt) {
    std::vector<int32_t> ids(static_cast<std::size_t>(length));
    for (int64_t i = 0; i < length; ++i) ids[i] = static_cast<int32_t>((i * 37 + salt * 101 + i * i) % 256);
    return ids;
  }

  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

SamplingOptions random_sampling(uint64_t seed, int64_t tokens) {
  SamplingOptions options;
  options.temperature = 1;
  options.seed = seed;
  options.max_tokens = tokens;
  return options;
}

TEST_F(EngineTest, AnIdleEngineStepsIntoNothing) {
  const std::unique_ptr<Engine> e = engine();
  EXPECT_TRUE(e->idle());
  EXPECT_TRUE(e->step()->empty());
  EXPECT_EQ(StatusCode::not_found, e->cancel(1).code());
}

TEST_F(EngineTest, BadRequestsAreRefused) {
  const std::unique_ptr<Engine> e = engine();
  EXPECT_EQ(StatusCode::invalid_argument, e->add({}, {}).status().code()) << "empty prompt";
  const Status longer = e->add(prompt(256, 1), {}).status();
  EXPECT_EQ(StatusCode::invalid_argument, longer.code());
  EXPECT_NE(std::string::npos, longer.message().find("256 tokens")) << longer.message();
  EXPECT_EQ(StatusCode::invalid_argument, e->add({1, 320}, {}).status().code()) << "outside the vocabulary";
  EXPECT_EQ(StatusCode::invalid_argument, e->add({1, -1}, {}).status().code());
  EXPECT_EQ(StatusCode::invalid_argument, e->add({1}, {.top_p = 2}).status().code());
  EXPECT_TRUE(e->add({1}, {}).ok());
  EXPECT_EQ(StatusCode::out_of_memory, e->add({1}, {}).status().code()) << "one sequence at a time here";
}

TEST_F(EngineTest, BadOptionsAreRefused) {
  const auto code = [&](const EngineOptions& options) {
    return Engine::create(*model, *tokenizer, options).status().code();
  };
  EXPECT_EQ(StatusCode::invalid_argument, code({.context = 4097})) << "the model takes 4096";
  EXPECT_EQ(StatusCode::invalid_argument, code({.context = -1}));
  EXPECT_EQ(StatusCode::invalid_argument, code({.max_sequences = 0}));
  EXPECT_EQ(StatusCode::invalid_argument, code({.max_sequences = 9, .step_tokens = 8}));
  EXPECT_EQ(StatusCode::invalid_argument, code({.step_tokens = 0}));
}

TEST_F(EngineTest, EndsByLengthAndByContext) {
  EXPECT_EQ(Finish::length, alone(prompt(10, 1), random_sampling(1, 5)).finish);
  EXPECT_EQ(5u, alone(prompt(10, 1), random_sampling(1, 5)).tokens.size());
  const Text full = alone(prompt(60, 1), random_sampling(1, 1000), {.context = 64});
  EXPECT_EQ(Finish::context_full, full.finish);
  EXPECT_EQ(4u, full.tokens.size());
  EXPECT_EQ(1u, alone(prompt(63, 1), random_sampling(1, 1000), {.context = 64}).tokens.size());
}

TEST_F(EngineTest, StopTokensEndWithoutText) {
  SamplingOptions sampling = random_sampling(5, 40);
  const Text whole = alone(prompt(20, 2), sampling);
  sampling.stop_tokens = {whole.tokens[7]};
  const Text cut = alone(prompt(20, 2), sampling);
  EXPECT_EQ(Finish::stop_token, cut.finish);
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[7]) - whole.tokens.begin();
  EXPECT_EQ(first + 1, static_cast<int64_t>(cut.tokens.size()));
  EXPECT_TRUE(whole.text.starts_with(cut.text.substr(0, cut.text.size() > 3 ? cut.text.size() - 3 : 0)));
}

TEST_F(EngineTest, StopStringsEndBeforeThemselves) {
  SamplingOptions sampling = random_sampling(6, 60);
  const Text whole = alone(prompt(20, 3), sampling);
  ASSERT_GT(whole.text.size(), 40u);
  sampling.stop = {whole.text.substr(20, 6)};
  const Text cut = alone(prompt(20, 3), sampling);
  EXPECT_EQ(Finish::stop_string, cut.finish);
  EXPECT_EQ(whole.text.substr(0, whole.text.find(sampling.stop[0])), cut.text);
}

TEST_F(EngineTest, SameSeedSameTextWithAnyThreads) {
  const int before = threads();
  const SamplingOptions sampling = random_sampling(7, 40);
  const Text text = alone(prompt(90, 4), sampling);
  EXPECT_EQ(text, alone(prompt(90, 4), sampling));
  for (int count : {1, 2, 5}) {
    set_threads(count);
    EXPECT_EQ(text, alone(prompt(90, 4), sampling)) << count << " threads";
  }
  set_threads(before);
  EXPECT_NE(text.tokens, alone(prompt(90, 4), random_sampling(8, 40)).tokens);
}

TEST_F(EngineTest, ChunkSizeDoesNotMatter) {
  const Text text = alone(prompt(100, 5), random_sampling(9, 20));
  for (int32_t chunk : {1, 7, 64}) {
    EXPECT_EQ(text, alone(prompt(100, 5), random_sampling(9, 20), {.step_tokens = chunk})) << chunk;
  }
}

// Sequences that arrive and leave at any step, in a budget too small for all prompts at once.
TEST_F(EngineTest, CompanyDoesNotMatter) {
  for (const char* name : {"nano-glm5", "nano-glm52", "nano-dsv32"}) {
    open(name);
    const std::unique_ptr<Engine> e = engine({.max_sequences = 4, .step_tokens = 24});
    std::map<SequenceId, Text> wanted;
    const auto start = [&](int64_t length, int32_t salt, int64_t tokens) {
      const SamplingOptions sampling = random_sampling(static_cast<uint64_t>(salt), tokens);
      const SequenceId id = add(*e, prompt(length, salt), sampling);
      wanted[id] = alone(prompt(length, salt), sampling);
      return id;
    };
    start(100, 1, 30);
    start(40, 2, 10);
    const SequenceId victim = start(70, 3, 1000);
    const std::map<SequenceId, Text> got = drain(*e, [&](int step) {
      if (step == 3) start(5, 4, 25);
      if (step == 12) {
        EXPECT_TRUE(e->cancel(victim).ok());
        EXPECT_EQ(StatusCode::not_found, e->cancel(victim).code());
      }
      if (step == 14) start(33, 5, 12);
    });
    ASSERT_EQ(5u, got.size());
    for (const auto& [id, text] : got) {
      if (id == victim) {
        EXPECT_EQ(Finish::cancelled, text.finish);
      } else {
        EXPECT_EQ(wanted[id], text) << name << ", sequence " << id;
      }
    }
  }
}

// Three sequences of up to three pages in a cache of five: somebody must give way and be computed again.
TEST_F(EngineTest, PreemptionDoesNotMatter) {
  const std::unique_ptr<Engine> e = engine({.max_sequences = 3, .cache_tokens = 5 * 64, .step_tokens = 64});
  std::map<SequenceId, Text> wanted;
  for (int32_t salt = 1; salt <= 3; ++salt) {
    const SamplingOptions sampling = random_sampling(static_cast<uint64_t>(salt), 100);
    wanted[add(*e, prompt(60, salt), sampling)] = alone(prompt(60, salt), sampling);
  }
  EXPECT_EQ(wanted, drain(*e));
  EXPECT_GT(e->stats().prefill_tokens, 3 * 60) << "something was computed twice";
}

TEST_F(EngineTest, ALoneSequenceThatFillsTheCacheEnds) {
  const std::unique_ptr<Engine> e = engine({.cache_tokens = 64});
  const SequenceId id = add(*e, prompt(60, 1), random_sampling(1, 1000));
  EXPECT_EQ(Finish::context_full, drain(*e)[id].finish);
  EXPECT_EQ(StatusCode::out_of_memory, e->add(prompt(64, 1), {}).status().code()) << "needs a second page";
}

TEST_F(EngineTest, StatisticsCountTokensAndRows) {
  const std::unique_ptr<Engine> e = engine();
  add(*e, prompt(50, 1), random_sampling(1, 11));
  drain(*e);
  EXPECT_EQ(50, e->stats().prefill_tokens);
  EXPECT_EQ(10, e->stats().decode_tokens) << "the eleventh was never fed back";
  EXPECT_EQ(5 * 60 * 61 / 2, e->stats().rows_visible);
  EXPECT_EQ(5 * (16 * 17 / 2 + 44 * 16), e->stats().rows_read);
  EXPECT_GT(e->stats().prefill_seconds, 0);
  EXPECT_EQ(cache_bytes_per_page(cache_shape(model->config(), {})) * 4, e->cache_bytes());
}

TEST_F(EngineTest, ANanComesOutAsAnErrorAndTheSequenceCanBeCancelled) {
  TensorInfo& tensor = checkpoint.tensors[checkpoint.by_name.at("blk.2.attn_output.weight")];
  std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.bytes);
  std::memset(bytes.data(), 0xFF, 2);
  tensor.data = bytes.data();
  model = std::move(Model::load(checkpoint)).value();
  const std::unique_ptr<Engine> e = engine();
  const SequenceId id = add(*e, prompt(10, 1), {});
  const Result<std::vector<Output>> outputs = e->step();
  ASSERT_FALSE(outputs.ok());
  EXPECT_NE(std::string::npos, outputs.status().message().find("layer 2, attention")) << outputs.status().message();
  EXPECT_TRUE(e->cancel(id).ok());
  EXPECT_EQ(Finish::cancelled, drain(*e)[id].finish);
}

}  // namespace
}  // namespace winnow
