// SPDX-License-Identifier: Apache-2.0
#include "conformance/mla_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contract/quantise.hpp"

namespace winnow::conformance {
namespace {
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kMinInt = std::numeric_limits<int32_t>::min();
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

e4m3 random_finite_code(Random& random) {
  const auto code = static_cast<uint8_t>(random.below(256));
  return {static_cast<uint8_t>((code & 0x7F) == 0x7F ? code ^ 1 : code)};
}

// One scale group of an fp8 row. The amplitude of a wide row's groups differs by 1000.
void fill_fp8_group(Random& random, std::byte* out, int64_t count, float* scale, const std::string& values,
                    int64_t group, float lift) {
  if (values == "edges") {  // subnormals, +-448 and both zeros among all codes; the scale is no power of two
    *scale = 0.0037f * (1.0f + random.uniform());
    for (int64_t d = 0; d < count; ++d) put(out + d, random_finite_code(random));
    return;
  }
  if (values == "zero" && random.below(2) == 0) {  // whatever the codes, the values are zero
    *scale = 0.0f;
    for (int64_t d = 0; d < count; ++d) put(out + d, random_finite_code(random));
    return;
  }
  const float amplitude = values == "wide" && group % 2 == 1 ? 1e-3f : 1.0f;
  std::vector<float> value(static_cast<std::size_t>(count));
  for (float& v : value) v = amplitude * random.normal();
  if (group == 0 && !std::isnan(lift)) value[0] = lift;
  float amax = 0;
  for (float v : value) amax = widen_amax(amax, v);
  const ScaleMode mode = values == "power_of_two" ? ScaleMode::power_of_two : ScaleMode::plain;
  *scale = group_scale(amax, mode, QuantisedGroup::latent);
  for (int64_t d = 0; d < count; ++d) put(out + d, to_e4m3(value[static_cast<std::size_t>(d)] / *scale));
}

float plain_value(Random& random, const std::string& values, int64_t d) {
  const float value = random.normal();
  if (values == "zero") return random.below(2) == 0 ? 0.0f : value;
  if (values == "wide") return d / kLatentsPerScale % 2 == 1 ? value * 1e-3f : value;
  if (values == "edges") return random.below(8) == 0 ? 0x1p-130f * value : value;  // subnormal in f32 and bf16
  return value;
}

void put_plain(std::byte* row, int64_t d, bool wide, float value) {
  if (wide) {
    put(row + d * 4, value);
  } else {
    put(row + d * 2, to_bf16(value));
  }
}
}  // namespace

Geometry geometry_of(const CaseSpec& spec) {
  const std::string& text = spec.word("geometry");
  const std::size_t plus = text.find('+');
  return {std::stoi(text.substr(0, plus)), std::stoi(text.substr(plus + 1))};
}

RowFormat row_format_of(const CaseSpec& spec) {
  const std::string& text = spec.word("rows");
  return text == "f32" ? RowFormat::f32 : text == "bf16" ? RowFormat::bf16 : RowFormat::v32_fp8;
}

KeyFormat key_format_of(const CaseSpec& spec) {
  const std::string& text = spec.word("keys");
  return text == "f32" ? KeyFormat::f32 : text == "bf16" ? KeyFormat::bf16 : KeyFormat::fp8;
}

DType dtype_of(const CaseSpec& spec, std::string_view key) {
  const std::string& text = spec.word(key);
  return text == "f32" ? DType::f32 : text == "bf16" ? DType::bf16 : DType::e4m3;
}

void fill_row(Random& random, std::byte* row, RowFormat format, Geometry geometry, const std::string& values,
              float lift) {
  const RowLayout layout = row_layout(format, geometry.d_nope, geometry.d_rope);
  const bool wide = format == RowFormat::f32;
  if (format == RowFormat::v32_fp8) {
    for (int64_t first = 0; first < geometry.d_nope; first += kLatentsPerScale) {
      const int64_t group = first / kLatentsPerScale;
      float scale = 0;
      fill_fp8_group(random, row + first, std::min<int64_t>(kLatentsPerScale, geometry.d_nope - first), &scale, values,
                     group, lift);
      put(row + layout.scales + group * 4, scale);
    }
  } else {
    for (int64_t d = 0; d < geometry.d_nope; ++d) put_plain(row, d, wide, plain_value(random, values, d));
    if (!std::isnan(lift)) put_plain(row, 0, wide, lift);
  }
  for (int64_t d = 0; d < geometry.d_rope; ++d) put_plain(row + layout.rope, d, wide, random.normal());
}

Pool add_pool(Image& image, Role role, RowFormat format, Geometry geometry, int64_t page_size, int64_t slots,
              bool padded, bool far) {
  Pool pool;
  const int64_t bytes = row_bytes(format, geometry.d_nope, geometry.d_rope);
  const int64_t pages = ceil_div(slots, page_size);
  pool.rows.row_stride_bytes = padded ? round_up(bytes, 16) + 16 : bytes;
  pool.rows.page_stride_bytes = page_size * pool.rows.row_stride_bytes + (padded ? 64 : 0);
  pool.rows.pages = pages;
  pool.rows.data = image.add("cache", role, pages * pool.rows.page_stride_bytes);
  if (far) {
    const int64_t missing = ceil_div(int64_t{3} << 30, pool.rows.page_stride_bytes);
    pool.rows.data = image.alias(pool.rows.data, missing * pool.rows.page_stride_bytes);
    pool.rows.pages += missing;
    pool.first_slot = missing * page_size;
  }
  pool.slots = pool.rows.pages * page_size;
  return pool;
}

HeadTensor add_heads(Image& image, const char* name, Role role, DType type, int64_t tokens, int64_t heads,
                     int64_t width, const std::string& strides) {
  HeadTensor tensor;
  tensor.head_stride = strides == "padded" ? width + 8 : width;
  tensor.token_stride = heads * tensor.head_stride + (strides == "padded" ? 24 : 0);
  if (strides == "heads_outside") {
    tensor.token_stride = width;
    tensor.head_stride = tokens * width;
  }
  const int64_t elements = std::max(tokens * tensor.token_stride, heads * tensor.head_stride);
  tensor.data = image.add(name, role, tokens == 0 ? 0 : elements * bytes_of(type));
  return tensor;
}

void store_element(const HeadTensor& tensor, DType type, int64_t index, float value) {
  std::byte* at = static_cast<std::byte*>(tensor.data) + index * bytes_of(type);
  switch (type) {
    case DType::bf16: put(at, to_bf16(value)); break;
    case DType::e4m3: put(at, to_e4m3(value)); break;
    default: put(at, value); break;
  }
}

TensorView<const float> add_sink(Image& image, Random& random, const CaseSpec& spec, int32_t heads) {
  const std::string& kind = spec.word("sink");
  if (kind == "none") return {};
  auto* sink = image.add_array<float>("sink", Role::input, heads);
  for (int32_t h = 0; h < heads; ++h) {
    const float logit = 4.0f * random.normal();
    sink[h] = kind == "zero" ? 0.0f : kind == "per_head" ? logit : std::numeric_limits<float>::infinity();
    if (kind == "neg_inf") sink[h] = -sink[h];
  }
  return TensorView<const float>(sink, {heads});
}

std::vector<double> take_heads(const HeadTensor& tensor, DType type, int64_t tokens, int64_t heads, int64_t width) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tokens * heads * width));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t base = t * tensor.token_stride + h * tensor.head_stride;
      for (int64_t d = 0; d < width; ++d) values.push_back(oracle::element(tensor.data, type, base + d));
      std::memset(static_cast<std::byte*>(tensor.data) + base * bytes_of(type), 0xFF,
                  static_cast<std::size_t>(width * bytes_of(type)));
    }
  }
  return values;
}

