// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/progress.hpp"
#include "engine/stop_filter.hpp"

namespace winnow {
namespace {

struct Sequence {
  SequenceId id = 0;
  int32_t row = -1;             // sequence id of the cache
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int64_t prompt = 0;           // leading tokens that were given
  int64_t computed = 0;         // leading tokens whose rows are in the cache
  int64_t max_tokens = 0;
  std::unordered_set<int32_t> stop_tokens;
  Sampler sampler;
  Utf8Stream utf8;
  StopFilter filter;

  [[nodiscard]] int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t waiting() const { return length() - computed; }
  // One token left to compute, and it was generated: everything else is prefill (or computing again).
  [[nodiscard]] bool decodes() const { return waiting() == 1 && length() > prompt; }
};

struct Planned {
  Sequence* sequence;
  int64_t tokens;
};

using Clock = std::chrono::steady_clock;

}  // namespace

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::running: return "running";
    case Finish::stop_token: return "stop token";
    case Finish::stop_string: return "stop string";
    case Finish::length: return "length";
    case Finish::context_full: return "context full";
    case Finish::cancelled: return "cancelled";
  }
  return "unknown";
}

struct Engine::State {
  const Model& model;
  const Tokenizer& tokenizer;
  EngineOptions options;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvCache> cache;
  std::map<SequenceId, Sequence> sequences;  // oldest first
  std::vector<Output> ended;                 // cancelled or out of room, reported by the next step
  SequenceId next_id = 1;
  EngineStats stats;

  State(const Model& model_in, const Tokenizer& tokenizer_in, EngineOptions options_in)
      : model(model_in), tokenizer(tokenizer_in), options(std::move(options_in)) {}

  Status prepare();
  Status check_prompt(const std::vector<int32_t>& prompt) const;
  void remove(SequenceId id);

  std::vector<Planned> plan();
  bool make_room(const Sequence& sequence, int64_t tokens, std::vector<Planned>& planned);
  void give_back(Sequence& sequence);
  Result<StepResult> run(const std::vector<Planned>& planned);
  void account(const std::vector<Planned>& planned, const StepResult& result, double seconds);
  Output take(Sequence& sequence, std::span<const float> logits);
  Finish finish_of(const Sequence& sequence, int32_t token) const;
};

Status Engine::State::prepare() {
  const ModelConfig& config = model.config();
  if (options.context == 0) options.context = config.context;
  if (options.context < 1 || options.context > config.context) {
    return error(StatusCode::invalid_argument, "context is ", options.context, ", the model takes 1 to ",
                 config.context);
  }
  if (options.max_sequences < 1 || options.max_sequences > options.step_tokens) {
    return error(StatusCode::invalid_argument, "max_sequences is ", options.max_sequences, ", wants 1 to step_tokens, ",
                 options.step_tokens);
  }
  RunnerOptions run;
  run.step_tokens = options.step_tokens;
  run.context = options.context;
  run.rows = options.rows;
  run.keys = options.keys;
  run.attention = options.attention;
  run.dense = options.dense;
  WINNOW_TRY_ASSIGN(runner, Runner::create(model, run));
  const CacheShape shape = cache_shape(config, run);
  const int64_t pages = options.cache_tokens > 0 ? pages_for(shape, options.cache_tokens)
                                                 : pages_for(shape, options.context) * options.max_sequences;
  WINNOW_TRY_ASSIGN(cache, KvCache::create(shape, pages, options.max_sequences, options.context));
  return Status();
}

Status Engine::State::check_prompt(const std::vector<int32_t>& prompt) const {
  const auto length = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) return error(StatusCode::invalid_argument, "the prompt is empty; it needs at least one token");
  if (length >= options.context) {
    return error(StatusCode::invalid_argument, "the prompt has ", length, " tokens, the context is ", options.context,
                 " and must have room for an answer; shorten the prompt or ask for a longer context (the model takes ",
                 model.config().context, ")");
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < model.config().vocab) continue;
    return error(StatusCode::invalid_argument, "token ", i, " of the prompt is ", prompt[i],
                 ", outside the vocabulary of ", model.config().vocab);
  }
  const int64_t pages = pages_for(cache->shape(), length + 1), all = cache->allocator().pages();
  if (pages <= all) return Status();
  return error(StatusCode::out_of_memory, "the prompt needs ", pages, " cache pages, there are ", all,
               " in all; give the cache more positions");
}

