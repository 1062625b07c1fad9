#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers, spills and shared memory of every CUDA kernel and architecture, as a CSV table.

  scripts/kernel_resources.py BUILD_DIR [-o FILE]        write the table (stdout without -o)
  scripts/kernel_resources.py --check BUILD_DIR FILE     compare with a table, and check every limit

Sources: what `ptxas -v` printed for each object (kept beside it by scripts/keep_ptxas_report.sh), and the dynamic
shared memory that the launchers ask for, as `winnow-kernels info --shared` prints it: the launcher's own numbers,
without a device. Limits: no spilled register anywhere, static plus dynamic shared memory within what one block may
have on that architecture, at most 255 registers and 65,536 of them per block.
"""

import argparse
import csv
import io
import pathlib
import re
import subprocess
import sys

# Shared memory per block in bytes, by compute capability (CUDA C++ Programming Guide, technical specifications).
SHARED_LIMIT = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
COLUMNS = ["kernel", "sm", "registers", "threads", "stack_bytes", "spill_store_bytes", "spill_load_bytes",
           "static_shared_bytes", "dynamic_shared_bytes"]
# Measuring and filling kernels of the program, not of the library.
NOT_SHIPPED = ("fill.cu", "peaks.cu")

COMPILING = re.compile(r"ptxas info\s+: Compiling entry function '(\S+)' for 'sm_(\d+)a?'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info\s+: Used (\d+) registers(.*)")
STATIC = re.compile(r"(\d+) bytes smem")


def fail(message):
    print(f"kernel_resources: {message}", file=sys.stderr)
    sys.exit(1)


def reports(build):
    """(source name, text) of every kept ptxas report of a shipped kernel."""
    found = sorted(pathlib.Path(build).rglob("*.cu.o.ptxas"))
    if not found:
        fail(f"no *.cu.o.ptxas below {build}; build the CUDA library first (make kernels)")
    for path in found:
        name = path.name.removesuffix(".o.ptxas")
        if name not in NOT_SHIPPED and path.with_suffix("").exists():
            yield name, path.read_text()


def entries(text):
    """One dictionary for each kernel and architecture of a report."""
    current = None
    for line in text.splitlines():
        if match := COMPILING.search(line):
            current = {"symbol": match[1], "sm": int(match[2])}
        elif current is not None and (match := STACK.search(line)) and "stack_bytes" not in current:
            current["stack_bytes"], current["spill_store_bytes"], current["spill_load_bytes"] = map(int, match.groups())
        elif current is not None and (match := USED.search(line)):
            static = STATIC.search(match[2])
            current["registers"] = int(match[1])
            current["static_shared_bytes"] = int(static[1]) if static else 0
            yield current
            current = None


def short_name(demangled):
    """winnow::cuda::(anonymous namespace)::f<(int)8, true>(P const*) -> f<8,true>"""
    name = re.sub(r"\(anonymous namespace\)::", "", demangled)
    name = re.sub(r"^\S*void ", "", name)
    name = re.sub(r"\((int|bool|unsigned int|long)\)", "", name)
    depth = 0
    for i, character in enumerate(name):  # cut the parameter list: the first '(' outside of <>
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0:
            name = name[:i]
            break
    name = re.sub(r"\b\w+::", "", name)
    return name.replace(" ", "")


def demangle(symbols):
    if not symbols:
        return {}
    run = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, (short_name(line) for line in run.stdout.splitlines())))


def launches(build):
    """(name or beginning of a name, sm) -> (threads, dynamic shared bytes), from the launchers' own tables."""
    program = pathlib.Path(build) / "bin" / "winnow-kernels"
    if not program.exists():
        fail(f"{program} is missing; build the CUDA library first (make kernels)")
    run = subprocess.run([program, "info", "--shared"], capture_output=True, text=True)
    if run.returncode != 0:
        fail(f"winnow-kernels info --shared: {run.stderr.strip()}")
    facts = {}
    for row in csv.DictReader(io.StringIO(run.stdout)):
        facts[(row["kernel"], int(row["sm"]))] = (int(row["threads"]), int(row["dynamic_shared_bytes"]))
    return facts


