// SPDX-License-Identifier: Apache-2.0
// The registry and the choice of an attention path. Host only, no CUDA header.
//
// A path, not a kernel, is admitted: cache writer, index selection, prefill attention and decode attention are chosen
// together for one row format and one key format, from rows of the table in order of preference for the device.
// Nothing here changes anything: a refused need goes back to the caller, who decides what to give up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/backend.hpp"

namespace winnow {

// Every backend, in order of preference within its device kind: the table of select/table.cpp with plug-ins in front
// of or behind the rows of their device kind, as they ask. The one visible list. The span is good until the next
// plug-in is loaded.
[[nodiscard]] std::span<const Backend* const> all_backends();
[[nodiscard]] const Backend* find_backend(std::string_view name);

// The same rows in the order in which this device tries them: its family's list, then rows that run elsewhere.
[[nodiscard]] std::vector<const Backend*> in_order_for(const DeviceInfo& device);

// Adds a row whose memory lives until the process ends. preferred: in front of the rows of its device kind, otherwise
// behind them. invalid_argument: no name, a name taken, an operation with one of its two functions.
[[nodiscard]] Status add_backend(const Backend& backend, bool preferred);

// Loads an out-of-tree backend from a shared library that exports winnow_backend_v1 (include/winnow/winnow.h).
// Errors: io_error (cannot load), not_found (no such symbol), invalid_argument (wrong ABI version, a missing function,
// a name already taken). Call before other threads use the registry.
[[nodiscard]] Status load_backend_plugin(const std::string& path);

// This machine: CPUs that the affinity mask allows, memory that the control group allows, bandwidth measured and
// arithmetic derived from the measured clock in about 30 ms, once per process.
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
  Verdict verdict;  // "built" and "device" are refusals like any other
};

struct PathStep {
  std::string operation;               // "cache write", "index select", "prefill attention", "decode attention"
  std::vector<Considered> considered;  // in order of preference; rows that do not offer the operation are left out
  const Backend* chosen = nullptr;     // first admitted, or null
  LaunchFacts launch;
};

struct AttentionPath {
  AttentionNeeds needs;
  DeviceInfo device;
  std::string forced;                // empty: free choice
  bool ignore_absence = false;       // true: what would be chosen if everything were built
  std::vector<const Backend*> rows;  // that were asked, in order
  std::vector<PathStep> steps;
  [[nodiscard]] bool admitted() const;  // every step has a chosen backend
  [[nodiscard]] const PathStep& step(std::string_view operation) const;
};

// forced: empty, or the backend that every step it offers must take. invalid_argument when no backend has that name
// (the valid names are listed). A forced backend that refuses leaves its step without a choice.
[[nodiscard]] Result<AttentionPath> choose_path(const AttentionNeeds& needs, const DeviceInfo& device,
                                                std::string_view forced = {}, bool ignore_absence = false);

// The same over rows of the caller, in their order.
[[nodiscard]] Result<AttentionPath> choose_path_among(std::span<const Backend* const> rows, const AttentionNeeds& needs,
                                                      const DeviceInfo& device, std::string_view forced = {},
                                                      bool ignore_absence = false);

// One reason as a clause: "q_heads: wants 1 to 128, has 200".
[[nodiscard]] std::string clause(const Refusal& refusal);
// "32 heads per block, 64 rows per tile, 2 stages, 4 splits, 89 KB shared memory (portable mma.sync)"
[[nodiscard]] std::string describe(const LaunchFacts& launch);
// "NVIDIA L4 (sm_89)", "8x NVIDIA RTX PRO 6000 (sm_120)", "AMD EPYC 9654 (64 cores)"
[[nodiscard]] std::string describe(const DeviceInfo& device);

// The explanation: one line for each row and step.
[[nodiscard]] std::string explain(const AttentionPath& path);
// One line for each operation (or operations that fail alike) without a choice, with every row's reasons.
[[nodiscard]] std::vector<std::string> premises_of_refusal(const AttentionPath& path);
// Single changes of the needs, the build, the device or the forced choice, each of which was tried and gives a path.
[[nodiscard]] std::vector<std::string> changes_that_help(const AttentionPath& path);
// Why there is no path, as a proof: because ... and because ..., no path exists; these changes would give one.
// Empty when the path is admitted.
[[nodiscard]] std::string why_no_path(const AttentionPath& path);

}  // namespace winnow
