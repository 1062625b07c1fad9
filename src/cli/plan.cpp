// SPDX-License-Identifier: Apache-2.0
// winnow plan: from headers and a device, what will run, what goes where, how far and how fast.
#include "plan/plan.hpp"

#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"

namespace winnow::cli {
namespace {

struct PlanArguments {
  RunChoice choice;
  int32_t sequences = 1;
  bool json = false;
};

Result<Plan> plan_of(const PlanArguments& arguments) {
  WINNOW_TRY(prepare(arguments.choice.plugins));
  WINNOW_TRY_ASSIGN(const DeviceInfo device, parse_device(arguments.choice.device));
  WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(arguments.choice.model));
  PlanOptions options = arguments.choice.plan_options();
  options.sequences = arguments.sequences;
  return make_plan(checkpoint, device, options);
}

int plan_command(const PlanArguments& arguments) {
  const Result<Plan> plan = plan_of(arguments);
  if (!plan.ok()) return fail("plan", plan.status());
  return finish(arguments.json ? to_json(*plan) : printable(to_text(*plan)), plan->can_run() ? kOk : kCannotRun);
}

std::string device_help() {
  std::string names;
  for (const std::string& name : device_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("plan", "Say what will run on a device, what fits and how fast, from headers");
  const auto arguments = std::make_shared<PlanArguments>();
  add_model(*sub, arguments->choice.model);
  add_device(*sub, arguments->choice.device, "this (default), a name (h200), several (\"8x h200\") or a described CPU");
  add_context(*sub, arguments->choice);
  sub->add_option("--sequences", arguments->sequences, "Sequences side by side, each with the whole context")
      ->type_name("N")
      ->check(number_between(1, 1e6));
  add_cache(*sub, arguments->choice);
  add_attention(*sub, arguments->choice);
  add_plugins(*sub, arguments->choice.plugins);
  add_json(*sub, arguments->json);
  sub->footer(std::string());  // not winnow's own, which a sub-command inherits
  sub->footer([] {
    return "\nReads no tensor data: the first bytes of a file are enough. Exit status 0 only when the model can run, 3 "
           "when not.\n\nDevices by name: " +
           device_help() +
           "\n\nExamples:\n"
           "  winnow plan model.gguf\n"
           "  winnow plan model-00001-of-00009.gguf --device \"8x rtx-pro-6000\" --context 131072\n"
           "  winnow plan model.gguf --device \"cpu:64 cores, 512 GB, 400 GB/s\"\n"
           "  winnow plan model.gguf --device h200 --cache fp8 --json | jq .context.largest_of_one_sequence\n";
  });
  sub->callback([arguments, &action] { action = [arguments] { return plan_command(*arguments); }; });
}

}  // namespace winnow::cli
