// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>

#include "formats/iq_codes.hpp"

namespace winnow {
namespace {

// CRC-32 of zlib: polynomial EDB88320, reflected.
uint32_t crc32(const void* data, std::size_t bytes) {
  uint32_t crc = ~0u;
  for (std::size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

TEST(IqCodebooks, CrcKnowsItsCheckValue) { EXPECT_EQ(crc32("123456789", 9), 0xCBF43926u); }

// Checksums of the expanded tables of ggml, one byte per element.
TEST(IqCodebooks, TablesAreThoseOfTheFormat) {
  const IqGrids& grids = iq_grids();
  EXPECT_EQ(crc32(grids.iq2_xxs, sizeof grids.iq2_xxs), 0x9924ff02u);
  EXPECT_EQ(crc32(grids.iq2_xs, sizeof grids.iq2_xs), 0xfa1e1bfdu);
  EXPECT_EQ(crc32(grids.iq2_s, sizeof grids.iq2_s), 0x25ae5bf1u);
  EXPECT_EQ(crc32(grids.iq3_xxs, sizeof grids.iq3_xxs), 0x07ba9ed0u);
  EXPECT_EQ(crc32(grids.iq3_s, sizeof grids.iq3_s), 0xf576e4f3u);
  EXPECT_EQ(crc32(grids.iq1, sizeof grids.iq1), 0xb85e6ccfu);
}

}  // namespace
}  // namespace winnow