std::vector<double> take_matrix(const TensorView<float>& view) {
  std::vector<double> values;
  for (int64_t i = 0; i < view.size(0); ++i) {
    for (int64_t j = 0; j < view.size(1); ++j) {
      values.push_back(view(i, j));
      std::memset(&view(i, j), 0xFF, sizeof(float));
    }
  }
  return values;
}

std::string leftovers(const Image& image, const std::string& name) {
  const Block& block = image.block(name);
  for (int64_t i = 0; i < block.bytes; ++i) {
    if (block.data()[i] != std::byte{0xFF}) return concat(name, ": byte ", i, " between its rows was written; ");
  }
  return {};
}

Result<std::unique_ptr<Case>> MlaCase::build(const CaseSpec& spec) {
  auto made = std::make_unique<MlaCase>(spec);
  WINNOW_TRY(check(made->problem, made->buffers).in(spec.name()));
  return std::unique_ptr<Case>(std::move(made));
}

MlaCase::MlaCase(const CaseSpec& spec) : Case(spec), random_(hash_bytes(spec.given.data(), spec.given.size())) {
  const Geometry geometry = geometry_of(spec);
  SparseMlaProblem& p = problem;
  p.tokens = static_cast<int32_t>(spec.integer("tokens"));
  p.q_heads = static_cast<int32_t>(spec.integer("heads"));
  p.topk = static_cast<int32_t>(spec.integer("topk"));
  p.page_size = static_cast<int32_t>(spec.integer("page_size"));
  p.d_nope = geometry.d_nope;
  p.d_rope = geometry.d_rope;
  p.d_v = spec.integer("d_v") > 0 ? static_cast<int32_t>(spec.integer("d_v")) : geometry.d_nope;
  p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(p.d_qk()));
  p.rows = row_format_of(spec);
  p.activations = dtype_of(spec, "act");
  const std::string& strides = spec.word("strides");
  const bool padded = strides == "padded";
  const int64_t slots = spec.integer("slots") > 0 ? spec.integer("slots") : 3 * std::max(p.topk, 1) + 1;
  pool_ = add_pool(image_, Role::input, p.rows, geometry, p.page_size, slots, padded, spec.word("far") == "yes");
  buffers.cache = pool_.rows;
  const int64_t stride = p.topk + (padded ? 4 : 0);
  slots_data_ = image_.add_array<int32_t>("topk_slots", Role::input, p.tokens * stride);
  buffers.topk_slots = TensorView<const int32_t>(slots_data_, {p.tokens, p.topk});
  buffers.topk_slots.strides[0] = stride;
  if (spec.word("len") != "none") {
    auto* lengths = image_.add_array<int32_t>("topk_len", Role::input, p.tokens);
    buffers.topk_len = TensorView<const int32_t>(lengths, {p.tokens});
    fill_lengths(lengths);
  }
  fill_lists(slots_data_, stride);
  buffers.q = add_heads(image_, "q", Role::input, p.activations, p.tokens, p.q_heads, p.d_qk(), strides);
  fill_q();
  buffers.sink = add_sink(image_, random_, spec, p.q_heads);
  buffers.out = add_heads(image_, "out", Role::output, p.activations, p.tokens, p.q_heads, p.d_v, strides);
  if (spec.word("lse") == "yes") {
    const int64_t lse_stride = p.q_heads + (padded ? 4 : 0);
    buffers.lse =
        TensorView<float>(image_.add_array<float>("lse", Role::output, p.tokens * lse_stride), {p.tokens, p.q_heads});
    buffers.lse.strides[0] = lse_stride;
  }
  image_.seal();
  oracle::MlaResult result = oracle::sparse_mla(p, buffers);
  expected = {std::move(result.out), buffers.lse.empty() ? std::vector<double>() : std::move(result.lse)};
  magnitude = std::move(result.magnitude);
}

