// SPDX-License-Identifier: Apache-2.0
#include "formats/foreign.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace winnow {
namespace {

struct Signature {
  std::string_view begins;
  const char* kind;
};
constexpr Signature kSignatures[] = {
    {"version https://git-lfs", "a git-lfs pointer, not the file itself; run `git lfs pull`"},
    {"<!doctype", "an HTML page; the download was answered with a web page (a login or an error)"},
    {"<html", "an HTML page; the download was answered with a web page (a login or an error)"},
    {"<?xml", "an XML document; the download was answered with an error page"},
    {"gguf", "a GGUF file"},
    {"fugg", "a GGUF file whose magic is byte-swapped"},
    {"lmgg", "a GGML file from before GGUF; convert the model again"},
    {"tjgg", "a GGJT file from before GGUF; convert the model again"},
    {"fmgg", "a GGMF file from before GGUF; convert the model again"},
    {"alg", "a LoRA adapter from before GGUF"},
    {"pk\x03\x04", "a zip archive (PyTorch's .bin and .pt are zip archives); wants GGUF or safetensors"},
    {"\x1f\x8b", "gzip-compressed data; decompress it first"},
    {"\x28\xb5\x2f\xfd", "zstd-compressed data; decompress it first"},
    {"\x89hdf", "an HDF5 file; wants GGUF or safetensors"},
};

std::string lower_prefix(std::span<const std::byte> bytes, std::size_t count) {
  std::string prefix(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), count));
  for (char& c : prefix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return prefix;
}

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::byte b : bytes) {
    if (!out.empty()) out += ' ';
    out += kHex[static_cast<unsigned>(b) >> 4];
    out += kHex[static_cast<unsigned>(b) & 15];
  }
  return out;
}

}  // namespace

bool looks_like_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

bool looks_like_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 9 || bytes[8] != std::byte{'{'}) return false;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  return header_bytes >= 2 && header_bytes <= (uint64_t{1} << 30);
}

std::string likely_kind(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "an empty file; the download or copy never began";
  std::string prefix = lower_prefix(bytes, 64);
  std::string_view text = prefix;
  for (const Signature& s : kSignatures) {
    if (text.substr(0, s.begins.size()) == s.begins) return s.kind;
  }
  if (looks_like_safetensors(bytes)) return "a safetensors file; give it that extension";
  const auto head = bytes.first(std::min<std::size_t>(bytes.size(), 4096));
  if (std::all_of(head.begin(), head.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return "all zeros; the space was reserved and the download never filled it";
  }
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.starts_with("<")) return "a web page or XML; the download was answered with a page";
  if (text.starts_with("{")) return "a JSON text; perhaps an error answer of the server it was downloaded from";
  return "an unknown format that begins with " + hex_of(bytes.first(std::min<std::size_t>(bytes.size(), 8)));
}

}  // namespace winnow
