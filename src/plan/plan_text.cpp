// SPDX-License-Identifier: Apache-2.0
// The plan as a page of text: sections with aligned columns, decimal units with exact bytes, the proof at the end.
#include <algorithm>

#include "core/text.hpp"
#include "plan/plan.hpp"

namespace winnow {
namespace {

constexpr std::size_t kLabel = 20;  // width of the left column

std::string row(const char* label, const std::string& value) {
  return concat("  ", padded(label, kLabel), value, "\n");
}

std::string layers_text(const ModelConfig& c) {
  const int64_t mixture = c.layers - c.dense_layers;
  std::string text = plural(c.layers, "layer");
  if (c.experts == 0 || mixture == 0) return text;
  text += concat(" (", c.dense_layers, " dense, ", mixture, " with ", c.experts, " experts, ", c.experts_used, " used");
  if (c.shared_experts > 0) text += concat(", ", c.shared_experts, " shared");
  return text + ")";
}

std::string indexer_text(const Plan& plan) {
  const ModelConfig& c = plan.config;
  if (!c.has_indexer()) return "none: every token reads every earlier one";
  if (plan.options.dense) return "ignored (--dense): every token reads every earlier one";
  return concat(c.index_heads, " heads x ", c.index_dim, ", selects ", grouped(c.index_topk), "; ", c.full_layers(),
                " of ", c.layers, " layers score, ", c.layers - c.full_layers(), " reuse the last list");
}

std::string model_text(const Plan& plan) {
  const ModelConfig& c = plan.config;
  std::string text = concat("Model  ", c.name.empty() ? plan.source : c.name, "\n");
  text += row("architecture", concat(c.architecture, ", ", layers_text(c)));
  text +=
      row("width", concat("hidden ", c.hidden, ", vocabulary ", grouped(c.vocab), ", context ", grouped(c.context)));
  text += row("attention", concat(c.heads, " heads, latent ", c.kv_lora, " + rope ", c.head_rope, ", per head ",
                                  c.head_nope, " + ", c.head_rope, " and value ", c.head_v));
  text += row("indexer", indexer_text(plan));
  text += row("weights", both_bytes(plan.weight_bytes));
  text += row("one token reads", both_bytes(plan.active_weight_bytes));
  if (plan.left_aside_bytes > 0) text += row("left aside", both_bytes(plan.left_aside_bytes));
  return text;
}

std::string device_text(const Plan& plan) {
  const DeviceInfo& d = plan.device;
  std::string text = concat("Device  ", describe(d), d.described ? ", described\n" : ", this machine\n");
  const std::string each = d.count > 1 ? " each" : "";
  text += row("memory", concat(both_bytes(d.memory_bytes), each, ", usable ", short_bytes(plan.usable_bytes)));
  text += row("bandwidth", short_rate(d.bandwidth, "B/s") + each);
  text += row("arithmetic", concat(short_rate(d.matrix_flops, "FLOP/s"), each,
                                   d.kind == DeviceKind::cpu ? " (fp32)" : " (bf16, fp32 accumulation)"));
  if (d.kind == DeviceKind::cuda) {
    text += row("units", concat(d.units, " SMs", each, ", shared memory ", d.smem_per_block / 1024, " KB a block"));
  }
  return text;
}

std::string indented(const std::string& text) {
  std::string result;
  bool line_begins = true;
  for (char c : text) {
    if (line_begins && c != '\n') result += "  ";
    result.push_back(c);
    line_begins = c == '\n';
  }
  return result;
}

std::string path_text(const Plan& plan) {
  const char* aside = plan.path.ignore_absence ? "  (as if every backend were in this build)" : "";
  return concat("Path", aside, "\n", indented(explain(plan.path)));
}

// "78 layers x 1,152 B": the part that every layer has.
std::string per_layer(int64_t bytes, int64_t layers) {
  return layers == 0 ? "0 B" : concat(layers, " layers x ", grouped(bytes / layers), " B");
}

std::string cache_text(const Plan& plan) {
  const ModelConfig& c = plan.config;
  std::string text =
      concat(grouped(plan.cache_bytes_per_token()), " B a token = ", per_layer(plan.latent_bytes_per_token, c.layers),
             " (", name_of(plan.options.rows), " rows)");
  if (plan.key_bytes_per_token > 0) {
    text +=
        concat(" + ", per_layer(plan.key_bytes_per_token, c.full_layers()), " (", name_of(plan.options.keys), " keys)");
  }
  return text;
}

std::string layer_range(const DeviceShare& share) {
  if (share.layers == 0) return "none";
  if (share.layers == 1) return concat(share.first_layer);
  return concat(share.first_layer, "-", share.first_layer + share.layers - 1);
}

std::string shares_text(const Plan& plan) {
  constexpr std::size_t kColumn = 18;
  std::string text =
      concat("  ", padded("device  layers", kLabel), right_aligned("weights", kColumn), right_aligned("cache", kColumn),
             right_aligned("workspace", kColumn), right_aligned("total", kColumn), "  of usable\n");
  for (const DeviceShare& share : plan.shares) {
    const double percent = 100.0 * static_cast<double>(share.total_bytes()) / static_cast<double>(plan.usable_bytes);
    text +=
        concat("  ", padded(concat(padded(concat(share.device), 8), layer_range(share)), kLabel),
               right_aligned(grouped(share.weight_bytes), kColumn), right_aligned(grouped(share.cache_bytes), kColumn),
               right_aligned(grouped(share.workspace_bytes), kColumn),
               right_aligned(grouped(share.total_bytes()), kColumn), "  ", short_number(percent), " %\n");
  }
  return text;
}

std::string context_limit(const Plan& plan) {
  if (plan.largest_context == 0) return concat("none: not one page of ", plan.path.needs.page_size, " tokens fits");
  const bool whole = plan.largest_context >= plan.config.context;
  return concat(grouped(plan.largest_context), " tokens, ", whole ? "all that the model knows" : "limited by memory");
}

std::string memory_text(const Plan& plan) {
  std::string text = "Memory\n";
  text += row("cache", cache_text(plan));
  text += row("workspace", concat(both_bytes(plan.workspace_bytes), plan.device.count > 1 ? " on each device" : "",
                                  ", steps of ", plan.options.step_tokens, " tokens"));
  text += row("largest context", context_limit(plan));
  text += row("sequences", concat(grouped(plan.many_sequences), " of ", grouped(plan.many_context), " tokens"));
  if (plan.shares.empty()) return text;
  text += row("planned",
              concat(plural(plan.options.sequences, "sequence"), " of ", grouped(plan.context), " tokens, bytes:"));
  return text + shares_text(plan);
}

std::string speed_row(const char* label, const Speed& speed, const std::string& where) {
  return row(label, concat("at most ", short_number(speed.tokens_per_second), " tokens/s ", where, ", bound by ",
                           speed.bound, " (", short_bytes(static_cast<int64_t>(speed.bytes)), ", ",
                           short_rate(speed.operations, "FLOP"), ")"));
}

std::string speed_text(const Plan& plan) {
  if (plan.speed_context == 0) return "";
  std::string text = "Speed  (ceilings from bytes and operations at the device's rates)\n";
  const std::string many = plan.options.sequences > 1 ? concat(" for ", plan.options.sequences, " sequences") : "";
  text += speed_row("decode", plan.decode, concat("at ", grouped(plan.speed_context), " tokens", many));
  text += speed_row("prefill", plan.prefill, concat("for a prompt of ", grouped(plan.speed_context)));
  return text;
}

std::string notes_text(const Plan& plan) {
  if (plan.notes.empty()) return "";
  std::string text = "Notes\n";
  for (const std::string& note : plan.notes) text += concat("  ", note, "\n");
  return text;
}

}  // namespace

std::string proof_of_refusal(const Plan& plan) {
  if (plan.can_run()) return "";
  std::string text;
  for (const std::string& refusal : plan.refusals) {
    text += concat(text.empty() ? "  because      " : "  and because  ", refusal, "\n");
  }
  text += concat("  no path exists for this model on ", describe(plan.device), ".\n");
  if (plan.remedies.empty()) return text + "  No single change that was tried gives one.\n";
  text += concat("  ", plan.remedies.size() == 1 ? "This change gives" : "Each of these changes gives", " one:\n");
  for (const std::string& remedy : plan.remedies) text += concat("    ", remedy, "\n");
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text =
      concat(model_text(plan), "\n", device_text(plan), "\n", path_text(plan), "\n", memory_text(plan), "\n");
  if (const std::string speed = speed_text(plan); !speed.empty()) text += concat(speed, "\n");
  if (const std::string notes = notes_text(plan); !notes.empty()) text += concat(notes, "\n");
  if (plan.can_run()) return text + "Verdict  it can run\n";
  return concat(text, "Verdict  it cannot run\n", proof_of_refusal(plan));
}

}  // namespace winnow
