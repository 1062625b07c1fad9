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
#include "select/select.hpp"
#include "winnow/winnow.h"

namespace winnow {
namespace {

static_assert(WINNOW_INVALID_ARGUMENT == static_cast<int>(StatusCode::invalid_argument));
static_assert(WINNOW_DEVICE_ERROR == static_cast<int>(StatusCode::device_error));
static_assert(WINNOW_INTERNAL == static_cast<int>(StatusCode::internal));
static_assert(WINNOW_DEVICE_CUDA == static_cast<int>(DeviceKind::cuda));
static_assert(WINNOW_F32 == static_cast<int>(DType::f32) && WINNOW_BF16 == static_cast<int>(DType::bf16));
static_assert(WINNOW_F16 == static_cast<int>(DType::f16) && WINNOW_E4M3 == static_cast<int>(DType::e4m3));
static_assert(WINNOW_ROWS_V32_FP8 == static_cast<int>(RowFormat::v32_fp8));
static_assert(WINNOW_KEYS_FP8 == static_cast<int>(KeyFormat::fp8));
static_assert(WINNOW_SCALE_POWER_OF_TWO == static_cast<int>(ScaleMode::power_of_two));

// One loaded row. `theirs` is a copy as long as this build's struct: what an older library lacks is null.
struct Plugin {
  winnow_backend theirs{};
  std::string name;
  Backend row;
};

const winnow_backend& theirs(const Backend& row) { return static_cast<const Plugin*>(row.self)->theirs; }

template <class T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

// Ours to C -------------------------------------------------------------------------------------------------------

winnow_device_info to_c(const DeviceInfo& device) {
  auto c = sized<winnow_device_info>();
  c.kind = static_cast<int32_t>(device.kind);
  c.count = device.count;
  c.sm = device.sm;
  c.units = device.units;
  c.described = device.described ? 1 : 0;
  c.memory_bytes = device.memory_bytes;
  c.bandwidth = device.bandwidth;
  c.matrix_flops = device.matrix_flops;
  c.smem_per_block = device.smem_per_block;
  c.smem_per_sm = device.smem_per_sm;
  c.name = device.name.c_str();
  return c;
}

winnow_mla_problem to_c(const SparseMlaProblem& problem) {
  auto c = sized<winnow_mla_problem>();
  c.tokens = problem.tokens;
  c.q_heads = problem.q_heads;
  c.topk = problem.topk;
  c.page_size = problem.page_size;
  c.d_nope = problem.d_nope;
  c.d_rope = problem.d_rope;
  c.d_v = problem.d_v;
  c.softmax_scale = problem.softmax_scale;
  c.rows = static_cast<int32_t>(problem.rows);
  c.activations = static_cast<int32_t>(problem.activations);
  return c;
}

winnow_select_problem to_c(const IndexSelectProblem& problem) {
  auto c = sized<winnow_select_problem>();
  c.tokens = problem.tokens;
  c.index_heads = problem.index_heads;
  c.index_dim = problem.index_dim;
  c.topk = problem.topk;
  c.page_size = problem.page_size;
  c.max_len = problem.max_len;
  c.keys = static_cast<int32_t>(problem.keys);
  c.q_type = static_cast<int32_t>(problem.q_type);
  c.output_slots = problem.output_slots ? 1 : 0;
  return c;
}

winnow_write_problem to_c(const CacheWriteProblem& problem) {
  auto c = sized<winnow_write_problem>();
  c.tokens = problem.tokens;
  c.d_nope = problem.d_nope;
  c.d_rope = problem.d_rope;
  c.index_dim = problem.index_dim;
  c.page_size = problem.page_size;
  c.rows = static_cast<int32_t>(problem.rows);
  c.keys = static_cast<int32_t>(problem.keys);
  c.scale_mode = static_cast<int32_t>(problem.scale_mode);
  c.activations = static_cast<int32_t>(problem.activations);
  return c;
}

winnow_head_tensor to_c(const HeadTensor& tensor) { return {tensor.data, tensor.token_stride, tensor.head_stride}; }
winnow_paged_rows to_c(const PagedRows& rows) {
  return {rows.data, rows.pages, rows.page_stride_bytes, rows.row_stride_bytes};
}
winnow_paged_keys to_c(const PagedKeys& keys) { return {keys.data, keys.pages, keys.page_stride_bytes}; }

winnow_mla_buffers to_c(const SparseMlaBuffers& buffers) {
  auto c = sized<winnow_mla_buffers>();
  c.q = to_c(buffers.q);
  c.cache = to_c(buffers.cache);
  c.topk_slots = buffers.topk_slots.data;
  c.topk_slots_stride = buffers.topk_slots.strides[0];
  c.topk_len = buffers.topk_len.data;
  c.sink = buffers.sink.data;
  c.out = to_c(buffers.out);
  c.lse = buffers.lse.data;
  c.lse_stride = buffers.lse.strides[0];
  return c;
}

winnow_select_buffers to_c(const IndexSelectBuffers& buffers) {
  auto c = sized<winnow_select_buffers>();
  c.q = to_c(buffers.q);
  c.weight = buffers.weight.data;
  c.weight_stride = buffers.weight.strides[0];
  c.keys = to_c(buffers.keys);
  c.page_table = buffers.page_table.data;
  c.sequences = buffers.page_table.sizes[0];
  c.pages_per_sequence = buffers.page_table.sizes[1];
  c.page_table_stride = buffers.page_table.strides[0];
  c.seq = buffers.seq.data;
  c.start = buffers.start.data;
  c.len = buffers.len.data;
  c.out = buffers.out.data;
  c.out_stride = buffers.out.strides[0];
  c.out_len = buffers.out_len.data;
  return c;
}

winnow_write_buffers to_c(const CacheWriteBuffers& buffers) {
  auto c = sized<winnow_write_buffers>();
  c.latent = buffers.latent;
  c.rope = buffers.rope;
  c.key = buffers.key;
  c.latent_stride = buffers.latent_stride;
  c.rope_stride = buffers.rope_stride;
  c.key_stride = buffers.key_stride;
  c.slots = buffers.slots.data;
  c.cache = to_c(buffers.cache);
  c.key_cache = to_c(buffers.key_cache);
  return c;
}

winnow_execution to_c(const Execution& execution) {
  auto c = sized<winnow_execution>();
  c.stream = execution.stream;
  c.workspace = execution.workspace;
  c.workspace_bytes = execution.workspace_bytes;
  return c;
}

// C to ours -------------------------------------------------------------------------------------------------------

void collect(void* context, const char* what, const char* wanted, const char* found) {
  const auto text = [](const char* given) { return std::string(given == nullptr ? "(not said)" : given); };
  static_cast<Verdict*>(context)->refusals.push_back({text(what), text(wanted), text(found)});
}

template <class Problem>
Verdict ask(void (*admits)(void*, const Problem*, const winnow_device_info*, winnow_verdict*), void* self,
            const Problem& problem, const DeviceInfo& device) {
  Verdict verdict;
  auto c = sized<winnow_verdict>();
  c.launch = sized<winnow_launch_facts>();
  c.launch.splits = 1;
  c.context = &verdict;
  c.refuse = collect;
  const winnow_device_info c_device = to_c(device);
  admits(self, &problem, &c_device, &c);
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
  return ask(theirs(row).admits_mla, theirs(row).self, to_c(problem), device);
}
Verdict admits_select(const Backend& row, const IndexSelectProblem& problem, const DeviceInfo& device) {
  return ask(theirs(row).admits_select, theirs(row).self, to_c(problem), device);
}
Verdict admits_write(const Backend& row, const CacheWriteProblem& problem, const DeviceInfo& device) {
  return ask(theirs(row).admits_write, theirs(row).self, to_c(problem), device);
}

template <class Problem, class Buffers, class Run>
Status call(const Backend& row, Run run, const Problem& problem, const Buffers& buffers, const DeviceInfo& device,
            const Execution& execution) {
  auto message = sized<winnow_message>();
  const auto c_problem = to_c(problem);
  const auto c_buffers = to_c(buffers);
  const auto c_device = to_c(device);
  const auto c_execution = to_c(execution);
  return to_status(row, run(theirs(row).self, &c_problem, &c_buffers, &c_device, &c_execution, &message), message);
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

// Loading ---------------------------------------------------------------------------------------------------------

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
