// SPDX-License-Identifier: Apache-2.0
// Sparse MLA case, and the gather case that reads the same kind of cache.
#pragma once

#include "conformance/case.hpp"
#include "conformance/compare.hpp"
#include "conformance/random.hpp"
#include "contract/oracle.hpp"

namespace winnow::conformance {

struct Geometry {
  int32_t d_nope = 0, d_rope = 0;
};
[[nodiscard]] Geometry geometry_of(const CaseSpec& spec);
[[nodiscard]] RowFormat row_format_of(const CaseSpec& spec);
[[nodiscard]] KeyFormat key_format_of(const CaseSpec& spec);
[[nodiscard]] DType dtype_of(const CaseSpec& spec, std::string_view key);

// Writes one row of random values in its format. values: normal, power_of_two, edges, zero, wide (cases/README.md).
// lift is put in front as the row's first element, when not NaN.
void fill_row(Random& random, std::byte* row, RowFormat format, Geometry geometry, const std::string& values,
              float lift);

// A pool of NaN rows with the case's strides; far pools begin behind 2^31 bytes of slots that do not exist.
struct Pool {
  PagedRows rows;
  int64_t first_slot = 0, slots = 0;  // slots that exist: [first_slot, slots)
};
[[nodiscard]] Pool add_pool(Image& image, Role role, RowFormat format, Geometry geometry, int64_t page_size,
                            int64_t slots, bool padded, bool far);

// A tensor [tokens, heads, width] in the image, strided as the case says.
[[nodiscard]] HeadTensor add_heads(Image& image, const char* name, Role role, DType type, int64_t tokens, int64_t heads,
                                   int64_t width, const std::string& strides);
void store_element(const HeadTensor& tensor, DType type, int64_t index, float value);

// The sink of a case, [heads], or no data for sink=none.
[[nodiscard]] TensorView<const float> add_sink(Image& image, Random& random, const CaseSpec& spec, int32_t heads);

// Reads the elements of a written tensor and poisons them again, so that what remains was never to be written.
[[nodiscard]] std::vector<double> take_heads(const HeadTensor& tensor, DType type, int64_t tokens, int64_t heads,
                                             int64_t width);
[[nodiscard]] std::vector<double> take_matrix(const TensorView<float>& view);
// Empty when every payload byte of the output block is poison.
[[nodiscard]] std::string leftovers(const Image& image, const std::string& block);

class MlaCase final : public Case {
 public:
  static Result<std::unique_ptr<Case>> build(const CaseSpec& spec);
  explicit MlaCase(const CaseSpec& spec);

  SparseMlaProblem problem;
  SparseMlaBuffers buffers;
  AttentionValues expected;
  std::vector<double> magnitude;
  [[nodiscard]] Tolerance tolerance() const;

 protected:
  Outcome run_on(Target& target) override { return target.run(problem, buffers, image_); }
  std::string compare(const Target& target) override;

 private:
  void fill_lists(int32_t* slots, int64_t stride);
  void fill_lengths(int32_t* lengths);
  void fill_rows(const std::vector<bool>& listed);
  void fill_q();
  [[nodiscard]] int64_t length(int64_t token) const;
  [[nodiscard]] bool is_empty(int64_t token) const;
  void make_list(int64_t token, std::vector<int32_t>& list);

  Random random_;
  Pool pool_;
  int32_t* slots_data_ = nullptr;
};

class GatherCase final : public Case {
 public:
  static Result<std::unique_ptr<Case>> build(const CaseSpec& spec);
  explicit GatherCase(const CaseSpec& spec);

  RowGatherProblem problem;
  RowGatherBuffers buffers;
  std::vector<float> expected;

 protected:
  Outcome run_on(Target& target) override { return target.run(problem, buffers, image_); }
  std::string compare(const Target& target) override;
};

}  // namespace winnow::conformance
