"""Parse an LLM's replies: yes or no, a named option, scores of tokens, streamed lines.

A letter counts only if it can't be a word: "A man" and "I think" name no option. A reply that names no option, or
several, gives None: the caller treats it as no choice and keeps the reply.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcard.text import spaced_words, words
from kcard.types import Choice, TokenScores

if TYPE_CHECKING:
    import numpy.typing as npt

# Yes or no: from token probabilities if the backend gives them, otherwise from the first word.
#
# Never from a substring ("know" contains "no"). A reply that is neither gives None: the caller treats it as "more
# information is needed" and keeps the reply's text for the trace.

FIRST_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
MIN_MASS = 0.05


def from_probabilities(tokens: Iterable[tuple[str, float]]) -> float | None:
    """Return P(yes) in [0, 1] from (token, log-probability) pairs of the first position.

    Tokens that read yes or no, whatever their case, blanks and punctuation, are summed and normalised. None if together
    they have less than MIN_MASS: then the model says something else.
    """
    mass = {"yes": 0.0, "no": 0.0}
    for token, log_probability in tokens:
        word = re.sub(r"[\W_]+", "", token).lower()
        if word in mass:
            mass[word] += math.exp(min(log_probability, 0.0))
    total = mass["yes"] + mass["no"]
    if total < MIN_MASS:
        return None
    return mass["yes"] / total


def from_text(reply: str) -> float | None:
    """Return 1 if the first word is yes, 0 if it is no, None otherwise."""
    match = FIRST_WORD.search(reply)
    if match is None:
        return None
    return {"yes": 1.0, "no": 0.0}.get(match[0].lower())


MARKUP = re.compile(r"\*|\\boxed|\\text")
STATED_ANSWER = r"\b(?:answer|option|choice)\b(?:\s+(?:is|would be|should be|must be))?"
LETTERS_THAT_ARE_WORDS = {"A", "I"}
# What may follow such a word that is no letter of an option.
WORDS_AFTER_LETTER = {"because", "since", "as", "and", "which", "for"}


def named_option(reply: str, choices: Sequence[Choice]) -> str | None:
    """Return the letter of the option that a reply names: "B", "(b)", "B. Ann", "The answer is B" and "Ann" alike."""
    text = MARKUP.sub("", reply).strip()
    finders = (
        _bare_letter,
        _whole_option,
        _leading_letter,
        _stated_letter,
        _bracketed_letter,
        _mentioned_option,
        _part_of_option,
    )
    for find in finders:
        letter = find(text, choices)
        if letter:
            return letter
    return None


def _bare_letter(text: str, choices: Sequence[Choice]) -> str | None:
    """Match a letter and nothing else: "B", "b)", "(B)."."""
    bare = text.strip(" \t\n()[]{}.,:;'\"").casefold()
    return _only([choice.name for choice in choices if choice.name.casefold() == bare])


def _whole_option(text: str, choices: Sequence[Choice]) -> str | None:
    """Match an option's whole text; if two differ in signs alone ("5", "-5"), signs decide."""
    reply_words = words(text)
    same, alike = [], []
    for choice in choices:
        if choice.description.strip().casefold() == text.casefold():
            same.append(choice.name)
        if reply_words and words(choice.description) == reply_words:
            alike.append(choice.name)
    return _only(same) or _only(alike)


def _leading_letter(text: str, choices: Sequence[Choice]) -> str | None:
    """Match a letter at the start: "B. Ann", "(B) Ann", "B: Ann", "B - Ann", and "B Ann" if Ann is option B."""
    for choice in choices:
        letter, description = re.escape(choice.name), words(choice.description)
        sign = rf"(?:[({{[]\s*{letter}\s*[)}}\]]|{letter}\s*(?:[.):\n]|[-–—]\s))(?!\s*(?:or|and)\b)"
        if re.match(sign, text, re.IGNORECASE):
            return choice.name
        rest = re.match(rf"{letter}\s+(.+)", text, re.DOTALL)
        if rest and description and words(rest[1])[: len(description)] == description:
            return choice.name
    return None


def _stated_letter(text: str, choices: Sequence[Choice]) -> str | None:
    """Match the last of "answer is B", "Answer: (B)", "option B"; in capitals, since "a" is a word."""
    letters = "|".join(re.escape(choice.name) for choice in choices)
    pattern = rf"(?i:{STATED_ANSWER})\s*:?\s*[({{[]?({letters})(?![\w'’])(?:\s+([a-z]+))?"
    last = None
    for letter, after in re.findall(pattern, text):
        if not after or letter not in LETTERS_THAT_ARE_WORDS or after in WORDS_AFTER_LETTER:
            last = str(letter)
    return last


