// SPDX-License-Identifier: Apache-2.0
// What the SM90 kernel adds to mla_device.cuh: wgmma on 128-byte swizzled shared memory, and mbarriers.
// Compiles to nothing useful outside sm_90a; its one user guards for that.
#pragma once

#include <cstdint>

namespace winnow::cuda::sm90 {

// Operand descriptor: start address, leading and stride byte offsets (all / 16), layout 1 = 128-byte swizzle.
//   K-major  (rows of 64 bf16 along the summed dimension): stride = 8 rows; leading is not read
//   MN-major (rows of 64 bf16 across it):                  leading = next 64 columns, stride = next 8 rows
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler must not read accumulators before the wait above it.
template <int kCount>
__device__ __forceinline__ void pin(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// Generic-proxy writes that this thread has seen become visible to the tensor cores' reads.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void mbarrier_init(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t at) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
// Arrives once this thread's earlier cp.async copies have landed; counts against the barrier's expected arrivals.
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ bool mbarrier_test(uint32_t at, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(at), "r"(parity)
               : "memory");
  return done != 0;
}
__device__ __forceinline__ void mbarrier_wait(uint32_t at, uint32_t parity) {
  while (!mbarrier_test(at, parity)) {
  }
}

// s[64 x 32] (+)= a[64 x 16] b[32 x 16]^T, both K-major in shared memory.
__device__ __forceinline__ void wgmma_64x32(float (&s)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]),
        "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#define WINNOW_F4(i) "+f"(o[i]), "+f"(o[i + 1]), "+f"(o[i + 2]), "+f"(o[i + 3])
#define WINNOW_F16(i) WINNOW_F4(i), WINNOW_F4(i + 4), WINNOW_F4(i + 8), WINNOW_F4(i + 12)

// o[64 x 256] += a[64 x 16] b[16 x 256]; a in registers, b MN-major in shared memory.
__device__ __forceinline__ void wgmma_64x256(float (&o)[128], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
      "{%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
      : WINNOW_F16(0), WINNOW_F16(16), WINNOW_F16(32), WINNOW_F16(48), WINNOW_F16(64), WINNOW_F16(80), WINNOW_F16(96),
        WINNOW_F16(112)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef WINNOW_F4
#undef WINNOW_F16

}  // namespace winnow::cuda::sm90
