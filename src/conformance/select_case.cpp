// SPDX-License-Identifier: Apache-2.0
#include "conformance/select_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "conformance/mla_case.hpp"
#include "contract/element_types.hpp"
#include "contract/oracle.hpp"
#include "contract/quantise.hpp"

namespace winnow::conformance {
namespace {
constexpr int64_t kDigits = 6;
constexpr int64_t kInfinityDim = 7;

int64_t digit(int64_t value, int64_t place) { return (value >> (4 * place)) & 15; }

uint64_t scramble(uint64_t x) {  // splitmix64's finaliser: a fixed pseudo-random function of a position
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}
}  // namespace

Result<std::unique_ptr<Case>> SelectCase::build(const CaseSpec& spec) {
  auto made = std::make_unique<SelectCase>(spec);
  WINNOW_TRY(check(made->problem, made->buffers).in(spec.name()));
  return std::unique_ptr<Case>(std::move(made));
}

SelectCase::SelectCase(const CaseSpec& spec)
    : Case(spec), exact_(spec.word("scores") != "random"), random_(hash_bytes(spec.given.data(), spec.given.size())) {
  IndexSelectProblem& p = problem;
  p.tokens = static_cast<int32_t>(spec.integer("tokens"));
  p.index_heads = static_cast<int32_t>(spec.integer("heads"));
  p.index_dim = static_cast<int32_t>(spec.integer("dim"));
  p.topk = static_cast<int32_t>(spec.integer("topk"));
  p.page_size = static_cast<int32_t>(spec.integer("page_size"));
  p.keys = key_format_of(spec);
  p.q_type = dtype_of(spec, "q_type");
  p.output_slots = spec.word("output") == "slots";
  sequences_ = spec.integer("sequences") > 0 ? spec.integer("sequences") : std::max(p.tokens, 1);
  fill_ranges();
  fill_pages();
  fill_keys();
  fill_queries();
  const int64_t stride = p.topk + (spec.word("strides") == "padded" ? 4 : 0);
  buffers.out =
      TensorView<int32_t>(image_.add_array<int32_t>("out", Role::output, p.tokens * stride), {p.tokens, p.topk});
  buffers.out.strides[0] = stride;
  buffers.out_len = TensorView<int32_t>(image_.add_array<int32_t>("out_len", Role::output, p.tokens), {p.tokens});
  image_.seal();
  find_truth();
}

int64_t SelectCase::length_of(int64_t token) const {
  const std::string& text = spec_.word("len");
  const int64_t topk = problem.topk;
  const int64_t mixed[] = {
      topk, 0, topk + 1, 1, 3 * topk + 5, topk - 1, -1, 2 * topk, std::numeric_limits<int32_t>::min()};
  if (text == "mixed") return mixed[token % static_cast<int64_t>(std::size(mixed))];
  if (text == "prefill") return 3 * topk / 2 + token + 1;
  if (text == "topk-1") return topk - 1;
  if (text == "topk") return topk;
  if (text == "topk+1") return topk + 1;
  if (text == "negative") return -5;
  return spec_.integer("len");
}

void SelectCase::fill_ranges() {
  auto* seq = image_.add_array<int32_t>("seq", Role::input, problem.tokens);
  auto* len = image_.add_array<int32_t>("len", Role::input, problem.tokens);
  const std::string& start_kind = spec_.word("start");
  auto* start = start_kind == "0" ? nullptr : image_.add_array<int32_t>("start", Role::input, problem.tokens);
  sequence_length_.assign(static_cast<std::size_t>(sequences_), 0);
  for (int32_t t = 0; t < problem.tokens; ++t) {
    seq[t] = static_cast<int32_t>(t % sequences_);
    len[t] = static_cast<int32_t>(length_of(t));
    const int32_t first = start == nullptr         ? 0
                          : start_kind == "ragged" ? 7 * t + 3
                                                   : static_cast<int32_t>(spec_.integer("start"));
    if (start != nullptr) start[t] = first;
    int64_t& longest = sequence_length_[static_cast<std::size_t>(seq[t])];
    longest = std::max<int64_t>(longest, std::max<int64_t>(first, 0) + std::max(len[t], 0));
  }
  const int64_t longest = *std::max_element(sequence_length_.begin(), sequence_length_.end());
  problem.max_len = spec_.integer("max_len") > 0 ? spec_.integer("max_len") : longest;
  buffers.seq = TensorView<const int32_t>(seq, {problem.tokens});
  buffers.len = TensorView<const int32_t>(len, {problem.tokens});
  if (start != nullptr) buffers.start = TensorView<const int32_t>(start, {problem.tokens});
}

// Pages of all sequences are dealt from one shuffled pool with pages to spare, which stay NaN.
void SelectCase::fill_pages() {
  const int64_t width = std::max<int64_t>(1, ceil_div(problem.max_len, problem.page_size));
  page_table_ = image_.add_array<int32_t>("page_table", Role::input, sequences_ * width);
  int64_t used = 0;
  for (int64_t length : sequence_length_) used += ceil_div(std::min(length, problem.max_len), problem.page_size);
  std::vector<int32_t> pool(static_cast<std::size_t>(used + 3));
  std::iota(pool.begin(), pool.end(), 0);
  for (std::size_t i = pool.size(); i > 1; --i) {
    std::swap(pool[i - 1], pool[static_cast<std::size_t>(random_.below(static_cast<int64_t>(i)))]);
  }
  std::size_t next = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const int64_t length = std::min(sequence_length_[static_cast<std::size_t>(s)], problem.max_len);
    for (int64_t page = 0; page < ceil_div(length, problem.page_size); ++page) {
      page_table_[s * width + page] = pool[next++];
      if (spec_.word("pages") == "damaged" && page % 3 == 1) {
        page_table_[s * width + page] = page % 2 == 0 ? -1 : static_cast<int32_t>(pool.size());
      }
    }
  }
  buffers.page_table = TensorView<const int32_t>(page_table_, {sequences_, width});
  const int64_t page_bytes = key_page_bytes(problem.keys, problem.page_size, problem.index_dim);
  buffers.keys.pages = static_cast<int64_t>(pool.size());
  buffers.keys.page_stride_bytes = page_bytes + (spec_.word("strides") == "padded" ? 64 : 0);
  buffers.keys.data = image_.add("keys", Role::input, buffers.keys.pages * buffers.keys.page_stride_bytes);
}

