/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that must not be accepted, one for each BROKEN_* definition, and one whose run reports a failure. */
#include <stddef.h>
#include <stdio.h>

#include "winnow/winnow.h"

static void admits(void* self, const winnow_mla_problem* problem, const winnow_device_info* device,
                   winnow_verdict* verdict) {
  (void)self, (void)problem, (void)device;
  (void)verdict;
#ifdef BROKEN_REASON
  verdict->refusals = 1; /* refuses, and says nothing */
#endif
}

static winnow_status run(void* self, const winnow_mla_problem* problem, const winnow_mla_buffers* buffers,
                         const winnow_device_info* device, const winnow_execution* execution, winnow_message* message) {
  (void)self, (void)problem, (void)buffers, (void)device, (void)execution;
  snprintf(message->text, sizeof(message->text), "the scratch disk is full");
  return WINNOW_IO_ERROR;
}

#ifdef BROKEN_SYMBOL
WINNOW_EXPORT const winnow_backend* winnow_backend_v0(uint32_t host_abi_version) {
#else
WINNOW_EXPORT const winnow_backend* winnow_backend_v1(uint32_t host_abi_version) {
#endif
  static winnow_backend row;
  (void)host_abi_version;
  row.struct_size = sizeof(row);
  row.abi_version = WINNOW_ABI_VERSION;
  row.name = "cpu.broken";
  row.admits_mla = admits;
  row.run_mla = run;
#if defined(BROKEN_VERSION)
  row.abi_version = WINNOW_ABI_VERSION + 1;
#elif defined(BROKEN_FUNCTION)
  row.run_mla = NULL;
#elif defined(BROKEN_SIZE)
row.struct_size = 8;
#elif defined(BROKEN_NAME)
row.name = "cpu.reference";
#elif defined(BROKEN_KIND)
row.device_kind = 7;
#elif defined(BROKEN_HOST)
return NULL;
#elif defined(BROKEN_RUN)
row.name = "cpu.failing";
#elif defined(BROKEN_REASON)
row.name = "cpu.silent";
#endif
  return &row;
}
