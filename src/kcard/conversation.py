"""Questions of a conversation: which refer to what was said before, and how an LLM rewrites them to stand alone.

Cards read single questions, so a question that only its conversation explains is rewritten before they see it.
"""

import re
from collections.abc import Sequence

from kcard.questions import MAX_QUESTION_CHARACTERS
from kcard.text import words
from kcard.types import Question, Request

# A question whose subject or last word is a pronoun that nothing in it explains: "Which planet does it orbit?"
_PRONOUN = r"(it|he|him|she|her|they|them|its|his|their)"
_AUXILIARY = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must|may)(?:n't)?"
_EXPLETIVE = r"(?! (?:mean|take|possible|safe|good|better|worth|useful|necessary|recommended|true|ok|okay)\b)"
_WHEN = r"(?:now|today|then|currently|first|again|instead|there|here)"
REFERS_BACK = re.compile(
    rf"(?:(?:and|but|so|then|ok),? )?(?:(?:in|at|on|for|from|to|by|with|of|since) )?"
    rf"(?:(?:who|whom|whose|when|where|why|how|which|what)(?: \w+){{0,2}}? )?"
    rf"(?:{_AUXILIARY} {_PRONOUN}\b{_EXPLETIVE}(?: [\w'-]+){{0,4}}|(?:\w+ )?(?:\w+ ){_PRONOUN}(?: {_WHEN})?)\s*\?*",
    re.IGNORECASE,
)


def unexplained_pronoun(question: str) -> str | None:
    """Return the pronoun of a short English question that can't be understood without the one before; else None."""
    match = REFERS_BACK.fullmatch(question.strip())
    return (match[1] or match[2]).lower() if match else None


MAX_REWRITE_TURNS = 8  # of the conversation that the LLM reads, the last ones
MAX_TURN_CHARACTERS = 2000
MAX_REWRITTEN_TOKENS = 128
SPEAKERS = {"user": "Question", "assistant": "Answer"}
LABEL = re.compile(r"(?:(?:[\w-]+ ){0,3}question|user)\s*:\s*", re.IGNORECASE)
QUESTION_MARKS = ("?", "？", "؟")
MIN_SHARED_STEMS = 0.5  # of the question's words that a rewritten one has, else it is another question
STEM = 4  # letters with which forms of a word begin: leads, leader
# An English question of so many words, none of which may refer to what was said before, is taken to stand alone: a
# small LLM would change more in it than it adds, and takes seconds to do so.
MIN_STANDALONE_WORDS = 5
ENGLISH = {
    *("the", "of", "to", "about", "with", "from", "who", "what", "when", "where", "which", "how", "why"),
    *("is", "are", "does", "did", "do", "can", "tell", "show", "give", "list", "explain"),
}
INTERROGATIVES = {"who", "whom", "whose", "when", "where", "why", "how"}
CONJUNCTIONS = {"and", "but", "so"}
REFERRING_WORDS = {
    *("it", "its", "he", "him", "his", "she", "her", "hers", "they", "them", "their", "theirs"),
    *("this", "that", "these", "those", "one", "ones", "there", "then", "former", "latter", "same", "other"),
    *("others", "another", "more", "else", "and", "but", "so", "also", "too", "instead", "again"),
}


def stands_alone(question: str) -> bool:
    """Return whether a question surely can be understood without what was said before it."""
    spoken = words(question)
    if spoken[:1] and spoken[0] in CONJUNCTIONS:
        spoken = spoken[1:]
    is_english = not ENGLISH.isdisjoint(spoken)
    return is_english and len(spoken) >= MIN_STANDALONE_WORDS and REFERRING_WORDS.isdisjoint(spoken)


def rewrite_request(question: Question, turns: Sequence[tuple[str, str]]) -> Request:
    """Return the request to rewrite a question. `turns`: (user or assistant, text), the oldest first."""
    lines = []
    for role, text in turns[-MAX_REWRITE_TURNS:]:
        lines.append(f"{SPEAKERS[role]}: {' '.join(text.split())[:MAX_TURN_CHARACTERS]}")
    # Where the LLM's window is too small, the oldest lines are left out.
    return question.request("rewrite", lines[::-1], temperature=0.0)


def rewritten_question(question: str, reply: str) -> str:
    """Return the question that the LLM's reply to `rewrite_request` consists of.

    It is the question itself if the reply is empty, too long, an answer instead of a question, or another question.
    """
    line = next((" ".join(line.split()) for line in reply.splitlines() if line.strip()), "")
    line = LABEL.sub("", line, count=1) if LABEL.match(line) else line
    line = line.strip("\"'“”*` ")
    is_answer = question.rstrip().endswith(QUESTION_MARKS) and not line.endswith(QUESTION_MARKS)
    own_stems = {word[:STEM] for word in words(question) if word not in REFERRING_WORDS}
    shared_stems = own_stems & {word[:STEM] for word in words(line)}
    is_other = len(shared_stems) < MIN_SHARED_STEMS * len(own_stems)
    is_other |= not INTERROGATIVES.intersection(words(question)) <= {*words(line)}
    if is_answer or is_other or not 0 < len(line) <= MAX_QUESTION_CHARACTERS:
        return question
    return line
