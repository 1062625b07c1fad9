// SPDX-License-Identifier: Apache-2.0
// Devices by name and description; units.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "plan/plan.hpp"

namespace winnow {
namespace {

DeviceInfo parsed(std::string_view text) {
  const Result<DeviceInfo> device = parse_device(text);
  EXPECT_TRUE(device.ok()) << text << ": " << device.status().message();
  return device.ok() ? device.value() : DeviceInfo();
}

std::string refused(std::string_view text) {
  const Result<DeviceInfo> device = parse_device(text);
  EXPECT_FALSE(device.ok()) << text;
  EXPECT_EQ(device.status().code(), StatusCode::invalid_argument) << text;
  return device.status().message();
}

TEST(Device, EveryNameOfTheFileParsesToACompleteDevice) {
  EXPECT_GE(device_names().size(), 14u);
  for (const std::string& name : device_names()) {
    const DeviceInfo device = parsed(name);
    EXPECT_EQ(device.kind, DeviceKind::cuda) << name;
    EXPECT_TRUE(device.described) << name;
    EXPECT_EQ(device.count, 1) << name;
    EXPECT_GE(device.sm, 80) << name;
    EXPECT_LE(device.sm, 121) << name;
    EXPECT_GE(device.units, 40) << name;
    EXPECT_GT(device.memory_bytes, int64_t{20} << 30) << name;
    EXPECT_GT(device.bandwidth, 2e11) << name;
    EXPECT_GT(device.matrix_flops, 5e13) << name;
    EXPECT_GE(device.smem_per_block, 99 * 1024) << name;
    EXPECT_EQ(device.smem_per_sm, device.smem_per_block + 1024) << name;
  }
}

TEST(Device, TheNamesThatPeopleUseAreThere) {
  const std::vector<std::string> names = device_names();
  for (const char* name : {"a100-40g", "a100-80g", "rtx-3090", "a6000", "a40", "l40s", "l4", "rtx-4090", "rtx-5090",
                           "rtx-pro-6000", "h100", "h200", "b200", "gb10"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(Device, CountAndSpelling) {
  EXPECT_EQ(parsed("8x rtx-pro-6000").count, 8);
  EXPECT_EQ(parsed("8xh200").count, 8);
  EXPECT_EQ(parsed(" 2 x RTX PRO 6000 ").count, 2);
  EXPECT_EQ(parsed("RTX_4090").name, parsed("rtx-4090").name);
  EXPECT_EQ(parsed("4090").name, parsed("rtx-4090").name);  // digits without an x are a name
  EXPECT_EQ(parsed("3090").count, 1);
}

TEST(Device, ADescribedCpuIsTakenAtItsWord) {
  const DeviceInfo cpu = parsed("cpu:64 cores, 512 GB, 400 GB/s");
  EXPECT_EQ(cpu.kind, DeviceKind::cpu);
  EXPECT_TRUE(cpu.described);
  EXPECT_EQ(cpu.units, 64);
  EXPECT_EQ(cpu.memory_bytes, 512'000'000'000);
  EXPECT_EQ(cpu.bandwidth, 4e11);
  EXPECT_EQ(cpu.matrix_flops, 64 * 80e9);
  EXPECT_EQ(parsed("CPU: 1TiB,0.5 TB/s , 8 cores, 3 TFLOPS").memory_bytes, int64_t{1} << 40);
  EXPECT_EQ(parsed("cpu: 1 TiB, 0.5 TB/s, 8 cores, 3 TFLOPS").matrix_flops, 3e12);
}

TEST(Device, ThisIsTheHost) {
  EXPECT_FALSE(parsed("this").described);
  EXPECT_FALSE(parsed("").described);
  EXPECT_EQ(parsed("this").units, host_cpu().units);
}

TEST(Device, WhatIsWrongIsSaid) {
  EXPECT_NE(refused("h300").find("rtx-pro-6000"), std::string::npos);  // lists the known names
  EXPECT_NE(refused("0x h200").find("1 to 4096"), std::string::npos);
  EXPECT_NE(refused("99999999999x h200").find("1 to 4096"), std::string::npos);
  EXPECT_NE(refused("cpu:64 cores").find("missing: memory bandwidth"), std::string::npos);
  EXPECT_NE(refused("cpu:64 cores, 512 furlongs, 4 GB/s").find("\"512 furlongs\""), std::string::npos);
  EXPECT_NE(refused("cpu:1.5 cores, 512 GB, 4 GB/s").find("1.5 cores"), std::string::npos);
  EXPECT_NE(refused("cpu:8 cores, -4 GB, 4 GB/s").find("-4 gb"), std::string::npos);
  EXPECT_NE(refused("cpu:8 cores, inf GB, 4 GB/s").find("inf gb"), std::string::npos);
  EXPECT_NE(refused("cpu:8 cores, 1e300 GB, 4 GB/s").find("1e300"), std::string::npos);
  EXPECT_NE(refused("2x cpu:8 cores, 4 GB, 4 GB/s").find("one CPU"), std::string::npos);
}

TEST(Device, NoTextCrashesTheParser) {
  const bool holds = rc::check("parse_device answers any text", [] {
    const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "8", "x", " ", "cpu:", ",", "GB", "/s", "cores", "h200", "-", "1e9", "\xff", "this", "TFLOPS", "0"));
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    const Result<DeviceInfo> device = parse_device(text);
    RC_ASSERT(device.ok() || !device.status().message().empty());
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace winnow