def _bracketed_letter(text: str, choices: Sequence[Choice]) -> str | None:
    """Match the only bracketed letter."""
    bracketed = []
    for choice in choices:
        if re.search(rf"[({{]\s*{re.escape(choice.name)}\s*[)}}]", text):
            bracketed.append(choice.name)
    return _only(bracketed)


def _mentioned_option(text: str, choices: Sequence[Choice]) -> str | None:
    """Match the only option whose text is in the reply, and not only within another's."""
    reply_words = spaced_words(text)
    mentioned = {}
    for choice in choices:
        phrase = spaced_words(choice.description)
        if phrase.strip() and phrase in reply_words:
            mentioned[choice.name] = phrase
    alone = []
    for name, phrase in mentioned.items():
        longer = [other for other in mentioned.values() if phrase != other and phrase in other]
        if all(phrase in reply_words.replace(other, " ") for other in longer):
            alone.append(name)
    return _only(alone)


def _part_of_option(text: str, choices: Sequence[Choice]) -> str | None:
    """Match the only option that contains the whole reply: "Wyden" for "Ron Wyden"."""
    if not any(len(word) > 1 or word.isdigit() for word in words(text)):
        return None
    phrase = spaced_words(text)
    return _only([choice.name for choice in choices if phrase in spaced_words(choice.description)])


def _only(names: Sequence[str]) -> str | None:
    if len(names) != 1:
        return None
    return names[0]


# The option that an endpoint's reply chooses, by the probabilities of its first token, if these are about letters.

MIN_SURE_MASS = (
    0.5  # of the probability, at and above which the first token is a letter, whatever the text says
)


def option_from_tokens(
    tokens: Iterable[tuple[str, float]], text: str, choices: Sequence[Choice]
) -> tuple[str, tuple[float, ...]] | None:
    """Return the letter of the most likely option, and each option's share of the probability of all letters.

    None if the first token is more likely no letter, and the text names an option or the letters have almost no
    probability: then the text decides. `tokens`: (token, log-probability) of the most likely first tokens.
    """
    mass = {choice.name: 0.0 for choice in choices}
    letters = {name.casefold(): name for name in mass}
    for token, log_probability in tokens:
        name = letters.get(re.sub(r"[\W_]+", "", token).casefold())
        if name is not None:
            mass[name] += math.exp(min(log_probability, 0.0))
    total = sum(mass.values())
    if total < MIN_MASS or (total < MIN_SURE_MASS and named_option(text, choices) is not None):
        return None
    letter = max(mass, key=mass.__getitem__)
    return letter, tuple(mass[choice.name] / total for choice in choices)


# What a reasoning model writes before its answer, between <think> and </think>. Some templates open it in the prompt.

THOUGHTS = re.compile(r"\A\s*(?:<think(?:ing)?>)?.*?</think(?:ing)?>\s*|\A\s*<think(?:ing)?>.*\Z", re.DOTALL)
OPENINGS = ("<think>", "<thinking>")


def without_thoughts(text: str) -> str:
    """Return the reply without its thoughts; empty if it was cut off while thinking."""
    return THOUGHTS.sub("", text, count=1)


