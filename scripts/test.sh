#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that this machine can check, after `make build`. What cannot run here says so and counts as skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0
step() {  # step NAME COMMAND...: runs it, counts it
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "== FAILED: $name" >&2
  fi
}
skip() {
  skipped=$((skipped + 1))
  echo "== SKIPPED: $1: $2"
}

step "CPU tests" ctest --test-dir build --output-on-failure -j "$(nproc)"

if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  step "CUDA kernels compile for every architecture" make --no-print-directory kernels
  step "registers, spills and shared memory are as recorded" \
    python3 scripts/kernel_resources.py --check build-cuda docs/kernel_resources.csv
  conformance=$(build/bin/winnow-kernels conformance --allow-no-gpu 2>&1)
  status=$?
  if reason=$(grep -m 1 '^SKIPPED' <<<"$conformance"); then
    skip "CUDA conformance" "$reason"
  else
    step "CUDA conformance" eval 'echo "$conformance"; [ "$status" -eq 0 ]'
  fi
else
  skip "CUDA kernels" "no nvcc on this machine"
fi

echo
echo "Each step's own counts stand above; the steps:"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
