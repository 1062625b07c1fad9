// SPDX-License-Identifier: Apache-2.0
// winnow-kernels conformance: every case of cases/ on the device, then captured graphs with changing content, then
// mistakes on purpose. Ends with "N passed, N failed, N skipped".
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

#include "conformance/case.hpp"
#include "kernels/commands.hpp"
#include "kernels/graph_target.hpp"
#include "kernels/mutations.hpp"
#include "kernels/options.hpp"

namespace winnow::kernels {
namespace {

using conformance::CaseSpec;
using conformance::Outcome;

constexpr std::array kOptions = {
    OptionHelp{"cases", "DIR", "folder of *.case files; default cases"},
    OptionHelp{"filter", "TEXT", "only cases whose name contains TEXT"},
    OptionHelp{"every", "N", "only every N-th of them: a quick look, or a run under compute-sanitizer"},
    OptionHelp{"launches", "N", "launches of a case that must give the same bits; default 20"},
    OptionHelp{"slow", "", "cases marked slow as well"},
    OptionHelp{"no-poison", "", "leave fresh device memory alone, so that initcheck can see reads of it"},
    OptionHelp{"json", "", "one JSON object on stdout instead of text"},
    OptionHelp{"verbose", "", "name passed cases too"},
    OptionHelp{"allow-no-gpu", "", "exit 0 on a machine without a CUDA device, saying so"},
};

// Replayed out of one graph, one after the other: the first is captured. Same shape, other content: lists, lengths,
// holes, padded rows whose slots are stale and whose q is NaN.
const std::vector<std::vector<const char*>>& graph_rounds() {
  static const std::vector<std::vector<const char*>> rounds = {
      {"mla tokens=8 heads=8 topk=512 slots=2000 len=mixed list=valid",
       "mla tokens=8 heads=8 topk=512 slots=2000 len=mixed list=wild q=nan_empty",
       "mla tokens=8 heads=8 topk=512 slots=2000 len=0 list=valid q=nan_empty",
       "mla tokens=8 heads=8 topk=512 slots=2000 len=512 list=duplicates"},
      {"mla tokens=3 heads=64 topk=2048 slots=6000 len=mixed list=valid rows=v32_fp8",
       "mla tokens=3 heads=64 topk=2048 slots=6000 len=mixed list=mixed q=nan_empty rows=v32_fp8",
       "mla tokens=3 heads=64 topk=2048 slots=6000 len=1 list=hole_head rows=v32_fp8",
       "mla tokens=3 heads=64 topk=2048 slots=6000 len=3000 list=valid rows=v32_fp8"},
      {"mla tokens=5 heads=32 topk=640 slots=2000 len=640 list=valid geometry=512+0",
       "mla tokens=5 heads=32 topk=640 slots=2000 len=mixed list=empty q=nan_empty geometry=512+0",
       "mla tokens=5 heads=32 topk=640 slots=2000 len=mixed list=last_only geometry=512+0"},
      {"mla tokens=2 heads=128 topk=256 slots=900 len=mixed list=valid",
       "mla tokens=2 heads=128 topk=256 slots=900 len=mixed list=wild scores=huge",
       "mla tokens=2 heads=128 topk=256 slots=900 len=0 list=wild q=nan_empty"},
      {"select tokens=4 heads=32 topk=512 keys=fp8 max_len=9000 len=9000",
       "select tokens=4 heads=32 topk=512 keys=fp8 max_len=9000 len=mixed scores=equal",
       "select tokens=4 heads=32 topk=512 keys=fp8 max_len=9000 len=negative",
       "select tokens=4 heads=32 topk=512 keys=fp8 max_len=9000 len=topk scores=nan"},
      {"select tokens=3 heads=64 topk=256 max_len=3000 len=3000 output=positions",
       "select tokens=3 heads=64 topk=256 max_len=3000 len=mixed scores=border output=positions",
       "select tokens=3 heads=64 topk=256 max_len=3000 len=1 scores=two output=positions"},
      {"write tokens=33 rows=v32_fp8 keys=fp8 slots=scattered", "write tokens=33 rows=v32_fp8 keys=fp8 slots=wild",
       "write tokens=33 rows=v32_fp8 keys=fp8 slots=none"},
      {"gather slots=300 rows=v32_fp8 list=valid", "gather slots=300 rows=v32_fp8 list=wild",
       "gather slots=300 rows=v32_fp8 list=duplicates"},
      {"merge parts=3 tokens=5 heads=16 parts_empty=none", "merge parts=3 tokens=5 heads=16 parts_empty=all",
       "merge parts=3 tokens=5 heads=16 parts_empty=some"},
  };
  return rounds;
}

struct Record {
  std::string name, result, text;  // result: passed, failed, skipped
};

class Report {
 public:
  Report(bool json, bool verbose) : json_(json), verbose_(verbose) {}

