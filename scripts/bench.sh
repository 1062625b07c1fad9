#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CPU benchmarks, each with its command line: kernels, then the demonstration end to end. Speeds mean something beside
# one another in one run on a quiet machine; bench/results/ holds the runs that we quote.
#   scripts/bench.sh [--quick]     --quick leaves out the kernels
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${WINNOW_BIN:-build/bin}
model=models/winnow-tiny-q8_0.gguf
document=examples/ledger-manual.txt
question="What is the access code for the quiet harbor?"
statistics=$(mktemp)
excerpt=$(mktemp --suffix=.txt)
trap 'rm -f "$statistics" "$excerpt"' EXIT
head -c 3000 "$document" >"$excerpt"

say() { printf '\n%s\n' "$*"; }

echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
echo "commit:  $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

if [ "${1:-}" != "--quick" ]; then
  for program in linear_bench attention_bench; do
    say "\$ $bin/$program --benchmark_min_time=0.2"
    "$bin/$program" --benchmark_min_time=0.2 2>/dev/null
  done
fi

# run LABEL ARGUMENTS...: sets prefill and decode to tokens/s, memory to the peak in MB (0 where GNU time is missing).
run() {
  local label=$1
  shift
  say "$label"
  echo "\$ winnow run $model ${*//$excerpt/FIRST_3000_BYTES_OF_THE_DOCUMENT}"
  if [ -x /usr/bin/time ]; then
    /usr/bin/time -f 'peak %M KB' "$bin/winnow" run "$model" "$@" 2>"$statistics" >/dev/null
  else
    "$bin/winnow" run "$model" "$@" 2>"$statistics" >/dev/null
  fi
  grep -E '^(prefill|decode|read|peak)' "$statistics"
  prefill=$(sed -nE 's/^prefill.* ([0-9.]+) tokens\/s.*/\1/p' "$statistics")
  decode=$(sed -nE 's/^decode.* ([0-9.]+) tokens\/s.*/\1/p' "$statistics")
  memory=$(sed -nE 's/^peak ([0-9]+) KB/\1/p' "$statistics" | awk '{ print $1 / 1024 }')
  memory=${memory:-0}
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "?" }'; }

# A question ends after twenty tokens; a text that goes on gives decode enough of them.
go_on=(--raw --file "$document" --prompt "The next chapter" --max-tokens 200)

run "the demonstration's question" --file "$document" --prompt "$question" --max-tokens 40
demo_prefill=$prefill demo_memory=$memory
run "a text that goes on, sparse" "${go_on[@]}"
sparse_prefill=$prefill sparse_decode=$decode
run "the same, dense" "${go_on[@]}" --dense
dense_prefill=$prefill dense_decode=$decode
run "the same, sparse, one thread" "${go_on[@]}" --threads 1
one_prefill=$prefill one_decode=$decode
run "a short text, cpu.simd" --raw --file "$excerpt" --prompt "The next chapter" --max-tokens 50 --attention cpu.simd
simd_prefill=$prefill simd_decode=$decode
run "the same, cpu.reference" --raw --file "$excerpt" --prompt "The next chapter" --max-tokens 50 --attention cpu.reference
plain_prefill=$prefill plain_decode=$decode

say "ratios of this run"
echo "sparse / dense              prefill $(ratio "$sparse_prefill" "$dense_prefill")   decode $(ratio "$sparse_decode" "$dense_decode")"
echo "all threads / one           prefill $(ratio "$sparse_prefill" "$one_prefill")   decode $(ratio "$sparse_decode" "$one_decode")"
echo "cpu.simd / cpu.reference    prefill $(ratio "$simd_prefill" "$plain_prefill")   decode $(ratio "$simd_decode" "$plain_decode")"

say "bounds"
start() { local begin=$EPOCHREALTIME; "$@" >/dev/null 2>&1; awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }'; }
echo "demonstration's prefill     $(awk -v r="$demo_prefill" 'BEGIN { printf "%.2f", 4000 / r }') s for 4,000 tokens (bound 15)"
echo "decode at 4K context        $sparse_decode tokens/s (bound 100)"
echo "winnow --help               $(start "$bin/winnow" --help) s (bound 1)"
echo "winnow plan                 $(start "$bin/winnow" plan "$model") s (bound 1)"
per_token=$("$bin/winnow" plan "$model" --json | sed -nE 's/.*"(latent|key)_bytes_per_token": *([0-9]+).*/\2/p' | awk '{ n += $1 } END { print n }')
awk -v weights="$(stat -c %s "$model")" -v token="$per_token" -v peak="$demo_memory" 'BEGIN {
  printf "resident memory             %.0f MB (bound %.0f: weights %.0f, cache of 4,096 positions %.0f, 100)\n", peak,
         (weights + 4096 * token) / 1048576 + 100, weights / 1048576, 4096 * token / 1048576 }'
