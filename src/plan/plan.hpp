// SPDX-License-Identifier: Apache-2.0
// Plan: from headers and a device, real or described, what will run, what goes where, how far and how fast.
// Reads no tensor data. The same plan stands behind `winnow plan`, `--dry-run` and every load.
//
// Memory counts what is allocated: weights as stored, the paged cache in whole pages, scratch of the forward pass, and
// a reserve for what the driver and the system keep (512 MiB and 3 % of a device). Layers are split over devices in
// order; the embedding stands with the first, the output head with the last.
//
// Speed is a ceiling from bytes and operations at the device's rates, not a measurement: the formulas are in
// traffic.hpp, and the bound that gives the number is named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contract/device_info.hpp"
#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"
#include "select/select.hpp"

namespace winnow {

// "this" (host CPU), "8x rtx-pro-6000", "h200", "cpu:64 cores, 512 GB, 400 GB/s". Named devices stand in
// plan/devices.json. invalid_argument lists the known names, or says which part of a description is wrong.
[[nodiscard]] Result<DeviceInfo> parse_device(std::string_view text);
// Names that parse_device knows, in the order of the file.
[[nodiscard]] std::vector<std::string> device_names();

struct PlanOptions {
  int64_t context = 0;    // 0: the model's own, cut to what fits
  int32_t sequences = 1;  // that decode side by side, each with the whole context
  int32_t step_tokens = 512;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  std::string attention;  // forced backend
  bool dense = false;     // ignore the indexer
};

struct DeviceShare {
  int32_t device = 0;
  int64_t first_layer = 0, layers = 0;
  int64_t weight_bytes = 0, cache_bytes = 0, workspace_bytes = 0;
  [[nodiscard]] int64_t total_bytes() const { return weight_bytes + cache_bytes + workspace_bytes; }
};

struct Speed {
  double tokens_per_second = 0;
  std::string bound;                 // "memory" or "arithmetic"
  double bytes = 0, operations = 0;  // of the step (decode) or of the whole prompt (prefill)
};

struct Plan {
  std::string source;  // path of the checkpoint
  ModelConfig config;
  DeviceInfo device;
  PlanOptions options;
  AttentionPath path;                 // on a GPU: as if every backend were built
  std::vector<std::string> refusals;  // why it cannot run, each a sentence with wanted and found; empty: it can
  std::vector<std::string> remedies;  // changes that would give a path
  std::vector<std::string> notes;     // what the reader should know besides

  int64_t weight_bytes = 0;            // of the tensors that the graph needs
  int64_t active_weight_bytes = 0;     // of them, what one token reads
  int64_t left_aside_bytes = 0;        // MTP layers and unused tensors: in the file, not loaded
  int64_t missing_bytes = 0;           // that headers promise and files lack
  int64_t latent_bytes_per_token = 0;  // all layers
  int64_t key_bytes_per_token = 0;     // full layers only
  int64_t workspace_bytes = 0;         // of one device
  int64_t usable_bytes = 0;            // of one device, after the reserve
  std::vector<DeviceShare> shares;     // at the planned context; empty when the weights do not fit
  int64_t context = 0;                 // planned positions of each of options.sequences; 0: nothing fits
  int64_t largest_context = 0;         // of one sequence; 0: not even one page
  int64_t many_context = 0;            // min(32,768, the model's own context)
  int64_t many_sequences = 0;          // how many sequences of many_context tokens fit
  int64_t speed_context = 0;           // length at which decode, and of the prompt for which prefill, is predicted
  Speed decode, prefill;
  [[nodiscard]] bool can_run() const { return refusals.empty(); }
  [[nodiscard]] int64_t cache_bytes_per_token() const { return latent_bytes_per_token + key_bytes_per_token; }
};

// Fails only when no plan can be made at all: unknown architecture, broken metadata, an unknown forced backend.
[[nodiscard]] Result<Plan> make_plan(const Checkpoint& checkpoint, const DeviceInfo& device,
                                     const PlanOptions& options);
[[nodiscard]] std::string to_text(const Plan& plan);
[[nodiscard]] std::string to_json(const Plan& plan);  // one object, ends with a newline
// The refusals and remedies alone, as the proof that ends the text: what run prints when it refuses.
[[nodiscard]] std::string proof_of_refusal(const Plan& plan);

}  // namespace winnow
