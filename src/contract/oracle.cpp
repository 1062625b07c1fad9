// SPDX-License-Identifier: Apache-2.0
#include "contract/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "contract/element_types.hpp"
#include "contract/quantise.hpp"

namespace winnow::oracle {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
T load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

double sink_factor(const TensorView<const float>& sink, int64_t head, double lse) {
  return sink.empty() ? 1.0 : 1.0 / (1.0 + std::exp(static_cast<double>(sink(head)) - lse));
}

// One token: rows are decoded once, heads share them.
class MlaToken {
 public:
  MlaToken(const SparseMlaProblem& p, const SparseMlaBuffers& b, int64_t token) : p_(p), b_(b), token_(token) {
    const int64_t listed = b.topk_len.empty() ? p.topk : std::clamp<int64_t>(b.topk_len(token), 0, p.topk);
    for (int64_t i = 0; i < listed; ++i) {
      const std::byte* row = row_address(b.cache, p.page_size, b.topk_slots(token, i));
      if (row == nullptr) continue;
      rows_.resize(rows_.size() + static_cast<std::size_t>(p.d_qk()));
      decode_row(row, p.rows, p.d_nope, p.d_rope, rows_.data() + rows_.size() - p.d_qk());
      ++count_;
    }
  }

  void head(int64_t h, double* out, double& lse, double& largest) const {
    std::fill(out, out + p_.d_v, 0.0);
    lse = -kInf;
    largest = 0;
    if (count_ == 0) return;
    std::vector<double> score = scores(h, largest);
    const double top = *std::max_element(score.begin(), score.end(), [](double a, double b) {
      return !std::isnan(a) && (std::isnan(b) || a < b);  // NaN above all, so that it reaches the sum
    });
    if (top == -kInf) return;  // every exp is 0: as if nothing were listed
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - top);  // inf - inf is NaN and stays it
    lse = top + std::log(sum);
    accumulate(score, sum, sink_factor(b_.sink, h, lse), out);
  }

 private:
  [[nodiscard]] std::vector<double> scores(int64_t h, double& largest) const {
    std::vector<double> score(static_cast<std::size_t>(count_));
    const int64_t base = token_ * b_.q.token_stride + h * b_.q.head_stride;
    std::vector<double> q(static_cast<std::size_t>(p_.d_qk()));
    for (int64_t d = 0; d < p_.d_qk(); ++d)
      q[static_cast<std::size_t>(d)] = element(b_.q.data, p_.activations, base + d);
    for (int64_t j = 0; j < count_; ++j) {
      const double* row = rows_.data() + j * p_.d_qk();
      double dot = 0, absolute = 0;
      for (int64_t d = 0; d < p_.d_qk(); ++d) {
        const double term = q[static_cast<std::size_t>(d)] * row[d];
        dot += term;
        absolute += std::abs(term);
      }
      score[static_cast<std::size_t>(j)] = static_cast<double>(p_.softmax_scale) * dot;
      largest = std::max(largest, std::abs(static_cast<double>(p_.softmax_scale)) * absolute);
    }
    return score;
  }

  void accumulate(const std::vector<double>& weight, double sum, double factor, double* out) const {
    for (int64_t j = 0; j < count_; ++j) {
      const double share = weight[static_cast<std::size_t>(j)] / sum;
      const double* row = rows_.data() + j * p_.d_qk();
      for (int64_t d = 0; d < p_.d_v; ++d) out[d] += share * row[d];
    }
    for (int64_t d = 0; d < p_.d_v; ++d) out[d] *= factor;
  }

  const SparseMlaProblem& p_;
  const SparseMlaBuffers& b_;
  int64_t token_;
  int64_t count_ = 0;
  std::vector<double> rows_;  // [count, d_qk]
};
}  // namespace

double element(const void* data, DType type, int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(data) + index * bytes_of(type);
  switch (type) {
    case DType::f32: return load<float>(bytes);
    case DType::bf16: return to_float(load<bf16>(bytes));
    case DType::f16: return to_float(load<f16>(bytes));
    case DType::e4m3: return to_float(load<e4m3>(bytes));
    case DType::i32: return load<int32_t>(bytes);
    case DType::u8: return load<uint8_t>(bytes);
  }
  return 0;
}

