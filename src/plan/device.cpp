// SPDX-License-Identifier: Apache-2.0
// Devices by name and by description.
//
//   text   = [count "x"] (name | "this" | "cpu:" fact {"," fact})
//   fact   = number "cores" | number unit [/s] | number ("GFLOPS" | "TFLOPS")
// Decimal units are powers of ten (GB), binary ones powers of two (GiB). A described CPU without FLOPS is taken to
// have AVX2 at 2.5 GHz: 80 GFLOP/s of fp32 multiply-adds for each core.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "plan/devices_json.hpp"
#include "plan/plan.hpp"

namespace winnow {
namespace {

constexpr double kFlopsPerCore = 80e9;

struct Named {
  std::vector<std::string> names;  // the id first
  DeviceInfo info;
};

// The file is ours and tested, so a mistake in it is our broken invariant: it aborts in the test, not at a user's.
std::vector<Named> read_devices() {
  std::vector<Named> devices;
  const nlohmann::json file = nlohmann::json::parse(kDevicesJson);
  for (const auto& entry : file["devices"]) {
    Named named;
    named.names.push_back(entry["id"]);
    for (const auto& other : entry["also"]) named.names.push_back(other);
    DeviceInfo& info = named.info;
    info.kind = DeviceKind::cuda;
    info.name = entry["name"];
    info.sm = entry["sm"];
    info.units = entry["units"];
    info.memory_bytes = static_cast<int64_t>(entry["memory_gib"].get<double>() * 1024) << 20;
    info.bandwidth = entry["bandwidth_gbs"].get<double>() * 1e9;
    info.matrix_flops = entry["bf16_tflops"].get<double>() * 1e12;
    info.smem_per_block = entry["smem_per_block_kib"].get<int64_t>() << 10;
    info.smem_per_sm = entry["smem_per_sm_kib"].get<int64_t>() << 10;
    info.described = true;
    devices.push_back(std::move(named));
  }
  return devices;
}

const std::vector<Named>& devices() {
  static const std::vector<Named> table = read_devices();
  return table;
}

std::string lower_trimmed(std::string_view text) {
  std::string result;
  for (char c : text) result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!result.empty() && blank(result.back())) result.pop_back();
  result.erase(0, static_cast<std::size_t>(std::find_if_not(result.begin(), result.end(), blank) - result.begin()));
  return result;
}

// "RTX PRO 6000", "rtx_pro_6000": one spelling.
std::string as_id(std::string text) {
  for (char& c : text) {
    if (c == ' ' || c == '_') c = '-';
  }
  return text;
}

std::string known_names() {
  std::string text;
  for (const std::string& name : device_names()) text += concat(text.empty() ? "" : ", ", name);
  return text;
}

// Takes "8x " off the front. A name never begins with digits and an x.
Result<int32_t> take_count(std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  const std::size_t mark = text.find_first_not_of(' ', digits);
  if (digits == 0 || mark == std::string::npos || text[mark] != 'x') return 1;
  const long count = digits > 6 ? -1 : std::strtol(text.c_str(), nullptr, 10);
  if (count < 1 || count > 4096) {
    return error(StatusCode::invalid_argument, "--device wants 1 to 4096 devices, found ", text.substr(0, digits));
  }
  text = lower_trimmed(std::string_view(text).substr(mark + 1));
  return static_cast<int32_t>(count);
}

struct Fact {
  double value = 0;
  std::string unit;  // lower case, no blanks
};

std::optional<Fact> read_fact(const std::string& text) {
  char* end = nullptr;
  Fact fact;
  fact.value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(fact.value) || fact.value <= 0) return std::nullopt;
  for (const char* c = end; *c != '\0'; ++c) {
    if (*c != ' ') fact.unit.push_back(*c);
  }
  return fact;
}

std::optional<double> bytes_in(std::string_view unit) {
  if (unit == "mb") return 1e6;
  if (unit == "gb") return 1e9;
  if (unit == "tb") return 1e12;
  if (unit == "mib") return 0x1p20;
  if (unit == "gib") return 0x1p30;
  if (unit == "tib") return 0x1p40;
  return std::nullopt;
}

// False when the unit says nothing that a CPU has.
bool apply(const Fact& fact, DeviceInfo& cpu) {
  const std::string_view unit = fact.unit;
  if (unit == "cores" || unit == "core") {
    if (fact.value != std::floor(fact.value) || fact.value > 65536) return false;
    cpu.units = static_cast<int32_t>(fact.value);
  } else if (unit.size() > 2 && unit.substr(unit.size() - 2) == "/s") {
    const std::optional<double> scale = bytes_in(unit.substr(0, unit.size() - 2));
    if (!scale) return false;
    cpu.bandwidth = fact.value * *scale;
  } else if (unit == "gflops" || unit == "tflops") {
    cpu.matrix_flops = fact.value * (unit == "gflops" ? 1e9 : 1e12);
  } else {
    const std::optional<double> scale = bytes_in(unit);
    if (!scale || fact.value * *scale > 1e18) return false;
    cpu.memory_bytes = static_cast<int64_t>(fact.value * *scale);
  }
  return true;
}

Result<DeviceInfo> describe_cpu(std::string_view facts) {
  DeviceInfo cpu;
  cpu.name = "a described CPU";
  cpu.described = true;
  while (!facts.empty()) {
    const std::size_t comma = std::min(facts.find(','), facts.size());
    const std::string text = lower_trimmed(facts.substr(0, comma));
    facts.remove_prefix(std::min(comma + 1, facts.size()));
    const std::optional<Fact> fact = read_fact(text);
    if (!fact || !apply(*fact, cpu)) {
      return error(StatusCode::invalid_argument,
                   "--device cpu: wants facts such as 64 cores, 512 GB, 400 GB/s or "
                   "3 TFLOPS, found \"",
                   text, "\"");
    }
  }
  if (cpu.units == 0 || cpu.memory_bytes == 0 || cpu.bandwidth == 0) {
    return error(StatusCode::invalid_argument,
                 "--device cpu: wants cores, memory and bandwidth, as in "
                 "\"cpu:64 cores, 512 GB, 400 GB/s\"; missing:",
                 cpu.units == 0 ? " cores" : "", cpu.memory_bytes == 0 ? " memory" : "",
                 cpu.bandwidth == 0 ? " bandwidth" : "");
  }
  if (cpu.matrix_flops == 0) cpu.matrix_flops = kFlopsPerCore * cpu.units;
  return cpu;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Named& named : devices()) names.push_back(named.names.front());
  return names;
}

Result<DeviceInfo> parse_device(std::string_view text) {
  std::string rest = lower_trimmed(text);
  if (rest.empty() || rest == "this" || rest == "cpu") return host_cpu();
  WINNOW_TRY_ASSIGN(const int32_t count, take_count(rest));
  if (rest.rfind("cpu:", 0) == 0) {
    if (count != 1) {
      return error(StatusCode::invalid_argument, "--device wants one CPU with all its cores and memory, found ", count);
    }
    return describe_cpu(std::string_view(rest).substr(4));
  }
  const std::string id = as_id(rest);
  for (const Named& named : devices()) {
    if (std::find(named.names.begin(), named.names.end(), id) == named.names.end()) continue;
    DeviceInfo info = named.info;
    info.count = count;
    return info;
  }
  return error(StatusCode::invalid_argument, "--device ", text,
               " is not known. Known: this, cpu:64 cores, 512 GB, "
               "400 GB/s, or [N x] one of ",
               known_names());
}

}  // namespace winnow
