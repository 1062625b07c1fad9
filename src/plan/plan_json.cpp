// SPDX-License-Identifier: Apache-2.0
// The plan as one JSON object: every number of the text, unrounded, and every verdict.
#include "plan/plan_json.hpp"

#include "plan/plan.hpp"

namespace winnow {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ModelConfig& c) {
  return {{"name", c.name},
          {"architecture", c.architecture},
          {"vocabulary", c.vocab},
          {"hidden", c.hidden},
          {"layers", c.layers},
          {"mtp_layers", c.nextn_layers},
          {"dense_layers", c.dense_layers},
          {"dense_width", c.dense_width},
          {"experts", c.experts},
          {"experts_used", c.experts_used},
          {"shared_experts", c.shared_experts},
          {"expert_width", c.expert_width},
          {"expert_groups", c.expert_groups},
          {"expert_groups_used", c.expert_groups_used},
          {"heads", c.heads},
          {"q_lora", c.q_lora},
          {"latent", c.kv_lora},
          {"head_nope", c.head_nope},
          {"head_rope", c.head_rope},
          {"head_value", c.head_v},
          {"index_heads", c.index_heads},
          {"index_dim", c.index_dim},
          {"index_topk", c.index_topk},
          {"full_indexer", c.full_indexer},
          {"softmax_scale", c.softmax_scale()},
          {"rope_theta", c.rope_theta},
          {"context", c.context}};
}

Json json_of(const DeviceInfo& d) {
  return {{"kind", d.kind == DeviceKind::cpu ? "cpu" : "cuda"},
          {"name", d.name},
          {"count", d.count},
          {"sm", d.sm},
          {"units", d.units},
          {"memory_bytes", d.memory_bytes},
          {"bandwidth_bytes_per_second", d.bandwidth},
          {"matrix_flops", d.matrix_flops},
          {"shared_memory_per_block", d.smem_per_block},
          {"shared_memory_per_sm", d.smem_per_sm},
          {"described", d.described}};
}

Json json_of(const LaunchFacts& l) {
  return {{"heads_per_block", l.heads_per_block},
          {"rows_per_tile", l.rows_per_tile},
          {"stages", l.stages},
          {"splits", l.splits},
          {"shared_bytes", l.shared_bytes},
          {"workspace_bytes", l.workspace_bytes},
          {"note", l.note}};
}

}  // namespace

Json json_of(const PathStep& step) {
  Json verdicts = Json::array();
  for (const Considered& candidate : step.considered) {
    Json refusals = Json::array();
    for (const Refusal& r : candidate.verdict.refusals) {
      refusals.push_back({{"what", r.what}, {"wanted", r.wanted}, {"found", r.found}});
    }
    Json verdict = {{"backend", candidate.backend->name},
                    {"built", candidate.backend->built},
                    {"admitted", candidate.verdict.admitted()},
                    {"refusals", refusals}};
    if (candidate.verdict.admitted()) verdict["launch"] = json_of(candidate.verdict.launch);
    verdicts.push_back(std::move(verdict));
  }
  Json chosen = step.chosen == nullptr ? Json(nullptr) : Json(step.chosen->name);
  return {{"operation", step.operation}, {"chosen", chosen}, {"verdicts", verdicts}};
}

namespace {

Json json_of(const AttentionPath& path) {
  Json steps = Json::array();
  for (const PathStep& step : path.steps) steps.push_back(json_of(step));
  return {{"admitted", path.admitted()},
          {"forced", path.forced},
          {"as_if_everything_were_built", path.ignore_absence},
          {"page_size", path.needs.page_size},
          {"rows", name_of(path.needs.rows)},
          {"keys", name_of(path.needs.keys)},
          {"activations", name_of(path.needs.activations)},
          {"steps", steps}};
}

Json json_of(const DeviceShare& share) {
  return {{"device", share.device},
          {"first_layer", share.first_layer},
          {"layers", share.layers},
          {"weight_bytes", share.weight_bytes},
          {"cache_bytes", share.cache_bytes},
          {"workspace_bytes", share.workspace_bytes},
          {"total_bytes", share.total_bytes()}};
}

Json json_of(const Speed& speed) {
  return {{"tokens_per_second", speed.tokens_per_second},
          {"bound", speed.bound},
          {"bytes", speed.bytes},
          {"operations", speed.operations}};
}

Json memory_of(const Plan& plan) {
  Json shares = Json::array();
  for (const DeviceShare& share : plan.shares) shares.push_back(json_of(share));
  return {{"weight_bytes", plan.weight_bytes},
          {"active_weight_bytes", plan.active_weight_bytes},
          {"left_aside_bytes", plan.left_aside_bytes},
          {"missing_bytes", plan.missing_bytes},
          {"latent_bytes_per_token", plan.latent_bytes_per_token},
          {"key_bytes_per_token", plan.key_bytes_per_token},
          {"cache_bytes_per_token", plan.cache_bytes_per_token()},
          {"workspace_bytes_per_device", plan.workspace_bytes},
          {"usable_bytes_per_device", plan.usable_bytes},
          {"shares", shares}};
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json json;
  json["can_run"] = plan.can_run();
  json["source"] = plan.source;
  json["model"] = json_of(plan.config);
  json["device"] = json_of(plan.device);
  json["path"] = json_of(plan.path);
  json["memory"] = memory_of(plan);
  json["context"] = {{"asked", plan.options.context},     {"sequences", plan.options.sequences},
                     {"planned", plan.context},           {"largest_of_one_sequence", plan.largest_context},
                     {"many_context", plan.many_context}, {"sequences_of_many_context", plan.many_sequences}};
  json["speed"] = {{"at", plan.speed_context}, {"decode", json_of(plan.decode)}, {"prefill", json_of(plan.prefill)}};
  json["refusals"] = plan.refusals;
  json["remedies"] = plan.remedies;
  json["notes"] = plan.notes;
  // A model's name may hold any bytes: replace what is no UTF-8 instead of throwing.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace winnow
