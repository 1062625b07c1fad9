// SPDX-License-Identifier: Apache-2.0
// winnow backends: the table, what of it is built, and what a device admits for a model.
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "models/config.hpp"
#include "models/model.hpp"
#include "plan/plan.hpp"
#include "plan/plan_json.hpp"
#include "select/select.hpp"

namespace winnow::cli {
namespace {

struct BackendsArguments {
  RunChoice choice;
  bool json = false;
};

// GLM-5's attention, for when no model is named.
AttentionNeeds glm5_needs(const RunChoice& choice) {
  AttentionNeeds needs;
  needs.q_heads = 64;
  needs.d_nope = 512;
  needs.d_rope = 64;
  needs.d_v = 512;
  needs.topk = 2048;
  needs.index_heads = 32;
  needs.index_dim = 128;
  needs.softmax_scale = 1.0f / 16;
  needs.context = 131072;
  needs.rows = choice.rows();
  needs.keys = choice.keys();
  return needs;
}

Result<AttentionNeeds> needs_of(const RunChoice& choice, const DeviceInfo& device) {
  AttentionNeeds needs = glm5_needs(choice);
  if (!choice.model.empty()) {
    WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(choice.model));
    WINNOW_TRY_ASSIGN(const ModelConfig config, read_config(checkpoint));
    RunnerOptions options;
    options.rows = choice.rows();
    options.keys = choice.keys();
    options.context = choice.context;
    options.attention = choice.attention;
    options.dense = choice.dense;
    needs = attention_needs(config, options);
  }
  needs.activations = device.kind == DeviceKind::cpu ? DType::f32 : DType::bf16;
  return needs;
}

const char* kind_name(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

std::string table_text() {
  std::size_t width = 0;
  for (const Backend* backend : all_backends()) width = std::max(width, std::string(backend->name).size());
  std::string text = "Backends of this program, in order of preference:\n";
  for (const Backend* backend : all_backends()) {
    std::string name = backend->name;
    name.resize(width, ' ');
    text += concat("  ", name, "  ", kind_name(backend->kind), backend->kind == DeviceKind::cpu ? "   " : "  ",
                   backend->built ? "built" : backend->why_absent, "\n");
  }
  return text;
}

std::string as_json(const AttentionPath& path) {
  nlohmann::ordered_json out = {{"device", describe(path.device)}, {"admitted", path.admitted()}};
  for (const Backend* backend : all_backends()) {
    out["backends"].push_back({{"name", backend->name},
                               {"kind", kind_name(backend->kind)},
                               {"built", backend->built},
                               {"why_absent", backend->built ? "" : backend->why_absent}});
  }
  for (const PathStep& step : path.steps) out["path"].push_back(json_of(step));
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<AttentionPath> path_of(const RunChoice& choice) {
  WINNOW_TRY(prepare(choice.plugins));
  WINNOW_TRY_ASSIGN(const DeviceInfo device, parse_device(choice.device));
  WINNOW_TRY_ASSIGN(const AttentionNeeds needs, needs_of(choice, device));
  return choose_path(needs, device, choice.attention);
}

int backends_command(const BackendsArguments& arguments) {
  const Result<AttentionPath> path = path_of(arguments.choice);
  if (!path.ok()) return fail("backends", path.status());
  const int status = path->admitted() ? kOk : kCannotRun;
  if (arguments.json) return finish(as_json(*path), status);
  const std::string& model = arguments.choice.model;
  std::string text = table_text() + "\n";
  text += concat("For ", model.empty() ? "the attention of GLM-5 (name a MODEL for another)" : model, ":\n");
  text += explain(*path);
  if (!path->admitted()) text += "\n" + why_no_path(*path);
  return finish(printable(text), status);
}

}  // namespace

void add_backends(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("backends", "List attention backends: built, admitted, refused and why");
  const auto arguments = std::make_shared<BackendsArguments>();
  sub->add_option("MODEL", arguments->choice.model, "Whose attention to ask for (default: GLM-5's)")
      ->type_name("")
      ->check(text_given());
  add_device(*sub, arguments->choice.device, "this (default) or a device as `winnow plan --help` lists them");
  add_cache(*sub, arguments->choice);
  add_attention(*sub, arguments->choice);
  add_context(*sub, arguments->choice);
  add_plugins(*sub, arguments->choice.plugins);
  add_json(*sub, arguments->json);
  sub->footer(
      "\nExamples:\n"
      "  winnow backends\n"
      "  winnow backends model.gguf --cache fp8\n"
      "  winnow backends --device h200\n"
      "  winnow backends --plugin ./libmy_backend.so --attention my.backend\n");
  sub->callback([arguments, &action] { action = [arguments] { return backends_command(*arguments); }; });
}

}  // namespace winnow::cli
