// SPDX-License-Identifier: Apache-2.0
// The program `winnow` from outside: exit statuses, what goes to stdout and what to stderr, JSON, signals, pipes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/concat.hpp"
#include "damaged_model.hpp"
#include "formats/gguf/writer.hpp"
#include "process.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow::test {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr const char* kTiny = "models/winnow-tiny-q8_0.gguf";
constexpr const char* kNano = "tests/data/nano/nano-glm5-bf16.gguf";
constexpr const char* kNanoGolden = "tests/data/nano/nano-glm5.golden.safetensors";
constexpr const char* kManual = "examples/ledger-manual.txt";

Ran winnow(Arguments arguments, const RunSetup& setup = {}) {
  arguments.insert(arguments.begin(), WINNOW_PROGRAM);
  return run(arguments, setup);
}

// A failure says what is wrong on stderr, in these words, and nothing on stdout.
void expect_failure(const Ran& ran, int status, const Arguments& words) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_EQ(ran.out, "");
  for (const std::string& word : words) EXPECT_NE(ran.err.find(word), std::string::npos) << word << "\n" << ran.err;
  EXPECT_FALSE(utf8::first_bad_byte(ran.err)) << ran.err;
}

TEST(Cli, EveryCommandTeachesWithExamples) {
  for (const char* command : {"run", "plan", "inspect", "backends", "verify", "convert", "tokenize", "completion"}) {
    const Ran ran = winnow({command, "--help"});
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_NE(ran.out.find("Examples:\n  "), std::string::npos) << command;
    EXPECT_NE(ran.out.find(std::string("winnow ") + command), std::string::npos) << command;
    EXPECT_EQ(ran.err, "");
  }
  const Ran ran = winnow({"--help"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.out.find("Exit status"), std::string::npos);
  EXPECT_NE(winnow({"--version"}).out.find("winnow "), std::string::npos);
}

TEST(Cli, UsageErrorsAreStatus2) {
  expect_failure(winnow({}), 2, {"--help"});
  expect_failure(winnow({"fly"}), 2, {"--help"});
  expect_failure(winnow({"run"}), 2, {"MODEL", "winnow run --help"});
  expect_failure(winnow({"run", kTiny, "--wings"}), 2, {"--wings"});
  expect_failure(winnow({"run", kTiny}), 2, {"--prompt", "--chat"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--temperature", "hot"}), 2, {"--temperature"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--temperature", "nan"}), 2, {"nan"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--top-p", "1.5"}), 2, {"1.5"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--max-tokens", "0"}), 2, {"--max-tokens"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--cache", "int3"}), 2, {"int3"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--attention", "gpu.magic"}), 2, {"gpu.magic", "cpu.simd"});
  expect_failure(winnow({"run", kTiny, "--prompt", "x", "--device", "h200"}), 2, {"--dry-run"});
  expect_failure(winnow({"plan", kTiny, "--device", "toaster"}), 2, {"toaster", "h200"});
  expect_failure(winnow({"completion", "tcsh"}), 2, {"tcsh"});
  expect_failure(winnow({"backends", "--plugin", "no_such_library.so"}), 1, {"no_such_library.so"});
}

TEST(Cli, BadPromptsAndDocuments) {
  const TempFolder folder;
  expect_failure(winnow({"run", kTiny, "--prompt", ""}), 2, {"prompt is empty"});
  expect_failure(winnow({"run", kTiny, "--prompt", "ab\xFF"}), 2, {"byte 2", "0xff"});
  expect_failure(winnow({"run", kTiny, "--file", folder.file("no.txt"), "--prompt", "x"}), 1, {"no.txt"});
  expect_failure(winnow({"run", kTiny, "--file", "examples", "--prompt", "x"}), 1, {"examples"});
  expect_failure(winnow({"run", kTiny, "--file", folder.write("empty.txt", ""), "--prompt", ""}), 2, {"empty.txt"});
  expect_failure(winnow({"run", kTiny, "--file", folder.write("bad.txt", "line\ncaf\xE9"), "--prompt", "x"}), 2,
                 {"bad.txt", "byte 8"});
  const std::string big = folder.write("big.txt", "");
  std::filesystem::resize_file(big, std::uintmax_t{65} << 20);
  expect_failure(winnow({"run", kTiny, "--file", big, "--prompt", "x"}), 1, {"big.txt", "bytes"});
}

