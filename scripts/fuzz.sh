#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets and runs each for FUZZ_SECONDS (default 60), one after the other. New inputs and findings
# stay in build-fuzz/. Exit status 0 only when no target found anything.
#   FUZZ_SECONDS=600 scripts/fuzz.sh            all of them
#   FUZZ_SECONDS=600 scripts/fuzz.sh gguf       one
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}

WINNOW_DEPS=all scripts/install_dependencies.sh
cmake --preset fuzz --log-level=WARNING
cmake --build build-fuzz -j "${JOBS:-$(nproc)}" --target fuzzers

names=("$@")
if [ "${#names[@]}" -eq 0 ]; then
  for binary in build-fuzz/fuzz/fuzz_*; do names+=("${binary##*/fuzz_}"); done
fi

failed=0
for name in "${names[@]}"; do
  new=build-fuzz/corpus/$name findings=build-fuzz/findings/$name log=build-fuzz/$name.log
  mkdir -p "$new" "$findings"
  echo "fuzz_$name: $seconds s from $(find "fuzz/corpus/$name" -type f | wc -l) seeds"
  status=0
  "build-fuzz/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$findings/" -print_final_stats=1 "$new" "fuzz/corpus/$name" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ "$status" -eq 0 ]; then
    echo "fuzz_$name: ${executions:-?} executions, no finding"
  else
    failed=1
    echo "fuzz_$name: FAILED with status $status after ${executions:-?} executions; the input is in $findings, the log in $log" >&2
    grep -m 5 -E 'ERROR|SUMMARY|runtime error|check failed' "$log" >&2 || tail -n 5 "$log" >&2
  fi
done
exit "$failed"
