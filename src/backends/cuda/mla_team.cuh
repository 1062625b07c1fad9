// SPDX-License-Identifier: Apache-2.0
// Steps of sparse MLA for one team of warps. mla_kernel.cuh and mla_spread.cuh string them together.
//
// Roles inside a team of W warps (8 W heads):
//   scores   W = 1, 2, 4: warp w takes the 1/W slice w of the dimensions of every row, for all heads. W = 8: two groups
//            of four such warps, 32 heads each. A warp owns 8 heads: their partial scores stay in its registers, those
//            of the other heads go to their owners' mailboxes, in fragment order (16-byte accesses, no bank conflicts).
//   softmax  the owner adds the slices in fixed order and holds maximum and sum of its 8 heads.
//   values   warp w takes 512 / W columns of the output for all heads; probabilities come from the owners' mailboxes.
#pragma once

#include "backends/cuda/mla_rows.cuh"

namespace winnow::cuda {

// The running maximum follows the true one only when that is more than 2^8 above it: the output is then rescaled a few
// times per token and not at nearly every tile. Probabilities up to 2^8 lose nothing in bf16 or fp32.
inline constexpr float kRescaleAbove = 8.0f;

template <class RowT, int kTeamWarps, bool kOverlapped>
struct Shape {
  using Row = RowT;
  static constexpr int kWarps = kTeamWarps;
  static constexpr int kHeads = 8 * kWarps;
  static constexpr int kTileRows = tile_rows_of(kWarps);
  static constexpr int kTilesM = kTileRows / 16;
  static constexpr int kSlices = kWarps < 4 ? kWarps : 4;
  static constexpr int kTilesN = kSlices;  // groups of 8 heads whose scores a warp computes
  static constexpr int kNopeSteps = 32 / kSlices, kRopeSteps = 4 / kSlices;
  static constexpr int kColumns = kLatents / kWarps;
  static constexpr int kOutM = kColumns / 16, kOutN = kWarps;
  static constexpr int kCopies = weight_copies(Row::kFormat);
  static constexpr int kWarpCopies = kCopies == 1  ? 1
                                     : kWarps == 1 ? 4
                                     : kWarps == 2 ? 2
                                                   : 1;           // scale groups of a warp's columns
  static constexpr int kRowsPerGroup = kTileRows / (4 * kWarps);  // rows that eight lanes copy
  // Place in the owner's mailbox of the n-th group's scores of 16 rows.
  static __device__ __forceinline__ constexpr int box_of(int n, int m) {
    return ((n - kFirstPosted) * kTilesM + m) * 512;
  }
  // The same, seen by the warp `at` that posts them: an offset among all mailboxes.
  template <class At>
  static __device__ __forceinline__ uint32_t posted_at(const At& at, int n, int m) {
    return at.owner(n) * kMailWarp + box_of(n, m);
  }
  static constexpr bool kOverlap = kOverlapped;
  static constexpr bool kOneTeam = kWarps >= 4;  // per CTA
  static constexpr bool kRopeShared = rope_q_in_shared(Row::kFormat, kWarps, kOverlapped);
  static constexpr bool kPostsOwn = posts_own_scores(Row::kFormat, kWarps);
  static constexpr int kFirstPosted = kPostsOwn ? 0 : 1;  // of the groups of 8 heads that a warp scores
  // Rows of 16 whose scores a warp computes side by side: two halve the exposed latency and want 16 registers more.
  static constexpr int kScoreUnroll = kPostsOwn ? 1 : kTilesM;
  static constexpr int kValueRing = kOverlapped   ? 4
                                    : kWarps >= 4 ? 1
                                                  : 2;  // fragments asked for ahead, as registers allow
  static constexpr int kSideBySide = kOverlapped && Row::kFormat == RowFormat::bf16 ? kTilesM : 1;
  static constexpr TeamLayout kLayout = team_layout(Row::kFormat, kWarps, kOverlapped, kTileRows);
  static constexpr int kMailWarp = kLayout.mail_warp, kWeightsWarp = kLayout.weights_warp;
};

template <class S>
struct Query {
  uint32_t nope[S::kNopeSteps][S::kTilesN][2];
  uint32_t rope[S::kRopeShared ? 1 : S::kRopeSteps][S::kRopeShared ? 1 : S::kTilesN][2];
};

template <class S>
struct Output {
  float o[S::kOutM][S::kOutN][4];
};

struct Softmax {
  float max[2];  // of heads 2t, 2t + 1 of the warp's eight, base 2, shared by the lanes of a column
  float sum[2];  // of this lane's rows only
};

// Where this thread stands. Addresses are in shared memory and are worked out where they are used: kept in registers
// over the whole loop they would be the ones that do not fit.
template <class S>
struct Place {
  int lane, warp, team;  // warp inside the team
  uint32_t base;         // of the team's shared memory

