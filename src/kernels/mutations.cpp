// SPDX-License-Identifier: Apache-2.0
#include "kernels/mutations.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "conformance/case.hpp"

namespace winnow::kernels {
namespace {

using conformance::Image;
using conformance::Outcome;

// Runs the inner target between two edits of the host image. `before` breaks an input, whose bytes are put back after
// the run so that the image's own check of inputs stays quiet; `after` breaks the result.
class Mutant final : public conformance::Target {
 public:
  using EditMla = std::function<void(const SparseMlaProblem&, const SparseMlaBuffers&)>;
  using EditSelect = std::function<void(const IndexSelectProblem&, const IndexSelectBuffers&)>;

  explicit Mutant(DeviceTarget& inner) : inner_(inner) {}
  [[nodiscard]] std::string name() const override { return "cuda with a mistake"; }

  EditMla break_input, mend_input, break_result;
  EditSelect break_selection;

  Outcome run(const SparseMlaProblem& p, const SparseMlaBuffers& b, Image& image) override {
    if (break_input) break_input(p, b);
    Outcome outcome = inner_.run(p, b, image);
    if (mend_input) {
      mend_input(p, b);
    }
    if (break_result) break_result(p, b);
    return outcome;
  }
  Outcome run(const IndexSelectProblem& p, const IndexSelectBuffers& b, Image& image) override {
    Outcome outcome = inner_.run(p, b, image);
    if (break_selection) break_selection(p, b);
    return outcome;
  }

 private:
  DeviceTarget& inner_;
};

MutationResult judge(const char* name, const char* text, Mutant& mutant) {
  MutationResult result{.name = name};
  Result<std::vector<conformance::CaseSpec>> specs = conformance::parse_cases(text, "mutation");
  if (!specs.ok()) return {name, specs.status().message()};
  auto built = conformance::build_case(specs->front());
  if (!built.ok()) return {name, built.status().message()};
  conformance::Case& one = **built;
  const Outcome outcome = one.run(mutant);
  if (outcome.kind != Outcome::Kind::ran) return {name, concat("did not run: ", outcome.text)};
  result.text = one.judge(mutant);
  result.noticed = !result.text.empty();
  return result;
}

MutationResult drop_one_row(DeviceTarget& target) {
  Mutant mutant(target);
  int32_t dropped = 0;
  const auto first = [](const SparseMlaBuffers& b) { return const_cast<int32_t*>(&b.topk_slots(0, 0)); };
  mutant.break_input = [&](const SparseMlaProblem&, const SparseMlaBuffers& b) {
    dropped = std::exchange(*first(b), -1);
  };
  mutant.mend_input = [&](const SparseMlaProblem&, const SparseMlaBuffers& b) { *first(b) = dropped; };
  return judge("one of 2048 rows dropped", "mla tokens=1 heads=8 topk=2048", mutant);
}

MutationResult swap_columns(DeviceTarget& target) {
  Mutant mutant(target);
  mutant.break_result = [](const SparseMlaProblem&, const SparseMlaBuffers& b) {
    auto* out = static_cast<bf16*>(b.out.data);
    std::swap(out[100], out[101]);
  };
  return judge("two columns of one head swapped", "mla tokens=2 heads=16 topk=512", mutant);
}

MutationResult neighbours_scale(DeviceTarget& target) {
  Mutant mutant(target);
  // Exchanges the scales of the first two groups of one listed row; doing it twice mends.
  const auto exchange = [](const SparseMlaProblem& p, const SparseMlaBuffers& b) {
    const int64_t slot = b.topk_slots(0, 0);
    std::byte* row =
        b.cache.data + slot / p.page_size * b.cache.page_stride_bytes + slot % p.page_size * b.cache.row_stride_bytes;
    auto* scales = reinterpret_cast<float*>(row + p.d_nope);
    std::swap(scales[0], scales[1]);
  };
  mutant.break_input = exchange;
  mutant.mend_input = exchange;
  return judge("the neighbouring group's scale in one row", "mla tokens=1 heads=8 topk=64 rows=v32_fp8 values=wide",
               mutant);
}

// What a selector does whose candidate buffer holds 16,384 entries and is filled by whoever comes: of 20,000 equal
// scores the lowest positions can be among those that found no room.
MutationResult truncated_candidates(DeviceTarget& target) {
  Mutant mutant(target);
  mutant.break_selection = [](const IndexSelectProblem& p, const IndexSelectBuffers& b) {
    constexpr int32_t kRoom = 16384;
    const int32_t lost = b.len(0) - kRoom;
    for (int32_t i = 0; i < p.topk; ++i) b.out(0, i) = lost + i;
  };
  return judge("candidates of 20,000 equal scores cut at 16,384",
               "select tokens=1 topk=64 len=20000 scores=equal output=positions", mutant);
}

}  // namespace

std::vector<MutationResult> run_mutations(DeviceTarget& target) {
  return {drop_one_row(target), swap_columns(target), neighbours_scale(target), truncated_candidates(target)};
}

}  // namespace winnow::kernels
