/* SPDX-License-Identifier: Apache-2.0 */
/* Winnow's C ABI. Plain C (C99 and C++), no dependency.
 *
 * What is here
 *   1  status codes, formats and the structs that describe an operation: shared by everything below
 *   2  the kernel library winnow_kernels: what a program calls
 *   3  the plug-in ABI: what an out-of-tree backend exports, and Winnow calls
 *
 * Versions. Every struct that crosses the border by pointer begins with struct_size, set by whoever fills it to sizeof
 * of the struct it was compiled with. Fields are only ever appended: a reader looks at a field when struct_size covers
 * it and takes 0 otherwise. Enum values are never renumbered. Small structs without struct_size (winnow_head_tensor,
 * winnow_paged_rows, winnow_paged_keys) never change.
 *
 * What the operations compute, with every edge case: docs/contract.md. Strides are in elements unless the name says
 * bytes; the last dimension is contiguous. Nothing here allocates device memory, owns the caller's memory or
 * synchronises a stream. No C++ exception may cross this border in either direction.
 */
#ifndef WINNOW_WINNOW_H
#define WINNOW_WINNOW_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WINNOW_ABI_VERSION 1u

#if defined(_WIN32)
#define WINNOW_EXPORT __declspec(dllexport)
#else
#define WINNOW_EXPORT __attribute__((visibility("default")))
#endif

/* ------------------------------------------------------------------ 1  common */

typedef int32_t winnow_status;
enum {
  WINNOW_OK = 0,
  WINNOW_INVALID_ARGUMENT = 1, /* the caller asked for something that has no meaning */
  WINNOW_NOT_FOUND = 2,
  WINNOW_CORRUPT_DATA = 3,
  WINNOW_UNSUPPORTED = 4, /* well-formed, but nothing here can do it */
  WINNOW_OUT_OF_MEMORY = 5,
  WINNOW_IO_ERROR = 6,
  WINNOW_DEVICE_ERROR = 7, /* a CUDA call or launch failed */
  WINNOW_CANCELLED = 8,
  WINNOW_INTERNAL = 9
};

enum { WINNOW_DEVICE_CPU = 0, WINNOW_DEVICE_CUDA = 1 };                      /* device kind */
enum { WINNOW_F32 = 0, WINNOW_F16 = 1, WINNOW_BF16 = 2, WINNOW_E4M3 = 3 };   /* element type */
enum { WINNOW_ROWS_F32 = 0, WINNOW_ROWS_BF16 = 1, WINNOW_ROWS_V32_FP8 = 2 }; /* latent row format */
enum { WINNOW_KEYS_F32 = 0, WINNOW_KEYS_BF16 = 1, WINNOW_KEYS_FP8 = 2 };     /* index key format */
enum { WINNOW_SCALE_PLAIN = 0, WINNOW_SCALE_POWER_OF_TWO = 1 };              /* scale mode */

typedef struct winnow_device_info {
  uint32_t struct_size;
  int32_t kind;           /* WINNOW_DEVICE_* */
  int32_t count;          /* devices of this kind that share the work */
  int32_t sm;             /* compute capability times ten; 0 on a CPU */
  int32_t units;          /* streaming multiprocessors, or CPU cores, of one device */
  int32_t described;      /* 1: written by hand, not present in this machine */
  int64_t memory_bytes;   /* of one device */
  double bandwidth;       /* bytes per second of one device */
  double matrix_flops;    /* dense bf16 FLOP per second with fp32 accumulation (CPU: fp32 FMA) */
  int64_t smem_per_block; /* bytes of shared memory that one block may ask for; 0 on a CPU */
  int64_t smem_per_sm;    /* bytes of shared memory of one SM; 0 on a CPU */
  const char* name;       /* owned by the caller, valid during the call; may be null */
} winnow_device_info;

/* What a launch will use; the launcher reads the same numbers. */
typedef struct winnow_launch_facts {
  uint32_t struct_size;
  int32_t heads_per_block; /* query heads of one CTA, padding included */
  int32_t rows_per_tile;   /* cache rows in one step */
  int32_t stages;          /* tiles in flight */
  int32_t splits;          /* shares of one token's slots, at least 1 */
  int64_t shared_bytes;    /* shared memory of one CTA */
  int64_t workspace_bytes; /* scratch that the caller provides */
  char note[128];          /* zero-terminated, may be empty */
} winnow_launch_facts;

/* The answer of a predicate. The asker zeroes it, sets struct_size, launch.struct_size and launch.splits = 1, and may
 * set refuse and context. The predicate calls winnow_refuse for every reason (all, not the first) and fills launch
 * when there is none. Admitted means refusals == 0. */
