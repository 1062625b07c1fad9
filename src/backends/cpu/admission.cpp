// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/admission.hpp"

namespace winnow::cpu {
namespace {
void need_cpu(Verdict& verdict, const DeviceInfo& device) {
  verdict.need(device.kind == DeviceKind::cpu, "device", "a CPU", device.name.empty() ? "another kind" : device.name);
}
bool is_activation(DType type) { return type == DType::f32 || type == DType::bf16; }
}  // namespace

Verdict admits_mla(const Backend&, const SparseMlaProblem& p, const DeviceInfo& device) {
  Verdict verdict;
  need_cpu(verdict, device);
  verdict.need(p.q_heads >= 1 && p.q_heads <= 128, "q_heads", "1 to 128", p.q_heads);
  verdict.need(p.d_nope > 0 && p.d_nope % 32 == 0, "d_nope", "a positive multiple of 32", p.d_nope);
  verdict.need(p.d_v >= 1 && p.d_v <= p.d_nope, "d_v", concat("1 to ", p.d_nope), p.d_v);
  verdict.need(is_activation(p.activations), "activations", "f32 or bf16", name_of(p.activations));
  verdict.launch.rows_per_tile = 64;
  return verdict;
}

Verdict admits_select(const Backend&, const IndexSelectProblem& p, const DeviceInfo& device) {
  Verdict verdict;
  need_cpu(verdict, device);
  verdict.need(p.index_heads >= 1 && p.index_heads <= 64, "index_heads", "1 to 64", p.index_heads);
  verdict.need(p.topk >= 1, "topk", "at least 1", p.topk);
  verdict.need(is_activation(p.q_type) || p.q_type == DType::e4m3, "q_type", "f32, bf16 or e4m3", name_of(p.q_type));
  verdict.launch.heads_per_block = p.index_heads;
  return verdict;
}

Verdict admits_write(const Backend&, const CacheWriteProblem& p, const DeviceInfo& device) {
  Verdict verdict;
  need_cpu(verdict, device);
  verdict.need(is_activation(p.activations), "activations", "f32 or bf16", name_of(p.activations));
  return verdict;
}

}  // namespace winnow::cpu