  __device__ __forceinline__ Place(uint32_t shared, int team_bytes) {
    const int cta_warp = uniform(threadIdx.x >> 5);
    lane = threadIdx.x & 31;
    team = S::kOneTeam ? 0 : cta_warp / S::kWarps;
    warp = S::kOneTeam ? cta_warp : cta_warp % S::kWarps;
    base = shared + team * team_bytes;
  }
  // The same, but the compiler cannot know: what follows from it is computed again instead of kept.
  [[nodiscard]] __device__ __forceinline__ Place again() const {
    Place p = *this;
    asm volatile("" : "+r"(p.lane));
    if constexpr (!S::kOneTeam) asm volatile("" : "+r"(p.base));  // a single team's is a uniform register
    return p;
  }
  // The same for the place among the warps, and what q's slices follow from.
  [[nodiscard]] __device__ __forceinline__ Place again_with_warp() const {
    Place p = again();
    asm volatile("" : "+r"(p.warp));
    return p;
  }
  __device__ __forceinline__ int g() const { return lane >> 2; }
  __device__ __forceinline__ int t() const { return lane & 3; }
  __device__ __forceinline__ int slice() const { return warp % S::kSlices; }
  // Owner of the n-th group of eight heads that this warp scores; its own come first, so that which registers hold
  // them is known at compile time.
  __device__ __forceinline__ int owner(int n) const {
    return S::kHeads == 8 ? 0 : warp - slice() + (slice() + n) % S::kSlices;
  }

