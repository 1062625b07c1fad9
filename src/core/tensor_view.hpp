// SPDX-License-Identifier: Apache-2.0
// TensorView: a borrowed, strided, typed window on memory that somebody else owns.
//
// sizes and strides are in elements, int64_t, outermost dimension first: view(t, h, d) = data[t*strides[0] + ...].
// The view owns nothing and checks nothing at run time outside debug builds. data may be device memory:
// then only sizes and strides may be used on the host.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "core/check.hpp"

namespace winnow {

inline constexpr int kMaxRank = 4;

template <class T>
struct TensorView {
  T* data = nullptr;
  int rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<int64_t, kMaxRank> strides{};

  TensorView() = default;

  // Dense rows-major view.
  TensorView(T* data_in, std::initializer_list<int64_t> sizes_in)
      : data(data_in), rank(static_cast<int>(sizes_in.size())) {
    WINNOW_CHECK(rank <= kMaxRank, "rank ", rank);
    int i = 0;
    for (int64_t size : sizes_in) sizes[i++] = size;
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= sizes[d];
    }
  }

  // A view of const elements from one of mutable elements.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
      TensorView(const TensorView<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), rank(other.rank), sizes(other.sizes), strides(other.strides) {}

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] int64_t size(int d) const { return sizes[d]; }
  [[nodiscard]] int64_t stride(int d) const { return strides[d]; }

  template <class... Index>
  [[nodiscard]] T& operator()(Index... index) const {
    return data[offset(index...)];
  }

  // Pointer to the element at the leading indices, the rest 0: row(t) is the start of row t.
  template <class... Index>
  [[nodiscard]] T* row(Index... index) const {
    return data + offset(index...);
  }

 private:
  template <class... Index>
  [[nodiscard]] int64_t offset(Index... index) const {
    static_assert(sizeof...(Index) <= kMaxRank);
    int64_t result = 0;
    int d = 0;
    ((result += static_cast<int64_t>(index) * strides[d++]), ...);
    return result;
  }
};

}  // namespace winnow
