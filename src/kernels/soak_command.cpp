// SPDX-License-Identifier: Apache-2.0
// winnow-kernels soak: random shapes and lists until the time is up, beside a stream that keeps DRAM busy. Every case
// is compared with the oracle and launched several times for equal bits; a watchdog names what hangs.
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/random.hpp"
#include "kernels/commands.hpp"
#include "kernels/device_target.hpp"
#include "kernels/options.hpp"

namespace winnow::kernels {
namespace {

using conformance::CaseSpec;
using conformance::Outcome;
using conformance::Random;

constexpr std::array kOptions = {
    OptionHelp{"minutes", "N", "how long; default 1"},
    OptionHelp{"seed", "N", "of everything; default from the clock, printed"},
    OptionHelp{"op", "NAME", "mla, select, write, gather or merge; default all"},
    OptionHelp{"launches", "N", "launches of a case that must give the same bits; default 8"},
    OptionHelp{"limit", "SECONDS", "watchdog: the longest that one case may take on the device; default 20"},
    OptionHelp{"quiet-dram", "", "no second stream"},
};

// One of the words of a list between blanks.
std::string pick(Random& random, std::initializer_list<const char*> words) {
  return *(words.begin() + random.below(static_cast<int64_t>(words.size())));
}

// Numbers around what a kernel's tiles care about, small ones more often.
int64_t odd_number(Random& random, int64_t most) {
  static constexpr std::array<int64_t, 14> kCorners = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128};
  const int64_t corner = kCorners[static_cast<std::size_t>(random.below(kCorners.size()))];
  const int64_t n = random.below(3) == 0 ? 1 + random.below(most) : corner;
  return n > most ? 1 + n % most : n;
}

// The oracle on the host multiplies tokens, heads, topk and widths in double: this keeps a case below about 0.2 s.
constexpr int64_t kMlaWork = 24'000;        // tokens * heads * topk / 64
constexpr int64_t kSelectWork = 3'000'000;  // tokens * heads * len

// Every value is drawn in a statement of its own: arguments of one call are evaluated in an order that the compiler
// picks, and then a seed would name other cases in another build.
std::string random_mla(Random& random) {
  const int64_t heads = random.below(2) == 0 ? int64_t{8} << random.below(5) : odd_number(random, 128);
  static constexpr std::array<int64_t, 8> kTopk = {1, 31, 64, 65, 512, 2048, 2176, 4096};
  const int64_t topk = random.below(3) == 0 ? 1 + random.below(4096) : kTopk[static_cast<std::size_t>(random.below(8))];
  const int64_t room = std::max<int64_t>(1, kMlaWork * 64 / (heads * topk));
  const int64_t tokens = std::min(room, odd_number(random, 300));
  const std::string len = pick(random, {"none", "mixed", "mixed", "0", "1"});
  const std::string geometry = pick(random, {"512+64", "512+64", "512+0"});
  const std::string rows = pick(random, {"bf16", "v32_fp8"});
  const std::string page_size = pick(random, {"1", "16", "61", "64", "64"});
  const int64_t slots = topk + random.below(2 * topk + 1);
  const std::string list = pick(random, {"valid", "valid", "empty", "hole_head", "hole_middle", "hole_tail",
                                         "last_only", "wild", "duplicates", "same", "mixed", "ascending"});
  const std::string scores = pick(random, {"random", "random", "peaky", "constant", "increasing"});
  const std::string sink = pick(random, {"none", "none", "per_head", "pos_inf"});
  const std::string q = len == "none" ? "random" : pick(random, {"random", "nan_empty"});
  const std::string strides = pick(random, {"dense", "padded"});
  return concat("mla tokens=", tokens, " heads=", heads, " topk=", topk, " len=", len, " geometry=", geometry,
                " rows=", rows, " page_size=", page_size, " slots=", slots, " list=", list, " scores=", scores,
                " sink=", sink, " q=", q, " strides=", strides);
}

std::string random_select(Random& random) {
  const int64_t heads = random.below(2) == 0 ? int64_t{32} << random.below(2) : odd_number(random, 64);
  const int64_t topk = pick(random, {"y", "n"}) == "y" ? odd_number(random, 4096) : int64_t{2048};
  const int64_t longest = std::max<int64_t>(64, random.below(6) == 0 ? 70'000 : 1 + random.below(9000));
  const int64_t room = std::max<int64_t>(1, kSelectWork / (heads * longest));
  const int64_t tokens = std::min(room, odd_number(random, 70));
  const std::string keys = pick(random, {"bf16", "fp8"});
  const std::string len = random.below(2) == 0 ? std::to_string(longest) : "mixed";
  const std::string q_type = keys == "fp8" ? pick(random, {"bf16", "e4m3"}) : "bf16";
  const std::string page_size = pick(random, {"1", "16", "61", "64", "64"});
  const int64_t sequences = random.below(2);
  const std::string scores = pick(random, {"random", "random", "random", "equal", "two", "zeros", "nan", "ascending",
                                           "descending", "border", "sawtooth", "negative"});
  const std::string output = pick(random, {"slots", "positions"});
  const std::string pages = pick(random, {"permuted", "permuted", "damaged"});
  const std::string strides = pick(random, {"dense", "padded"});
  return concat("select tokens=", tokens, " heads=", heads, " topk=", topk, " max_len=", longest, " len=", len,
                " keys=", keys, " q_type=", q_type, " page_size=", page_size, " sequences=", sequences,
                " scores=", scores, " output=", output, " pages=", pages, " strides=", strides);
}

std::string random_write(Random& random) {
  const int64_t tokens = odd_number(random, 500);
  const std::string geometry = pick(random, {"512+64", "512+0"});
  const std::string index_dim = pick(random, {"0", "128"});
  const std::string page_size = pick(random, {"1", "16", "61", "64"});
  const std::string rows = pick(random, {"bf16", "v32_fp8"});
  const std::string keys = pick(random, {"bf16", "fp8"});
  const std::string mode = pick(random, {"plain", "power_of_two"});
  const std::string act = pick(random, {"f32", "bf16"});
  const std::string values = pick(random, {"normal", "zero", "tiny", "huge", "nonfinite", "ties"});
  const std::string slots = pick(random, {"scattered", "wild", "none"});
  const std::string strides = pick(random, {"dense", "padded"});
  return concat("write tokens=", tokens, " geometry=", geometry, " index_dim=", index_dim, " page_size=", page_size,
                " rows=", rows, " keys=", keys, " mode=", mode, " act=", act, " values=", values, " slots=", slots,
                " strides=", strides);
}

std::string random_gather(Random& random) {
  const int64_t slots = odd_number(random, 2000);
  const std::string geometry = pick(random, {"512+64", "512+0"});
  const std::string page_size = pick(random, {"1", "16", "61", "64"});
  const std::string rows = pick(random, {"bf16", "v32_fp8"});
  const std::string list = pick(random, {"valid", "wild", "duplicates"});
  const std::string strides = pick(random, {"dense", "padded"});
  return concat("gather slots=", slots, " geometry=", geometry, " page_size=", page_size, " rows=", rows,
                " list=", list, " strides=", strides);
}

std::string random_merge(Random& random) {
  const int64_t parts = 1 + random.below(9);
  const int64_t tokens = odd_number(random, 40);
  const int64_t heads = odd_number(random, 128);
  const std::string out = pick(random, {"f32", "bf16"});
  const std::string parts_empty = pick(random, {"none", "some", "all", "first", "last"});
  const std::string lse_spread = pick(random, {"1", "5", "50"});
  const std::string sink = pick(random, {"none", "per_head", "pos_inf", "neg_inf"});
  const std::string strides = pick(random, {"dense", "padded"});
  return concat("merge parts=", parts, " tokens=", tokens, " heads=", heads, " out=", out, " parts_empty=", parts_empty,
                " lse_spread=", lse_spread, " sink=", sink, " strides=", strides);
}

std::string random_case(Random& random, const std::string& op) {
  const int64_t turn = random.below(20);
  if (op == "mla" || (op == "all" && turn < 9)) return random_mla(random);
  if (op == "select" || (op == "all" && turn < 15)) return random_select(random);
  if (op == "write" || (op == "all" && turn < 17)) return random_write(random);
  if (op == "gather" || (op == "all" && turn < 18)) return random_gather(random);
  return random_merge(random);
}

// Copies that are queued ahead of the kernels and never let DRAM rest.
class BusyDram {
 public:
  static constexpr int64_t kBytes = int64_t{256} << 20;
  Status start() {
    WINNOW_TRY_ASSIGN(stream_, Stream::create());
    WINNOW_TRY_ASSIGN(from_, DeviceBuffer::allocate("busy source", kBytes));
    WINNOW_TRY_ASSIGN(to_, DeviceBuffer::allocate("busy target", kBytes));
    return {};
  }
  // Tops the queue up when it has run dry; never waits.
  Status refill() {
    if (stream_.get() == nullptr || cudaStreamQuery(stream_.get()) == cudaErrorNotReady) return {};
    for (int i = 0; i < 64; ++i) {
      WINNOW_CUDA_TRY(cudaMemcpyAsync(to_.data(), from_.data(), kBytes, cudaMemcpyDeviceToDevice, stream_.get()));
    }
    return {};
  }

 private:
  DeviceBuffer from_, to_;
  Stream stream_;
};

struct Counts {
  int64_t passed = 0, refused = 0, failed = 0;
};

void print_counts(const std::map<std::string, Counts>& counts, const Watchdog& watchdog, double seconds) {
  int64_t failed = 0, passed = 0, refused = 0;
  for (const auto& [kind, c] : counts) {
    std::printf("%-8s%8lld passed %6lld refused %6lld failed\n", kind.c_str(), static_cast<long long>(c.passed),
                static_cast<long long>(c.refused), static_cast<long long>(c.failed));
    passed += c.passed, refused += c.refused, failed += c.failed;
  }
  std::printf("longest time on the device, copies included: %.2f s, %s\n", watchdog.longest_s(),
              watchdog.longest().c_str());
  std::printf("%.0f s\n%lld passed, %lld failed, %lld skipped\n", seconds, static_cast<long long>(passed),
              static_cast<long long>(failed), static_cast<long long>(refused));
}

Result<int64_t> run(Options& options) {
  const double minutes = options.real("minutes", 1, 0.01, 1e5);
  const auto clock_seed = std::chrono::system_clock::now().time_since_epoch().count();
  const auto seed = static_cast<uint64_t>(options.number("seed", clock_seed & 0xFFFFFFFF, 0, INT64_MAX));
  const std::string op = options.text("op", "all");
  TargetOptions how;
  how.launches = static_cast<int>(options.number("launches", 8, 1, 100000));
  how.limit_s = options.real("limit", 20, 0.1, 3600);
  WINNOW_TRY(options.failure());
  WINNOW_TRY_ASSIGN(const DeviceInfo device, open_device());
  WINNOW_TRY_ASSIGN(const Stream stream, Stream::create());
  BusyDram busy;
  if (!options.has("quiet-dram")) WINNOW_TRY(busy.start());
  std::printf("command   %s\ndevice    %s (sm_%d), build architectures %s\nseed      %llu\n", command_line().c_str(),
              device.name.c_str(), device.sm, WINNOW_CUDA_ARCHITECTURES, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Watchdog watchdog;
  DeviceTarget target(device.name, how, watchdog, stream.get());
  Random random(seed);
  std::map<std::string, Counts> counts;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int64_t failed = 0;
  for (int64_t round = 0; elapsed() < minutes * 60; ++round) {
    WINNOW_TRY_ASSIGN(std::vector<CaseSpec> specs, conformance::parse_cases(random_case(random, op), "soak"));
    CaseSpec& spec = specs.front();
    spec.given += concat(" #", seed, ".", round);  // data follow from the text: other data for an equal shape
    WINNOW_TRY_ASSIGN(auto one, conformance::build_case(spec));
    target.set_case(spec.name());
    WINNOW_TRY(busy.refill());
    const Outcome outcome = one->run(target);
    Counts& c = counts[spec.kind];
    const std::string wrong = outcome.kind == Outcome::Kind::ran ? one->judge(target) : outcome.text;
    if (outcome.kind == Outcome::Kind::refused) {
      c.refused += 1;
    } else if (wrong.empty()) {
      c.passed += 1;
    } else {
      c.failed += 1, failed += 1;
      std::printf("failed  %s: %s\n", spec.name().c_str(), wrong.c_str());
      std::fflush(stdout);
    }
  }
  print_counts(counts, watchdog, elapsed());
  return failed;
}

}  // namespace

std::string soak_help() {
  return concat(
      "winnow-kernels soak: random shapes, lists and lengths, degenerate ones included, until the time is up\n\n"
      "A second stream copies without rest meanwhile. A launch that does not come back within its limit ends the "
      "process\n"
      "with status 3 after its operation, shape and seed are printed. The same seed gives the same cases.\n\n",
      options_help(kOptions));
}

int run_soak_command(std::span<const std::string> args) {
  Result<Options> options = Options::parse(args, kOptions);
  const Result<int64_t> failed = options.ok() ? run(*options) : Result<int64_t>(options.status());
  if (failed.ok()) return *failed == 0 ? kExitOk : kExitWrong;
  std::fprintf(stderr, "soak: %s\n", failed.status().message().c_str());
  if (failed.status().code() == StatusCode::not_found) return kExitNoDevice;
  return failed.status().code() == StatusCode::invalid_argument ? kExitUse : kExitWrong;
}

}  // namespace winnow::kernels