TEST(Cli, ValuesThatWouldQuietlyBecomeOthersAreRefused) {
  const auto run = [](const char* option, const char* value) {
    return winnow({"run", kTiny, "--prompt", "x", "--max-tokens", "2", option, value});
  };
  expect_failure(run("--seed", "-1"), 2, {"--seed", "-1"});
  expect_failure(run("--seed", "18446744073709551616"), 2, {"--seed", "18446744073709551615"});
  expect_failure(run("--stop", "\xFF"), 2, {"--stop", "0xff"});
  for (const char* option : {"--attention", "--device", "--plugin", "--file"}) {
    expect_failure(run(option, ""), 2, {option, "empty"});
  }
  expect_failure(winnow({"backends", ""}), 2, {"MODEL", "empty"});
  const TempFolder folder;  // an answer without the document would look like one about it
  expect_failure(run("--file", folder.write("empty.txt", "").c_str()), 2, {"empty.txt", "empty"});
}

// Names in files and on the command line do not reach the terminal as control sequences.
TEST(CliDamage, MessagesAreFitForATerminal) {
  const TempFolder folder;
  const std::string name = "a\x1b[31m\xff.gguf";
  const Ran absent = winnow({"plan", folder.file(name)});
  expect_failure(absent, 1, {"a\\x1b[31m\\xff.gguf"});
  GgufBytes model(kNano);
  model.replace("glm-dsa", "glm\x1b[3m");
  expect_failure(winnow({"plan", folder.write(name, model.bytes)}), 1, {"glm\\x1b[3m"});
  const Ran inspect = winnow({"inspect", folder.file(name), "--summary"});
  EXPECT_EQ(inspect.status, 0) << inspect.err;
  EXPECT_EQ(inspect.out.find('\x1b'), std::string::npos);
  EXPECT_FALSE(utf8::first_bad_byte(inspect.out));
}

TEST(CliDamage, ConfigurationsThatAreNoJsonOrNestTooDeep) {
  const TempFolder folder;
  std::filesystem::copy(kNanoGolden, folder.file("model.safetensors"));  // any tensors do
  const std::string path = std::filesystem::path(folder.file("x")).parent_path().string();
  const std::string deep = std::string(2'000'000, '[') + std::string(2'000'000, ']');
  const std::pair<std::string, const char*> cases[] = {
      {"{\"model_type\":", "not valid JSON"},
      {"{\"vocab_size\":1e400}", "too large"},
      {"{\"model_type\":\"glm_moe_dsa\",\"indexer_types\":" + deep + "}", "nested deeper"}};
  for (const auto& [config, word] : cases) {
    folder.write("config.json", config);
    expect_failure(winnow({"plan", path}), 1, {"config.json", word});
    const Ran inspect = winnow({"inspect", path, "--json"});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    const json out = json::parse(inspect.out, nullptr, false);
    ASSERT_TRUE(out.is_object()) << word;
    EXPECT_NE(out["graph"]["error"].get<std::string>().find(word), std::string::npos);
  }
}

TEST(Cli, PromptsLongerThanTheContextAreRefusedWithBothNumbers) {
  expect_failure(winnow({"run", kTiny, "--prompt", "one two three four five six seven", "--context", "8"}), 2,
                 {"tokens", "8"});
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "one two three\n";
  expect_failure(winnow({"run", kTiny, "--file", folder.write("long.txt", text), "--prompt", "x"}), 2, {"8192"});
}

// Files with one thing wrong: each command that needs the file says what, and where.
TEST(CliDamage, ForeignAndMissingFiles) {
  const TempFolder folder;
  expect_failure(winnow({"plan", folder.file("none.gguf")}), 1, {"none.gguf"});
  expect_failure(winnow({"plan", folder.write("text.gguf", "This is not a model.")}), 1, {"text.gguf"});
  expect_failure(winnow({"plan", folder.write("empty.gguf", "")}), 1, {"empty.gguf"});
  std::filesystem::create_directory(folder.file("folder"));
  expect_failure(winnow({"plan", folder.file("folder")}), 1, {"folder"});
  GgufBytes model(kNano);
  expect_failure(winnow({"plan", folder.write("half.gguf", model.bytes.substr(0, 700))}), 1, {"half.gguf"});
  model.replace("GGUF", "GGML");
  expect_failure(winnow({"inspect", folder.write("magic.gguf", model.bytes)}), 1, {"magic.gguf"});
}

