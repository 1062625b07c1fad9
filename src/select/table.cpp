// SPDX-License-Identifier: Apache-2.0
// The one table. A backend is added here: include its header, put its row into the families that should try it, in
// order of preference. There is no other place to edit, and no static initialiser that could be left out of a link.
#include <algorithm>
#include <array>
#include <string>

#include "backends/cpu/cpu_backends.hpp"
#include "backends/cuda/cuda_backends.hpp"
#include "core/concat.hpp"
#include "select/select.hpp"

namespace winnow {
namespace {

// Devices that try the same rows in the same order.
struct Family {
  const char* name;
  DeviceKind kind;
  int32_t first_sm, last_sm;  // inclusive; 0, 0 on a CPU
  std::vector<const Backend*> rows;
};

// First the kernels made for a device, then the portable ones, then what is merely right.
const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {"NVIDIA, Ampere and later", DeviceKind::cuda, 80, 129, {&cuda_sm80_backend()}},
      {"CPU", DeviceKind::cpu, 0, 0, {&cpu_simd_backend(), &cpu_reference_backend()}},
  };
  return table;
}

bool contains(const std::vector<const Backend*>& rows, const Backend* row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

struct PluginRow {
  const Backend* backend;
  bool preferred;
};

std::vector<PluginRow>& plugin_rows() {
  static std::vector<PluginRow> rows;
  return rows;
}

// Plug-ins of one kind: a later preferred one stands before an earlier one.
void append_plugins(std::vector<const Backend*>& rows, DeviceKind kind, bool preferred) {
  std::vector<const Backend*> found;
  for (const PluginRow& row : plugin_rows()) {
    if (row.backend->kind == kind && row.preferred == preferred) found.push_back(row.backend);
  }
  if (preferred) std::reverse(found.begin(), found.end());
  rows.insert(rows.end(), found.begin(), found.end());
}

void append_kind(std::vector<const Backend*>& rows, DeviceKind kind, const Family* family) {
  append_plugins(rows, kind, true);
  const auto append = [&rows](const Family& from) {
    for (const Backend* row : from.rows) {
      if (!contains(rows, row)) rows.push_back(row);
    }
  };
  if (family != nullptr) append(*family);
  for (const Family& other : families()) {
    if (other.kind == kind) append(other);
  }
  append_plugins(rows, kind, false);
}

const Family* family_of(const DeviceInfo& device) {
  for (const Family& family : families()) {
    if (family.kind == device.kind && device.sm >= family.first_sm && device.sm <= family.last_sm) return &family;
  }
  return nullptr;  // a device older or newer than any list: every row of its kind is asked, and says what it wants
}

std::vector<const Backend*>& registry() {
  static std::vector<const Backend*> rows;
  return rows;
}

void rebuild_registry() {
  std::vector<const Backend*> rows;
  append_kind(rows, DeviceKind::cuda, nullptr);
  append_kind(rows, DeviceKind::cpu, nullptr);
  registry() = std::move(rows);
}

}  // namespace

std::span<const Backend* const> all_backends() {
  if (registry().empty()) rebuild_registry();
  return registry();
}

const Backend* find_backend(std::string_view name) {
  for (const Backend* row : all_backends()) {
    if (name == row->name) return row;
  }
  return nullptr;
}

std::vector<const Backend*> in_order_for(const DeviceInfo& device) {
  std::vector<const Backend*> rows;
  append_kind(rows, device.kind, family_of(device));
  append_kind(rows, device.kind == DeviceKind::cpu ? DeviceKind::cuda : DeviceKind::cpu, nullptr);
  return rows;
}

Status add_backend(const Backend& backend, bool preferred) {
  const std::string_view name = backend.name == nullptr ? "" : backend.name;
  if (name.empty()) return error(StatusCode::invalid_argument, "a backend wants a name such as cpu.mine, has none");
  if (find_backend(name) != nullptr) {
    return error(StatusCode::invalid_argument, "the backend name ", name, " is taken; choose another");
  }
  const auto half = [&name](const char* operation, bool admits, bool run) {
    return error(StatusCode::invalid_argument, "backend ", name, " has ", admits ? "no run_" : "no admits_", operation,
                 " beside its ", run ? "run_" : "admits_", operation, "; an operation wants both functions or neither");
  };
  const bool absent = !backend.built;  // predicates without functions are what an absent row is
  const auto broken = [absent](bool admits, bool run) { return admits != run && !(absent && admits); };
  const bool mla = backend.admits_mla != nullptr, run_mla = backend.run_mla != nullptr;
  const bool select = backend.admits_select != nullptr, run_select = backend.run_select != nullptr;
  const bool write = backend.admits_write != nullptr, run_write = backend.run_write != nullptr;
  if (broken(mla, run_mla)) return half("mla", mla, run_mla);
  if (broken(select, run_select)) return half("select", select, run_select);
  if (broken(write, run_write)) return half("write", write, run_write);
  if (!mla && !select && !write) {
    return error(StatusCode::invalid_argument, "backend ", name, " offers no operation; it wants at least one of mla, ",
                 "select and write");
  }
  plugin_rows().push_back({&backend, preferred});
  rebuild_registry();
  return {};
}

}  // namespace winnow
