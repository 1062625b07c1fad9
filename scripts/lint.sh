#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format on every source file, clang-tidy on every C++ file of the build. Exit status 1 when either complains.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in clang-format clang-tidy; do
  command -v "$tool" >/dev/null || { echo "lint: $tool is missing; WINNOW_DEPS=all scripts/install_dependencies.sh installs it" >&2; exit 1; }
done

mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.h' '*.c')
clang-format --dry-run -Werror "${sources[@]}"

# bench/ is left out: the macros of Google Benchmark are what would be reported there.
mapfile -t units < <(git ls-files 'src/*.cpp' 'tests/*.cpp' | xargs -I{} sh -c 'grep -q "/{}\"" build/compile_commands.json && echo {} || true')
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build --quiet --warnings-as-errors='*' 2> >(grep -v 'warnings generated' >&2)
echo "lint: ${#sources[@]} files formatted, ${#units[@]} units clean"