typedef struct winnow_verdict {
  uint32_t struct_size;
  int32_t refusals; /* how many reasons were given */
  winnow_launch_facts launch;
  void* context; /* the asker's */
  /* Receives each reason; copies the strings before it returns. May be null: then only the count is kept. */
  void (*refuse)(void* context, const char* what, const char* wanted, const char* found);
} winnow_verdict;

static inline void winnow_refuse(winnow_verdict* verdict, const char* what, const char* wanted, const char* found) {
  verdict->refusals += 1;
  if (verdict->refuse) verdict->refuse(verdict->context, what, wanted, found);
}

typedef struct winnow_execution {
  uint32_t struct_size;
  void* stream;            /* cudaStream_t on CUDA, null on a CPU */
  void* workspace;         /* device memory on CUDA; may be null when workspace_bytes is 0 */
  int64_t workspace_bytes; /* at least the verdict's launch.workspace_bytes */
} winnow_execution;

/* [tokens, heads, width], the last dimension contiguous; strides in elements. */
typedef struct winnow_head_tensor {
  void* data;
  int64_t token_stride;
  int64_t head_stride;
} winnow_head_tensor;

/* Latent rows: slot s is at data + (s / page_size) * page_stride_bytes + (s % page_size) * row_stride_bytes. */
typedef struct winnow_paged_rows {
  void* data;
  int64_t pages;
  int64_t page_stride_bytes;
  int64_t row_stride_bytes;
} winnow_paged_rows;

/* Index keys: page p starts at data + p * page_stride_bytes. */
typedef struct winnow_paged_keys {
  void* data;
  int64_t pages;
  int64_t page_stride_bytes;
} winnow_paged_keys;

/* Sparse MLA ------------------------------------------------------------------------------------------------- */

typedef struct winnow_mla_problem {
  uint32_t struct_size;
  int32_t tokens;    /* query tokens, all sequences flattened; 0 is legal */
  int32_t q_heads;   /* 1 to 128 */
  int32_t topk;      /* slots listed per token, empty ones included; 0 is legal */
  int32_t page_size; /* slots per page */
  int32_t d_nope;    /* latent elements of a row */
  int32_t d_rope;    /* rotated elements of a row; 0 is legal */
  int32_t d_v;       /* leading elements read as value, <= d_nope */
  float softmax_scale;
  int32_t rows;        /* WINNOW_ROWS_* */
  int32_t activations; /* of q and out: WINNOW_BF16, or WINNOW_F32 on a CPU */
} winnow_mla_problem;

typedef struct winnow_mla_buffers {
  uint32_t struct_size;
  winnow_head_tensor q;      /* [tokens, q_heads, d_nope + d_rope], read only */
  winnow_paged_rows cache;   /* read only */
  const int32_t* topk_slots; /* [tokens, topk], -1 = empty */
  int64_t topk_slots_stride; /* from one token to the next */
  const int32_t* topk_len;   /* [tokens], or null: all topk entries count */
  const float* sink;         /* [q_heads] natural-log logits, or null: none */
  winnow_head_tensor out;    /* [tokens, q_heads, d_v] */
  float* lse;                /* [tokens, q_heads] natural log, or null: not wanted */
  int64_t lse_stride;        /* from one token to the next */
} winnow_mla_buffers;

/* Index scores and exact top-k ---------------------------------------------------------------------------------- */

typedef struct winnow_select_problem {
  uint32_t struct_size;
  int32_t tokens;
  int32_t index_heads; /* 1 to 64 */
  int32_t index_dim;
  int32_t topk;
  int32_t page_size;
  int64_t max_len;      /* upper bound of start + len: sizes the launch */
  int32_t keys;         /* WINNOW_KEYS_* */
  int32_t q_type;       /* WINNOW_F32, WINNOW_BF16 or WINNOW_E4M3 (its scale folded into weight) */
  int32_t output_slots; /* 1: slots through the page table, 0: positions */
} winnow_select_problem;

typedef struct winnow_select_buffers {
  uint32_t struct_size;
  winnow_head_tensor q;      /* [tokens, index_heads, index_dim], read only */
  const float* weight;       /* [tokens, index_heads] */
  int64_t weight_stride;     /* from one token to the next */
  winnow_paged_keys keys;    /* read only */
  const int32_t* page_table; /* [sequences, pages_per_sequence] */
  int64_t sequences;
  int64_t pages_per_sequence;
  int64_t page_table_stride; /* from one sequence to the next */
  const int32_t* seq;        /* [tokens] row of page_table */
  const int32_t* start;      /* [tokens], or null: 0 */
  const int32_t* len;        /* [tokens] visible positions from start */
  int32_t* out;              /* [tokens, topk] */
  int64_t out_stride;        /* from one token to the next */
  int32_t* out_len;          /* [tokens], or null: not wanted */
} winnow_select_buffers;

