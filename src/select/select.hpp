// SPDX-License-Identifier: Apache-2.0
// The registry and the choice of an attention path. Host only, no CUDA header.
//
// A path, not a kernel, is admitted: cache writer, index selection, prefill attention and decode attention are chosen
// together for one row format and one key format, from rows of the table in order of preference for the device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/backend.hpp"

namespace winnow {

// Every backend, in order of preference within its device kind: the table of select/table.cpp, then loaded plug-ins
// (which come first when they ask to). The one visible list.
[[nodiscard]] std::span<const Backend* const> all_backends();
[[nodiscard]] const Backend* find_backend(std::string_view name);

// Loads an out-of-tree backend from a shared library that exports winnow_backend_v1 (include/winnow/winnow.h) and adds
// it in front of the rows of its device kind. Errors: io_error (cannot load), invalid_argument (wrong ABI version,
// a missing function, a name already taken).
[[nodiscard]] Status load_backend_plugin(const std::string& path);

// This machine.
[[nodiscard]] DeviceInfo host_cpu();

// What attention of one model needs, for all layers alike.
struct AttentionNeeds {
  int32_t q_heads = 0, d_nope = 0, d_rope = 0, d_v = 0;
  int32_t topk = 0;                        // index_topk, or the context for a model without an indexer
  int32_t index_heads = 0, index_dim = 0;  // 0: no indexer
  float softmax_scale = 1.0f;
  int32_t page_size = 64;
  int32_t decode_tokens = 1;     // query tokens of a decode step
  int32_t prefill_tokens = 512;  // query tokens of a prefill step
  int64_t context = 0;
  DType activations = DType::bf16;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
};

struct Considered {
  const Backend* backend = nullptr;
  Verdict verdict;  // "built" and "device kind" are refusals like any other
};

struct PathStep {
  std::string operation;              // "cache write", "index select", "prefill attention", "decode attention"
  std::vector<Considered> considered; // in order of preference
  const Backend* chosen = nullptr;    // first admitted, or null
  LaunchFacts launch;
};

struct AttentionPath {
  AttentionNeeds needs;
  DeviceInfo device;
  std::vector<PathStep> steps;
  [[nodiscard]] bool admitted() const;  // every step has a chosen backend
  [[nodiscard]] const PathStep& step(std::string_view operation) const;
};

// forced: empty, or the backend that every step it offers must take. invalid_argument when no backend has that name
// (the valid names are listed). A forced backend that refuses leaves its step without a choice.
[[nodiscard]] Result<AttentionPath> choose_path(const AttentionNeeds& needs, const DeviceInfo& device,
                                                std::string_view forced = {}, bool ignore_absence = false);

// The explanation, one line a row, as in docs/architecture.md; and why there is no path, as a proof.
[[nodiscard]] std::string explain(const AttentionPath& path);
[[nodiscard]] std::string why_no_path(const AttentionPath& path);

}  // namespace winnow
