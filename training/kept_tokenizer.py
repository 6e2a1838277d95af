"""The tokenizer of a card's last version, fitted to texts some of which have come and some gone.

A BPE trained anew on nearly the same texts splits many words differently, so that a model would have to learn all of
its passages again. This one splits every word of an old text as before. A token that no text needs any more is dropped:
it may be a name that only a removed text had.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kcard.training.tokenizer import SPECIAL, tokenizer_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["kept_tokenizer"]

Merge = tuple[str, str]


def kept_tokenizer(
    last: "PreTrainedTokenizerFast", texts: Sequence[str], added: Sequence[str], vocabulary: int
) -> "PreTrainedTokenizerFast":
    """The tokenizer `last` for `texts`, `added` among them, with `vocabulary` tokens at most.

    `last` is one of train_tokenizer or of this function. Words of `added` get tokens of their own as far as there is
    room.
    """
    from tokenizers import Tokenizer, pre_tokenizers

    model: Tokenizer = last.backend_tokenizer
    made: dict[str, Any] = json.loads(model.to_str())
    merges: list[Merge] = [(first, second) for first, second in made["model"]["merges"]]
    needed = _needed(_tokens(model, texts), merges)
    kept = [pair for pair in merges if "".join(pair) in needed]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    room = vocabulary - len({*SPECIAL, *alphabet, *map("".join, kept)})
    pruned = _with_merges(made, alphabet, kept)
    learned = _learned(pruned, added, room)
    return tokenizer_of(_with_merges(made, alphabet, [*kept, *learned]) if learned else pruned)


def _tokens(model: "Tokenizer", texts: Sequence[str]) -> set[str]:
    encodings = model.encode_batch([*texts], add_special_tokens=False)
    return {token for encoding in encodings for token in encoding.tokens}


def _needed(tokens: set[str], merges: Sequence[Merge]) -> set[str]:
    """The tokens, and those of which they are merged, in whatever way."""
    found = set(tokens)
    # The parts of a merge are merged before it.
    for pair in reversed(merges):
        if "".join(pair) in found:
            found.update(pair)
    return found


def _with_merges(made: dict[str, Any], alphabet: Iterable[str], merges: Sequence[Merge]) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokens = dict.fromkeys([*SPECIAL, *alphabet, *map("".join, merges)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {**made["model"], "vocab": vocabulary, "merges": [list(pair) for pair in merges]}
    return Tokenizer.from_str(json.dumps({**made, "model": model}))


def _learned(model: "Tokenizer", texts: Sequence[str], most: int) -> list[Merge]:
    """At most `most` merges, the most frequent pair of neighbouring tokens in the words of the texts each time."""
    words = Counter(word for text in texts for word, _ in model.pre_tokenizer.pre_tokenize_str(text))
    split = {word: [token.value for token in model.model.tokenize(word)] for word in words}
    found: list[Merge] = []
    while len(found) < most:
        pairs: Counter[Merge] = Counter()
        for word, tokens in split.items():
            for pair in pairwise(tokens):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        found.append(best)
        split = {word: _merged(tokens, best) for word, tokens in split.items()}
    return found


def _merged(tokens: Sequence[str], pair: Merge) -> list[str]:
    found: list[str] = []
    for token in tokens:
        if found and (found[-1], token) == pair:
            found[-1] += token
        else:
            found.append(token)
    return found