def fact_of(facts, kernel, sm):
    """The key of the longest name that `kernel` is or begins with, whole template arguments only; None without one."""
    fits = [key for key in facts if key[1] == sm and kernel.startswith(key[0])
            and (kernel == key[0] or key[0].endswith("<") or kernel[len(key[0])] in ",>")]
    return max(fits, key=lambda key: len(key[0]), default=None)


def table(build):
    rows = [entry for _, text in reports(build) for entry in entries(text)]
    names = demangle(sorted({row["symbol"] for row in rows}))
    facts = launches(build)
    used = set()
    for row in rows:
        row["kernel"] = names[row["symbol"]]
        key = fact_of(facts, row["kernel"], row["sm"])
        row["threads"], row["dynamic_shared_bytes"] = facts.get(key, (0, 0))
        used.add(key)
    unused = {key for key in facts if key[1] in {row["sm"] for row in rows}} - used
    if unused:
        fail(f"launch facts name kernels that were not compiled: {', '.join(sorted({name for name, _ in unused}))}")
    rows.sort(key=lambda row: (row["kernel"], row["sm"]))
    return [{column: str(row[column]) for column in COLUMNS} for row in rows]


def broken_limits(rows):
    for row in rows:
        where = f"{row['kernel']} sm_{row['sm']}"
        shared = int(row["static_shared_bytes"]) + int(row["dynamic_shared_bytes"])
        limit = SHARED_LIMIT.get(int(row["sm"]))
        if int(row["spill_store_bytes"]) or int(row["spill_load_bytes"]):
            yield f"{where} spills {row['spill_store_bytes']} bytes out and {row['spill_load_bytes']} in"
        if limit is None:
            yield f"{where}: no shared-memory limit is known for this architecture"
        elif shared > limit:
            yield f"{where} wants {shared} bytes of shared memory, a block has {limit}"
        if int(row["registers"]) > 255 or int(row["registers"]) * int(row["threads"]) > 65536:
            yield f"{where}: {row['registers']} registers x {row['threads']} threads do not fit an SM"


def write(rows, file):
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def check(rows, path):
    """Prints every difference and every broken limit; the number of them."""
    problems = list(broken_limits(rows))
    if not path.exists():
        problems.append(f"{path} is missing; make kernels-resources writes it")
        recorded = []
    else:
        with path.open(newline="") as file:
            recorded = list(csv.DictReader(file))
    built = {(row["kernel"], row["sm"]): row for row in rows}
    known = {(row["kernel"], row["sm"]): row for row in recorded}
    for key in sorted(built.keys() | known.keys()):
        name = f"{key[0]} sm_{key[1]}"
        if key not in known:
            problems.append(f"{name} is built but not recorded")
        elif key not in built:
            problems.append(f"{name} is recorded but not built")
        else:
            changed = [f"{c} {known[key].get(c)} -> {built[key][c]}" for c in COLUMNS if known[key].get(c) != built[key][c]]
            if changed:
                problems.append(f"{name}: {', '.join(changed)}")
    for problem in problems:
        print(f"kernel_resources: {problem}", file=sys.stderr)
    if problems:
        print("kernel_resources: if the change is meant, make kernels-resources records it", file=sys.stderr)
    else:
        print(f"kernel_resources: {len(rows)} rows as recorded, no spill, shared memory within every limit")
    return len(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with FILE instead of writing")
    parser.add_argument("build", help="build folder of the CUDA preset, build-cuda")
    parser.add_argument("file", nargs="?", type=pathlib.Path, help="recorded table, with --check")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="where to write; default stdout")
    options = parser.parse_args()
    if options.check and options.file is None:
        parser.error("--check wants the recorded table: docs/kernel_resources.csv")
    rows = table(options.build)
    if options.check:
        sys.exit(1 if check(rows, options.file) else 0)
    if options.output:
        with options.output.open("w", newline="") as file:
            write(rows, file)
    else:
        write(rows, sys.stdout)


if __name__ == "__main__":
    main()
