# SPDX-License-Identifier: Apache-2.0
"""Text of Debian's PostgreSQL, SQLite and Python manuals from their HTML packages.

Writes train.txt and valid.txt (3 % of the pages), pages separated by <|endoftext|>.
"""
import argparse
import os
import random
import re
from html.parser import HTMLParser

SEPARATOR = "\n<|endoftext|>\n"
SKIPPED_ELEMENTS = ("script", "style", "nav", "head", "footer")
BREAK_BEFORE = ("p", "div", "li", "tr", "h1", "h2", "h3", "h4", "pre", "br", "dt", "dd", "table")
BREAK_BEHIND = ("p", "h1", "h2", "h3", "pre", "table")
# Indexes and lists of changes: names without sentences.
SKIPPED_PYTHON_PAGES = ("genindex", "changelog", "search", "modindex")
SKIPPED_PAGES = ("bookindex", "sitemap", "keyword_index", "release-", "release_notes")
LEAST_CHARACTERS = 800


class TextOf(HTMLParser):
    """Collects the text of a page, with line breaks where blocks begin and end."""

    def __init__(self):
        super().__init__()
        self.parts = []
        self.skipping = 0

    def handle_starttag(self, tag, attrs):
        if tag in SKIPPED_ELEMENTS:
            self.skipping += 1
        if tag in BREAK_BEFORE:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        if tag in SKIPPED_ELEMENTS and self.skipping:
            self.skipping -= 1
        if tag in BREAK_BEHIND:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skipping:
            self.parts.append(data)


def text_of(path):
    """The page as ASCII text: runs of blanks and of empty lines become one."""
    parser = TextOf()
    with open(path, errors="ignore") as page:
        parser.feed(page.read())
    text = re.sub(r"[ \t]+", " ", "".join(parser.parts))
    text = re.sub(r" ?\n ?", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return text.encode("ascii", "ignore").decode()


def wanted(folder, name):
    """Whether a file is a page of prose."""
    if not name.endswith(".html") or any(word in name for word in SKIPPED_PAGES):
        return False
    other = "postgresql" in folder or "sqlite" in folder
    return other or not any(word in name for word in SKIPPED_PYTHON_PAGES)


def pages(root):
    """Texts of all pages below root, in a stable order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if wanted(folder, name):
                text = text_of(os.path.join(folder, name))
                if len(text) > LEAST_CHARACTERS:
                    yield text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="folder into which the three packages were unpacked (see README.md)")
    parser.add_argument("--out", default=".", help="folder for train.txt and valid.txt (default: here)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    documents = list(pages(arguments.root))
    if not documents:
        parser.error(f"no HTML page below {arguments.root}; unpack the documentation packages there")
    random.Random(arguments.seed).shuffle(documents)
    split = int(len(documents) * 0.97)
    for name, part in (("train.txt", documents[:split]), ("valid.txt", documents[split:])):
        with open(os.path.join(arguments.out, name), "w") as out:
            out.write(SEPARATOR.join(part))
        print(f"{name}: {len(part)} pages, {sum(map(len, part))} characters")


if __name__ == "__main__":
    main()