  __device__ __forceinline__ uint32_t mail(int buffer) const { return base + buffer * S::kLayout.mail_bytes; }
  __device__ __forceinline__ uint32_t weights(int buffer) const {
    return base + S::kLayout.weights + buffer * S::kLayout.weights_bytes;
  }
  __device__ __forceinline__ uint32_t factors(int buffer) const {
    return base + S::kLayout.factors + buffer * S::kHeads * 4;
  }
  __device__ __forceinline__ uint32_t valid(int stage) const { return base + S::kLayout.valid + stage * 4; }
  __device__ __forceinline__ uint32_t stage(int i) const { return base + S::kLayout.ring + i * S::kLayout.stage_bytes; }
  __device__ __forceinline__ uint32_t rope_q() const { return base + S::kLayout.rope_q + warp * 1024 + lane * 16; }
  // This lane's part of 16 rows, as ldmatrix wants it: row lane % 16, 16 bytes lane / 16.
  __device__ __forceinline__ uint32_t fragment() const { return (lane & 15) * S::Row::kPitch + (lane >> 4) * 16; }
};

template <class S>
__device__ __forceinline__ void team_barrier(int team) {
  if constexpr (S::kWarps == 1)
    __syncwarp();
  else
    barrier(1 + team, 32 * S::kWarps);
}

// Barrier among the warps that exchange scores. Eight warps form two such groups, and then they are the only team.
template <class S>
__device__ __forceinline__ void owners_barrier(int team, int warp) {
  if constexpr (S::kWarps == 8)
    barrier(2 + (warp >> 2), 128);
  else
    team_barrier<S>(team);
}

// Slot of this lane's row of a tile, -1 when it does not count.
template <class S>
__device__ __forceinline__ int32_t load_slot(const MlaParams& p, int token, int tile, int end, int lane) {
  const int i = tile * S::kTileRows + lane;
  asm volatile("" : "+r"(token));  // the address of the list is worked out here, not kept in two registers
  return lane < S::kTileRows && i < end ? __ldg(p.lists + token * p.list_stride + i) : -1;
}

// Starts the copy of one tile into a stage and notes which of its rows count. Every warp of the team holds the same
// slots, lane by lane; eight lanes copy a row, 128 bytes at a time.
template <class S>
__device__ __forceinline__ void gather(const MlaParams& p, const Place<S>& at, int stage, int32_t slot) {
  const bool counts = slot >= 0 && slot < p.slots;
  const uint32_t mask = __ballot_sync(~0u, counts);
  int64_t offset = 0;
  if (counts) {
    if (p.flat) {
      offset = slot * p.row_stride;
    } else {
      const uint32_t page = static_cast<uint32_t>(slot) / static_cast<uint32_t>(p.page_size);
      offset = page * p.page_stride + (static_cast<uint32_t>(slot) - page * p.page_size) * p.row_stride;
    }
  }
  if (at.lane == 0 && at.warp == 0) store_shared(at.valid(stage), mask);
  const int chunks = p.has_rope ? S::Row::kChunks : S::Row::kChunksNoRope;
  const int first = at.lane & 7;
  const uint32_t to = at.stage(stage) + first * 16;
#pragma unroll
  for (int i = 0; i < S::kRowsPerGroup; ++i) {
    const int row = at.warp * 4 + (at.lane >> 3) + i * 4 * S::kWarps;
    const bool read = (mask >> row) & 1;
    const uint8_t* from = p.rows + __shfl_sync(~0u, offset, row) + first * 16;
    const uint32_t row_to = to + row * S::Row::kPitch;
#pragma unroll
    for (int c = 0; c < S::Row::kChunks; c += 8) {
      if (c + 8 <= S::Row::kChunksNoRope || c + first < chunks) copy_16(row_to + c * 16, from + c * 16, read);
    }
  }
}

template <class S>
__device__ __forceinline__ void load_query(const MlaParams& p, const Place<S>& at, Query<S>& q, int64_t token,
                                           int head_block) {
  const int latent = at.slice() * (kLatents / S::kSlices);
  const int rope = kLatents + at.slice() * (kRotated / S::kSlices);
#pragma unroll
  for (int n = 0; n < S::kTilesN; ++n) {
    const int head = head_block * S::kHeads + at.owner(n) * 8 + at.g();
    const bool valid = head < p.q_heads;
    const uint16_t* q_head = p.q + token * p.q_token_stride + (valid ? head : 0) * p.q_head_stride;
#pragma unroll
    for (int k = 0; k < S::kNopeSteps; k += 2) {
      S::Row::load_q(q.nope[k][n], q.nope[k + 1][n], q_head, latent + k * 16, at.t(), valid);
    }
#pragma unroll
    for (int k = 0; k < S::kRopeSteps; ++k) {
      const uint32_t* dims = reinterpret_cast<const uint32_t*>(q_head + rope + k * 16) + at.t();
      const bool read = valid && p.has_rope;
      const uint32_t low = read ? __ldg(dims) : 0, high = read ? __ldg(dims + 4) : 0;
      if constexpr (S::kRopeShared) {
        const int f = k * S::kTilesN + n;
        store_shared(at.rope_q() + (f >> 1) * 512 + (f & 1) * 8,
                     make_float2(__uint_as_float(low), __uint_as_float(high)));
      } else {
        q.rope[k][n][0] = low, q.rope[k][n][1] = high;
      }
    }
  }
}

// Rows without a rope part have zeros in its place, so that scores need no branch. Before the first tile.
template <class S>
__device__ __forceinline__ void clear_rope(const MlaParams& p, const Place<S>& at) {
  if (p.has_rope) return;
  constexpr int kWords = (S::Row::kChunks - S::Row::kChunksNoRope) * 4;
  const int words = p.stages * S::kTileRows * kWords;
  for (int i = at.warp * 32 + at.lane; i < words; i += S::kWarps * 32) {
    store_shared(at.stage(0) + i / kWords * S::Row::kPitch + S::Row::kRopeOffset + i % kWords * 4, 0u);
  }
}

// Scores of one tile over this warp's slice: own heads into `own`, the others into mailboxes.
template <class S>
__device__ __forceinline__ void score(const Place<S>& at, const Query<S>& q, int stage, float (&own)[S::kTilesM][4],
                                      int buffer = 0) {
  const uint32_t mail = at.mail(buffer);
  const uint32_t tile = at.stage(stage);
  const int latent = at.slice() * (kLatents / S::kSlices);
  const uint32_t at_latents = at.fragment() + latent * S::Row::kBytesPerLatent;
  const uint32_t at_rope = at.fragment() + S::Row::kRopeOffset + at.slice() * (kRotated / S::kSlices) * 2;
  uint32_t at_scales = 0;
  if constexpr (S::Row::kScaled) at_scales = at.g() * S::Row::kPitch + S::Row::kScaleOffset + latent / 128 * 4;
  const auto rope_q = [&](int step, uint32_t(&b)[S::kTilesN][2]) {
    if constexpr (S::kRopeShared) {
      if constexpr (S::kTilesN == 1) {
        const float2 v = load_shared_float2(at.rope_q() + (step >> 1) * 512 + (step & 1) * 8);
        b[0][0] = __float_as_uint(v.x), b[0][1] = __float_as_uint(v.y);
      } else {
#pragma unroll
        for (int n = 0; n < S::kTilesN; n += 2) {
          const float4 v = load_shared_float4(at.rope_q() + n * 256);
          b[n][0] = __float_as_uint(v.x), b[n][1] = __float_as_uint(v.y);
          b[n + 1][0] = __float_as_uint(v.z), b[n + 1][1] = __float_as_uint(v.w);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < S::kTilesN; ++n) b[n][0] = q.rope[step][n][0], b[n][1] = q.rope[step][n][1];
    }
  };
#pragma unroll(S::kScoreUnroll)
  for (int first = 0; first < S::kTilesM; first += S::kSideBySide) {
    if (first > 0) __syncwarp();  // keeps ptxas from asking for all fragments of the tile at once, and spilling
    const uint32_t rows = tile + first * 16 * S::Row::kPitch;
    float s[S::kSideBySide][S::kTilesN][4] = {};
    S::Row::template scores<S::kSideBySide, S::kNopeSteps, S::kRopeSteps, S::kTilesN>(
        s, rows + at_latents, rows + at_rope, rows + at_scales, q.nope, rope_q);
    const Place<S> late = S::kOverlap ? at : at.again_with_warp();  // owners are worked out now, not kept
#pragma unroll
    for (int side = 0; side < S::kSideBySide; ++side) {
      const int m = first + side;
      if constexpr (!S::kPostsOwn) {
#pragma unroll
        for (int i = 0; i < 4; ++i) own[m][i] = s[side][0][i];
      }
#pragma unroll
      for (int n = S::kFirstPosted; n < S::kTilesN; ++n) {
        store_shared(mail + S::posted_at(late, n, m) + late.lane * 16, s[side][n]);
      }
    }
  }
}

// Adds the peers' partial scores to this warp's own.
template <class S>
__device__ __forceinline__ void collect(const Place<S>& at, int buffer, float (&own)[S::kTilesM][4]) {
  const uint32_t mail = at.mail(buffer) + at.warp * S::kMailWarp + at.lane * 16;
  if constexpr (S::kPostsOwn) {
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) own[m][0] = own[m][1] = own[m][2] = own[m][3] = 0;
  }
#pragma unroll
  for (int n = S::kFirstPosted; n < S::kTilesN; ++n) {
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) {
      const float4 v = load_shared_float4(mail + S::box_of(n, m));
      own[m][0] += v.x, own[m][1] += v.y, own[m][2] += v.z, own[m][3] += v.w;
    }
  }
}

