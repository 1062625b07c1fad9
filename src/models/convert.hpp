// SPDX-License-Identifier: Apache-2.0
// A published safetensors checkpoint becomes a GGUF file: names, metadata and tokenizer as llama.cpp's converter
// writes them, plus `attention.indexer.types` when layers share their selection.
//
// glm_moe_dsa -> glm-dsa, deepseek_v32 -> deepseek32, deepseek_v3 and glm4_moe_lite -> deepseek2.
#pragma once

#include <functional>
#include <string>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow {

struct ConvertOptions {
  std::string name;           // general.name; empty: the folder's name
  std::string chat_template;  // tokenizer.chat_template; empty: the checkpoint's own
  // Asked between pieces of some MB; true ends with `cancelled`, and nothing is left on the disk.
  std::function<bool()> cancelled;
};

// weights: F32, F16, BF16 or Q8_0, for matrices. Norms, biases, the router and the index projection stay F32, as
// readers expect. A matrix whose rows are no whole Q8_0 blocks becomes F16 when it is stored so, else BF16.
// fp8 is dequantised first. Streams: memory is a few MB whatever the size; the file appears whole or not at all.
// out_path: a new or a regular file that is no part of the checkpoint.
// A checkpoint without tokenizer.json gives a file without tokenizer keys, and a warning in the log.
[[nodiscard]] Status convert(const Checkpoint& checkpoint, StorageType weights, const std::string& out_path,
                             const ConvertOptions& options = {});

}  // namespace winnow