std::byte* row_address(const PagedRows& cache, int64_t page_size, int64_t slot) {
  if (slot < 0 || slot >= cache.pages * page_size) return nullptr;
  return cache.data + (slot / page_size) * cache.page_stride_bytes + (slot % page_size) * cache.row_stride_bytes;
}

void decode_row(const std::byte* row, RowFormat format, int64_t d_nope, int64_t d_rope, double* out) {
  const RowLayout layout = row_layout(format, d_nope, d_rope);
  for (int64_t d = 0; d < d_nope; ++d) {
    const double scale =
        format == RowFormat::v32_fp8 ? load<float>(row + layout.scales + d / kLatentsPerScale * 4) : 1.0;
    out[d] = element(row, latent_type(format), d) * scale;
  }
  for (int64_t d = 0; d < d_rope; ++d) out[d_nope + d] = element(row + layout.rope, rope_type(format), d);
}

double decode_key(const PagedKeys& keys, KeyFormat format, int64_t page_size, int64_t index_dim, int64_t page,
                  int64_t offset, double* out) {
  const std::byte* base = keys.data + page * keys.page_stride_bytes;
  const DType type = key_type(format);
  for (int64_t d = 0; d < index_dim; ++d) out[d] = element(base, type, offset * index_dim + d);
  return format == KeyFormat::fp8 ? load<float>(base + page_size * index_dim + offset * 4) : 1.0;
}

MlaResult sparse_mla(const SparseMlaProblem& p, const SparseMlaBuffers& b) {
  MlaResult result;
  const auto rows = static_cast<std::size_t>(p.tokens) * static_cast<std::size_t>(p.q_heads);
  result.out.resize(rows * static_cast<std::size_t>(p.d_v));
  result.lse.resize(rows);
  result.magnitude.resize(rows);
  for (int64_t t = 0; t < p.tokens; ++t) {
    const MlaToken token(p, b, t);
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const auto row = static_cast<std::size_t>(t * p.q_heads + h);
      token.head(h, result.out.data() + row * static_cast<std::size_t>(p.d_v), result.lse[row], result.magnitude[row]);
    }
  }
  return result;
}

namespace {
struct Range {
  int64_t first = 0, last = 0;
  [[nodiscard]] int64_t length() const { return std::max<int64_t>(0, last - first); }
};

Range range_of(const IndexSelectProblem& p, const IndexSelectBuffers& b, int64_t token) {
  const int64_t sequence = b.seq(token);
  if (p.max_len == 0 || sequence < 0 || sequence >= b.page_table.size(0)) return {};
  const int64_t start = b.start.empty() ? 0 : b.start(token);
  return {std::clamp<int64_t>(start, 0, p.max_len), std::clamp<int64_t>(start + b.len(token), 0, p.max_len)};
}
}  // namespace

IndexScores index_scores(const IndexSelectProblem& p, const IndexSelectBuffers& b, int64_t token) {
  const Range range = range_of(p, b, token);
  IndexScores result;
  result.first = range.first;
  std::vector<double> q(static_cast<std::size_t>(p.index_heads * p.index_dim));
  for (int64_t h = 0; h < p.index_heads; ++h) {
    const int64_t base = token * b.q.token_stride + h * b.q.head_stride;
    for (int64_t d = 0; d < p.index_dim; ++d) {
      q[static_cast<std::size_t>(h * p.index_dim + d)] = element(b.q.data, p.q_type, base + d);
    }
  }
  std::vector<double> key(static_cast<std::size_t>(p.index_dim));
  for (int64_t position = range.first; position < range.last; ++position) {
    const int64_t page = b.page_table(b.seq(token), position / p.page_size);
    if (page < 0 || page >= b.keys.pages) {
      result.score.push_back(std::numeric_limits<double>::quiet_NaN());
      result.magnitude.push_back(0);
      continue;
    }
    const double scale = decode_key(b.keys, p.keys, p.page_size, p.index_dim, page, position % p.page_size, key.data());
    double sum = 0, magnitude = 0;
    for (int64_t h = 0; h < p.index_heads; ++h) {
      const double* row = q.data() + h * p.index_dim;
      double dot = 0, absolute = 0;
      for (int64_t d = 0; d < p.index_dim; ++d) {
        const double term = row[d] * key[static_cast<std::size_t>(d)];
        dot += term;
        absolute += std::abs(term);
      }
      const double weight = b.weight(token, h);
      sum += weight * (dot > 0 ? dot : 0.0);  // NaN counts as 0
      magnitude += std::abs(weight) * absolute;
    }
    result.score.push_back(scale * sum);
    result.magnitude.push_back(std::abs(scale) * magnitude);
  }
  return result;
}

