// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/header.hpp"

#include <algorithm>
#include <optional>

#include "core/checked.hpp"
#include "formats/byte_reader.hpp"
#include "formats/foreign.hpp"
#include "formats/json.hpp"
#include "formats/quoted.hpp"
#include "formats/rows.hpp"
#include "formats/tensor_layout.hpp"

namespace winnow::safetensors {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::string_view kScaleSuffix = "_scale_inv";

struct DtypeName {
  std::string_view name;
  StorageType type;
};
constexpr DtypeName kDtypes[] = {
    {"F32", StorageType::F32}, {"F16", StorageType::F16}, {"BF16", StorageType::BF16},
    {"F64", StorageType::F64}, {"I64", StorageType::I64}, {"I32", StorageType::I32},
    {"I16", StorageType::I16}, {"I8", StorageType::I8},   {"F8_E4M3", StorageType::E4M3_B128},
};

Result<StorageType> type_of(const std::string& dtype) {
  for (const DtypeName& d : kDtypes) {
    if (d.name == dtype) return d.type;
  }
  const bool packed = dtype == "U8" || dtype == "F8_E8M0" || dtype == "F4";
  return error(StatusCode::unsupported, "dtype is ", quoted(dtype), ", wants F32, F16, BF16, F64, I8 to I64 or F8_E4M3",
               packed ? "; packed 4-bit checkpoints are not read, use the bf16 or fp8 release, or a GGUF" : "");
}

std::optional<int64_t> size_in(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// shape is outermost first; dims are contiguous first. A scalar has rank 0 and dims of 1.
Status read_shape(const json& entry, TensorInfo& tensor) {
  const json* shape = member(entry, "shape");
  if (shape == nullptr || !shape->is_array()) return error(StatusCode::corrupt_data, "shape is no array");
  if (shape->size() > 4) return error(StatusCode::corrupt_data, "rank is ", shape->size(), ", wants 0 to 4");
  tensor.rank = static_cast<int32_t>(shape->size());
  for (std::size_t i = 0; i < shape->size(); ++i) {
    const auto size = size_in((*shape)[i]);
    if (!size || *size < 1) {
      return error(StatusCode::corrupt_data, "dimension ", i, " is ",
                   (*shape)[i].is_number() ? (*shape)[i].dump() : "no number", ", wants an integer of 1 or more");
    }
    tensor.dims[shape->size() - 1 - i] = *size;
  }
  return {};
}

Status read_entry(const json& entry, int64_t data_begin, TensorInfo& tensor) {
  if (!entry.is_object()) return error(StatusCode::corrupt_data, "its header entry is no object");
  WINNOW_TRY_ASSIGN(tensor.type, type_of(string_member(entry, "dtype")));
  WINNOW_TRY(read_shape(entry, tensor));
  WINNOW_TRY_ASSIGN(tensor.bytes, tensor_bytes(tensor.type, tensor.dims));
  const json* offsets = member(entry, "data_offsets");
  const bool pair = offsets != nullptr && offsets->is_array() && offsets->size() == 2;
  const auto begin = pair ? size_in((*offsets)[0]) : std::nullopt;
  const auto end = pair ? size_in((*offsets)[1]) : std::nullopt;
  if (!begin || !end || *end < *begin) {
    return error(StatusCode::corrupt_data, "data_offsets want two integers, begin and end");
  }
  if (*end - *begin != tensor.bytes) {
    return error(StatusCode::corrupt_data, "data_offsets span ", *end - *begin, " bytes, its shape and dtype want ",
                 tensor.bytes);
  }
  const auto in_file = checked_add(data_begin, *begin);
  if (!in_file || !checked_add(*in_file, tensor.bytes)) {
    return error(StatusCode::corrupt_data, "ends beyond a 64-bit size");
  }
  tensor.file_offset = *in_file;
  const int64_t element = traits_of(tensor.type)->block_bytes;
  if (tensor.file_offset % element != 0) {
    return error(StatusCode::corrupt_data, "begins at byte ", tensor.file_offset, ", wants a multiple of ", element,
                 "; save the checkpoint again with a current safetensors library");
  }
  return {};
}

Result<std::string_view> header_text(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  uint64_t length = 0;
  if (!in.read(length, "the header length").ok()) {
    return error(StatusCode::corrupt_data, "no safetensors file: has ", bytes.size(), " bytes; this is ",
                 likely_kind(bytes));
  }
  if (!looks_like_safetensors(bytes) || length > kMaxHeaderBytes) {
    const std::string kind = looks_like_safetensors(bytes) ? "damaged" : likely_kind(bytes);
    return error(StatusCode::corrupt_data, "no safetensors file: wants a header length up to ", kMaxHeaderBytes,
                 " at byte 0 and '{' at byte 8; this is ", kind);
  }
  if (length > static_cast<uint64_t>(in.remaining())) {
    return error(StatusCode::corrupt_data, "the header claims ", length,
                 " bytes from byte 8 on, but the file ends at byte ", bytes.size(), "; is the download complete?");
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + 8, length);
}

Status join_scale(const Checkpoint& checkpoint, TensorInfo& tensor) {
  const std::string name = tensor.name + std::string(kScaleSuffix);
  const TensorInfo* scales = checkpoint.find(name);
  if (scales == nullptr) {
    return error(StatusCode::not_found, "tensor ", tensor.name, " is F8_E4M3 and its scales ", name,
                 " are absent; fp8 is read with one fp32 scale per 128 x 128 block only");
  }
  const int64_t wide = ceil_div(tensor.dims[0], kScaleBlock), high = ceil_div(tensor.dims[1], kScaleBlock);
  if (tensor.rank != 2 || scales->type != StorageType::F32 || scales->rank != 2 || scales->dims[0] != wide ||
      scales->dims[1] != high) {
    return error(StatusCode::corrupt_data, "tensor ", name, " is ", name_of(scales->type), " [", scales->dims[1], ", ",
                 scales->dims[0], "], wants F32 [", high, ", ", wide, "] for the 128 x 128 blocks of ", tensor.name,
                 " [", tensor.dims[1], ", ", tensor.dims[0], "]");
  }
  tensor.block_scales = reinterpret_cast<const float*>(scales->data);
  return {};
}

}  // namespace

Result<Header> parse_header(std::span<const std::byte> bytes) {
  WINNOW_TRY_ASSIGN(const std::string_view text, header_text(bytes));
  Result<json> parsed = parse_json(text, {.max_depth = 8, .unique_keys_to_depth = 2});
  if (!parsed.ok()) return std::move(parsed).status().in("the header (from byte 8)");
  if (!parsed->is_object()) return error(StatusCode::corrupt_data, "the header is no JSON object");
  Header header;
  header.wanted_bytes = static_cast<int64_t>(text.size()) + 8;
  const int64_t data_begin = header.wanted_bytes;
  header.tensors.reserve(parsed->size());
  for (const auto& [name, entry] : parsed->items()) {
    if (name == "__metadata__") continue;
    WINNOW_TRY(check_name(name));
    TensorInfo& tensor = header.tensors.emplace_back();
    tensor.name = name;
    if (Status s = read_entry(entry, data_begin, tensor); !s.ok()) return std::move(s).in(concat("tensor ", name));
    header.wanted_bytes = std::max(header.wanted_bytes, tensor.file_offset + tensor.bytes);
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.file_offset < b.file_offset; });
  WINNOW_TRY(check_overlaps(header.tensors));
  return header;
}

Status join_scales(Checkpoint& checkpoint) {
  for (TensorInfo& tensor : checkpoint.tensors) {
    if (tensor.type == StorageType::E4M3_B128) WINNOW_TRY(join_scale(checkpoint, tensor));
  }
  return {};
}

}  // namespace winnow::safetensors