// Scores to probabilities, in place, and the factors by which earlier output shrinks.
template <class S>
__device__ __forceinline__ void softmax(const Place<S>& at, Softmax& state, uint32_t mask, float scale_log2e,
                                        float (&s)[S::kTilesM][4], float (&factor)[2]) {
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int m = 0; m < S::kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool counts = (mask >> (m * 16 + at.g() + (i >> 1) * 8)) & 1;
      s[m][i] = counts ? s[m][i] * scale_log2e : -INFINITY;
      top[i & 1] = fmaxf(top[i & 1], s[m][i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], step));
    const float before = state.max[h];
    const float now = top[h] > before + kRescaleAbove ? top[h] : before;
    const float origin = now == -INFINITY ? 0.0f : now;  // nothing seen yet: every exponential below is 0
    factor[h] = now == before ? 1.0f : exp2_fast(before - now);
    state.max[h] = now;
    float sum = 0;
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) {
#pragma unroll
      for (int i = h; i < 4; i += 2) {
        s[m][i] = exp2_fast(s[m][i] - origin);
        sum += s[m][i];
      }
    }
    state.sum[h] = state.sum[h] * factor[h] + sum;
  }
}

// Factor that a row's scale of one group puts on its probabilities; 1 for unscaled rows.
template <class S>
__device__ __forceinline__ float weight_factor(const Place<S>& at, int stage, int row, int group) {
  if constexpr (!S::Row::kScaled)
    return 1.0f;
  else {
    const uint32_t scales = at.stage(stage) + row * S::Row::kPitch + Fp8Rows::kScaleOffset;
    return load_shared_float(scales + group * 4) * kTwo60;
  }
}