void Engine::State::remove(SequenceId id) {
  cache->close(sequences.at(id).row);
  sequences.erase(id);
}

// Decoding sequences first, one token each, then prompts with what is left of the budget; both oldest first.
std::vector<Planned> Engine::State::plan() {
  std::vector<Planned> planned;
  int64_t budget = options.step_tokens;
  for (const bool decode : {true, false}) {
    std::vector<SequenceId> stuck;
    for (auto& [id, sequence] : sequences) {
      if (budget == 0 || sequence.decodes() != decode) continue;
      const int64_t tokens = std::min(budget, sequence.waiting());
      if (make_room(sequence, tokens, planned)) {
        planned.push_back({&sequence, tokens});
        budget -= tokens;
      } else if (sequences.size() == 1) {
        stuck.push_back(id);  // it has every page there is
      }
    }
    for (SequenceId id : stuck) {
      ended.push_back({id, -1, sequences.at(id).filter.push(sequences.at(id).utf8.finish()), Finish::context_full});
      remove(id);
    }
  }
  return planned;
}

// Reserves pages for the next tokens. Younger sequences give theirs back, the youngest first; when that is not enough
// the sequence waits.
bool Engine::State::make_room(const Sequence& sequence, int64_t tokens, std::vector<Planned>& planned) {
  while (!cache->reserve(sequence.row, sequence.computed + tokens).ok()) {
    Sequence* victim = nullptr;
    for (auto& [id, other] : sequences) {
      if (id > sequence.id && cache->pages_of(other.row) > 0) victim = &other;
    }
    if (victim == nullptr) return false;
    std::erase_if(planned, [&](const Planned& p) { return p.sequence == victim; });
    give_back(*victim);
  }
  return true;
}

void Engine::State::give_back(Sequence& sequence) {
  cache->truncate(sequence.row, 0);
  sequence.computed = 0;
}

Result<StepResult> Engine::State::run(const std::vector<Planned>& planned) {
  std::vector<int32_t> tokens, rows, positions, wanted;
  for (const auto& [sequence, count] : planned) {
    for (int64_t i = sequence->computed; i < sequence->computed + count; ++i) {
      tokens.push_back(sequence->tokens[i]);
      rows.push_back(sequence->row);
      positions.push_back(static_cast<int32_t>(i));
    }
    if (count == sequence->waiting()) wanted.push_back(static_cast<int32_t>(tokens.size()) - 1);
  }
  return runner->step({tokens, rows, positions, wanted}, *cache);
}

// The time of a mixed step is shared out by tokens.
void Engine::State::account(const std::vector<Planned>& planned, const StepResult& result, double seconds) {
  int64_t decoded = 0, all = 0;
  for (const auto& [sequence, count] : planned) {
    decoded += sequence->decodes() ? 1 : 0;
    all += count;
  }
  const double share = static_cast<double>(decoded) / static_cast<double>(all);
  stats.decode_tokens += decoded;
  stats.prefill_tokens += all - decoded;
  stats.decode_seconds += seconds * share;
  stats.prefill_seconds += seconds * (1 - share);
  stats.rows_read += result.rows_read;
  stats.rows_visible += result.rows_visible;
}

