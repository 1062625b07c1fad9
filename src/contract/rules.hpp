// SPDX-License-Identifier: Apache-2.0
// Shared by the check() functions: rules that return the first broken one as a Status. Private to src/contract.
#pragma once

#include <initializer_list>
#include <string_view>

#include "contract/paged.hpp"
#include "contract/row_format.hpp"
#include "contract/sparse_mla.hpp"
#include "core/checked.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"

namespace winnow::rules {

// "sparse_mla: q_heads is 200, wants 1 to 128".
struct Operation {
  std::string_view name;

  template <class Found, class Wanted>
  [[nodiscard]] Status need(bool holds, std::string_view what, const Found& found, const Wanted& wanted) const {
    if (holds) return Status();
    return error(StatusCode::invalid_argument, name, ": ", what, " is ", found, ", wants ", wanted);
  }

  [[nodiscard]] Status range(std::string_view what, int64_t value, int64_t low, int64_t high) const {
    return need(value >= low && value <= high, what, value, concat(low, " to ", high));
  }
  [[nodiscard]] Status at_least(std::string_view what, int64_t value, int64_t low) const {
    return need(value >= low, what, value, concat("at least ", low));
  }

  // A view with these sizes, its last dimension contiguous. No data is fine when optional or when nothing is in it.
  template <class T>
  [[nodiscard]] Status view(std::string_view what, const TensorView<T>& tensor, std::initializer_list<int64_t> sizes,
                            bool optional = false) const {
    bool nothing = false;
    for (int64_t size : sizes) nothing = nothing || size == 0;
    if (tensor.empty()) return need(optional || nothing, what, "missing", "data");
    WINNOW_TRY(need(tensor.rank == static_cast<int>(sizes.size()), concat(what, " rank"), tensor.rank, sizes.size()));
    int d = 0;
    for (int64_t size : sizes) {
      WINNOW_TRY(need(tensor.size(d) == size, concat(what, " size ", d), tensor.size(d), size));
      WINNOW_TRY(need(tensor.stride(d) >= 0 || size <= 1, concat(what, " stride ", d), tensor.stride(d), "at least 0"));
      ++d;
    }
    const int last = tensor.rank - 1;
    return need(tensor.size(last) <= 1 || tensor.stride(last) == 1, concat(what, " stride of the last dimension"),
                tensor.stride(last), 1);
  }

  // heads: [tokens, heads, width]. Written tensors must not overlap themselves; read ones may (stride 0 repeats).
  [[nodiscard]] Status heads(std::string_view what, const HeadTensor& tensor, int64_t tokens, int64_t heads,
                             int64_t width, bool written) const;
  [[nodiscard]] Status rows(const PagedRows& cache, RowFormat format, int64_t d_nope, int64_t d_rope,
                            int64_t page_size) const;
  [[nodiscard]] Status keys(const PagedKeys& cache, KeyFormat format, int64_t index_dim, int64_t page_size) const;
  [[nodiscard]] Status row_widths(RowFormat format, int64_t d_nope, int64_t d_rope) const;
};

}  // namespace winnow::rules
