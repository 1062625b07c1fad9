# SPDX-License-Identifier: Apache-2.0
"""The tokenizer: byte-level BPE with GLM's pre-tokeniser pattern and 4,096 tokens."""
import os

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = [
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
    "<|observation|>",
]
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SIZE = 4096


def train_tokenizer(text, path):
    """Trains on the pages and on all three-digit numbers (codes are made of them), and saves."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(SPECIAL), special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False)
    numbers = "".join("%03d " % i for i in range(1000))
    tokenizer.train_from_iterator(text.replace("<|endoftext|>", "").split("\n\n") + [numbers] * 60, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(path)


class Vocabulary:
    """Encoding without added special tokens, and the ids of the special ones."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(path)
        self.size = self.tokenizer.get_vocab_size()
        self.id = {text: self.tokenizer.token_to_id(text) for text in SPECIAL}

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode_pages(self, text):
        """All pages in one list, each closed by <|endoftext|>."""
        parts = [page.strip() for page in text.split("<|endoftext|>")]
        out = []
        for encoded in self.tokenizer.encode_batch(parts, add_special_tokens=False):
            out += encoded.ids + [self.id["<|endoftext|>"]]
        return out


def load_or_train(path, train_text):
    """The vocabulary at path; trained first when there is none."""
    if not os.path.exists(path):
        train_tokenizer(train_text, path)
    return Vocabulary(path)
