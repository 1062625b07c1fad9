#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts the header of a GGUF file down to a test fixture: every metadata key and tensor info stays, long arrays
(token strings, token types, merges) keep their first entries, tensor data is left out.

  scripts/strip_gguf_header.py IN.gguf OUT.gguf [--keep 16]
"""
import argparse
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
LONG = 1024  # arrays beyond this many entries are cut; per-layer arrays never are


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise SystemExit(f"the file ends at byte {len(self.data)}, inside its header")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self):
        """Bytes of a string, its length in front."""
        start = self.at
        self.take(self.number("Q"))
        return self.data[start:self.at]

    def scalar(self, kind):
        return self.string() if kind == STRING else self.take(struct.calcsize("<" + SCALARS[kind]))

    def value(self, kind, keep):
        """Bytes of a value, long arrays cut to `keep` entries."""
        if kind != ARRAY:
            return self.scalar(kind)
        element, count = self.number("I"), self.number("Q")
        entries = [self.scalar(element) for _ in range(count)]
        if count > LONG:
            entries = entries[:keep]
        return struct.pack("<IQ", element, len(entries)) + b"".join(entries)


def strip(data, keep):
    reader = Reader(data)
    if reader.take(4) != b"GGUF" or reader.number("I") != 3:
        raise SystemExit("not a GGUF file of version 3")
    tensors, keys = reader.number("Q"), reader.number("Q")
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys))
    alignment = 32
    for _ in range(keys):
        name = reader.string()
        kind = reader.number("I")
        value = reader.value(kind, keep)
        if name[8:] == b"general.alignment":
            alignment = int.from_bytes(value, "little")
        out += name + struct.pack("<I", kind) + value
    for _ in range(tensors):
        out += reader.string()
        rank = reader.take(4)
        out += rank + reader.take(8 * int.from_bytes(rank, "little") + 4 + 8)
    return bytes(out) + bytes(-len(out) % alignment)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--keep", type=int, default=16, help="entries of long arrays that stay")
    options = parser.parse_args()
    with open(options.source, "rb") as file:
        data = file.read()
    stripped = strip(data, options.keep)
    with open(options.target, "wb") as file:
        file.write(stripped)
    print(f"{options.target}: {len(stripped)} bytes of {len(data)}")


if __name__ == "__main__":
    main()
