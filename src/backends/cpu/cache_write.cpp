// SPDX-License-Identifier: Apache-2.0
// Cache writer of the CPU backends: one token at a time, tokens over threads. Memory traffic is a few KB a token, so
// plain loops do; what matters is that the bytes are those of contract/quantise.hpp.
#include <algorithm>
#include <cstring>

#include "backends/cpu/admission.hpp"
#include "backends/cpu/decode.hpp"
#include "contract/quantise.hpp"
#include "core/threads.hpp"

namespace winnow::cpu {
namespace {

// Elements [first, first + count) of a tensor of activations.
struct Source {
  const void* data;
  DType type;
  int64_t first;
  [[nodiscard]] float operator[](int64_t d) const { return element(data, type, first + d); }
};

void store(const Source& source, int64_t count, DType type, std::byte* out) {
  if (source.type == type) {
    const int64_t bytes = bytes_of(type);
    std::memcpy(out, static_cast<const std::byte*>(source.data) + source.first * bytes,
                static_cast<std::size_t>(count * bytes));
    return;
  }
  for (int64_t d = 0; d < count; ++d) {
    const float value = source[d];
    const bf16 narrow = to_bf16(value);
    if (type == DType::f32) {
      std::memcpy(out + d * 4, &value, 4);
    } else {
      std::memcpy(out + d * 2, &narrow, 2);
    }
  }
}

float quantise(const Source& source, int64_t count, ScaleMode mode, QuantisedGroup group, std::byte* out) {
  float amax = 0;
  for (int64_t d = 0; d < count; ++d) amax = widen_amax(amax, source[d]);
  const float scale = group_scale(amax, mode, group);
  for (int64_t d = 0; d < count; ++d) out[d] = static_cast<std::byte>(to_e4m3(source[d] / scale).bits);
  return scale;
}

void write_row(const CacheWriteProblem& p, const CacheWriteBuffers& b, int64_t token, std::byte* row) {
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  const DType plain = rope_type(p.rows);
  const int64_t first = token * b.latent_stride;
  if (p.rows == RowFormat::v32_fp8) {
    for (int64_t d = 0; d < p.d_nope; d += kLatentsPerScale) {
      const float scale =
          quantise({b.latent, p.activations, first + d}, std::min<int64_t>(kLatentsPerScale, p.d_nope - d),
                   p.scale_mode, QuantisedGroup::latent, row + d);
      std::memcpy(row + layout.scales + d / kLatentsPerScale * 4, &scale, 4);
    }
  } else {
    store({b.latent, p.activations, first}, p.d_nope, plain, row);
  }
  if (p.d_rope > 0) store({b.rope, p.activations, token * b.rope_stride}, p.d_rope, plain, row + layout.rope);
}

void write_key(const CacheWriteProblem& p, const CacheWriteBuffers& b, int64_t token, int64_t slot) {
  std::byte* page = b.key_cache.data + slot / p.page_size * b.key_cache.page_stride_bytes;
  const int64_t offset = slot % p.page_size;
  const Source source{b.key, p.activations, token * b.key_stride};
  if (p.keys != KeyFormat::fp8) {
    const DType type = key_type(p.keys);
    store(source, p.index_dim, type, page + offset * p.index_dim * bytes_of(type));
    return;
  }
  const float scale = quantise(source, p.index_dim, p.scale_mode, QuantisedGroup::key, page + offset * p.index_dim);
  std::memcpy(page + p.page_size * p.index_dim + offset * 4, &scale, 4);
}

}  // namespace

Status run_write(const Backend& backend, const CacheWriteProblem& p, const CacheWriteBuffers& b,
                 const DeviceInfo& device, const Execution&) {
  WINNOW_TRY(refused(backend.name, admits_write(backend, p, device)));
  WINNOW_TRY(check(p, b));
  parallel_for(p.tokens, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      std::byte* row = row_of(b.cache, p.page_size, b.slots(t));
      if (row == nullptr) continue;
      write_row(p, b, t, row);
      if (p.index_dim > 0) write_key(p, b, t, b.slots(t));
    }
  });
  return Status();
}

}  // namespace winnow::cpu