int64_t SelectCase::level(int64_t sequence, int64_t position) const {
  const std::string& kind = spec_.word("scores");
  const int64_t length = sequence_length_[static_cast<std::size_t>(sequence)];
  const uint64_t noise = scramble(static_cast<uint64_t>(position) * 2654435761u + static_cast<uint64_t>(sequence));
  if (kind == "equal") return 5;
  if (kind == "two") return 3 + static_cast<int64_t>(noise % 2);
  if (kind == "ascending") return position;
  if (kind == "descending") return length - position;
  if (kind == "border") {  // fewer than topk are better, all the others equal: the border holds nearly everything
    return noise % static_cast<uint64_t>(std::max<int64_t>(1, 2 * length / problem.topk)) == 0 ? 9 : 7;
  }
  if (kind == "sawtooth" || kind == "negative" || kind == "nan" || kind == "infinite" || kind == "neg_infinite") {
    return static_cast<int64_t>(noise % 50);
  }
  return 0;
}

bool SelectCase::is_special(int64_t position) const {
  const std::string& kind = spec_.word("scores");
  return (kind == "nan" || kind == "infinite" || kind == "neg_infinite") &&
         scramble(static_cast<uint64_t>(position)) % 3 == 0;
}

void SelectCase::fill_key(int64_t sequence, int64_t position, std::byte* page, int64_t offset) {
  const int64_t dim = problem.index_dim;
  const HeadTensor key{page, 0, 0};
  const DType type = key_type(problem.keys);
  float scale = 1.0f;
  if (!exact_) {
    std::vector<float> value(static_cast<std::size_t>(dim));
    float amax = 0;
    for (float& v : value) amax = widen_amax(amax, v = random_.normal());
    if (type == DType::e4m3) scale = group_scale(amax, ScaleMode::plain, QuantisedGroup::key);
    for (int64_t d = 0; d < dim; ++d) {
      store_element(key, type, offset * dim + d, value[static_cast<std::size_t>(d)] / scale);
    }
  } else {
    const int64_t wanted = level(sequence, position);
    for (int64_t d = 0; d < dim; ++d) {
      const float value = d < kDigits ? static_cast<float>(digit(wanted, d)) : d > kInfinityDim ? 1.0f : 0.0f;
      store_element(key, type, offset * dim + d, value);
    }
    // NaN comes from inf - inf of two heads, or from the scale of an fp8 key; infinity from one head or the scale.
    const float special = spec_.word("scores") == "nan" ? std::numeric_limits<float>::quiet_NaN()
                                                        : std::numeric_limits<float>::infinity();
    if (is_special(position) && type != DType::e4m3) {
      store_element(key, type, offset * dim + kInfinityDim, std::numeric_limits<float>::infinity());
    }
    if (is_special(position)) scale = special;
    if (spec_.word("scores") == "zeros" && position % 2 == 0) scale = -0.0f;
  }
  if (type == DType::e4m3) std::memcpy(page + problem.page_size * dim + offset * 4, &scale, 4);
}

