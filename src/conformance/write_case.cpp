// SPDX-License-Identifier: Apache-2.0
#include "conformance/write_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "conformance/mla_case.hpp"
#include "contract/element_types.hpp"

namespace winnow::conformance {
namespace {
float value_of(Random& random, const std::string& values, int64_t token) {
  const float normal = random.normal();
  if (values == "zero") return token % 2 == 0 ? 0.0f : normal;
  if (values == "tiny") return normal * 1e-7f;  // below the floors of the scales
  if (values == "huge") return normal * 1e30f;
  if (values == "ties") {  // halfway between neighbours of e4m3 and of bf16 once the amax is 448
    return random.below(20) == 0 ? 448.0f : (static_cast<float>(random.below(256)) + 0.5f) * 0.0625f;
  }
  if (values == "nonfinite") {
    const int64_t pick = random.below(60);
    if (pick == 0) return std::numeric_limits<float>::quiet_NaN();
    if (pick == 1 && token % 2 == 0) return std::numeric_limits<float>::infinity();
  }
  return normal;
}

// Rows of `width` activations, NaN between them when padded.
const void* add_source(Image& image, const char* name, DType type, int64_t tokens, int64_t width, int64_t stride,
                       Random& random, const std::string& values) {
  HeadTensor tensor{image.add(name, Role::input, tokens * stride * bytes_of(type)), stride, 0};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t d = 0; d < width; ++d) store_element(tensor, type, t * stride + d, value_of(random, values, t));
  }
  return tensor.data;
}
}  // namespace

Result<std::unique_ptr<Case>> WriteCase::build(const CaseSpec& spec) {
  auto made = std::make_unique<WriteCase>(spec);
  WINNOW_TRY(check(made->problem, made->buffers).in(spec.name()));
  return std::unique_ptr<Case>(std::move(made));
}

WriteCase::WriteCase(const CaseSpec& spec) : Case(spec) {
  Random random(hash_bytes(spec.given.data(), spec.given.size()));
  const Geometry geometry = geometry_of(spec);
  CacheWriteProblem& p = problem;
  p.tokens = static_cast<int32_t>(spec.integer("tokens"));
  p.d_nope = geometry.d_nope;
  p.d_rope = geometry.d_rope;
  p.index_dim = static_cast<int32_t>(spec.integer("index_dim"));
  p.page_size = static_cast<int32_t>(spec.integer("page_size"));
  p.rows = row_format_of(spec);
  p.keys = key_format_of(spec);
  p.scale_mode = spec.word("mode") == "plain" ? ScaleMode::plain : ScaleMode::power_of_two;
  p.activations = dtype_of(spec, "act");
  const bool padded = spec.word("strides") == "padded";
  const int64_t gap = padded ? 8 : 0;
  const std::string& values = spec.word("values");
  buffers.latent_stride = p.d_nope + gap;
  buffers.rope_stride = p.d_rope + gap;
  buffers.key_stride = p.index_dim + gap;
  buffers.latent =
      add_source(image_, "latent", p.activations, p.tokens, p.d_nope, buffers.latent_stride, random, values);
  buffers.rope = add_source(image_, "rope", p.activations, p.tokens, p.d_rope, buffers.rope_stride, random, values);
  if (p.index_dim > 0) {
    buffers.key = add_source(image_, "key", p.activations, p.tokens, p.index_dim, buffers.key_stride, random, values);
  }
  const Pool pool = add_pool(image_, Role::cache, p.rows, geometry, p.page_size, 2 * p.tokens + 3, padded, false);
  buffers.cache = pool.rows;
  if (p.index_dim > 0) {
    buffers.key_cache.pages = pool.rows.pages;
    buffers.key_cache.page_stride_bytes = key_page_bytes(p.keys, p.page_size, p.index_dim) + (padded ? 64 : 0);
    buffers.key_cache.data =
        image_.add("key_cache", Role::cache, pool.rows.pages * buffers.key_cache.page_stride_bytes);
  }
  auto* slots = image_.add_array<int32_t>("slots", Role::input, p.tokens);
  std::vector<int32_t> all(static_cast<std::size_t>(pool.slots));
  std::iota(all.begin(), all.end(), 0);
  const int32_t strange[] = {-1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(),
                             static_cast<int32_t>(pool.slots), -9};
  for (int32_t t = 0; t < p.tokens; ++t) {  // distinct slots: which of two equal ones wins is not said
    const auto at = static_cast<std::size_t>(t);
    std::swap(all[at], all[at + static_cast<std::size_t>(random.below(pool.slots - t))]);
    slots[t] = all[at];
    if (spec.word("slots") == "wild" && random.below(2) == 0) slots[t] = strange[random.below(5)];
    if (spec.word("slots") == "none") slots[t] = -1;
  }
  buffers.slots = TensorView<const int32_t>(slots, {p.tokens});
  image_.seal();
  oracle::cache_write(p, buffers);  // into the image; begin_run() puts the first content back
  const Block& rows = image_.block("cache");
  expected_rows.assign(rows.data(), rows.data() + rows.bytes);
  if (p.index_dim > 0) {
    const Block& key_block = image_.block("key_cache");
    expected_keys.assign(key_block.data(), key_block.data() + key_block.bytes);
  }
  image_.begin_run();
}

