#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/kernel_resources.py reads what ptxas prints, and notices what must not ship. Needs no CUDA toolkit."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import kernel_resources as resources  # noqa: E402

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1fIiEvT_' for 'sm_80'
ptxas info    : Function properties for _Z1fIiEvT_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 3072 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1gv' for 'sm_90a'
ptxas info    : Function properties for _Z1gv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers
"""


def row(**changed):
    base = dict.fromkeys(resources.COLUMNS, "0") | {"kernel": "f<int>", "sm": "86", "registers": "40", "threads": "256"}
    return base | {key: str(value) for key, value in changed.items()}


class Reports(unittest.TestCase):
    def test_reads_every_entry(self):
        first, second = resources.entries(REPORT)
        self.assertEqual((first["sm"], first["registers"], first["static_shared_bytes"]), (80, 40, 3072))
        self.assertEqual((second["sm"], second["spill_store_bytes"], second["spill_load_bytes"]), (90, 4, 12))
        self.assertEqual(second["static_shared_bytes"], 0)

    def test_short_names(self):
        self.assertEqual(resources.short_name("void winnow::cuda::f<winnow::cuda::Rows, 8, true>(winnow::cuda::P)"),
                         "f<Rows,8,true>")
        self.assertEqual(resources.short_name("winnow::(anonymous namespace)::g(int*)"), "g")

    def test_launch_facts_go_to_whole_template_arguments(self):
        facts = {("f<Rows,1", 80): 1, ("f<Rows,16", 80): 2, ("g", 80): 3, ("h<", 80): 4}
        self.assertEqual(resources.fact_of(facts, "f<Rows,16,true>", 80), ("f<Rows,16", 80))
        self.assertEqual(resources.fact_of(facts, "f<Rows,1>", 80), ("f<Rows,1", 80))
        self.assertEqual(resources.fact_of(facts, "h<4>", 80), ("h<", 80))
        self.assertIsNone(resources.fact_of(facts, "gg", 80))


class Limits(unittest.TestCase):
    def test_within(self):
        self.assertEqual(list(resources.broken_limits([row(dynamic_shared_bytes=99 * 1024)])), [])

    def test_each_broken_limit_is_named(self):
        for changed, text in [({"spill_store_bytes": 4}, "spills 4"), ({"spill_load_bytes": 8}, "8 in"),
                              ({"static_shared_bytes": 1024, "dynamic_shared_bytes": 99 * 1024}, "shared memory"),
                              ({"registers": 255, "threads": 512}, "do not fit"), ({"sm": 70}, "no shared-memory limit")]:
            found = list(resources.broken_limits([row(**changed)]))
            self.assertEqual(len(found), 1, changed)
            self.assertIn(text, found[0])


class Check(unittest.TestCase):
    def problems(self, built, recorded):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table.csv"
            with path.open("w", newline="") as file:
                resources.write(recorded, file)
            return resources.check(built, path)

    def test_same(self):
        self.assertEqual(self.problems([row()], [row()]), 0)

    def test_changed_missing_and_new(self):
        self.assertEqual(self.problems([row(registers=41)], [row()]), 1)
        self.assertEqual(self.problems([row()], [row(), row(sm=90)]), 1)
        self.assertEqual(self.problems([row(), row(sm=90)], [row()]), 1)


if __name__ == "__main__":
    unittest.main()