TEST(CliDamage, AMissingShardIsNamed) {
  const TempFolder folder;
  const std::string first = folder.file("m-00001-of-00003.gguf");
  gguf::Writer writer(first);
  const auto number = [](uint64_t n) {
    gguf::Value value;
    value.type = gguf::ValueType::u16;
    value.data = n;
    return value;
  };
  writer.set("split.no", number(0));
  writer.set("split.count", number(3));
  ASSERT_TRUE(writer.begin().ok());
  ASSERT_TRUE(writer.finish().ok());
  expect_failure(winnow({"inspect", first}), 1, {"m-00002-of-00003.gguf"});
}

TEST(CliDamage, HeaderOnlyFilesPlanAndInspectButDoNotRun) {
  const TempFolder folder;
  GgufBytes model(kTiny);
  const std::string header = folder.write("header.gguf", model.bytes.substr(0, model.data("output_norm.weight") / 2));
  const Ran inspect = winnow({"inspect", header, "--summary"});
  EXPECT_EQ(inspect.status, 0) << inspect.err;
  EXPECT_NE(inspect.out.find("bytes are missing"), std::string::npos);
  expect_failure(winnow({"run", header, "--prompt", "x"}), 1, {"header.gguf", "bytes"});
}

TEST(CliDamage, AbsurdCounts) {
  const TempFolder folder;
  for (const std::size_t at : {std::size_t{8}, std::size_t{16}}) {  // tensors, metadata keys
    GgufBytes model(kNano);
    model.set_u64(at, uint64_t{1} << 60);
    expect_failure(winnow({"inspect", folder.write("counts.gguf", model.bytes)}), 1, {"counts.gguf"});
  }
}

TEST(CliDamage, TensorsThatOverlapOrHaveTheWrongShape) {
  const TempFolder folder;
  GgufBytes overlap(kNano);
  const auto first = overlap.tensor("blk.0.attn_norm.weight"), second = overlap.tensor("blk.1.attn_norm.weight");
  overlap.set_u64(second.offset, overlap.u64(first.offset));
  expect_failure(winnow({"plan", folder.write("overlap.gguf", overlap.bytes)}), 1,
                 {"overlap.gguf", "attn_norm.weight"});

  GgufBytes shape(kNano);  // a square of another size, in the same bytes
  const auto norm = shape.tensor("blk.0.attn_kv_a_norm.weight");
  shape.set_u64(norm.dims, shape.u64(norm.dims) / 2);
  expect_failure(winnow({"run", folder.write("shape.gguf", shape.bytes), "--raw", "--prompt", "x"}), 3,
                 {"blk.0.attn_kv_a_norm.weight"});
}

TEST(CliDamage, UnknownArchitecturesAndTypes) {
  const TempFolder folder;
  GgufBytes architecture(kNano);
  architecture.replace("glm-dsa", "glm-xyz");
  expect_failure(winnow({"plan", folder.write("arch.gguf", architecture.bytes)}), 1, {"glm-xyz", "glm-dsa"});
  GgufBytes type(kNano);
  type.set_u32(type.tensor("output.weight").type, 137);
  const Ran ran = winnow({"run", folder.write("type.gguf", type.bytes), "--raw", "--prompt", "x"});
  expect_failure(ran, 1, {"output.weight", "137"});
}

TEST(CliDamage, AMissingIndexerTensorIsNamed) {
  const TempFolder folder;
  GgufBytes model(kNano);
  const auto tensor = model.tensor("blk.1.indexer.k_norm.bias");
  model.bytes[tensor.name + 4] = 'X';
  const std::string path = folder.write("indexer.gguf", model.bytes);
  const Ran ran = winnow({"run", path, "--raw", "--prompt", "x"});
  EXPECT_NE(ran.status, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("blk.1.indexer.k_norm.bias"), std::string::npos) << ran.err;
  const Ran inspect = winnow({"inspect", path, "--json"});
  const json graph = json::parse(inspect.out)["graph"];
  EXPECT_FALSE(graph["complete"].get<bool>());
  EXPECT_EQ(graph["missing"][0], "blk.1.indexer.k_norm.bias");
  EXPECT_EQ(graph["unused"].size(), 1u);
}

TEST(CliDamage, NanWeightsAreReportedAtTheirLayer) {
  const TempFolder folder;
  GgufBytes model(kTiny);
  model.set_u32(model.data("blk.3.attn_norm.weight"), 0x7FC00000u);
  const Ran ran = winnow({"run", folder.write("nan.gguf", model.bytes), "--prompt", "x"});
  expect_failure(ran, 1, {"layer 3"});
}