/* Cache writer -------------------------------------------------------------------------------------------------- */

typedef struct winnow_write_problem {
  uint32_t struct_size;
  int32_t tokens;
  int32_t d_nope;
  int32_t d_rope;
  int32_t index_dim; /* 0: no index key is written */
  int32_t page_size;
  int32_t rows;        /* WINNOW_ROWS_* */
  int32_t keys;        /* WINNOW_KEYS_* */
  int32_t scale_mode;  /* WINNOW_SCALE_* */
  int32_t activations; /* of latent, rope and key: WINNOW_F32 or WINNOW_BF16 */
} winnow_write_problem;

typedef struct winnow_write_buffers {
  uint32_t struct_size;
  const void* latent; /* [tokens, d_nope] */
  const void* rope;   /* [tokens, d_rope]; may be null when d_rope is 0 */
  const void* key;    /* [tokens, index_dim]; null when index_dim is 0 */
  int64_t latent_stride;
  int64_t rope_stride;
  int64_t key_stride;
  const int32_t* slots; /* [tokens]; -1 and out of range: that token is skipped */
  winnow_paged_rows cache;
  winnow_paged_keys key_cache;
} winnow_write_buffers;

/* ------------------------------------------------------------------ 2  kernel library */

/* libwinnow_kernels: CUDA kernels for compute capability 8.0 and up. Depends on the CUDA driver alone.
 *
 * Every call works on the current CUDA device of the calling thread and enqueues on execution->stream; it returns once
 * the work is enqueued. Results are there when the stream has reached that point. Calls may be captured in a CUDA
 * graph: the launch depends on the problem's sizes alone, so lists, lengths and every other device value may change
 * between replays. Call winnow_init_device once per device before the first capture; calls on a device that was not
 * initialised return WINNOW_INVALID_ARGUMENT. Functions may be called from several threads at once; two calls that may
 * run at the same time need two workspaces.
 *
 * A call that does not return WINNOW_OK has enqueued nothing, and winnow_last_error() says what, wanted, found. */

/* WINNOW_ABI_VERSION the library was compiled with. */
WINNOW_EXPORT uint32_t winnow_abi_version(void);
/* "0.1.0" */
WINNOW_EXPORT const char* winnow_version(void);
/* Text of the last failed call on this thread, "" when none has failed; valid until the next call on this thread. */
WINNOW_EXPORT const char* winnow_last_error(void);

/* Sets the attributes that the kernels need on this device and reads its facts. `info` may be null; otherwise its
 * struct_size is set by the caller, and its name is owned by the library. Cheap when repeated.
 * The environment variable WINNOW_SHARED_KB, read at a device's first call, limits the shared memory per block that
 * kernels are chosen for. */
WINNOW_EXPORT winnow_status winnow_init_device(int32_t device, winnow_device_info* info);

/* The predicates: may this problem run on that device, with what launch, or for which reasons not. No device call, so
 * they answer for devices that are only described. */
WINNOW_EXPORT winnow_status winnow_sparse_mla_admits(const winnow_mla_problem* problem,
                                                     const winnow_device_info* device, winnow_verdict* verdict);
WINNOW_EXPORT winnow_status winnow_index_select_admits(const winnow_select_problem* problem,
                                                       const winnow_device_info* device, winnow_verdict* verdict);
WINNOW_EXPORT winnow_status winnow_cache_write_admits(const winnow_write_problem* problem,
                                                      const winnow_device_info* device, winnow_verdict* verdict);

/* Bytes of workspace that serve this problem on the current device, and the same one with fewer tokens: ask once for
 * the largest batch. A call checks against the need of its own size, which is what a verdict's launch.workspace_bytes
 * says. */
WINNOW_EXPORT winnow_status winnow_sparse_mla_workspace(const winnow_mla_problem* problem, int64_t* bytes);
WINNOW_EXPORT winnow_status winnow_index_select_workspace(const winnow_select_problem* problem, int64_t* bytes);

/* The operations. Workspace need not be initialised and holds nothing between calls; 256-byte aligned, as cudaMalloc
 * gives it. */
WINNOW_EXPORT winnow_status winnow_sparse_mla(const winnow_mla_problem* problem, const winnow_mla_buffers* buffers,
                                              const winnow_execution* execution);
WINNOW_EXPORT winnow_status winnow_index_select(const winnow_select_problem* problem,
                                                const winnow_select_buffers* buffers,
                                                const winnow_execution* execution);
WINNOW_EXPORT winnow_status winnow_cache_write(const winnow_write_problem* problem, const winnow_write_buffers* buffers,
                                               const winnow_execution* execution);

/* Row r of out becomes the cached row at slots[r], dequantised to f32; zeros for a slot that is empty or out of range.
 * For tests and transfers. */
