// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <charconv>
#include <cmath>

#include "core/threads.hpp"
#include "select/select.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow::cli {

RowFormat RunChoice::rows() const {
  return cache == "f32" ? RowFormat::f32 : cache == "fp8" ? RowFormat::v32_fp8 : RowFormat::bf16;
}

KeyFormat RunChoice::keys() const {
  return cache == "f32" ? KeyFormat::f32 : cache == "fp8" ? KeyFormat::fp8 : KeyFormat::bf16;
}

PlanOptions RunChoice::plan_options() const {
  PlanOptions options;
  options.context = context;
  options.rows = rows();
  options.keys = keys();
  options.attention = attention;
  options.dense = dense;
  return options;
}

void add_model(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model, "GGUF file, shard, safetensors file, index or checkpoint folder")
      ->required()
      ->type_name("")
      ->check(text_given());
}

void add_plugins(CLI::App& app, std::vector<std::string>& plugins) {
  app.add_option("--plugin", plugins, "Load an attention backend from a shared library; may be repeated")
      ->type_name("PATH")
      ->check(text_given())
      ->allow_extra_args(false);
}

void add_attention(CLI::App& app, RunChoice& choice) {
  app.add_option("--attention", choice.attention, "Force this attention backend (`winnow backends` lists them)")
      ->type_name("NAME")
      ->check(text_given());
  app.add_flag("--dense", choice.dense, "Ignore the indexer: every token reads every earlier one");
}

void add_context(CLI::App& app, RunChoice& choice) {
  app.add_option("--context", choice.context, "Positions of one sequence (default: what is needed and fits)")
      ->type_name("TOKENS")
      ->check(number_between(1, 1e9));
}

void add_cache(CLI::App& app, RunChoice& choice) {
  app.add_option("--cache", choice.cache, "Element type of the cache (default: bf16)")
      ->type_name("f32|bf16|fp8")
      ->check(CLI::IsMember({"f32", "bf16", "fp8"}));
}

void add_device(CLI::App& app, std::string& device, const char* help) {
  app.add_option("--device", device, help)->type_name("DEVICE")->check(text_given());
}

void add_threads(CLI::App& app, RunChoice& choice) {
  app.add_option("--threads", choice.threads, "CPU threads (default: one per CPU)")
      ->type_name("N")
      ->check(number_between(1, 4096));
}

void add_json(CLI::App& app, bool& json) { app.add_flag("--json", json, "Print JSON instead of text"); }

CLI::Validator number_between(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= least && value <= most) return {};
    return concat("\"", text, "\" is no number from ", least, " to ", most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator text_given() {
  return CLI::Validator([](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "");
}

CLI::Validator utf8_text() {
  return CLI::Validator(
      [](const std::string& text) {
        const Status checked = utf8::check(text);
        return checked.ok() ? std::string() : std::string(checked.message());
      },
      "");
}

CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        uint64_t value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failure == std::errc() && end == text.data() + text.size()) return {};
        return concat("\"", text, "\" is no whole number from 0 to ", UINT64_MAX);
      },
      "");
}

Status prepare(const std::vector<std::string>& plugins, int threads) {
  if (threads > 0) set_threads(threads);
  for (const std::string& path : plugins) WINNOW_TRY(load_backend_plugin(path));
  return {};
}

}  // namespace winnow::cli
