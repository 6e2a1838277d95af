"""What the embedded LLM does in a language that its reader does not know: it quotes the passages that share the
question's words, and says so."""

from collections.abc import Sequence

from kcard.language import identify
from kcard.llms.extract import Extract
from kcard.sentences import spans
from kcard.words import Analyzer, analyzer, small_words, stemmer_of, words

__all__ = ["language_of", "quote"]

LETTERS = 60  # that a text must have to tell its language
PASSAGES = 2
WINDOW = 150  # words of one of them
LEAST = 0.5  # share of the question's telling words that a passage must have; of the best share, that another must


def language_of(question: str, passages: Sequence[str]) -> str:
    """The language of the passages, as an ISO 639-1 code; "en" where they are too short to tell."""
    text = " ".join([question, *passages])
    return identify(text[:2000]) if sum(map(str.isalpha, text)) >= LETTERS else "en"


def quote(question: str, passages: Sequence[str], language: str) -> Extract | None:
    """Of the passages, which come the likeliest first, the two that share most with the question, each from the
    sentence that shares most; as probability, which share of the question's words the better one has.

    None where there is no passage.
    """
    stems = analyzer(stemmer_of(language))
    asked = {
        stem
        for word in words(question)
        if len(word) > 2 and word not in small_words(language)
        for stem in stems(word)
    }
    if not passages or not asked:
        return None
    shares = [len(asked & set(stems(text))) / len(asked) for text in passages]
    best, *others = sorted(range(len(passages)), key=lambda at: -shares[at])
    quoted = [best, *(at for at in others[: PASSAGES - 1] if shares[at] >= shares[best] * LEAST)]
    parts = [_window(passages[at], asked, stems) for at in quoted]
    share = shares[best] if shares[best] >= LEAST else shares[best] * LEAST
    return Extract("\n".join(parts), parts[0], best, share)


def _window(text: str, asked: set[str], stems: Analyzer) -> str:
    """The sentence that shares most words with the question, and what follows it."""
    places = spans(text)
    if not places:
        return text
    first = max(range(len(places)), key=lambda at: (len(asked & set(stems(text[slice(*places[at])]))), -at))
    start, end = places[first]
    for _, after in places[first + 1 :]:
        if text.count(" ", start, after) >= WINDOW:
            break
        end = after
    return "\n".join(" ".join(line.split()) for line in text[start:end].split("\n") if line.strip())
