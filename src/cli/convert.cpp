// SPDX-License-Identifier: Apache-2.0
// winnow convert: a published safetensors checkpoint becomes one GGUF file.
#include "models/convert.hpp"

#include <filesystem>

#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/interrupt.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "formats/text_file.hpp"

namespace winnow::cli {
namespace {

constexpr int64_t kMaxTemplateBytes = 1 << 20;

struct ConvertArguments {
  std::string model, out, type = "bf16", name, chat_template;
  bool force = false;
};

StorageType storage_type(const std::string& name) {
  if (name == "f32") return StorageType::F32;
  if (name == "f16") return StorageType::F16;
  return name == "q8_0" ? StorageType::Q8_0 : StorageType::BF16;
}

Status convert_file(const ConvertArguments& arguments) {
  std::error_code ignored;
  if (!arguments.force && std::filesystem::exists(arguments.out, ignored)) {
    return error(StatusCode::invalid_argument, arguments.out, " exists; --force replaces it");
  }
  ConvertOptions options;
  options.name = arguments.name;
  options.cancelled = interrupted;
  if (!arguments.chat_template.empty()) {
    WINNOW_TRY_ASSIGN(options.chat_template, read_text_file(arguments.chat_template, kMaxTemplateBytes));
  }
  WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(arguments.model));
  WINNOW_TRY(convert(checkpoint, storage_type(arguments.type), arguments.out, options));
  const auto bytes = std::filesystem::file_size(arguments.out, ignored);
  print_error(concat(printable(arguments.out), ": ", bytes, " bytes\n"));
  return {};
}

int convert_command(const ConvertArguments& arguments) {
  catch_interrupts();
  install_progress_bar();
  const Status status = convert_file(arguments);
  if (status.ok()) return kOk;
  const int exit = fail("convert", status);
  return status.code() == StatusCode::cancelled ? kInterrupted : exit;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("convert", "Write a safetensors checkpoint as a GGUF file");
  const auto arguments = std::make_shared<ConvertArguments>();
  sub->add_option("CHECKPOINT", arguments->model, "Checkpoint folder, index or .safetensors file")
      ->required()
      ->type_name("")
      ->check(text_given());
  sub->add_option("OUT", arguments->out, "GGUF file to write")->required()->type_name("")->check(text_given());
  sub->add_option("--type", arguments->type, "Type of the weight matrices (default: bf16)")
      ->type_name("f32|f16|bf16|q8_0")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  sub->add_option("--name", arguments->name, "general.name (default: the folder's)")
      ->type_name("TEXT")
      ->check(utf8_text());
  sub->add_option("--chat-template", arguments->chat_template, "Chat template to store (default: the checkpoint's)")
      ->type_name("FILE");
  sub->add_flag("--force", arguments->force, "Replace OUT when it exists");
  sub->footer(
      "\nNorms, biases, the router and the index projection stay f32. When layers share their selection the file says "
      "so\n"
      "in attention.indexer.types. OUT appears whole or not at all.\n"
      "\nExamples:\n"
      "  winnow convert checkpoint/ model-bf16.gguf\n"
      "  winnow convert checkpoint/ model-q8_0.gguf --type q8_0 --name \"My model\"\n");
  sub->callback([arguments, &action] { action = [arguments] { return convert_command(*arguments); }; });
}

}  // namespace winnow::cli