  void add(std::string name, const char* result, std::string text) {
    counts_[result[0] == 'p' ? 0 : result[0] == 'f' ? 1 : 2] += 1;
    if (!json_ && (verbose_ || result[0] == 'f')) {
      std::printf("%-7s %s%s%s\n", result, name.c_str(), text.empty() ? "" : ": ", text.c_str());
      std::fflush(stdout);
    }
    if (result[0] == 's') refusals_.insert(text);
    records_.push_back({std::move(name), result, std::move(text)});
  }
  [[nodiscard]] int64_t failed() const { return counts_[1]; }

  void finish(const DeviceInfo& device, double seconds) const {
    json_ ? print_json(device, seconds) : print_text(seconds);
  }

 private:
  void print_text(double seconds) const {
    for (const std::string& refusal : refusals_) std::printf("skipped for: %s\n", refusal.c_str());
    std::printf("%.1f s\n%lld passed, %lld failed, %lld skipped\n", seconds, static_cast<long long>(counts_[0]),
                static_cast<long long>(counts_[1]), static_cast<long long>(counts_[2]));
  }
  void print_json(const DeviceInfo& device, double seconds) const {
    std::printf("{\"device\": \"%s\", \"sm\": %d, \"architectures\": \"%s\", \"seconds\": %.1f,\n \"cases\": [",
                escaped(device.name).c_str(), device.sm, WINNOW_CUDA_ARCHITECTURES, seconds);
    const char* separator = "\n";
    for (const Record& r : records_) {
      std::printf("%s  {\"name\": \"%s\", \"result\": \"%s\", \"text\": \"%s\"}", separator, escaped(r.name).c_str(),
                  r.result.c_str(), escaped(r.text).c_str());
      separator = ",\n";
    }
    std::printf("],\n \"passed\": %lld, \"failed\": %lld, \"skipped\": %lld}\n", static_cast<long long>(counts_[0]),
                static_cast<long long>(counts_[1]), static_cast<long long>(counts_[2]));
  }
  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
  }

