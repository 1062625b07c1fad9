// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_target.hpp"

#include <algorithm>

#include "kernels/abi_calls.hpp"

namespace winnow::kernels {

using conformance::Block;
using conformance::Image;
using conformance::Outcome;
using conformance::Role;

Status DeviceImage::mirror(const Image& image) {
  blocks_.clear();
  for (const Block& block : image.blocks()) {
    WINNOW_TRY_ASSIGN(DeviceBuffer buffer, DeviceBuffer::upload(block.name, block.storage(), block.total));
    blocks_.push_back(std::move(buffer));
  }
  return {};
}

Status DeviceImage::upload(const Image& image) {
  if (image.blocks().size() != blocks_.size()) return error(StatusCode::internal, "another image: other blocks");
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = image.blocks()[i];
    if (block.total > blocks_[i].bytes()) {
      return error(StatusCode::internal, "another image: ", block.name, " has ", block.total, " bytes, at most ",
                   blocks_[i].bytes(), " fit");
    }
    WINNOW_TRY(blocks_[i].write(block.storage(), block.total));
  }
  return {};
}

Status DeviceImage::upload_written(const Image& image) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = image.blocks()[i];
    if (block.role != Role::input) WINNOW_TRY(blocks_[i].write(block.storage(), block.total));
  }
  return {};
}

Status DeviceImage::download(const Image& image) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = image.blocks()[i];
    WINNOW_TRY(blocks_[i].read(block.storage(), block.total));
    WINNOW_TRY(blocks_[i].guards_intact());
  }
  return {};
}

Status DeviceImage::read_written(const Image& image, std::vector<std::byte>& bytes) const {
  bytes.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = image.blocks()[i];
    if (block.role == Role::input) continue;
    const std::size_t at = bytes.size();
    bytes.resize(at + static_cast<std::size_t>(block.total));
    WINNOW_TRY(blocks_[i].read(bytes.data() + at, block.total));
  }
  return {};
}

void* DeviceImage::moved(const Image& image, const void* host) const {
  const Image::Place place = image.locate(host);
  return blocks_[place.block].data() + image.blocks()[place.block].payload + place.offset;
}

namespace {

// Empty, or where two runs differ.
std::string difference(const std::vector<std::byte>& first, const std::vector<std::byte>& now) {
  const auto at = std::mismatch(first.begin(), first.end(), now.begin(), now.end());
  if (at.first == first.end()) return {};
  return concat("byte ", at.first - first.begin(), " of the written blocks");
}

}  // namespace

template <class CProblem, class CBuffers>
Status DeviceTarget::run_launches(const CProblem& problem, const CBuffers& buffers, const winnow_execution& execution,
                                  DeviceImage& device, Image& image) {
  const auto wait = [this](const char* how) { return cuda_status(cudaStreamSynchronize(stream_), how); };
  std::vector<std::byte> first, now;
  for (int i = 0; i < options_.launches; ++i) {
    if (i > 0) WINNOW_TRY(device.upload_written(image));
    WINNOW_TRY(abi_status(call(problem, buffers, execution)));
    WINNOW_TRY(wait("launch"));
    if (options_.launches == 1 && !options_.graph) break;
    WINNOW_TRY(device.read_written(image, i == 0 ? first : now));
    if (i == 0) continue;
    if (const std::string where = difference(first, now); !where.empty()) {
      return error(StatusCode::device_error, "launch ", i + 1, " of ", options_.launches,
                   " gave other bits than the first, at ", where);
    }
  }
  if (!options_.graph) return {};
  WINNOW_TRY(device.upload_written(image));
  WINNOW_TRY_ASSIGN(const Graph graph, Graph::capture(stream_, 1, [&](cudaStream_t, int) {
                      return abi_status(call(problem, buffers, execution));
                    }));
  WINNOW_TRY(graph.replay(stream_));
  WINNOW_TRY(wait("graph"));
  WINNOW_TRY(device.read_written(image, now));
  if (const std::string where = difference(first, now); !where.empty()) {
    return error(StatusCode::device_error, "the captured graph gave other bits than the launch, at ", where);
  }
  return {};
}

template <class Problem, class Buffers>
Outcome DeviceTarget::run_any(const Problem& problem, const Buffers& buffers, Image& image) {
  // The rules are part of the ABI and would refuse there too; here they name what a case does wrong.
  if (const Status legal = check(problem, buffers); !legal.ok()) return conformance::failed(legal.message());
  DeviceImage device;
  const auto run_it = [&]() -> Status {
    const auto c = c_problem(problem);
    winnow_execution execution{};
    execution.struct_size = sizeof execution;
    execution.stream = stream_;
    WINNOW_TRY(abi_status(workspace(c, execution.workspace_bytes)));
    WINNOW_TRY(device.mirror(image));
    const Buffers moved = conformance::relocated(buffers, [&](const void* host) { return device.moved(image, host); });
    WINNOW_TRY_ASSIGN(const DeviceBuffer scratch, DeviceBuffer::allocate("workspace", execution.workspace_bytes));
    execution.workspace = scratch.data();
    WINNOW_TRY(run_launches(c, c_buffers(moved), execution, device, image));
    WINNOW_TRY(device.download(image));
    return scratch.guards_intact();
  };
  watchdog_.arm(case_, options_.limit_s);
  const Status status = run_it();
  watchdog_.disarm();
  if (status.ok()) return conformance::ran();
  if (status.code() == StatusCode::unsupported) return conformance::refused(status.message());
  return conformance::failed(status.message());
}

Outcome DeviceTarget::run(const SparseMlaProblem& p, const SparseMlaBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome DeviceTarget::run(const IndexSelectProblem& p, const IndexSelectBuffers& b, Image& i) {
  return run_any(p, b, i);
}
Outcome DeviceTarget::run(const CacheWriteProblem& p, const CacheWriteBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome DeviceTarget::run(const RowGatherProblem& p, const RowGatherBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome DeviceTarget::run(const MergeProblem& p, const MergeBuffers& b, Image& i) { return run_any(p, b, i); }

}  // namespace winnow::kernels
