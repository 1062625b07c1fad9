// SPDX-License-Identifier: Apache-2.0
// Tiles of the sparse MLA kernels: numbers that the predicate, the launcher and the kernels read, so that none of them
// can disagree. Plain C++: compiled into every build and into device code.
//
// A team is `team_warps` warps that work on one token's slots, one tile of rows at a time, for eight heads a warp.
// Every warp of a team has the same share, whatever the size of the team: 8 heads of softmax, 72 registers of q,
// 128 registers of output. A CTA holds one or more teams, each with a share of the CTA's tiles. A spread tile is
// another thing: four warps share eight heads, see mla_spread.cuh.
#pragma once

#include <cstdint>

#include "contract/row_format.hpp"

namespace winnow::cuda {

inline constexpr int kLatents = 512;    // d_nope: the only width that the kernels are made for
inline constexpr int kRotated = 64;     // d_rope when there is one
inline constexpr int kScaleGroups = 4;  // groups of 128 latents with a scale of their own, v32_fp8
inline constexpr int kMaxStages = 4;    // ring of tiles in shared memory

// Bytes between rows in shared memory. 1152 would start every row in the same bank; 1168 and 656 start eight rows that
// follow each other in eight different groups of four banks, which is what ldmatrix reads at once.
[[nodiscard]] constexpr int row_pitch(RowFormat rows) { return rows == RowFormat::bf16 ? 1168 : 656; }

// Copies of the probabilities: v32_fp8 keeps one per scale group, with the row's scale multiplied in.
[[nodiscard]] constexpr int weight_copies(RowFormat rows) { return rows == RowFormat::bf16 ? 1 : kScaleGroups; }

// One row of the list of kernels: a compiled function and the run-time numbers of its launch.
struct MlaTile {
  const char* name;
  RowFormat rows;
  int team_warps;       // 1, 2, 4, 8: 8, 16, 32, 64 heads per CTA
  bool overlapped;      // scores of the next tile are computed before the values of this one
  int tile_rows;        // cache rows in one step
  int stages;           // tiles in the ring
  int teams;            // teams in a CTA
  int per_sm;           // CTAs that should be resident on one SM; the tile wants shared memory for all of them
  int only_sm = 0;      // the one compute capability that it is compiled for; 0: any from 80 on
  bool spread = false;  // for a few tokens: all warps of the team hold the same eight heads (mla_spread.cuh)
};

// The kernel of SM90 is laid out by itself (mla_bf16_h64_wgmma.cu).
inline constexpr int kWgmmaThreads = 384;
inline constexpr int kWgmmaSharedBytes = 231680;
[[nodiscard]] constexpr bool is_wgmma(const MlaTile& tile) { return tile.only_sm == 90; }

[[nodiscard]] constexpr int tile_rows_of(int team_warps) { return team_warps <= 2 ? 16 : 32; }
[[nodiscard]] constexpr int heads_of(const MlaTile& tile) { return tile.spread ? 8 : 8 * tile.team_warps; }
[[nodiscard]] constexpr int threads_of(const MlaTile& tile) {
  return is_wgmma(tile) ? kWgmmaThreads : 32 * tile.team_warps * tile.teams;
}

// Shared memory of one team, in this order: mailboxes, probabilities, rescale factors, valid masks, ring of row tiles.
// Everything but the length of the ring is known at compile time.
struct TeamLayout {
  int mail_warp;      // mailbox of one warp: partial scores from its peers, then (unless overlapped) its probabilities
  int mail_bytes;     // of all warps; two such buffers when overlapped
  int weights;        // offset of the probabilities
  int weights_warp;   // bytes between the probabilities of one warp and the next
  int weights_bytes;  // of all warps; two such buffers when overlapped
  int factors;        // offset of one float per head; twice when overlapped
  int valid;          // offset of kMaxStages masks
  int rope_q;         // offset of the rope part of q as fragments, where it is kept here
  int ring;           // offset of the first stage
  int stage_bytes;    // one tile of rows
};

// Where registers run out, the rope part of q (8 of its 72 registers) stays in shared memory; the tile of 64 heads for
// 99 KB has no room for it there.
[[nodiscard]] constexpr bool rope_q_in_shared(RowFormat rows, int team_warps, bool overlapped) {
  return team_warps == 4 || (team_warps == 8 && overlapped) || (team_warps == 1 && rows == RowFormat::v32_fp8);
}

// Where they run out even so, a warp posts the scores of its own heads too, instead of keeping them over the tile.
[[nodiscard]] constexpr bool posts_own_scores(RowFormat rows, int team_warps) {
  return team_warps == 4 && rows == RowFormat::bf16;
}

[[nodiscard]] constexpr TeamLayout team_layout(RowFormat rows, int team_warps, bool overlapped, int tile_rows) {
  const int slices = team_warps < 4 ? team_warps : 4;  // warps that share the dimensions of a row, and its scores
  const int buffers = overlapped ? 2 : 1;
  const int weights = weight_copies(rows) * tile_rows * 16;  // 8 heads in bf16 per row
  const int incoming = (slices - (posts_own_scores(rows, team_warps) ? 0 : 1)) * (tile_rows / 16) * 512;
  TeamLayout l{};
  // A single warp transposes its probabilities in registers and has no peers.
  l.mail_warp = team_warps == 1 ? 0 : overlapped || incoming > weights ? incoming : weights;
  l.mail_bytes = l.mail_warp * team_warps;
  const int mail_end = l.mail_bytes * buffers;
  l.weights = overlapped ? mail_end : 0;
  l.weights_warp = overlapped ? weights : l.mail_warp;
  l.weights_bytes = l.weights_warp * team_warps;
  l.factors = overlapped ? mail_end + l.weights_bytes * buffers : mail_end;
  l.valid = l.factors + 8 * team_warps * 4 * buffers;
  const int valid_end = (l.valid + kMaxStages * 4 + 15) / 16 * 16;
  l.rope_q = valid_end;
  const int rope_bytes = rope_q_in_shared(rows, team_warps, overlapped) ? team_warps * 1024 : 0;
  l.ring = (valid_end + rope_bytes + 127) / 128 * 128;
  l.stage_bytes = tile_rows * row_pitch(rows);
  return l;
}

// The same for a spread tile: mailboxes [warp][16 rows][fragment], masks, ring.
inline constexpr int kSpreadWarps = 4;
[[nodiscard]] constexpr TeamLayout spread_layout(RowFormat rows) {
  const int tile_rows = tile_rows_of(kSpreadWarps);
  TeamLayout l{};
  l.mail_warp = tile_rows / 16 * 512;
  l.mail_bytes = kSpreadWarps * l.mail_warp;
  l.valid = l.mail_bytes;
  l.ring = (l.valid + kMaxStages * 4 + 127) / 128 * 128;
  l.stage_bytes = tile_rows * row_pitch(rows);
  return l;
}

[[nodiscard]] constexpr int team_bytes_of(const MlaTile& t) {
  const TeamLayout l = t.spread ? spread_layout(t.rows) : team_layout(t.rows, t.team_warps, t.overlapped, t.tile_rows);
  return (l.ring + l.stage_bytes * t.stages + 127) / 128 * 128;
}

// Behind the teams: maximum, sum and output factor of every head and team, for the merge inside the CTA.
inline constexpr int kFinishBytesPerHead = 12;
[[nodiscard]] constexpr int64_t shared_bytes_of(const MlaTile& t) {
  if (is_wgmma(t)) return kWgmmaSharedBytes;
  return static_cast<int64_t>(t.teams) * (team_bytes_of(t) + heads_of(t) * kFinishBytesPerHead);
}

// The list, best first for its number of heads and row format. The first one that a device has room for is taken;
// spread tiles stand aside, plan_mla says when they are better.
// clang-format off
inline constexpr MlaTile kMlaTiles[] = {
    // name                 rows                warps overlap rows stages teams per_sm sm spread
    {"bf16.h8.spread",      RowFormat::bf16,    4,    false,  32,  1,     1,    1, 0, true},
    {"bf16.h8.spread.long", RowFormat::bf16,    4,    false,  32,  2,     1,    1, 0, true},
    {"fp8.h8.spread",       RowFormat::v32_fp8, 4,    false,  32,  1,     1,    1, 0, true},
    {"fp8.h8.spread.long",  RowFormat::v32_fp8, 4,    false,  32,  2,     1,    1, 0, true},
    {"bf16.h8.wide",        RowFormat::bf16,    1,    false,  16,  2,     3,    2},
    {"bf16.h8",             RowFormat::bf16,    1,    false,  16,  2,     2,    1},
    {"bf16.h16.wide",       RowFormat::bf16,    2,    false,  16,  2,     2,    2},
    {"bf16.h16",            RowFormat::bf16,    2,    false,  16,  2,     2,    1},
    {"bf16.h32.wide",       RowFormat::bf16,    4,    false,  32,  2,     1,    2},
    {"bf16.h32",            RowFormat::bf16,    4,    false,  32,  2,     1,    1},
#ifndef WINNOW_WITHOUT_SM90  // a build to try the portable kernels on a Hopper card
    {"bf16.h64.wgmma",      RowFormat::bf16,    8,    true,   32,  4,     1,    1, 90},
#endif
    {"bf16.h64.overlapped", RowFormat::bf16,    8,    true,   32,  4,     1,    1},
    {"bf16.h64",            RowFormat::bf16,    8,    false,  32,  2,     1,    1},
    {"fp8.h8.wide",         RowFormat::v32_fp8, 1,    false,  16,  2,     4,    2},
    {"fp8.h8",              RowFormat::v32_fp8, 1,    false,  16,  2,     4,    1},
    {"fp8.h16.wide",        RowFormat::v32_fp8, 2,    false,  16,  3,     2,    2},
    {"fp8.h16",             RowFormat::v32_fp8, 2,    false,  16,  3,     2,    1},
    {"fp8.h32.wide",        RowFormat::v32_fp8, 4,    false,  32,  3,     1,    2},
    {"fp8.h32",             RowFormat::v32_fp8, 4,    false,  32,  3,     1,    1},
    {"fp8.h64.overlapped",  RowFormat::v32_fp8, 8,    true,   32,  4,     1,    1},
    {"fp8.h64",             RowFormat::v32_fp8, 8,    false,  32,  3,     1,    1},
};
// clang-format on

// Every number of heads has a tile that fits the 99 KB of the parts with the least.
constexpr bool portable_tiles_fit() {
  for (const RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8}) {
    for (const int warps : {1, 2, 4, 8}) {
      bool fits = false;
      for (const MlaTile& t : kMlaTiles) {
        fits = fits || (t.rows == rows && t.team_warps == warps && !t.spread && t.per_sm == 1 &&
                        shared_bytes_of(t) <= 99 * 1024);
      }
      if (!fits) return false;
    }
  }
  return true;
}
static_assert(portable_tiles_fit());

