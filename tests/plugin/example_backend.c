/* SPDX-License-Identifier: Apache-2.0 */
/* An out-of-tree backend in plain C: sparse MLA over bf16 rows with float32 activations, one scalar loop.
 *
 * It is the example of docs/add_a_backend.md and the good plug-in of plugin_test.cpp. It offers one operation; cache
 * write and index selection stay with the rows of the table. Compile it with nothing of Winnow but winnow.h:
 *   cc -shared -fPIC -I include example_backend.c -o example_backend.so -lm
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "winnow/winnow.h"

enum { MAX_WIDTH = 2048 }; /* elements of a row that fit the scratch on the stack */

static void need(winnow_verdict* verdict, int holds, const char* what, const char* wanted, int32_t found) {
  char text[32];
  if (holds) return;
  snprintf(text, sizeof(text), "%d", (int)found);
  winnow_refuse(verdict, what, wanted, text);
}

/* Facts in, verdict out: every reason, not the first. */
static void admits(void* self, const winnow_mla_problem* problem, const winnow_device_info* device,
                   winnow_verdict* verdict) {
  (void)self;
  need(verdict, device->kind == WINNOW_DEVICE_CPU, "device kind", "0 (CPU)", device->kind);
  need(verdict, problem->rows == WINNOW_ROWS_BF16, "row format", "1 (bf16)", problem->rows);
  need(verdict, problem->activations == WINNOW_F32, "activations", "0 (f32)", problem->activations);
  need(verdict, problem->q_heads >= 1 && problem->q_heads <= 16, "q_heads", "1 to 16", problem->q_heads);
  need(verdict, problem->d_nope + problem->d_rope <= MAX_WIDTH, "row width", "at most 2048",
       problem->d_nope + problem->d_rope);
  if (verdict->refusals > 0) return;
  verdict->launch.heads_per_block = 1;
  verdict->launch.rows_per_tile = 1;
  snprintf(verdict->launch.note, sizeof(verdict->launch.note), "scalar C, out of tree");
}

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

/* The row of a slot, or null when the slot is empty or out of range; offsets in 64 bits. */
static const uint16_t* row_of(const winnow_mla_problem* problem, const winnow_paged_rows* cache, int32_t slot) {
  if (slot < 0 || slot >= cache->pages * problem->page_size) return NULL;
  return (const uint16_t*)((const char*)cache->data + slot / problem->page_size * cache->page_stride_bytes +
                           slot % problem->page_size * cache->row_stride_bytes);
}

/* One head of one token by online softmax: the running maximum rescales what was summed so far. */
static float one_head(const winnow_mla_problem* problem, const winnow_paged_rows* cache, const float* q,
                      const int32_t* slots, int32_t len, float sink, float* out) {
  float maximum = -INFINITY, sum = 0;
  const int32_t width = problem->d_nope + problem->d_rope;
  memset(out, 0, sizeof(float) * (size_t)problem->d_v);
  for (int32_t i = 0; i < len; ++i) {
    const uint16_t* row = row_of(problem, cache, slots[i]);
    if (!row) continue;
    float score = 0;
    for (int32_t d = 0; d < width; ++d) score += q[d] * from_bf16(row[d]);
    score *= problem->softmax_scale;
    const float higher = score > maximum ? score : maximum;
    const float keep = maximum == -INFINITY ? 0 : expf(maximum - higher);
    const float weight = expf(score - higher);
    sum = sum * keep + weight;
    for (int32_t d = 0; d < problem->d_v; ++d) out[d] = out[d] * keep + weight * from_bf16(row[d]);
    maximum = higher;
  }
  if (sum == 0) return -INFINITY; /* no valid slot: out stays 0 */
  const float lse = maximum + logf(sum);
  const float share = 1 / (sum * (1 + expf(sink - lse)));
  for (int32_t d = 0; d < problem->d_v; ++d) out[d] *= share;
  return lse;
}

static winnow_status run(void* self, const winnow_mla_problem* problem, const winnow_mla_buffers* buffers,
                         const winnow_device_info* device, const winnow_execution* execution, winnow_message* message) {
  (void)self, (void)device, (void)execution;
  if (buffers->struct_size < sizeof(winnow_mla_buffers)) {
    snprintf(message->text, sizeof(message->text),
             "buffers have %u bytes, wants %u: the host is older than this library", buffers->struct_size,
             (unsigned)sizeof(winnow_mla_buffers));
    return WINNOW_INVALID_ARGUMENT;
  }
  for (int64_t t = 0; t < problem->tokens; ++t) {
    int32_t len = buffers->topk_len ? buffers->topk_len[t] : problem->topk;
    if (len > problem->topk) len = problem->topk;
    for (int64_t h = 0; h < problem->q_heads; ++h) {
      const float* q = (const float*)buffers->q.data + t * buffers->q.token_stride + h * buffers->q.head_stride;
      float* out = (float*)buffers->out.data + t * buffers->out.token_stride + h * buffers->out.head_stride;
      const float sink = buffers->sink ? buffers->sink[h] : -INFINITY;
      const float lse =
          one_head(problem, &buffers->cache, q, buffers->topk_slots + t * buffers->topk_slots_stride, len, sink, out);
      if (buffers->lse) buffers->lse[t * buffers->lse_stride + h] = lse;
    }
  }
  return WINNOW_OK;
}

WINNOW_EXPORT const winnow_backend* winnow_backend_v1(uint32_t host_abi_version) {
  static winnow_backend row;
  if (host_abi_version != WINNOW_ABI_VERSION) return NULL;
  row.struct_size = sizeof(row);
  row.abi_version = WINNOW_ABI_VERSION;
  row.name = "cpu.example";
  row.device_kind = WINNOW_DEVICE_CPU;
  row.flags = WINNOW_BACKEND_PREFERRED;
  row.admits_mla = admits;
  row.run_mla = run;
  return &row;
}