namespace {
std::string compare_elements(const char* what, int64_t token, const std::byte* got, const std::byte* want, DType type,
                             int64_t count) {
  for (int64_t d = 0; d < count; ++d) {
    const int64_t bytes = bytes_of(type);
    if (std::memcmp(got + d * bytes, want + d * bytes, static_cast<std::size_t>(bytes)) == 0) continue;
    const double g = oracle::element(got, type, d), w = oracle::element(want, type, d);
    if (std::isnan(g) && std::isnan(w)) continue;
    return concat(what, " of token ", token, ", element ", d, " is ", g, ", wants ", w);
  }
  return {};
}
}  // namespace

std::string WriteCase::compare_row(int64_t token, int64_t slot) {
  const RowLayout layout = row_layout(problem.rows, problem.d_nope, problem.d_rope);
  std::byte* got = oracle::row_address(buffers.cache, problem.page_size, slot);
  const std::byte* want = expected_rows.data() + (got - image_.block("cache").data());
  std::string found = compare_elements("scales", token, got + layout.scales, want + layout.scales, DType::f32,
                                       (layout.rope - layout.scales) / 4);
  if (found.empty()) found = compare_elements("latent", token, got, want, latent_type(problem.rows), problem.d_nope);
  if (found.empty()) {
    found =
        compare_elements("rope", token, got + layout.rope, want + layout.rope, rope_type(problem.rows), problem.d_rope);
  }
  std::memcpy(got, want, static_cast<std::size_t>(layout.bytes));
  return found;
}

std::string WriteCase::compare_key(int64_t token, int64_t slot) {
  const int64_t page = slot / problem.page_size * buffers.key_cache.page_stride_bytes;
  const int64_t offset = slot % problem.page_size;
  const DType type = key_type(problem.keys);
  const int64_t first = page + offset * problem.index_dim * bytes_of(type);
  const int64_t scale = page + problem.page_size * problem.index_dim + offset * 4;
  std::byte* got = buffers.key_cache.data;
  const std::byte* want = expected_keys.data();
  std::string found = compare_elements("key", token, got + first, want + first, type, problem.index_dim);
  std::memcpy(got + first, want + first, static_cast<std::size_t>(problem.index_dim) * bytes_of(type));
  if (problem.keys != KeyFormat::fp8) return found;
  if (found.empty()) found = compare_elements("key scale", token, got + scale, want + scale, DType::f32, 1);
  std::memcpy(got + scale, want + scale, 4);
  return found;
}

std::string WriteCase::compare(const Target&) {
  for (int64_t t = 0; t < problem.tokens; ++t) {
    const int64_t slot = buffers.slots(t);
    if (oracle::row_address(buffers.cache, problem.page_size, slot) == nullptr) continue;
    if (std::string found = compare_row(t, slot); !found.empty()) return found;
    if (problem.index_dim == 0) continue;
    if (std::string found = compare_key(t, slot); !found.empty()) return found;
  }
  const auto differs = [](const std::byte* got, const std::vector<std::byte>& want) {
    return !std::equal(want.begin(), want.end(), got);
  };
  if (differs(image_.block("cache").data(), expected_rows))
    return "latent pool: bytes outside the written rows changed";
  if (problem.index_dim > 0 && differs(image_.block("key_cache").data(), expected_keys)) {
    return "key pool: bytes outside the written keys changed";
  }
  return {};
}

}  // namespace winnow::conformance
