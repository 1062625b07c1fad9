// SPDX-License-Identifier: Apache-2.0
#include "formats/rows.hpp"

#include <vector>

#include "core/dtype.hpp"
#include "formats/test_files.hpp"

namespace winnow {
namespace {

// 130 x 200 fp8: every element must be scaled by the scale of its own block, edge blocks included.
TEST(Rows, Fp8BlocksAtTheEdges) {
  std::vector<uint8_t> codes(130 * 200);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 126);
  const float scales[] = {1.0f, 0.5f, 4.0f, 0.125f};
  TensorInfo tensor;
  tensor.name = "w";
  tensor.type = StorageType::E4M3_B128;
  tensor.rank = 2;
  tensor.dims = {200, 130, 1, 1};
  tensor.data = reinterpret_cast<const std::byte*>(codes.data());
  tensor.block_scales = scales;
  std::vector<float> out(130 * 200);
  decode_rows(tensor, 0, 130, out.data());
  for (int r = 0; r < 130; ++r) {
    for (int c = 0; c < 200; ++c) {
      const float scale = scales[(r >= 128 ? 2 : 0) + (c >= 128 ? 1 : 0)];
      const auto i = static_cast<std::size_t>(r) * 200 + static_cast<std::size_t>(c);
      ASSERT_EQ(out[i], to_float(e4m3{codes[i]}) * scale) << r << ", " << c;
    }
  }
  std::vector<float> one(200);
  decode_rows(tensor, 129, 1, one.data());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), out.begin() + 129 * 200)) << "a row alone is the row among others";
}

}  // namespace
}  // namespace winnow
