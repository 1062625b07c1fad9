// SPDX-License-Identifier: Apache-2.0
// Options that several commands have, so that they are spelled and explained once.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/device_info.hpp"
#include "contract/row_format.hpp"
#include "core/status.hpp"
#include "plan/plan.hpp"

namespace winnow::cli {

// How a model is to run: what plan, run and verify agree on.
struct RunChoice {
  std::string model;
  std::string device = "this";
  std::string attention;
  std::string cache = "bf16";
  std::vector<std::string> plugins;
  int64_t context = 0;
  int threads = 0;
  bool dense = false;

  [[nodiscard]] RowFormat rows() const;
  [[nodiscard]] KeyFormat keys() const;
  [[nodiscard]] PlanOptions plan_options() const;
};

void add_model(CLI::App& app, std::string& model);
void add_plugins(CLI::App& app, std::vector<std::string>& plugins);
void add_attention(CLI::App& app, RunChoice& choice);
void add_context(CLI::App& app, RunChoice& choice);
void add_cache(CLI::App& app, RunChoice& choice);
void add_device(CLI::App& app, std::string& device, const char* help);
void add_threads(CLI::App& app, RunChoice& choice);
void add_json(CLI::App& app, bool& json);

// Finite numbers from `least` to `most`; CLI11's own Range lets NaN through.
[[nodiscard]] CLI::Validator number_between(double least, double most);

// Not empty: an unset shell variable must not pass for a choice.
[[nodiscard]] CLI::Validator text_given();
// UTF-8, for text that is stored or compared with what the model says.
[[nodiscard]] CLI::Validator utf8_text();
// A whole number of 64 bits without sign; CLI11 lets -1 and too many digits through as the largest one.
[[nodiscard]] CLI::Validator whole_number();

// Loads the plug-ins and sets the threads: before anything that asks the registry.
[[nodiscard]] Status prepare(const std::vector<std::string>& plugins, int threads = 0);

}  // namespace winnow::cli