int64_t MlaCase::length(int64_t token) const {
  return buffers.topk_len.empty() ? problem.topk : std::clamp<int64_t>(buffers.topk_len(token), 0, problem.topk);
}

void MlaCase::fill_lengths(int32_t* lengths) {
  // Around the tiles of 16, 32 and 64 rows that kernels use, around topk, and what no caller should send.
  const int32_t topk = problem.topk;
  const int32_t mixed[] = {0, 1, 15, 16, 17, 31, 33, 63, 64, 65, topk - 1, topk, topk + 1, -3, kMinInt, kMaxInt, 2};
  for (int32_t t = 0; t < problem.tokens; ++t) {
    lengths[t] = spec_.word("len") == "mixed" ? mixed[t % static_cast<int32_t>(std::size(mixed))]
                                              : static_cast<int32_t>(spec_.integer("len"));
  }
}

// What the kind of list leaves of `list`, which begins with topk valid slots.
void MlaCase::make_list(int64_t token, std::vector<int32_t>& list) {
  const std::string& kind = spec_.word("list");
  const auto third = static_cast<std::ptrdiff_t>(list.size() / 3);
  const auto erase = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::fill(list.begin() + first, list.begin() + last, -1);
  };
  const auto size = static_cast<std::ptrdiff_t>(list.size());
  if (size == 0) return;
  if (kind == "empty") erase(0, size);
  if (kind == "hole_head") erase(0, third + 1);
  if (kind == "hole_middle") erase(third, size - third);
  if (kind == "hole_tail") erase(size - third - 1, size);
  if (kind == "last_only") erase(0, size - 1);
  if (kind == "same") std::fill(list.begin(), list.end(), list[0]);
  if (kind == "ascending") std::sort(list.begin(), list.end());
  if (kind == "duplicates") {
    for (auto& slot : list) slot = list[static_cast<std::size_t>(random_.below((size + 3) / 4))];
  }
  if (kind == "wild") {
    const int32_t slots = static_cast<int32_t>(std::min<int64_t>(pool_.slots, kMaxInt));
    const int32_t strange[] = {-1, kMinInt, kMaxInt, slots, slots + 1, -2, kMinInt + 1, slots + 1000000};
    for (auto& slot : list) {
      if (random_.below(2) == 0) slot = strange[random_.below(8)];
    }
  }
  if (kind == "mixed") {  // padded batch: full, empty, one row at the end, one in the middle, and again
    if (token % 4 == 1) erase(0, size);
    if (token % 4 == 2) erase(0, size - 1);
    if (token % 4 == 3) erase(0, size / 2), erase(size / 2 + 1, size);
  }
}