  bool json_, verbose_;
  std::array<int64_t, 3> counts_{};
  std::vector<Record> records_;
  std::set<std::string> refusals_;
};

// One case on one target: runs, judges, reports.
void run_one(const CaseSpec& spec, conformance::Target& target, const std::string& prefix, Report& report) {
  auto built = conformance::build_case(spec);
  if (!built.ok()) return report.add(prefix + spec.name(), "failed", built.status().message());
  const Outcome outcome = (*built)->run(target);
  if (outcome.kind == Outcome::Kind::refused) return report.add(prefix + spec.name(), "skipped", outcome.text);
  std::string wrong = outcome.kind == Outcome::Kind::failed ? outcome.text : (*built)->judge(target);
  const char* result = wrong.empty() ? "passed" : "failed";
  report.add(prefix + spec.name(), result, std::move(wrong));
}

void run_graph_rounds(Watchdog& watchdog, cudaStream_t stream, Report& report) {
  for (const std::vector<const char*>& round : graph_rounds()) {
    GraphTarget target(watchdog, stream);
    for (const char* text : round) {
      Result<std::vector<CaseSpec>> specs = conformance::parse_cases(text, "graph");
      if (!specs.ok()) {
        report.add(concat("graph replay ", text), "failed", specs.status().message());
      } else {
        run_one(specs->front(), target, "graph replay ", report);
      }
    }
  }
}

Result<std::vector<CaseSpec>> chosen_cases(const Options& options, int64_t every) {
  WINNOW_TRY_ASSIGN(std::vector<CaseSpec> all, conformance::load_cases(options.text("cases", "cases")));
  std::vector<CaseSpec> chosen;
  int64_t matching = 0;
  for (CaseSpec& spec : all) {
    if (spec.slow && !options.has("slow")) continue;
    if (spec.name().find(options.text("filter", "")) == std::string::npos) continue;
    if (matching++ % every == 0) chosen.push_back(std::move(spec));
  }
  if (chosen.empty()) {
    return error(StatusCode::invalid_argument, "no case matches '", options.text("filter", ""), "'");
  }
  return chosen;
}

Result<int64_t> run(Options& options) {
  TargetOptions how;
  how.launches = static_cast<int>(options.number("launches", 20, 1, 100000));
  const int64_t every = options.number("every", 1, 1, 1 << 20);
  WINNOW_TRY(options.failure());
  WINNOW_TRY_ASSIGN(const std::vector<CaseSpec> cases, chosen_cases(options, every));
  WINNOW_TRY_ASSIGN(const DeviceInfo device, open_device());
  WINNOW_TRY_ASSIGN(const Stream stream, Stream::create());
  set_poison(!options.has("no-poison"));
  const bool json = options.has("json");
  if (!json) {
    std::printf("command   %s\ndevice    %s (sm_%d), build architectures %s\n", command_line().c_str(),
                device.name.c_str(), device.sm, WINNOW_CUDA_ARCHITECTURES);
    std::printf("cases     %zu, each launched %d times and once out of a graph\n", cases.size(), how.launches);
  }
  const auto start = std::chrono::steady_clock::now();
  Report report(json, options.has("verbose"));
  Watchdog watchdog;
  DeviceTarget target(device.name, how, watchdog, stream.get());
  for (const CaseSpec& spec : cases) {
    target.set_case(spec.name());
    run_one(spec, target, "", report);
  }
  run_graph_rounds(watchdog, stream.get(), report);
  target.set_options({.launches = 1, .graph = false});
  for (const MutationResult& m : run_mutations(target)) {
    report.add("mistake noticed: " + m.name, m.noticed ? "passed" : "failed",
               m.noticed ? m.text : concat("the comparison did not object; ", m.text));
  }
  report.finish(device, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return report.failed();
}

}  // namespace

std::string conformance_help() {
  return concat(
      "winnow-kernels conformance: every kernel against the float64 oracle\n\n"
      "Each line of cases/**/*.case is run on the device with guard zones around every buffer and NaN in everything "
      "that\n"
      "must not be read or must be written. Then graphs are captured once and replayed with changed lists, lengths "
      "and\n"
      "padded rows, and four mistakes are made on purpose, which the comparison must notice.\n\n",
      options_help(kOptions),
      "\nexit status: 0 all passed or skipped with a reason, 1 a case failed, 4 no CUDA device\n");
}

int run_conformance_command(std::span<const std::string> args) {
  Result<Options> options = Options::parse(args, kOptions);
  const bool allow_none = options.ok() && options->has("allow-no-gpu");
  const Result<int64_t> failed = options.ok() ? run(*options) : Result<int64_t>(options.status());
  if (failed.ok()) return *failed == 0 ? kExitOk : kExitWrong;
  if (failed.status().code() == StatusCode::not_found) {
    std::printf("SKIPPED: CUDA conformance was not run: %s\n0 passed, 0 failed, 0 skipped\n",
                failed.status().message().c_str());
    return allow_none ? kExitOk : kExitNoDevice;
  }
  std::fprintf(stderr, "conformance: %s\n", failed.status().message().c_str());
  return failed.status().code() == StatusCode::invalid_argument ? kExitUse : kExitWrong;
}

}  // namespace winnow::kernels