typedef struct winnow_gather_problem {
  uint32_t struct_size;
  int32_t slots; /* how many */
  int32_t d_nope;
  int32_t d_rope;
  int32_t page_size;
  int32_t rows; /* WINNOW_ROWS_* */
} winnow_gather_problem;

typedef struct winnow_gather_buffers {
  uint32_t struct_size;
  winnow_paged_rows cache; /* read only */
  const int32_t* slots;    /* [slots] */
  float* out;              /* [slots, d_nope + d_rope] */
  int64_t out_stride;      /* from one row to the next */
} winnow_gather_buffers;

WINNOW_EXPORT winnow_status winnow_cache_gather(const winnow_gather_problem* problem,
                                                const winnow_gather_buffers* buffers,
                                                const winnow_execution* execution);

/* Merge of partial attention results by their LSE: the same tokens and heads computed over disjoint parts of the slots
 * (context-parallel ranks). A part whose lse is -inf is empty and its out is not read. The sink is applied here, once:
 * partial results are made without it. */
typedef struct winnow_merge_problem {
  uint32_t struct_size;
  int32_t parts; /* at least 1 */
  int32_t tokens;
  int32_t q_heads;
  int32_t d_v;
  int32_t out_type; /* WINNOW_F32 or WINNOW_BF16 */
} winnow_merge_problem;

typedef struct winnow_merge_buffers {
  uint32_t struct_size;
  const float* part_out; /* [parts, tokens, q_heads, d_v] */
  int64_t part_out_part_stride;
  int64_t part_out_token_stride;
  int64_t part_out_head_stride;
  const float* part_lse; /* [parts, tokens, q_heads] natural log */
  int64_t part_lse_part_stride;
  int64_t part_lse_token_stride;
  const float* sink;      /* [q_heads], or null: none */
  winnow_head_tensor out; /* [tokens, q_heads, d_v] of out_type */
  float* lse;             /* [tokens, q_heads], or null: not wanted */
  int64_t lse_stride;     /* from one token to the next */
} winnow_merge_buffers;

WINNOW_EXPORT winnow_status winnow_merge_partials(const winnow_merge_problem* problem,
                                                  const winnow_merge_buffers* buffers,
                                                  const winnow_execution* execution);

/* ------------------------------------------------------------------ 3  plug-in ABI */

/* Filled by a run function that does not return WINNOW_OK; text is zero-terminated. */
typedef struct winnow_message {
  uint32_t struct_size;
  char text[508];
} winnow_message;

enum {
  WINNOW_BACKEND_PREFERRED = 1 /* flag: stand in front of the rows of the device kind, not behind them */
};

/* One row of the backend table. An operation that is not offered has both of its functions null; one null alone is
 * refused at load. The predicate sees facts only, and run refuses (WINNOW_UNSUPPORTED) what the predicate refuses.
 * Everything pointed to lives as long as the library is loaded, which is until the process ends. Functions may be
 * called from several threads at once. */
typedef struct winnow_backend {
  uint32_t struct_size;
  uint32_t abi_version; /* WINNOW_ABI_VERSION that the library was compiled with */
  const char* name;     /* "family.variant", unique: what --attention takes */
  int32_t device_kind;  /* WINNOW_DEVICE_* */
  int32_t flags;        /* WINNOW_BACKEND_* */
  void* self;           /* handed to every function */

  void (*admits_mla)(void* self, const winnow_mla_problem*, const winnow_device_info*, winnow_verdict*);
  winnow_status (*run_mla)(void* self, const winnow_mla_problem*, const winnow_mla_buffers*, const winnow_device_info*,
                           const winnow_execution*, winnow_message*);

  void (*admits_select)(void* self, const winnow_select_problem*, const winnow_device_info*, winnow_verdict*);
  winnow_status (*run_select)(void* self, const winnow_select_problem*, const winnow_select_buffers*,
                              const winnow_device_info*, const winnow_execution*, winnow_message*);

  void (*admits_write)(void* self, const winnow_write_problem*, const winnow_device_info*, winnow_verdict*);
  winnow_status (*run_write)(void* self, const winnow_write_problem*, const winnow_write_buffers*,
                             const winnow_device_info*, const winnow_execution*, winnow_message*);
} winnow_backend;

/* The one symbol that a plug-in exports, named winnow_backend_v1. It gets the host's WINNOW_ABI_VERSION and returns
 * its row, or null when it cannot work with that host. */
#define WINNOW_BACKEND_ENTRY "winnow_backend_v1"
typedef const winnow_backend* (*winnow_backend_entry)(uint32_t host_abi_version);

#ifdef __cplusplus
}
#endif

#endif /* WINNOW_WINNOW_H */
