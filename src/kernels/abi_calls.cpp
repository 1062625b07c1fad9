// SPDX-License-Identifier: Apache-2.0
#include "kernels/abi_calls.hpp"

namespace winnow::kernels {
Status abi_status(winnow_status code) {
  if (code == WINNOW_OK) return {};
  return Status(static_cast<StatusCode>(code), winnow_last_error());
}

winnow_status call(const winnow_mla_problem& p, const winnow_mla_buffers& b, const winnow_execution& e) {
  return winnow_sparse_mla(&p, &b, &e);
}
winnow_status call(const winnow_select_problem& p, const winnow_select_buffers& b, const winnow_execution& e) {
  return winnow_index_select(&p, &b, &e);
}
winnow_status call(const winnow_write_problem& p, const winnow_write_buffers& b, const winnow_execution& e) {
  return winnow_cache_write(&p, &b, &e);
}
winnow_status call(const winnow_gather_problem& p, const winnow_gather_buffers& b, const winnow_execution& e) {
  return winnow_cache_gather(&p, &b, &e);
}
winnow_status call(const winnow_merge_problem& p, const winnow_merge_buffers& b, const winnow_execution& e) {
  return winnow_merge_partials(&p, &b, &e);
}

winnow_status workspace(const winnow_mla_problem& p, int64_t& bytes) { return winnow_sparse_mla_workspace(&p, &bytes); }
winnow_status workspace(const winnow_select_problem& p, int64_t& bytes) {
  return winnow_index_select_workspace(&p, &bytes);
}
winnow_status workspace(const winnow_write_problem&, int64_t& bytes) {
  bytes = 0;
  return WINNOW_OK;
}
winnow_status workspace(const winnow_gather_problem&, int64_t& bytes) {
  bytes = 0;
  return WINNOW_OK;
}
winnow_status workspace(const winnow_merge_problem&, int64_t& bytes) {
  bytes = 0;
  return WINNOW_OK;
}

}  // namespace winnow::kernels