void MlaCase::fill_lists(int32_t* out, int64_t stride) {
  // The pool's last slot stays NaN and stands wherever a list must not be read.
  const auto trap = static_cast<int32_t>(pool_.slots - 1);
  const int64_t usable = pool_.slots - 1 - pool_.first_slot;
  std::vector<int32_t> all(static_cast<std::size_t>(std::max<int64_t>(usable, 1)));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<int32_t>(pool_.first_slot + static_cast<int64_t>(i));
  std::vector<bool> listed(static_cast<std::size_t>(pool_.slots - pool_.first_slot), false);
  for (int64_t t = 0; t < problem.tokens; ++t) {
    std::vector<int32_t> list(static_cast<std::size_t>(problem.topk));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::size_t at = i % all.size();  // a partial shuffle: distinct while the pool lasts
      std::swap(all[at], all[at + static_cast<std::size_t>(random_.below(static_cast<int64_t>(all.size() - at)))]);
      list[i] = all[at];
    }
    make_list(t, list);
    for (int64_t i = 0; i < problem.topk; ++i) {
      const int32_t slot = i < length(t) ? list[static_cast<std::size_t>(i)] : trap;
      out[t * stride + i] = slot;
      if (slot >= pool_.first_slot && slot < trap) listed[static_cast<std::size_t>(slot - pool_.first_slot)] = true;
    }
  }
  fill_rows(listed);
}

void MlaCase::fill_rows(const std::vector<bool>& listed) {
  const std::string& scores = spec_.word("scores");
  const Geometry geometry = geometry_of(spec_);
  const int64_t count = static_cast<int64_t>(listed.size());
  const int64_t peak = count == 0 ? 0 : random_.below(count);
  for (int64_t i = 0; i < count; ++i) {
    if (!listed[static_cast<std::size_t>(i)]) continue;
    float lift = kNaN;
    if (scores == "peaky") lift = i % 64 == peak % 64 ? 16.0f : 0.5f;  // q is 16 there: one row in 64 takes nearly all
    if (scores == "constant") lift = 1.0f;
    if (scores == "increasing") lift = 8.0f * static_cast<float>(i) / static_cast<float>(count);
    std::byte* row = oracle::row_address(buffers.cache, problem.page_size, pool_.first_slot + i);
    fill_row(random_, row, problem.rows, geometry, spec_.word("values"), lift);
  }
}

bool MlaCase::is_empty(int64_t token) const {
  for (int64_t i = 0; i < length(token); ++i) {
    const int64_t slot = buffers.topk_slots(token, i);
    if (slot >= 0 && slot < pool_.slots) return false;
  }
  return true;
}

void MlaCase::fill_q() {
  const std::string& scores = spec_.word("scores");
  const std::string& kind = spec_.word("q");
  for (int64_t t = 0; t < problem.tokens; ++t) {
    const bool poisoned_token = kind == "nan_empty" && is_empty(t);
    for (int64_t h = 0; h < problem.q_heads; ++h) {
      for (int64_t d = 0; d < problem.d_qk(); ++d) {
        float value = random_.normal();
        if (scores == "huge") value *= 1e4f;
        if (scores == "zero") value = 0.0f;
        if (scores == "constant") value = d == 0 ? 3.0f : 0.0f;
        if ((scores == "peaky" || scores == "increasing") && d == 0) value = 16.0f;
        if (poisoned_token || (kind == "nan_head" && h == 0)) value = kNaN;
        if (kind == "inf_head" && h == 0 && d % 7 == 0) value = std::numeric_limits<float>::infinity();
        store_element(buffers.q, problem.activations, t * buffers.q.token_stride + h * buffers.q.head_stride + d,
                      value);
      }
    }
  }
}

