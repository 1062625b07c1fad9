// SPDX-License-Identifier: Apache-2.0
// winnow completion: scripts for bash, zsh and fish, made from the program's own options so that they never go stale.
#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/output.hpp"
#include "core/concat.hpp"
#include "plan/plan.hpp"

namespace winnow::cli {
namespace {

struct OptionInfo {
  std::vector<std::string> names;  // "--prompt", "-h"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // fixed choices, or empty: a file
};

struct CommandInfo {
  std::string name, help;
  std::vector<OptionInfo> options;
  std::vector<std::string> words;  // fixed values of the positional, or empty: a file
};

std::vector<std::string> values_of(const std::string& option) {
  if (option == "--device") {
    std::vector<std::string> names = device_names();
    names.insert(names.begin(), "this");
    return names;
  }
  if (option == "--cache") return {"f32", "bf16", "fp8"};
  if (option == "--type") return {"f32", "f16", "bf16", "q8_0"};
  return {};
}

OptionInfo describe(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  info.help = option.get_description();
  info.takes_value = option.get_expected_max() > 0;
  if (!info.names.empty()) info.values = values_of(info.names.front());
  return info;
}

CommandInfo describe(const CLI::App& app) {
  CommandInfo info{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionInfo one = describe(*option);
    if (!one.names.empty()) info.options.push_back(std::move(one));
  }
  if (info.name == "completion") info.words = {"bash", "zsh", "fish"};
  return info;
}

std::vector<CommandInfo> commands_of(const CLI::App& app) {
  std::vector<CommandInfo> commands;
  for (const CLI::App* sub : app.get_subcommands({})) commands.push_back(describe(*sub));
  return commands;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += concat(text.empty() ? "" : " ", word);
  return text;
}

// In single quotes for every shell: ' becomes '\''.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string bash_script(const std::vector<CommandInfo>& commands) {
  std::string names, cases, values;
  for (const CommandInfo& command : commands) {
    std::vector<std::string> options;
    for (const OptionInfo& option : command.options)
      options.insert(options.end(), option.names.begin(), option.names.end());
    names += concat(names.empty() ? "" : " ", command.name);
    cases += concat("    ", command.name, ") options=", in_quotes(joined(options)),
                    "; words=", in_quotes(joined(command.words)), " ;;\n");
  }
  for (const char* option : {"--device", "--cache", "--type"}) {
    values += concat("    ", option, ") COMPREPLY=($(compgen -W ", in_quotes(joined(values_of(option))),
                     " -- \"$current\")); return ;;\n");
  }
  return concat(
      "# bash completion of winnow; put it into ~/.bashrc: source <(winnow completion bash)\n"
      "_winnow() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options='' words=''\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W ",
      in_quotes(names + " --help --version"),
      " -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case $previous in\n",
      values,
      "  esac\n"
      "  case ${COMP_WORDS[1]} in\n",
      cases,
      "  esac\n"
      "  case $current in\n"
      "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
      "    *) if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "       else COMPREPLY=($(compgen -f -- \"$current\")); fi ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _winnow winnow\n");
}

// What _arguments must not see as its own syntax.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const std::vector<CommandInfo>& commands) {
  std::string names, cases;
  for (const CommandInfo& command : commands) {
    names += concat("    ", in_quotes(command.name + ":" + zsh_escaped(command.help)), "\n");
    cases += concat("    ", command.name, ") _arguments");
    for (const OptionInfo& option : command.options) {
      for (const std::string& name : option.names) {
        std::string spec = concat("*", name, "[", zsh_escaped(option.help), "]");
        if (option.takes_value) {
          spec += option.values.empty() ? ":value:_files" : concat(":value:(", joined(option.values), ")");
        }
        cases += concat(" \\\n      ", in_quotes(spec));
      }
    }
    cases += concat(" \\\n      ",
                    in_quotes(command.words.empty() ? "*:file:_files" : concat("1:word:(", joined(command.words), ")")),
                    " ;;\n");
  }
  return concat(
      "#compdef winnow\n"
      "# zsh completion of winnow; put it into a folder of $fpath: winnow completion zsh > ~/.zfunc/_winnow\n"
      "_winnow() {\n"
      "  local -a commands\n"
      "  commands=(\n",
      names,
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=${words[2]}\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n",
      cases,
      "  esac\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _winnow ]; then _winnow \"$@\"; else compdef _winnow winnow; fi\n");
}

std::string fish_script(const std::vector<CommandInfo>& commands) {
  std::string text =
      "# fish completion of winnow: winnow completion fish > ~/.config/fish/completions/winnow.fish\n"
      "complete -c winnow -n __fish_use_subcommand -f -l help -s h -d 'Print help'\n"
      "complete -c winnow -n __fish_use_subcommand -f -l version -d 'Print the version'\n";
  for (const CommandInfo& command : commands) {
    text += concat("complete -c winnow -n __fish_use_subcommand -f -a ", command.name, " -d ", in_quotes(command.help),
                   "\n");
    const std::string here = concat("complete -c winnow -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const OptionInfo& option : command.options) {
      text += here;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? concat(" -l ", name.substr(2)) : concat(" -s ", name.substr(1));
      }
      if (option.takes_value) {
        text += option.values.empty() ? " -r" : concat(" -x -a ", in_quotes(joined(option.values)));
      }
      text += concat(" -d ", in_quotes(option.help), "\n");
    }
    if (!command.words.empty()) text += concat(here, " -f -a ", in_quotes(joined(command.words)), "\n");
  }
  return text;
}

int completion_command(const std::string& shell) {
  Action unused;
  const auto app = make_app(unused);
  const std::vector<CommandInfo> commands = commands_of(*app);
  return finish(shell == "bash"  ? bash_script(commands)
                : shell == "zsh" ? zsh_script(commands)
                                 : fish_script(commands),
                kOk);
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("completion", "Print a completion script for a shell");
  const auto shell = std::make_shared<std::string>();
  sub->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  sub->footer(
      "\nExamples:\n"
      "  source <(winnow completion bash)\n"
      "  winnow completion zsh > ~/.zfunc/_winnow\n"
      "  winnow completion fish > ~/.config/fish/completions/winnow.fish\n");
  sub->callback([shell, &action] { action = [shell] { return completion_command(*shell); }; });
}

}  // namespace winnow::cli
