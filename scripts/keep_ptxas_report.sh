#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiler launcher of the CUDA kernel library: runs the command, keeps what `ptxas -v` says about registers, spills
# and shared memory beside the object (foo.cu.o.ptxas), and passes every other message on.
# scripts/kernel_resources.py reads the kept reports: exact spill counts are printed at compile time and nowhere else.
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"

report=$object.ptxas
"$@" 2>"$report.new"
status=$?
# The report itself is long and of no interest in a build log; warnings and errors are.
grep -v -E '^(ptxas info|    [0-9]+ bytes stack frame)' "$report.new" >&2
if [ "$status" -eq 0 ]; then mv -f "$report.new" "$report"; else rm -f "$report.new"; fi
exit "$status"