bool chosen_before(double a, int64_t pa, double b, int64_t pb) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b) ? pa < pb : std::isnan(b);
  return a != b ? a > b : pa < pb;
}

std::vector<int64_t> top_positions(const std::vector<double>& score, int64_t topk) {
  std::vector<int64_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t a, int64_t b) {
    return chosen_before(score[static_cast<std::size_t>(a)], a, score[static_cast<std::size_t>(b)], b);
  };
  const auto count = static_cast<std::ptrdiff_t>(std::min<int64_t>(topk, static_cast<int64_t>(order.size())));
  if (count < static_cast<std::ptrdiff_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + count, order.end(), before);
  }
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

int32_t output_entry(const IndexSelectProblem& p, const IndexSelectBuffers& b, int64_t token, int64_t position) {
  if (!p.output_slots) return static_cast<int32_t>(position);
  const int64_t page = b.page_table(b.seq(token), position / p.page_size);
  return page < 0 || page >= b.keys.pages ? -1 : static_cast<int32_t>(page * p.page_size + position % p.page_size);
}

SelectResult index_select(const IndexSelectProblem& p, const IndexSelectBuffers& b) {
  SelectResult result;
  result.out.assign(static_cast<std::size_t>(p.tokens) * static_cast<std::size_t>(p.topk), -1);
  result.out_len.assign(static_cast<std::size_t>(p.tokens), 0);
  for (int64_t t = 0; t < p.tokens; ++t) {
    const Range range = range_of(p, b, t);
    std::vector<int64_t> chosen(static_cast<std::size_t>(std::min<int64_t>(range.length(), p.topk)));
    std::iota(chosen.begin(), chosen.end(), 0);
    if (range.length() > p.topk) chosen = top_positions(index_scores(p, b, t).score, p.topk);
    result.out_len[static_cast<std::size_t>(t)] = static_cast<int32_t>(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      result.out[static_cast<std::size_t>(t * p.topk) + i] = output_entry(p, b, t, range.first + chosen[i]);
    }
  }
  return result;
}