Tolerance MlaCase::tolerance() const {
  // f32: sums of up to a few thousand products, each rounded at 2^-24, in any order.
  if (problem.activations == DType::f32) {
    return {.relative = 0x1p-17, .of_rms = 0x1p-17, .diff = 1e-10, .lse = 1e-5, .score = 0x1p-21};
  }
  // bf16 out is rounded by up to 2^-8 of itself, and P may be rounded to bf16 before it meets V. The errors of P are
  // independent per row, up to 2^-8 and 0.42 * 2^-8 on average (root mean square), so that the error of an element is
  // about normal with 0.42 * 2^-8 of the rms of its group: 3 * 2^-8 is seven deviations, for millions of elements. What
  // one row in a thousand would change is several times that. diff looks at the average error: 3e-6 for many rows, and
  // 9e-6 at the most where one row dominates and P and out are both off by 2^-8. Tensor cores cut the low bits of their
  // sums: the share of the score.
  return {.relative = 0x1p-7, .of_rms = 3 * 0x1p-8, .diff = 9e-6, .lse = 1e-5, .score = 0x1p-19};
}

std::string MlaCase::compare(const Target&) {
  AttentionValues got;
  got.out = take_heads(buffers.out, problem.activations, problem.tokens, problem.q_heads, problem.d_v);
  if (!buffers.lse.empty()) got.lse = take_matrix(buffers.lse);
  std::string found =
      compare_attention({problem.tokens, problem.q_heads, problem.d_v}, expected, got, magnitude, tolerance());
  found += leftovers(image_, "out");
  if (!buffers.lse.empty()) found += leftovers(image_, "lse");
  return found;
}

Result<std::unique_ptr<Case>> GatherCase::build(const CaseSpec& spec) {
  auto made = std::make_unique<GatherCase>(spec);
  WINNOW_TRY(check(made->problem, made->buffers).in(spec.name()));
  return std::unique_ptr<Case>(std::move(made));
}

GatherCase::GatherCase(const CaseSpec& spec) : Case(spec) {
  Random random(hash_bytes(spec.given.data(), spec.given.size()));
  const Geometry geometry = geometry_of(spec);
  problem = {.slots = static_cast<int32_t>(spec.integer("slots")),
             .d_nope = geometry.d_nope,
             .d_rope = geometry.d_rope,
             .page_size = static_cast<int32_t>(spec.integer("page_size")),
             .rows = row_format_of(spec)};
  const bool padded = spec.word("strides") == "padded";
  const Pool pool =
      add_pool(image_, Role::input, problem.rows, geometry, problem.page_size, problem.slots + 20, padded, false);
  buffers.cache = pool.rows;
  auto* slots = image_.add_array<int32_t>("slots", Role::input, problem.slots);
  const int32_t strange[] = {-1, kMinInt, kMaxInt, static_cast<int32_t>(pool.slots), -7};
  for (int32_t i = 0; i < problem.slots; ++i) {
    slots[i] = static_cast<int32_t>(random.below(spec.word("list") == "duplicates" ? 3 : pool.slots));
    fill_row(random, oracle::row_address(pool.rows, problem.page_size, slots[i]), problem.rows, geometry,
             spec.word("values"), kNaN);
  }
  for (int32_t i = 0; i < problem.slots && spec.word("list") == "wild"; ++i) {
    if (random.below(2) == 0) slots[i] = strange[random.below(5)];
  }
  buffers.slots = TensorView<const int32_t>(slots, {problem.slots});
  const int64_t width = geometry.d_nope + geometry.d_rope;
  const int64_t stride = width + (padded ? 8 : 0);
  buffers.out =
      TensorView<float>(image_.add_array<float>("out", Role::output, problem.slots * stride), {problem.slots, width});
  buffers.out.strides[0] = stride;
  image_.seal();
  expected = oracle::row_gather(problem, buffers);
}

std::string GatherCase::compare(const Target&) {
  const std::vector<double> got = take_matrix(buffers.out);
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Exact: one float product. Subnormal products may be flushed to zero by a device.
    const double want = expected[i];
    if (got[i] == want || (std::isnan(want) && std::isnan(got[i]))) continue;
    if (std::abs(want) < 0x1p-126 && got[i] == 0) continue;
    const int64_t width = buffers.out.size(1);
    return concat("out[row ", static_cast<int64_t>(i) / width, ", column ", static_cast<int64_t>(i) % width, "] is ",
                  got[i], ", wants ", want);
  }
  return leftovers(image_, "out");
}

}  // namespace winnow::conformance
