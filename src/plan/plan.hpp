// SPDX-License-Identifier: Apache-2.0
// Plan: from headers and a device, real or described, what will run, what goes where, how far and how fast.
// Reads no tensor data. The same plan stands behind `winnow plan`, `--dry-run` and every load.
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

// "this" (host CPU), "8x rtx-pro-6000", "h200", "cpu:64 cores, 512 GB, 400 GB/s". Devices stand in plan/devices.json.
// invalid_argument lists the known names.
[[nodiscard]] Result<DeviceInfo> parse_device(std::string_view text);

struct PlanOptions {
  int64_t context = 0;      // 0: the model's own, cut to what fits
  int32_t sequences = 1;
  int32_t step_tokens = 512;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  std::string attention;    // forced backend
};

struct DeviceShare {
  int32_t device = 0;
  int64_t first_layer = 0, layers = 0;
  int64_t weight_bytes = 0, cache_bytes = 0, workspace_bytes = 0;
};

struct Speed {
  double tokens_per_second = 0;
  std::string bound;  // "memory" or "arithmetic"
};

struct Plan {
  ModelConfig config;
  DeviceInfo device;
  PlanOptions options;
  AttentionPath path;
  std::vector<std::string> refusals;    // why it cannot run, each a sentence with wanted and found; empty: it can
  std::vector<std::string> remedies;    // changes that would give a path
  int64_t weight_bytes = 0;
  int64_t latent_bytes_per_token = 0;   // all layers
  int64_t key_bytes_per_token = 0;      // full layers only
  int64_t workspace_bytes = 0;
  std::vector<DeviceShare> shares;
  int64_t largest_context = 0;          // of one sequence; 0: not even one page
  int64_t sequences_at_32k = 0;
  Speed decode, prefill;
  [[nodiscard]] bool can_run() const { return refusals.empty(); }
};

[[nodiscard]] Result<Plan> make_plan(const Checkpoint& checkpoint, const DeviceInfo& device, const PlanOptions& options);
[[nodiscard]] std::string to_text(const Plan& plan);
[[nodiscard]] std::string to_json(const Plan& plan);

}  // namespace winnow