TEST(Cli, JsonIsJson) {
  const Ran plan = winnow({"plan", kTiny, "--json"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_TRUE(json::parse(plan.out).is_object());
  const Ran inspect = winnow({"inspect", kTiny, "--json"});
  EXPECT_TRUE(json::parse(inspect.out)["graph"]["complete"].get<bool>());
  const Ran backends = winnow({"backends", "--json"});
  EXPECT_TRUE(json::parse(backends.out)["admitted"].get<bool>());
  const Ran verify = winnow({"verify", kNano, kNanoGolden, "--json"});
  EXPECT_EQ(verify.status, 0) << verify.out << verify.err;
  EXPECT_TRUE(json::parse(verify.out)["passed"].get<bool>());
  const Ran tokens = winnow({"tokenize", kTiny, "Hello, world!", "--json"});
  EXPECT_EQ(json::parse(tokens.out)["ids"], json::array({39, 1465, 300, 11, 4085, 430, 0}));
}

TEST(Cli, ThePlanDecidesTheExitStatus) {
  EXPECT_EQ(winnow({"plan", kTiny}).status, 0);
  const Ran refused = winnow({"plan", kTiny, "--device", "cpu:1 cores, 4 MB, 1 GB/s"});
  EXPECT_EQ(refused.status, 3) << refused.out << refused.err;
  EXPECT_NE(refused.out, "");
  EXPECT_EQ(winnow({"run", kTiny, "--dry-run", "--device", "cpu:1 cores, 4 MB, 1 GB/s"}).status, 3);
  EXPECT_EQ(winnow({"run", kTiny, "--dry-run"}).status, 0);
}

TEST(Cli, VerifyDisagreesWithTheGoldenOfAnotherModel) {
  const Ran ran = winnow({"verify", "tests/data/nano/nano-glm52-bf16.gguf", kNanoGolden});
  EXPECT_TRUE(ran.status == 1 || ran.status == 4) << ran.status << ran.err;
  expect_failure(winnow({"verify", kNano, kNano}), 1, {"golden"});
}

TEST(Cli, TokenizeThereAndBack) {
  const std::string text = "na\u00efve \u6771\u4eac \U0001F600\ttab";
  const Ran ids = winnow({"tokenize", kTiny, text, "--ids"});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(winnow({"tokenize", kTiny, "--decode", ids.out}).out, text);
  expect_failure(winnow({"tokenize", kTiny, "--decode", "1 x"}), 2, {"x"});
  expect_failure(winnow({"tokenize", kTiny, "--decode", "4096"}), 2, {"4096"});
  expect_failure(winnow({"tokenize", kTiny, "\xC0"}), 2, {"byte 0"});
  expect_failure(winnow({"tokenize", kTiny}), 2, {"empty"});
}

TEST(Cli, ClosedOutputEndsWithoutNoise) {
  for (const Arguments& command : {Arguments{"--help"}, Arguments{"inspect", kTiny}, Arguments{"plan", kTiny},
                                   Arguments{"run", kTiny, "--prompt", "Hello", "--max-tokens", "20"}}) {
    const Ran pipe = winnow(command, {.broken_pipe = true});
    EXPECT_EQ(pipe.status, 1) << command[0];
    EXPECT_EQ(pipe.err, "") << command[0];
    EXPECT_EQ(winnow(command, {.close_stdout = true}).status, 1) << command[0];
  }
}

TEST(Cli, TheSameCommandGivesTheSameText) {
  const Arguments greedy{"run", kTiny, "--raw", "--prompt", "The SELECT statement", "--max-tokens", "24"};
  Arguments one_thread = greedy, two_threads = greedy, sampled = greedy;
  one_thread.insert(one_thread.end(), {"--threads", "1"});
  two_threads.insert(two_threads.end(), {"--threads", "2"});
  sampled.insert(sampled.end(), {"--temperature", "1", "--seed", "7"});
  const Ran ran = winnow(one_thread);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.substr(0, 18), " is used to modify");
  EXPECT_EQ(winnow(two_threads).out, ran.out);
  const std::string text = winnow(sampled).out;
  EXPECT_EQ(winnow(sampled).out, text);
  sampled.back() = "8";
  EXPECT_NE(winnow(sampled).out, text);
}

TEST(Cli, StatisticsGoToStderr) {
  const Ran ran = winnow({"run", kTiny, "--prompt", "Hello", "--max-tokens", "4"});
  for (const char* word : {"prefill", "decode", "tokens/s", "stop"}) {
    EXPECT_NE(ran.err.find(word), std::string::npos) << word;
    EXPECT_EQ(ran.out.find("tokens/s"), std::string::npos);
  }
  EXPECT_EQ(winnow({"run", kTiny, "--prompt", "Hello", "--max-tokens", "4", "--quiet"}).err, "");
}

TEST(Cli, StopStringsEndTheText) {
  const Ran ran = winnow({"run", kTiny, "--raw", "--prompt", "The SELECT statement", "--stop", "modify"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, " is used to \n");
  EXPECT_NE(ran.err.find("stop string"), std::string::npos);
}

TEST(Cli, ChatReadsLinesUntilExit) {
  const Ran ran =
      winnow({"run", kTiny, "--chat", "--max-tokens", "8", "--quiet"},
             {.input = "The access code for the old oak is 123-456. What is it?\nAnd again?\n/exit\nnever\n"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out, "");
  EXPECT_EQ(winnow({"run", kTiny, "--chat"}, {.input = ""}).status, 0);
}

TEST(Cli, ChatGoesOnAfterALineThatIsTooLong) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "word ";
  const Ran ran = winnow({"run", kTiny, "--chat", "--context", "64", "--max-tokens", "4", "--quiet"},
                         {.input = words + "\nHello\n/exit\n"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("context"), std::string::npos) << ran.err;
  EXPECT_FALSE(ran.out.empty());
  EXPECT_EQ(winnow({"run", kTiny, "--chat", "--context", "64"}, {.input = words + "\n"}).status, 2);
}

TEST(Cli, AnInterruptEndsTheAnswerCleanly) {
  const Ran ran =
      winnow({"run", kTiny, "--raw", "--prompt", "def main():\n", "--max-tokens", "6000", "--context", "8000"},
             {.interrupt_after_ms = 50});
  EXPECT_EQ(ran.status, 130) << ran.err;
  EXPECT_FALSE(utf8::first_bad_byte(ran.out));
  EXPECT_EQ(ran.out.back(), '\n');
  EXPECT_NE(ran.err.find("cancelled"), std::string::npos) << ran.err;
}

TEST(Cli, ConvertRefusesToReplaceAndLeavesNothingBehind) {
  const TempFolder folder;
  const std::string out = folder.write("out.gguf", "precious");
  expect_failure(winnow({"convert", folder.file("none"), out}), 2, {"out.gguf", "--force"});
  expect_failure(winnow({"convert", folder.file("none"), folder.file("new.gguf")}), 1, {"none"});
  EXPECT_FALSE(std::filesystem::exists(folder.file("new.gguf")));
}

TEST(Cli, CompletionScriptsAreForEveryCommand) {
  const TempFolder folder;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Ran ran = winnow({"completion", shell});
    EXPECT_EQ(ran.status, 0) << shell;
    for (const char* word : {"tokenize", "repetition-penalty", "h200"}) {
      EXPECT_NE(ran.out.find(word), std::string::npos) << shell << " " << word;
    }
    const std::string script = folder.write(shell, ran.out);
    const std::string interpreter = std::string("/usr/bin/") + shell;
    if (!std::filesystem::exists(interpreter)) {
      std::cout << "[  SKIPPED ] syntax of the " << shell << " script: " << shell << " is not installed\n";
      continue;
    }
    const Ran check = run({interpreter, "-n", script});
    EXPECT_EQ(check.status, 0) << shell << ": " << check.err;
  }
}

TEST(Cli, BashCompletesCommandsOptionsAndValues) {
  const TempFolder folder;
  const std::string script = folder.write("bash", winnow({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words, int at) {
    return run({"/bin/bash", "-c",
                "source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                    "; _winnow; echo \"${COMPREPLY[@]}\""})
        .out;
  };
  EXPECT_EQ(complete("winnow ver", 1), "verify\n");
  EXPECT_EQ(complete("winnow run --rep", 2), "--repetition-penalty\n");
  EXPECT_EQ(complete("winnow run x --cache f", 4), "f32 fp8\n");
  EXPECT_EQ(complete("winnow completion z", 2), "zsh\n");
}

TEST(CliDemo, FactsOfTheManualAreFound) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "4,000 tokens take minutes under a sanitizer";
#endif
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"quiet harbor", "771-204"}, {"copper lantern", "305-918"}, {"mellow violin", "960-312"}};
  for (const auto& [name, code] : facts) {
    const Ran ran = winnow({"run", kTiny, "--file", kManual, "--prompt",
                            "What is the access code for the " + name + "?", "--max-tokens", "32", "--quiet"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, concat("The access code for the ", name, " is ", code, ".\n"));
  }
}

}  // namespace
}  // namespace winnow::test