namespace {
void store_plain(const void* source, DType type, int64_t first, int64_t count, bool wide, std::byte* out) {
  for (int64_t d = 0; d < count; ++d) {
    const auto value = static_cast<float>(element(source, type, first + d));
    const bf16 narrow = to_bf16(value);
    if (wide) {
      std::memcpy(out + d * 4, &value, 4);
    } else {
      std::memcpy(out + d * 2, &narrow, 2);
    }
  }
}

float store_quantised(const void* source, DType type, int64_t first, int64_t count, ScaleMode mode,
                      QuantisedGroup group, std::byte* out) {
  float amax = 0;
  for (int64_t d = 0; d < count; ++d) amax = widen_amax(amax, static_cast<float>(element(source, type, first + d)));
  const float scale = group_scale(amax, mode, group);
  for (int64_t d = 0; d < count; ++d) {
    const e4m3 value = to_e4m3(static_cast<float>(element(source, type, first + d)) / scale);
    std::memcpy(out + d, &value, 1);
  }
  return scale;
}

void write_row(const CacheWriteProblem& p, const CacheWriteBuffers& b, int64_t token, std::byte* row) {
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  const bool wide = p.rows == RowFormat::f32;
  const int64_t first = token * b.latent_stride;
  if (p.rows == RowFormat::v32_fp8) {
    for (int64_t d = 0; d < p.d_nope; d += kLatentsPerScale) {
      const int64_t count = std::min<int64_t>(kLatentsPerScale, p.d_nope - d);
      const float scale =
          store_quantised(b.latent, p.activations, first + d, count, p.scale_mode, QuantisedGroup::latent, row + d);
      std::memcpy(row + layout.scales + d / kLatentsPerScale * 4, &scale, 4);
    }
  } else {
    store_plain(b.latent, p.activations, first, p.d_nope, wide, row);
  }
  if (p.d_rope > 0) store_plain(b.rope, p.activations, token * b.rope_stride, p.d_rope, wide, row + layout.rope);
}

void write_key(const CacheWriteProblem& p, const CacheWriteBuffers& b, int64_t token, int64_t slot) {
  std::byte* page = b.key_cache.data + slot / p.page_size * b.key_cache.page_stride_bytes;
  const int64_t offset = slot % p.page_size;
  const int64_t first = token * b.key_stride;
  if (p.keys != KeyFormat::fp8) {
    const bool wide = p.keys == KeyFormat::f32;
    store_plain(b.key, p.activations, first, p.index_dim, wide, page + offset * p.index_dim * (wide ? 4 : 2));
    return;
  }
  const float scale = store_quantised(b.key, p.activations, first, p.index_dim, p.scale_mode, QuantisedGroup::key,
                                      page + offset * p.index_dim);
  std::memcpy(page + p.page_size * p.index_dim + offset * 4, &scale, 4);
}
}  // namespace

void cache_write(const CacheWriteProblem& p, const CacheWriteBuffers& b) {
  for (int64_t t = 0; t < p.tokens; ++t) {
    std::byte* row = row_address(b.cache, p.page_size, b.slots(t));
    if (row == nullptr) continue;
    write_row(p, b, t, row);
    if (p.index_dim > 0) write_key(p, b, t, b.slots(t));
  }
}

std::vector<float> row_gather(const RowGatherProblem& p, const RowGatherBuffers& b) {
  const int64_t width = p.d_nope + p.d_rope;
  std::vector<double> values(static_cast<std::size_t>(p.slots * width), 0.0);
  for (int64_t i = 0; i < p.slots; ++i) {
    const std::byte* row = row_address(b.cache, p.page_size, b.slots(i));
    if (row != nullptr) decode_row(row, p.rows, p.d_nope, p.d_rope, values.data() + i * width);
  }
  return {values.begin(), values.end()};  // e4m3 times fp32: one rounding, as a float multiplication has
}

MergeResult merge(const MergeProblem& p, const MergeBuffers& b) {
  MergeResult result;
  const auto rows = static_cast<std::size_t>(p.tokens) * static_cast<std::size_t>(p.q_heads);
  result.out.assign(rows * static_cast<std::size_t>(p.d_v), 0.0);
  result.lse.assign(rows, -kInf);
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const auto row = static_cast<std::size_t>(t * p.q_heads + h);
      double top = -kInf, sum = 0;
      for (int64_t part = 0; part < p.parts; ++part) top = std::max<double>(top, b.part_lse(part, t, h));
      if (top == -kInf) continue;
      double* out = result.out.data() + row * static_cast<std::size_t>(p.d_v);
      for (int64_t part = 0; part < p.parts; ++part) {
        const double lse = b.part_lse(part, t, h);
        if (lse == -kInf) continue;
        const double weight = std::exp(lse - top);
        sum += weight;
        for (int64_t d = 0; d < p.d_v; ++d) out[d] += weight * static_cast<double>(b.part_out(part, t, h, d));
      }
      result.lse[row] = top + std::log(sum);
      const double factor = sink_factor(b.sink, h, result.lse[row]) / sum;
      for (int64_t d = 0; d < p.d_v; ++d) out[d] *= factor;
    }
  }
  return result;
}

}  // namespace winnow::oracle