void SelectCase::fill_keys() {
  for (int64_t s = 0; s < sequences_; ++s) {
    const int64_t length = std::min(sequence_length_[static_cast<std::size_t>(s)], problem.max_len);
    for (int64_t position = 0; position < length; ++position) {
      const int64_t page = buffers.page_table(s, position / problem.page_size);
      if (page < 0 || page >= buffers.keys.pages) continue;
      fill_key(s, position, buffers.keys.data + page * buffers.keys.page_stride_bytes, position % problem.page_size);
    }
  }
}

void SelectCase::fill_queries() {
  const int64_t heads = problem.index_heads, dim = problem.index_dim;
  const std::string& kind = spec_.word("scores");
  buffers.q = add_heads(image_, "q", Role::input, problem.q_type, problem.tokens, heads, dim,
                        spec_.word("strides") == "padded" ? "padded" : "dense");
  const int64_t weight_stride = heads + (spec_.word("strides") == "padded" ? 4 : 0);
  weight_ = image_.add_array<float>("weight", Role::input, problem.tokens * weight_stride);
  buffers.weight = TensorView<const float>(weight_, {problem.tokens, heads});
  buffers.weight.strides[0] = weight_stride;
  const float sign = kind == "negative" || kind == "zeros" || kind == "neg_infinite" ? -1.0f : 1.0f;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      float weight = exact_ ? sign * static_cast<float>(1 + random_.below(3)) : random_.normal();
      if (exact_ && h < 2) weight = h == 0 ? sign : sign * 4096.0f;
      if (kind == "nan" && h < 2) weight = h == 0 ? 1.0f : -1.0f;
      if (kind == "nan_weight" && t % 2 == 0 && h == 0) weight = std::numeric_limits<float>::quiet_NaN();
      weight_[t * weight_stride + h] = weight;
      for (int64_t d = 0; d < dim; ++d) {
        float value = random_.normal();
        if (exact_) {
          const int64_t place = heads == 1 ? d : d - 3 * h;
          const bool digits = h < 2 && d < kDigits && place >= 0 && (heads == 1 || place < 3);
          value = digits ? static_cast<float>(int64_t{1} << (4 * place)) : 0.0f;
          if (h >= 2 && d > kInfinityDim) value = static_cast<float>(random_.below(2));
          if (kind == "nan" && h < 2 && d == kInfinityDim) value = 1.0f;
          if (kind == "nan" && h == 1 && d < kDigits) value = 0.0f;
          if ((kind == "infinite" || kind == "neg_infinite") && h == 0 && d == kInfinityDim) value = 1.0f;
        }
        store_element(buffers.q, problem.q_type, t * buffers.q.token_stride + h * buffers.q.head_stride + d, value);
      }
    }
  }
}

void SelectCase::find_truth() {
  truth_.resize(static_cast<std::size_t>(problem.tokens));
  for (int64_t t = 0; t < problem.tokens; ++t) {
    TokenTruth& truth = truth_[static_cast<std::size_t>(t)];
    const int64_t start = buffers.start.empty() ? 0 : buffers.start(t);
    truth.first = std::clamp<int64_t>(start, 0, problem.max_len);
    truth.length = std::clamp<int64_t>(start + buffers.len(t), truth.first, problem.max_len) - truth.first;
    if (truth.length > problem.topk) {
      oracle::IndexScores scores = oracle::index_scores(problem, buffers, t);
      truth.score = std::move(scores.score);
      truth.magnitude = std::move(scores.magnitude);
      truth.chosen = oracle::top_positions(truth.score, problem.topk);
    } else {
      truth.chosen.resize(static_cast<std::size_t>(truth.length));
      std::iota(truth.chosen.begin(), truth.chosen.end(), 0);
    }
    for (int64_t& position : truth.chosen) position += truth.first;
  }
}

