// SPDX-License-Identifier: Apache-2.0
// The metadata half of convert(): a ModelConfig and a tokenizer.json as GGUF keys.
#pragma once

#include <string>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "formats/gguf/writer.hpp"
#include "models/config.hpp"

namespace winnow {

// "glm-dsa" for "glm_moe_dsa", …; unsupported for others.
[[nodiscard]] Result<std::string> gguf_architecture(const std::string& hf_architecture);

// general.* and <architecture>.*. nextn_layers: MTP layers that the file will hold. unsupported for what GGUF has no
// key for and readers would guess otherwise (the rope layout of the indexer).
[[nodiscard]] Status set_model_keys(gguf::Writer& writer, const ModelConfig& config, const std::string& name,
                                    int64_t nextn_layers);

// tokenizer.*; nothing but the template when there is no tokenizer.json.
[[nodiscard]] Status set_tokenizer_keys(gguf::Writer& writer, const Checkpoint& checkpoint, const ModelConfig& config,
                                        const std::string& chat_template);

}  // namespace winnow
