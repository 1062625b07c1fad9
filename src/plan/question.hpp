// SPDX-License-Identifier: Apache-2.0
// The steps of make_plan that stand in files of their own. Private to src/plan.
#pragma once

#include "models/tensors.hpp"
#include "plan/budget.hpp"
#include "plan/plan.hpp"

namespace winnow {

// What does not change between a plan and its remedies.
struct Subject {
  const Checkpoint* checkpoint = nullptr;
  ModelConfig config;
  TensorReport tensors;
};

// One question about it.
struct Question {
  DeviceInfo device;
  PlanOptions options;
};

// One answer, without remedies and notes about tensors (plan.cpp).
[[nodiscard]] Result<Plan> plan_once(const Subject& model, const Question& question);

// Pages of n sequences of one length.
[[nodiscard]] inline int64_t pages_of(const CacheShape& cache, int64_t context, int64_t sequences) {
  return pages_for(cache, context) * sequences;
}

// Adds every refusal to a plan that is complete otherwise (refusals.cpp).
void add_refusals(Plan& plan, const TensorReport& tensors, const Budget& budget, const DeviceRoom& room,
                  const CacheShape& cache);

// Adds the changes that were planned again and can run to a plan that cannot (remedies.cpp).
void add_remedies(const Subject& model, const Question& question, Plan& plan);

}  // namespace winnow