// Probabilities of this warp's heads for its peers: [group][row][8 heads], bf16. Factors: one per head.
template <class S>
__device__ __forceinline__ void post_weights(const Place<S>& at, int stage, int buffer, const float (&p)[S::kTilesM][4],
                                             const float (&factor)[2]) {
  const uint32_t factors = at.factors(buffer);
  const uint32_t mine = at.weights(buffer) + at.warp * S::kWeightsWarp + at.t() * 4;
  if constexpr (!S::kOverlap) __syncwarp();  // the mailbox is written over: all lanes have collected what was in it
#pragma unroll
  for (int m = 0; m < S::kTilesM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8 + at.g();
#pragma unroll
      for (int c = 0; c < S::kCopies; ++c) {
        const float f = weight_factor<S>(at, stage, row, c);
        store_shared(mine + (c * S::kTileRows + row) * 16, pack_bf16(p[m][half * 2] * f, p[m][half * 2 + 1] * f));
      }
    }
  }
  if (at.g() == 0) store_shared(factors + (at.warp * 8 + at.t() * 2) * 4, make_float2(factor[0], factor[1]));
}

template <class S>
__device__ __forceinline__ void rescale(const Place<S>& at, int buffer, Output<S>& out) {
  const uint32_t factors = at.factors(buffer);
  bool changed = false;
#pragma unroll
  for (int h = 0; h < S::kHeads; h += 32) {
    if (h + at.lane < S::kHeads) changed |= load_shared_float(factors + (h + at.lane) * 4) != 1.0f;
  }
  if (!__any_sync(~0u, changed)) return;
#pragma unroll
  for (int n = 0; n < S::kOutN; ++n) {
    const float2 f = load_shared_float2(factors + (n * 8 + at.t() * 2) * 4);
#pragma unroll
    for (int m = 0; m < S::kOutM; ++m) {
      out.o[m][n][0] *= f.x, out.o[m][n][1] *= f.y, out.o[m][n][2] *= f.x, out.o[m][n][3] *= f.y;
    }
  }
}

