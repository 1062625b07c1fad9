// SPDX-License-Identifier: Apache-2.0
// libFuzzer: a tokenizer.json that nobody wrote, and text through whatever tokenizer comes out of it.
// The input is the JSON, a zero byte, the text (JSON has no zero bytes). What loads must encode or refuse, and decode
// to what it encoded.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tokenizer/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view json = input.substr(0, zero);
  const std::string_view text = zero == std::string_view::npos ? "Hello, world" : input.substr(zero + 1);
  const auto tokenizer = winnow::Tokenizer::from_json(json, "", "");
  if (!tokenizer.ok()) return 0;
  for (const auto special : {winnow::Tokenizer::Special::parse, winnow::Tokenizer::Special::literal}) {
    const auto ids = tokenizer->encode(text, special);
    if (ids.ok() && tokenizer->decode(*ids) != text) std::abort();
  }
  return 0;
}
