// SPDX-License-Identifier: Apache-2.0
// Out-of-tree rows: a shared library's winnow_backend becomes a Backend whose functions translate structs both ways.
//
// The library stays loaded until the process ends, because its row may be chosen at any time. What the library gets are
// borrowed copies that live during the call. Its predicate is asked again and check() is run before every run, so that
// a library that forgets to check is never handed what it refused or what breaks the contract.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "contract/refused.hpp"
#include "contract/to_c.hpp"
#include "select/select.hpp"
#include "winnow/winnow.h"

namespace winnow {
namespace {

// One loaded row. `theirs` is a copy as long as this build's struct: what an older library lacks is null.
struct Plugin {
  winnow_backend theirs{};
  std::string name;
  Backend row;
};

const winnow_backend& theirs(const Backend& row) { return static_cast<const Plugin*>(row.self)->theirs; }

void collect(void* context, const char* what, const char* wanted, const char* found) {
  const auto text = [](const char* given) { return std::string(given == nullptr ? "(not said)" : given); };
  static_cast<Verdict*>(context)->refusals.push_back({text(what), text(wanted), text(found)});
}

template <class Problem>
Verdict ask(void (*admits)(void*, const Problem*, const winnow_device_info*, winnow_verdict*), void* self,
            const Problem& problem, const DeviceInfo& device) {
  Verdict verdict;
  auto c = sized_struct<winnow_verdict>();
  c.launch = sized_struct<winnow_launch_facts>();
  c.launch.splits = 1;
  c.context = &verdict;
  c.refuse = collect;
  const winnow_device_info facts = c_device(device);
  admits(self, &problem, &facts, &c);
  if (c.refusals > 0 && verdict.refusals.empty())
    collect(&verdict, "backend", "to admit", "a refusal without a reason");
  c.launch.note[sizeof(c.launch.note) - 1] = '\0';
  verdict.launch = {c.launch.heads_per_block, c.launch.rows_per_tile,   c.launch.stages, c.launch.splits,
                    c.launch.shared_bytes,    c.launch.workspace_bytes, c.launch.note};
  return verdict;
}

Status to_status(const Backend& row, winnow_status status, winnow_message& message) {
  if (status == WINNOW_OK) return {};
  message.text[sizeof(message.text) - 1] = '\0';
  const bool known = status > WINNOW_OK && status <= WINNOW_INTERNAL;
  const StatusCode code = known ? static_cast<StatusCode>(status) : StatusCode::internal;
  return error(code, row.name, ": ", message.text[0] != '\0' ? message.text : concat("failed with status ", status));
}

Verdict admits_mla(const Backend& row, const SparseMlaProblem& problem, const DeviceInfo& device) {
  return ask(theirs(row).admits_mla, theirs(row).self, c_problem(problem), device);
}
Verdict admits_select(const Backend& row, const IndexSelectProblem& problem, const DeviceInfo& device) {
  return ask(theirs(row).admits_select, theirs(row).self, c_problem(problem), device);
}
Verdict admits_write(const Backend& row, const CacheWriteProblem& problem, const DeviceInfo& device) {
  return ask(theirs(row).admits_write, theirs(row).self, c_problem(problem), device);
}

template <class Problem, class Buffers, class Run>
Status call(const Backend& row, Run run, const Problem& problem, const Buffers& buffers, const DeviceInfo& device,
            const Execution& execution) {
  auto message = sized_struct<winnow_message>();
  const auto what = c_problem(problem);
  const auto where = c_buffers(buffers);
  const auto facts = c_device(device);
  const auto how = c_execution(execution);
  return to_status(row, run(theirs(row).self, &what, &where, &facts, &how, &message), message);
}

// Each run asks the predicate first, then check(): what reaches the library has every pointer and a last stride of 1,
// which is all that the C structs can express.
Status run_mla(const Backend& row, const SparseMlaProblem& problem, const SparseMlaBuffers& buffers,
               const DeviceInfo& device, const Execution& execution) {
  WINNOW_TRY(refused(row.name, admits_mla(row, problem, device)));
  WINNOW_TRY(check(problem, buffers));
  return call(row, theirs(row).run_mla, problem, buffers, device, execution);
}

Status run_select(const Backend& row, const IndexSelectProblem& problem, const IndexSelectBuffers& buffers,
                  const DeviceInfo& device, const Execution& execution) {
  WINNOW_TRY(refused(row.name, admits_select(row, problem, device)));
  WINNOW_TRY(check(problem, buffers));
  return call(row, theirs(row).run_select, problem, buffers, device, execution);
}

Status run_write(const Backend& row, const CacheWriteProblem& problem, const CacheWriteBuffers& buffers,
                 const DeviceInfo& device, const Execution& execution) {
  WINNOW_TRY(refused(row.name, admits_write(row, problem, device)));
  WINNOW_TRY(check(problem, buffers));
  return call(row, theirs(row).run_write, problem, buffers, device, execution);
}

Status check_header(const winnow_backend* found) {
  if (found == nullptr) {
    return error(StatusCode::invalid_argument, WINNOW_BACKEND_ENTRY, " returned no row for ABI version ",
                 WINNOW_ABI_VERSION, "; the library was made for another version of Winnow");
  }
  if (found->struct_size < offsetof(winnow_backend, admits_select)) {
    return error(StatusCode::invalid_argument, "its winnow_backend has struct_size ", found->struct_size,
                 ", wants at least ", offsetof(winnow_backend, admits_select), "; set it to sizeof(winnow_backend)");
  }
  if (found->abi_version != WINNOW_ABI_VERSION) {
    return error(StatusCode::invalid_argument, "it has ABI version ", found->abi_version, ", this Winnow wants ",
                 WINNOW_ABI_VERSION, "; compile it against this Winnow's include/winnow/winnow.h");
  }
  if (found->device_kind != WINNOW_DEVICE_CPU && found->device_kind != WINNOW_DEVICE_CUDA) {
    return error(StatusCode::invalid_argument, "it has device_kind ", found->device_kind,
                 ", wants 0 (CPU) or 1 (CUDA)");
  }
  return {};
}

std::unique_ptr<Plugin> make_plugin(const winnow_backend& found) {
  auto plugin = std::make_unique<Plugin>();
  std::memcpy(&plugin->theirs, &found, std::min<std::size_t>(found.struct_size, sizeof(winnow_backend)));
  const winnow_backend& c = plugin->theirs;
  plugin->name = c.name == nullptr ? "" : c.name;
  Backend& row = plugin->row;
  row.name = plugin->name.c_str();
  row.kind = static_cast<DeviceKind>(c.device_kind);
  row.self = plugin.get();
  // A missing half stays null here too, so that add_backend names it.
  row.admits_mla = c.admits_mla ? admits_mla : nullptr;
  row.run_mla = c.run_mla ? run_mla : nullptr;
  row.admits_select = c.admits_select ? admits_select : nullptr;
  row.run_select = c.run_select ? run_select : nullptr;
  row.admits_write = c.admits_write ? admits_write : nullptr;
  row.run_write = c.run_write ? run_write : nullptr;
  return plugin;
}

Status add_from(void* library) {
  const auto entry = reinterpret_cast<winnow_backend_entry>(dlsym(library, WINNOW_BACKEND_ENTRY));
  if (entry == nullptr) {
    return error(StatusCode::not_found, "it exports no ", WINNOW_BACKEND_ENTRY,
                 "; is it a Winnow backend, and is the function extern \"C\" and visible?");
  }
  const winnow_backend* found = entry(WINNOW_ABI_VERSION);
  WINNOW_TRY(check_header(found));
  std::unique_ptr<Plugin> plugin = make_plugin(*found);
  WINNOW_TRY(add_backend(plugin->row, (found->flags & WINNOW_BACKEND_PREFERRED) != 0));
  static std::vector<std::unique_ptr<Plugin>> loaded;  // rows live as long as the process
  loaded.push_back(std::move(plugin));
  return {};
}

}  // namespace

Status load_backend_plugin(const std::string& path) {
  // RTLD_LOCAL: two plug-ins may both export winnow_backend_v1. A bare file name means a file here, not a search.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return error(StatusCode::io_error, "backend library ", path,
                 " cannot be loaded: ", reason == nullptr ? "no reason was given" : reason);
  }
  Status status = add_from(library);
  if (!status.ok()) dlclose(library);
  return std::move(status).in(concat("backend library ", path));
}

}  // namespace winnow