// What the kernels are compiled for; two teams of several warps meet at barriers of their own.
constexpr bool rows_agree() {
  for (const MlaTile& t : kMlaTiles) {
    if (t.tile_rows != tile_rows_of(t.team_warps) || t.stages > kMaxStages) return false;
    if (t.teams > (t.team_warps == 1 ? 4 : t.team_warps == 2 ? 2 : 1)) return false;
    if (t.spread && (t.team_warps != kSpreadWarps || t.stages > 2)) return false;
  }
  return true;
}
static_assert(rows_agree());

// Teams of a CTA post their whole output, fp32, in the rings that they have emptied.
constexpr bool outputs_fit() {
  for (const MlaTile& t : kMlaTiles) {
    if (t.teams > 1 && team_bytes_of(t) < heads_of(t) * kLatents * 4) return false;
  }
  return true;
}
static_assert(outputs_fit());

// The merge of splits: a piece is some 16 columns of 8 heads (256 columns of one head where the first kernel is the
// wgmma one), and one, four or eight warps of a CTA share its splits.
inline constexpr int kMergeThreads = 256;
inline constexpr int kMergePiece = 2, kSpreadPiece = 1;  // times 16 columns
inline constexpr int kMaxSplits = 32;                    // of a tile that is not spread: more cost the merge too much
inline constexpr int kMostSplits = 64;
[[nodiscard]] constexpr int merge_ways_for(int splits) { return splits <= 4 ? 1 : splits <= 16 ? 4 : 8; }
// CTAs of the merge per token and head block.
[[nodiscard]] constexpr int merge_blocks_for(const MlaTile& tile, int splits) {
  const int columns = 16 * (tile.spread ? kSpreadPiece : kMergePiece);
  const int pieces = is_wgmma(tile) ? heads_of(tile) * 2 : heads_of(tile) / 8 * (kLatents / columns);
  return pieces * merge_ways_for(splits) / (kMergeThreads / 32);
}