// Output += values * probabilities for 16 rows of the tile and the columns of scale group c of this warp.
template <class S>
__device__ __forceinline__ void accumulate_group(uint32_t rows, int c, const uint32_t (&b)[S::kOutN][2],
                                                 Output<S>& out) {
  constexpr int kTilesPerGroup = S::kOutM / S::kWarpCopies;
  const uint32_t columns = rows + c * kTilesPerGroup * 16 * S::Row::kBytesPerLatent;
  if constexpr (S::Row::kScaled) {
#pragma unroll
    for (int m = 0; m < kTilesPerGroup; m += 2) {
      uint32_t a[2][4];
      S::Row::values(a[0], a[1], columns + m * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < S::kOutN; ++n) multiply_add(out.o[c * kTilesPerGroup + m + half][n], a[half], b[n]);
      }
    }
  } else {
    constexpr int kRing = S::kValueRing;
    uint32_t a[kRing][4];
#pragma unroll
    for (int m = 0; m < kRing - 1; ++m) load_matrices_transposed(a[m], columns + m * 32);
#pragma unroll
    for (int m = 0; m < kTilesPerGroup; ++m) {
      if (m + kRing - 1 < kTilesPerGroup) {
        load_matrices_transposed(a[(m + kRing - 1) % kRing], columns + (m + kRing - 1) * 32);
      }
#pragma unroll
      for (int n = 0; n < S::kOutN; ++n) multiply_add(out.o[m][n], a[m % kRing], b[n]);
    }
  }
}

// The whole tile, probabilities from the mailboxes.
template <class S>
__device__ __forceinline__ void accumulate(const Place<S>& at, int stage, int buffer, Output<S>& out) {
  const uint32_t weights = at.weights(buffer);
  static_assert(S::kWarps > 1);
  const uint32_t tile = at.stage(stage) + S::Row::value_lane(at.lane) + at.warp * S::kColumns * S::Row::kBytesPerLatent;
  const uint32_t lane_offset = (at.lane >> 4) * S::kWeightsWarp + (at.lane & 15) * 16;
  const int first_copy = S::kCopies == 1 ? 0 : at.warp * S::kColumns / 128;
#pragma unroll(S::kOverlap && !S::Row::kScaled \
                   ? S::kTilesM                \
                   : 1)  // not unrolled, the loads of one step cannot pile up in registers
  for (int k = 0; k < S::kTilesM; ++k) {
#pragma unroll
    for (int c = 0; c < S::kWarpCopies; ++c) {
      uint32_t b[S::kOutN][2];
#pragma unroll
      for (int n = 0; n < S::kOutN; n += 2) {
        uint32_t r[4];
        load_matrices_transposed(
            r, weights + n * S::kWeightsWarp + ((first_copy + c) * S::kTileRows + k * 16) * 16 + lane_offset);
        b[n][0] = r[0], b[n][1] = r[1], b[n + 1][0] = r[2], b[n + 1][1] = r[3];
      }
      accumulate_group<S>(tile + k * 16 * S::Row::kPitch, c, b, out);
    }
  }
}

// The same where a warp holds all heads of its team: probabilities are transposed in registers and never leave it.
template <class S>
__device__ __forceinline__ void accumulate_alone(const Place<S>& at, int stage, const float (&p)[S::kTilesM][4],
                                                 const float (&factor)[2], Output<S>& out) {
  static_assert(S::kHeads == 8);
  if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
    for (int m = 0; m < S::kOutM; ++m) {
      out.o[m][0][0] *= factor[0], out.o[m][0][1] *= factor[1], out.o[m][0][2] *= factor[0],
          out.o[m][0][3] *= factor[1];
    }
  }
  const uint32_t tile = at.stage(stage) + S::Row::value_lane(at.lane) + at.warp * S::kColumns * S::Row::kBytesPerLatent;
  const int first_group = at.warp * S::kColumns / 128;
#pragma unroll
  for (int k = 0; k < S::kTilesM; ++k) {
    const int row = k * 16 + at.g();
#pragma unroll
    for (int c = 0; c < S::kWarpCopies; ++c) {
      const float low = weight_factor<S>(at, stage, row, first_group + c),
                  high = weight_factor<S>(at, stage, row + 8, first_group + c);
      const uint32_t b[1][2] = {{transpose_matrix(pack_bf16(p[k][0] * low, p[k][1] * low)),
                                 transpose_matrix(pack_bf16(p[k][2] * high, p[k][3] * high))}};
      accumulate_group<S>(tile + k * 16 * S::Row::kPitch, c, b, out);
    }
  }
}

}  // namespace winnow::cuda