// A position that the oracle leaves out, or the other way round, must lie within the error of the border.
std::string SelectCase::compare_set(int64_t token, const std::vector<int64_t>& got, double score_error) const {
  const TokenTruth& truth = truth_[static_cast<std::size_t>(token)];
  if (got == truth.chosen) return {};
  std::vector<int64_t> odd;
  std::set_symmetric_difference(got.begin(), got.end(), truth.chosen.begin(), truth.chosen.end(),
                                std::back_inserter(odd));
  double border = std::numeric_limits<double>::infinity();
  for (int64_t position : truth.chosen) {
    border = std::min(border, truth.score.empty() ? 0 : truth.score[static_cast<std::size_t>(position - truth.first)]);
  }
  for (int64_t position : odd) {
    const int64_t i = position - truth.first;
    const bool visible = i >= 0 && i < static_cast<int64_t>(truth.score.size());
    const double distance = visible ? std::abs(truth.score[static_cast<std::size_t>(i)] - border) : HUGE_VAL;
    const double allowed = visible && !exact_ ? 2 * score_error * truth.magnitude[static_cast<std::size_t>(i)] : 0;
    if (exact_ || !(distance <= allowed)) {
      const bool extra = std::binary_search(got.begin(), got.end(), position);
      return concat("token ", token, ": position ", position, extra ? " is selected" : " is missing", "; its score ",
                    visible ? truth.score[static_cast<std::size_t>(i)] : std::nan(""), " is ", distance,
                    " from the border ", border, ", allowed ", allowed, "; ", odd.size(), " differ");
    }
  }
  return {};
}

std::string SelectCase::compare_token(int64_t token, const int32_t* out, int32_t out_len, double score_error) const {
  const TokenTruth& truth = truth_[static_cast<std::size_t>(token)];
  const auto count = static_cast<int64_t>(truth.chosen.size());
  if (out_len != count) return concat("token ", token, ": out_len is ", out_len, ", wants ", count);
  for (int64_t i = count; i < problem.topk; ++i) {
    if (out[i] != -1) return concat("token ", token, ": entry ", i, " is ", out[i], ", wants -1 behind ", count);
  }
  if (problem.output_slots) {  // slots are compared as slots when pages are damaged, else mapped back to positions
    if (spec_.word("pages") == "damaged" || truth.score.empty()) {
      for (int64_t i = 0; i < count; ++i) {
        const int32_t want = oracle::output_entry(problem, buffers, token, truth.chosen[static_cast<std::size_t>(i)]);
        if (out[i] != want) return concat("token ", token, ": entry ", i, " is slot ", out[i], ", wants ", want);
      }
      return {};
    }
  }
  std::vector<int64_t> page_to_index(static_cast<std::size_t>(buffers.keys.pages), -1);
  for (int64_t i = 0; problem.output_slots && i < ceil_div(truth.first + truth.length, problem.page_size); ++i) {
    page_to_index[static_cast<std::size_t>(buffers.page_table(buffers.seq(token), i))] = i;
  }
  std::vector<int64_t> got;
  for (int64_t i = 0; i < count; ++i) {
    int64_t position = out[i];
    if (problem.output_slots) {
      const int64_t page = out[i] < 0 ? -1 : out[i] / problem.page_size;
      const bool known = page >= 0 && page < buffers.keys.pages && page_to_index[static_cast<std::size_t>(page)] >= 0;
      if (!known) return concat("token ", token, ": entry ", i, " is slot ", out[i], ", no slot of its sequence");
      position = page_to_index[static_cast<std::size_t>(page)] * problem.page_size + out[i] % problem.page_size;
    }
    if (!got.empty() && position <= got.back()) {
      return concat("token ", token, ": entry ", i, " is position ", position, " after ", got.back(),
                    ", not ascending");
    }
    got.push_back(position);
  }
  return compare_set(token, got, score_error);
}

std::string SelectCase::compare_selection(const std::vector<int32_t>& out, const std::vector<int32_t>& out_len,
                                          double score_error) const {
  for (int64_t t = 0; t < problem.tokens; ++t) {
    std::string found =
        compare_token(t, out.data() + t * problem.topk, out_len[static_cast<std::size_t>(t)], score_error);
    if (!found.empty()) return found;
  }
  return {};
}

std::string SelectCase::compare(const Target& target) {
  std::vector<int32_t> out, out_len;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    out.insert(out.end(), buffers.out.row(t), buffers.out.row(t) + problem.topk);
    out_len.push_back(buffers.out_len(t));
    std::memset(buffers.out.row(t), 0xFF, static_cast<std::size_t>(problem.topk) * 4);
  }
  const std::string found = compare_selection(out, out_len, target.index_score_error());
  return found.empty() ? leftovers(image_, "out") : found;
}

}  // namespace winnow::conformance
