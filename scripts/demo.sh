#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demonstration: what the plan says, then a question about a document of 4,000 tokens, answered by a model of which
# every token reads at most 128 others. Exit status 0 only when the answer holds the right code.
set -euo pipefail
cd "$(dirname "$0")/.."

winnow=${WINNOW:-build/bin/winnow}
model=models/winnow-tiny-q8_0.gguf
document=examples/ledger-manual.txt
question="What is the access code for the quiet harbor?"
expected=771-204

for file in "$winnow" "$model" "$document"; do
  [ -e "$file" ] || { echo "demo: $file is missing; run this through \`make demo\` in a complete clone" >&2; exit 1; }
done

echo "\$ winnow plan $model"
"$winnow" plan "$model"

echo
echo "\$ winnow run $model --file $document --prompt \"$question\""
answer_file=$(mktemp)
trap 'rm -f "$answer_file"' EXIT
"$winnow" run "$model" --file "$document" --prompt "$question" --max-tokens 40 | tee "$answer_file"
answer=$(cat "$answer_file")

echo
echo "In the document: $(grep -F "$expected" "$document")"
if [[ "$answer" == *"$expected"* ]]; then
  echo "The answer is right: $expected."
else
  echo "demo: the answer lacks the code $expected" >&2
  exit 1
fi
