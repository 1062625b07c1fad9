// SPDX-License-Identifier: Apache-2.0
// winnow-kernels bench: one shape by options, or the peers' suite; a table on stdout and CSV in a file.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <vector>

#include "kernels/bench_case.hpp"
#include "kernels/bench_suite.hpp"
#include "kernels/commands.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/options.hpp"

namespace winnow::kernels {
namespace {

constexpr std::array kOptions = {
    OptionHelp{"suite", "peers", "the fixed list with published times and targets, instead of one shape"},
    OptionHelp{"filter", "TEXT", "of the suite only lines whose description contains TEXT"},
    OptionHelp{"op", "NAME", "mla (default), prefill, select, topk or write"},
    OptionHelp{"rows", "FORMAT", "latent rows: bf16 (default) or v32_fp8"},
    OptionHelp{"keys", "FORMAT", "index keys: fp8 (default) or bf16"},
    OptionHelp{"heads", "N", "query heads, or index heads of select; default 64, 32 for select"},
    OptionHelp{"batch", "N", "query tokens; default 64, 4096 for prefill"},
    OptionHelp{"topk", "N", "slots per token; default 2048"},
    OptionHelp{"context", "N", "slots to draw from, or positions to score; default 131072"},
    OptionHelp{"rope", "N", "rotated elements of a row: 64 (default) or 0"},
    OptionHelp{"page-size", "N", "slots per page; default 64"},
    OptionHelp{"sorted", "", "ascending slot lists, as the selector emits them; default random"},
    OptionHelp{"shared", "", "select: all tokens look at one sequence"},
    OptionHelp{"launches", "N", "launches in one CUDA graph; default 20"},
    OptionHelp{"repeats", "N", "graph replays that are timed; default 100"},
    OptionHelp{"seed", "N", "of the random data; default 1"},
    OptionHelp{"csv", "FILE", "write the numbers there as well"},
};

struct Line {
  BenchCase bench;
  std::string description;
  Status failure;
  BenchResult result;
};

std::string describe(const BenchCase& b) {
  switch (b.op) {
    case BenchOp::mla:
      return concat("mla ", name_of(b.rows), b.d_rope == 0 ? " norope" : "", " heads ", b.heads, " tokens ", b.tokens,
                    " topk ", b.topk, " of ", b.context, b.sorted_slots ? " sorted" : "");
    case BenchOp::select:
      return concat("select ", name_of(b.keys), " heads ", b.heads, " tokens ", b.tokens, " x ", b.context,
                    b.shared_context ? " shared" : "", " topk ", b.topk);
    case BenchOp::topk: return concat("topk rows ", b.tokens, " x ", b.context, " topk ", b.topk);
    case BenchOp::write: return concat("write ", name_of(b.rows), " keys ", name_of(b.keys), " tokens ", b.tokens);
  }
  return "?";
}

BenchCase case_of(Options& o) {
  BenchCase b;
  const std::string op = o.text("op", "mla");
  const bool prefill = op == "prefill";
  b.op = op == "select"  ? BenchOp::select
         : op == "topk"  ? BenchOp::topk
         : op == "write" ? BenchOp::write
                         : BenchOp::mla;
  b.rows = o.text("rows", "bf16") == "v32_fp8" ? RowFormat::v32_fp8 : RowFormat::bf16;
  b.keys = o.text("keys", "fp8") == "bf16" ? KeyFormat::bf16 : KeyFormat::fp8;
  b.heads = static_cast<int32_t>(o.number("heads", b.op == BenchOp::select ? 32 : 64, 1, 128));
  b.tokens = static_cast<int32_t>(o.number("batch", prefill ? 4096 : 64, 1, 1 << 20));
  b.topk = static_cast<int32_t>(o.number("topk", 2048, 1, 4096));
  b.context = o.number("context", 131072, 1, int64_t{1} << 24);
  b.d_rope = static_cast<int32_t>(o.number("rope", 64, 0, 64));
  b.page_size = static_cast<int32_t>(o.number("page-size", 64, 1, 4096));
  b.sorted_slots = o.has("sorted");
  b.shared_context = o.has("shared") || (prefill && b.op == BenchOp::select);
  return b;
}

Status check_words(const Options& o) {
  const auto one_of = [&o](const char* name, const std::string& otherwise,
                           std::initializer_list<const char*> words) -> Status {
    const std::string found = o.text(name, otherwise);
    std::string all;
    for (const char* word : words) {
      if (found == word) return {};
      all += concat(all.empty() ? "" : ", ", word);
    }
    return error(StatusCode::invalid_argument, "--", name, " wants one of ", all, "; found '", found, "'");
  };
  WINNOW_TRY(one_of("op", "mla", {"mla", "prefill", "select", "topk", "write"}));
  WINNOW_TRY(one_of("rows", "bf16", {"bf16", "v32_fp8"}));
  WINNOW_TRY(one_of("keys", "fp8", {"fp8", "bf16"}));
  return one_of("suite", "peers", {"peers"});
}

// "pass", "MISS +12%", or "" without a target.
std::string verdict_of(const Line& line) {
  const BenchCase& b = line.bench;
  double over = 0;  // how much worse than the target, as a share of it
  if (b.target_us > 0) {
    over = line.result.timing.median_us / b.target_us - 1;
  } else if (b.target_tflops > 0) {
    over = 1 - line.result.tflops() / b.target_tflops;
  } else {
    return "";
  }
  char text[32];
  if (over <= 0) return "pass";
  std::snprintf(text, sizeof text, "MISS by %.0f%%", over * 100);
  return text;
}

std::string target_of(const BenchCase& b) {
  if (b.target_us > 0) return concat("<= ", b.target_us, " us");
  if (b.target_tflops > 0) return concat(">= ", b.target_tflops, " TF");
  return "";
}

void print_header(const DeviceInfo& device, const Ceilings& ceilings, const TimingPlan& plan) {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  std::printf("command   %s\n", command_line().c_str());
  std::printf("device    %s (sm_%d, %d SMs), %s\n", device.name.c_str(), device.sm, device.units, date);
  std::printf("build     architectures %s\n", WINNOW_CUDA_ARCHITECTURES);
  std::printf(
      "ceilings  copy %.0f GB/s (read + write), matmul %.0f TFLOP/s (%s), mma.sync from registers %.0f TFLOP/s\n",
      ceilings.copy_bytes_per_s * 1e-9, ceilings.matmul_flops * 1e-12, ceilings.matmul_source.c_str(),
      ceilings.mma_flops * 1e-12);
  std::printf("timing    median of %d replays of a CUDA graph of %d launches, random data\n\n", plan.repeats,
              plan.launches);
  std::printf("%-52s %9s %9s %7s %6s %6s  %-12s %-12s %s\n", "case", "us", "GB/s", "TF/s", "copy", "matmul", "target",
              "", "others (us unless TF)");
}

void print_line(const Line& line, const Ceilings& ceilings) {
  if (!line.failure.ok()) {
    std::printf("%-52s FAILED: %s\n", line.description.c_str(), line.failure.message().c_str());
    return;
  }
  const BenchResult& r = line.result;
  std::printf("%-52s %9.1f %9.0f %7.1f %5.0f%% %5.0f%%  %-12s %-12s %s\n", line.description.c_str(), r.timing.median_us,
              r.gb_per_s(), r.tflops(), 100e9 * r.gb_per_s() / ceilings.copy_bytes_per_s,
              100e12 * r.tflops() / ceilings.matmul_flops, target_of(line.bench).c_str(), verdict_of(line).c_str(),
              line.bench.peer);
  std::fflush(stdout);
}

Status write_csv(const std::string& path, const std::vector<Line>& lines, const DeviceInfo& device,
                 const Ceilings& ceilings) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return error(StatusCode::io_error, "cannot write ", path);
  std::fprintf(file, "# %s; %s sm_%d; copy %.0f GB/s, matmul %.1f TFLOP/s (%s), mma.sync %.1f TFLOP/s\n",
               command_line().c_str(), device.name.c_str(), device.sm, ceilings.copy_bytes_per_s * 1e-9,
               ceilings.matmul_flops * 1e-12, ceilings.matmul_source.c_str(), ceilings.mma_flops * 1e-12);
  std::fprintf(file,
               "op,format,heads,tokens,topk,context,median_us,min_us,p90_us,gb_per_s,tflops,copy_share,matmul_share,"
               "target_us,target_tflops,verdict,others,launch\n");
  for (const Line& line : lines) {
    const BenchCase& b = line.bench;
    const BenchResult& r = line.result;
    if (!line.failure.ok()) continue;
    const bool by_keys = b.op == BenchOp::select;
    std::fprintf(file, "%s,%s,%d,%d,%d,%lld,%.2f,%.2f,%.2f,%.1f,%.2f,%.3f,%.3f,%g,%g,%s,\"%s\",\"%s\"\n", name_of(b.op),
                 by_keys ? name_of(b.keys) : name_of(b.rows), b.heads, b.tokens, b.topk,
                 static_cast<long long>(b.context), r.timing.median_us, r.timing.min_us, r.timing.p90_us, r.gb_per_s(),
                 r.tflops(), 1e9 * r.gb_per_s() / ceilings.copy_bytes_per_s, 1e12 * r.tflops() / ceilings.matmul_flops,
                 b.target_us, b.target_tflops, verdict_of(line).c_str(), b.peer, r.launch.c_str());
  }
  std::fclose(file);
  return {};
}

// Long launches need no graph of twenty to be timed well, and prefill shapes would take minutes.
TimingPlan plan_for(const BenchCase& b, TimingPlan plan) {
  const double work = static_cast<double>(b.tokens) * b.heads * b.topk;
  if (b.op == BenchOp::mla && work > 64.0 * 512 * 2048) {
    plan.launches = std::min(plan.launches, 4);
    plan.repeats = std::min(plan.repeats, 30);
  }
  return plan;
}

Status run(Options& options) {
  WINNOW_TRY(check_words(options));
  TimingPlan plan;
  plan.launches = static_cast<int>(options.number("launches", 20, 1, 1000));
  plan.repeats = static_cast<int>(options.number("repeats", 100, 1, 100000));
  const uint64_t seed = static_cast<uint64_t>(options.number("seed", 1, 0, INT64_MAX));
  const std::vector<BenchCase> cases = options.has("suite") ? peers_suite() : std::vector<BenchCase>{case_of(options)};
  WINNOW_TRY(options.failure());
  WINNOW_TRY_ASSIGN(const DeviceInfo device, open_device());
  WINNOW_TRY_ASSIGN(const Stream stream, Stream::create());
  WINNOW_TRY_ASSIGN(const Ceilings ceilings, measure_ceilings(stream.get()));
  print_header(device, ceilings, plan);
  std::vector<Line> lines;
  int failed = 0, missed = 0, held = 0;
  for (const BenchCase& bench : cases) {
    Line line{.bench = bench, .description = describe(bench)};
    if (line.description.find(options.text("filter", "")) == std::string::npos) continue;
    Result<BenchResult> result = run_bench(bench, plan_for(bench, plan), seed, stream.get());
    line.failure = result.status();
    if (result.ok()) line.result = *result;
    failed += result.ok() ? 0 : 1;
    print_line(line, ceilings);
    if (result.ok() && !target_of(bench).empty()) {
      held += 1;
      missed += verdict_of(line) == "pass" ? 0 : 1;
    }
    lines.push_back(std::move(line));
  }
  std::printf("\n%zu lines, %d failed; %d targets, %d missed\n", lines.size(), failed, held, missed);
  if (options.has("csv")) WINNOW_TRY(write_csv(options.text("csv", ""), lines, device, ceilings));
  if (failed > 0) return error(StatusCode::device_error, failed, " lines failed, the first message is in the table");
  return {};
}

}  // namespace

std::string bench_help() {
  return concat(
      "winnow-kernels bench: time of an operation, beside what this device can do\n\n"
      "The copy and matmul rates are measured in the same run: 'copy' and 'matmul' are shares of them. GB/s counts "
      "each\n"
      "listed row once, q and out; TFLOP/s counts real heads. A missed target does not change the exit status.\n\n",
      options_help(kOptions),
      "\nexamples\n"
      "  winnow-kernels bench --rows v32_fp8 --heads 8 --batch 64\n"
      "  winnow-kernels bench --op select --batch 4 --context 131072\n"
      "  winnow-kernels bench --suite peers --csv bench/results/mine.csv\n");
}

int run_bench_command(std::span<const std::string> args) {
  Result<Options> options = Options::parse(args, kOptions);
  const Status status = options.ok() ? run(*options) : options.status();
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "bench: %s\n", status.message().c_str());
  if (status.code() == StatusCode::not_found) return kExitNoDevice;
  return status.code() == StatusCode::invalid_argument ? kExitUse : kExitWrong;
}

}  // namespace winnow::kernels