def spoken_pieces(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a stream after the thoughts with which it begins, if it does."""
    begun, opening_text = False, ""
    for piece in pieces:
        if begun:
            yield piece
            continue
        opening_text += piece
        start = opening_text.lstrip()
        if any(opening.startswith(start) for opening in OPENINGS):
            continue  # it may still become one
        rest = opening_text
        if start.startswith(OPENINGS):
            rest = without_thoughts(opening_text)
        if rest:
            begun = True
            yield rest
    if not begun and opening_text:
        yield without_thoughts(opening_text)


# Whether a reply says that the LLM does not know the answer, or that the documents don't hold it.
#
# Told to reply "I don't know", small LLMs say it in other words, in the language of the question, or after a
# sentence about the documents.

UNKNOWN = "|".join(
    (
        r"(?:i|we)(?: really| just)? (?:do not|don't|dont|cannot|can't|could not|couldn't|am unable to|are unable to) "
        r"(?:know|say|tell|answer|find|determine|provide an? (?:specific |direct |definite )?answer)",
        r"i(?:'m| am) (?:sorry|not sure|not certain|afraid|unable)",
        r"unknown$|not (?:known|stated|specified|mentioned|given|provided|documented|described)$",
        r"(?:(?:there is|there's|there are) )?no (?:information|mention|answer|indication|specific|details?)\b",
        r"it is (?:not (?:clear|stated|specified|mentioned|known|possible to)|unclear|unknown)",
        # in German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Chinese and Japanese
        r"(?:das )?(?:ich )?weiß (?:ich )?(?:es |das )?(?:leider )?nicht|ich kann (?:das|diese frage) nicht",
        r"je ne (?:le )?sais pas|je l'ignore|no lo sé|no sé|desconozco|non (?:lo )?so|não sei|ik weet het niet",
        r"nie wiem|(?:я )?не знаю|我不知道|不知道|分かりません|わかりません|知りません",
    )
)
IGNORANCE = re.compile(
    rf"^\W*(?:(?:sorry|unfortunately|leider|lo siento|désolé)\W+)?(?:{UNKNOWN})", re.IGNORECASE
)
# What says the same of the documents: "The documents do not mention who ...", "It is not mentioned in the text".
DOCUMENTS = (
    r"(?:documents?|passages?|texts?|context|manual|excerpts?|information|dokumente?|documentos?|documenti?)"
)
SILENT = (
    r"(?:mention|say|state|specify|contain|provide|answer|give|include|describe|explain|indicate|address|discuss|"
    r"mencion|dice|contien|mentionn|dis|contienn|menzion|dicon)"
)
SILENCE = re.compile(
    rf"\b{DOCUMENTS}(?: \w+){{0,3}}? (?:do(?:es)? not|don't|doesn't|did not|never|no|ne|non)(?: \w+ly)? {SILENT}|"
    rf"\b{DOCUMENTS}(?: \w+){{0,2}} (?:nennen|enthalten|erwähnen|sagen)\b.*\b(?:nicht|keine?\w*)\b|"
    r"\b(?:is|are|was|were)(?: not|n't)(?: \w+ly)? "
    r"(?:mentioned|stated|specified|given|provided|described|available|included|found|covered|discussed)\b"
    rf"[^.]*\b{DOCUMENTS}",
    re.IGNORECASE,
)
UNABLE_REPLY = re.compile(
    r"\b(?:cannot|can't|could not|unable to|impossible to) (?:answer|determine|say|tell)\b", re.IGNORECASE
)
MARK = re.compile(r"\s*\[\d+(?:\s*,\s*\d+)*\]")


def admits_ignorance(reply: str) -> bool:
    """Return whether the reply says that the answer is not known, and gives none.

    "I don't know who, but it takes two days [1]." gives an answer, since what follows names a document.
    """
    from kcard.text import split_sentences

    sentences = split_sentences(reply.replace("’", "'").strip())
    if not sentences:
        return False
    if IGNORANCE.match(MARK.sub("", sentences[0]).strip(" .!\n")):
        # What follows is an answer if it names a document.
        after = re.split(r"\b(?:but|however)\b", sentences[0])[1:] + sentences[1:]
        return not any(MARK.search(part) for part in after)
    return all(SILENCE.search(sentence) or UNABLE_REPLY.search(sentence) for sentence in sentences)


# The scores of an LLM's tokens.

DRAFT_TOKENS = 20


def from_top(chosen: float, top: Iterable[float]) -> TokenScores:
    """Return a token's scores from its log-probability and those of the most likely tokens at its place.

    The remaining mass counts as one more token, which underestimates the entropy; if only one token is given, the rest
    is also the second.
    """
    masses = sorted((math.exp(min(value, 0.0)) for value in top), reverse=True)
    if not masses:
        masses = [math.exp(min(chosen, 0.0))]
    rest = max(1 - sum(masses), 0.0)
    second = rest
    if len(masses) > 1:
        second = masses[1]
    entropy = 0.0
    for mass in (*masses, rest):
        if mass > 0:
            entropy -= mass * math.log(mass)
    return TokenScores(min(chosen, 0.0), max(masses[0] - second, 0.0), entropy)


def from_logits(logits: "npt.ArrayLike", tokens: Sequence[int]) -> tuple[TokenScores, ...]:
    """Return exact scores from the logits before each of n tokens, shape (n, vocabulary)."""
    values = np.asarray(logits, np.float64)
    shifted = values - values.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    mass = np.exp(logs)
    second, first = np.partition(mass, -2, axis=-1)[:, -2:].T
    entropies = -np.sum(mass * np.where(mass > 0, logs, 0.0), axis=-1)
    scores = []
    for i, token in enumerate(tokens):
        log_probability = min(float(logs[i, token]), 0.0)
        scores.append(TokenScores(log_probability, float(first[i] - second[i]), float(entropies[i])))
    return tuple(scores)


# Streamed pieces on one line: all lines of a chat model, the first line of any other.


def on_one_line(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces on one line, from the first word on."""
    begun = False
    for piece in pieces:
        text = piece.replace("\n", " ")
        if not begun:
            text = text.lstrip()
        begun = begun or bool(text)
        yield text


def first_line(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces up to the end of the first non-blank line; the rest is consumed and dropped."""
    begun = ended = False
    for piece in pieces:
        text = piece
        if not begun:
            text = text.lstrip()
        begun = begun or bool(text)
        if not ended:
            line, end, _ = text.partition("\n")
            ended = bool(end)
            yield line