// Samples, and says what of it may be shown.
Output Engine::State::take(Sequence& sequence, std::span<const float> logits) {
  Output output{sequence.id};
  output.token = sequence.sampler.sample(logits, sequence.tokens);
  sequence.tokens.push_back(output.token);
  output.finish = finish_of(sequence, output.token);
  if (output.finish != Finish::stop_token && !tokenizer.is_special(output.token)) {
    output.text = sequence.filter.push(sequence.utf8.push(tokenizer.bytes_of(output.token)));
  }
  if (output.finish != Finish::running && !sequence.filter.stopped()) {
    output.text += sequence.filter.push(sequence.utf8.finish());
    if (!sequence.filter.stopped()) output.text += sequence.filter.finish();
  }
  if (sequence.filter.stopped()) output.finish = Finish::stop_string;
  return output;
}

Finish Engine::State::finish_of(const Sequence& sequence, int32_t token) const {
  if (sequence.stop_tokens.contains(token)) return Finish::stop_token;
  if (sequence.length() - sequence.prompt >= sequence.max_tokens) return Finish::length;
  if (sequence.length() >= options.context) return Finish::context_full;
  return Finish::running;
}

Result<std::unique_ptr<Engine>> Engine::create(const Model& model, const Tokenizer& tokenizer,
                                               const EngineOptions& options) {
  auto state = std::make_unique<State>(model, tokenizer, options);
  WINNOW_TRY(state->prepare());
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Result<SequenceId> Engine::add(std::vector<int32_t> prompt, const SamplingOptions& sampling) {
  State& s = *state_;
  WINNOW_TRY(s.check_prompt(prompt));
  WINNOW_TRY(check(sampling));
  WINNOW_TRY_ASSIGN(const int32_t row, s.cache->open());
  Sequence sequence{.id = s.next_id++, .row = row, .sampler = Sampler(sampling), .filter = StopFilter(sampling.stop)};
  sequence.prompt = static_cast<int64_t>(prompt.size());
  sequence.tokens = std::move(prompt);
  sequence.max_tokens = sampling.max_tokens;
  sequence.stop_tokens.insert(sampling.stop_tokens.begin(), sampling.stop_tokens.end());
  const std::vector<int32_t>& own = s.tokenizer.stop_tokens();
  sequence.stop_tokens.insert(own.begin(), own.end());
  const SequenceId id = sequence.id;
  s.sequences.emplace(id, std::move(sequence));
  return id;
}

Status Engine::cancel(SequenceId id) {
  State& s = *state_;
  if (!s.sequences.contains(id)) return error(StatusCode::not_found, "sequence ", id, " is not running");
  s.remove(id);
  s.ended.push_back({id, -1, {}, Finish::cancelled});
  return Status();
}

Result<std::vector<Output>> Engine::step() {
  State& s = *state_;
  const std::vector<Planned> planned = s.plan();
  std::vector<Output> outputs = std::exchange(s.ended, {});
  if (planned.empty()) return outputs;
  const Clock::time_point begin = Clock::now();
  Result<StepResult> result = s.run(planned);
  if (!result.ok()) {
    s.ended = std::move(outputs);
    return std::move(result).status();
  }
  s.account(planned, *result, std::chrono::duration<double>(Clock::now() - begin).count());
  int64_t row = 0;
  for (const auto& [sequence, count] : planned) {
    const bool complete = count == sequence->waiting();
    sequence->computed += count;
    if (sequence->length() == sequence->prompt) {
      report_progress("prefill", sequence->computed, sequence->prompt, "tokens");
    }
    if (!complete) {
      outputs.push_back({sequence->id});
      continue;
    }
    const auto vocab = static_cast<std::size_t>(result->logits.size(1));
    outputs.push_back(s.take(*sequence, {result->logits.row(row++), vocab}));
  }
  for (const Output& output : outputs) {
    if (output.finish != Finish::running && s.sequences.contains(output.sequence)) s.remove(output.sequence);
  }
  return outputs;
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;
bool Engine::idle() const { return state_->sequences.empty() && state_->ended.empty(); }
const EngineStats& Engine::stats() const { return state_->stats; }
int64_t Engine::cache_bytes() const { return state_->cache->bytes(); }

}  // namespace winnow