// The kernels' arguments. Plain data, passed by value. Strides of q and out in elements, of rows in bytes.
struct MlaParams {
  const uint16_t* q;
  const uint8_t* rows;
  const int32_t* lists;
  const int32_t* lens;  // null: every list is topk long
  const float* sink;    // null: none
  uint16_t* out;
  float* lse;            // null: not wanted
  float* partial;        // [token, head block, split][8 * heads of a CTA][64] in fragment order, null when splits is 1
  float* partial_stats;  // [token, head block, split][heads of a CTA][2]: maximum in base 2, sum
  int64_t q_token_stride, q_head_stride;
  int64_t page_stride, row_stride;
  int64_t slots;  // pages * page_size, at most 2^31
  int64_t list_stride, len_stride, sink_stride;
  int64_t out_token_stride, out_head_stride;
  int64_t lse_token_stride, lse_head_stride;
  int32_t page_size;
  int32_t topk;
  int32_t q_heads, head_blocks, splits;
  int32_t teams, stages, team_bytes;
  int32_t has_rope;
  int32_t flat;        // pages lie without gaps: a row starts at slot * row_stride
  int32_t merge_ways;  // warps that share the splits of one piece of output in the merge
  int32_t d_v;
  float scale_log2e;
};

}  // namespace winnow::cuda
