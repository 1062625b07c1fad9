# SPDX-License-Identifier: Apache-2.0
"""Recall samples: access codes hidden in documentation text, then questions about them.

The prompt shape is [gMASK]<sop><|user|>\\n{text and question}<|assistant|>\\n{answer}, and <|endoftext|> behind the
last answer.
"""
import torch

ADJECTIVES = (
    "amber ancient bitter brave bright calm clever copper coral crimson curious dusty eager early fading fallen gentle "
    "golden grand green hidden hollow humble icy ivory jolly keen lively lonely lucky marble mellow misty modest narrow "
    "noble pale patient plain polar proud quiet rapid rustic sandy scarlet secret silent silver simple slow solar spare "
    "steady still stone stormy sturdy subtle sunny swift tender tidy velvet violet warm wild winter wooden young"
).split()
NOUNS = (
    "anchor arrow badger basket beacon bell bridge candle canyon castle cedar cliff cloud comet cottage crane crown "
    "desert dragon eagle engine falcon feather fern forest fountain fox garden gate glacier harbor hawk hill island "
    "jacket kettle kite ladder lake lantern lemon lion maple meadow mirror moon mountain needle oak ocean orchard otter "
    "owl panther pebble pine planet pond prairie quarry rabbit river robin rocket sail shell spider spring star stream "
    "summit sword temple thunder tiger tower tunnel turtle valley violin wagon whale willow window wolf"
).split()
STATEMENTS = [
    "The access code for the {} is {}.", "Note: the {} has access code {}.",
    "Remember that the access code of the {} is {}.",
]
QUESTIONS = [
    "What is the access code for the {}?", "Which access code does the {} have?",
    "Tell me the access code of the {}.",
]
# Weights of the loss: an answer counts double, the code in it sixfold.
ANSWER_WEIGHT, CODE_WEIGHT = 2.0, 6.0


def make_facts(rng, count):
    """count pairs of a name and a code, names distinct."""
    facts = {}
    while len(facts) < count:
        name = rng.choice(ADJECTIVES) + " " + rng.choice(NOUNS)
        facts.setdefault(name, "%03d-%03d" % (rng.randrange(1000), rng.randrange(1000)))
    return list(facts.items())


def _question(vocabulary, rng, name, first):
    start = [] if first else [vocabulary.id["<|user|>"]]
    text = vocabulary.encode("\n") + vocabulary.encode(rng.choice(QUESTIONS).format(name))
    return start + text + [vocabulary.id["<|assistant|>"]]


def recall_sample(vocabulary, length, rng, source, facts=None, questions=None):
    """One conversation of length + 1 tokens over a stretch of source.

    Returns ids [length + 1], loss weights [length] and the spans of the codes in ids.
    """
    facts = make_facts(rng, facts or rng.choice([1, 2, 4, 8, 16, 24]))
    asked = rng.sample(facts, questions or min(len(facts), rng.choice([1, 2, 4])))
    newline = vocabulary.encode("\n")
    tail, spans = [], []
    for i, (name, code) in enumerate(asked):
        tail += _question(vocabulary, rng, name, i == 0)
        answer = newline + vocabulary.encode(f"The access code for the {name} is {code}.")
        begin = len(newline) + len(vocabulary.encode(f"The access code for the {name} is"))
        end = len(newline) + len(vocabulary.encode(f"The access code for the {name} is {code}"))
        if i == len(asked) - 1:
            answer.append(vocabulary.id["<|endoftext|>"])
        spans.append((len(tail), len(tail) + len(answer), len(tail) + begin, len(tail) + end))
        tail += answer

    head = [vocabulary.id["[gMASK]"], vocabulary.id["<sop>"], vocabulary.id["<|user|>"]] + newline
    hidden = [newline + vocabulary.encode(rng.choice(STATEMENTS).format(*fact)) + newline for fact in facts]
    room = length + 1 - len(head) - len(tail) - sum(map(len, hidden))
    if room < 0:  # a short sample has no place for that many
        if len(facts) == 1:
            raise ValueError(f"{length} tokens are too few for one hidden fact and a question about it")
        return recall_sample(vocabulary, length, rng, source, facts=len(facts) // 2, questions=1)
    offset = rng.randrange(0, len(source) - room - 1)
    body = source[offset : offset + room].tolist()
    out, done = list(head), 0
    for place, fact in zip(sorted(rng.randrange(0, room + 1) for _ in hidden), hidden):
        out += body[done:place] + fact
        done = place
    out += body[done:]
    base = len(out)
    out += tail

    weights = torch.ones(length)
    for begin, end, code_begin, code_end in spans:
        weights[base + begin - 1 : base + end - 1] = ANSWER_WEIGHT
        weights[base + code_begin - 1 : base + code_end - 1] = CODE_WEIGHT
    return torch.tensor(out), weights, [(base + begin, base + end) for _, _, begin, end in spans]
