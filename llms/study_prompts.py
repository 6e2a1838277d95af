"""How a text LLM is asked for study material about a passage; its replies are read by kcard.training.study.parsing.

The kinds of questions and statements follow MeMo (arXiv 2605.15156: direct, indirect and reverse questions, rewrites
that stand alone, questions across documents) and SEAL (section 3: implications). Left alone, LLMs write as an
implication what might be (GPT-4.1 in SEAL's data: "may", "could", "suggests"), so they are told not to guess.
"""

from collections.abc import Mapping

__all__ = ["STUDY"]

COMMON = (
    "Use only what the text says. Every line must be understood by someone who does not see the text: write names "
    "instead of pronouns, and never mention the text. Write in its language. Write nothing but these lines."
)
ANSWERS = "An answer is a few words copied from {}, the only right ones, and no part of its question."
STUDY: Mapping[str, str] = {
    "questions": (
        "Write questions about the text above, one on each line, in these forms:\n"
        "DIRECT: question | answer\n"
        "REVERSE: question that gives a detail and asks what or whom it belongs to | answer\n"
        "FAR: question in words that the text does not use | answer\n"
        "UNANSWERABLE: question on the same subject that the text leaves open\n"
        "Write a DIRECT line for each fact, eight at most, two REVERSE, three FAR and one UNANSWERABLE. Of the FAR "
        "lines each is further from the text than the one before: the first has other verbs, the second other nouns, "
        "too, the third describes things instead of naming them. "
        f"{ANSWERS.format('the text')} {COMMON}"
    ),
    "statements": (
        "Write statements about the text above, one on each line, in these forms:\n"
        "REWRITE: a sentence of the text in other words\n"
        "IMPLICATION: something that the text does not say but that must be true if the text is\n"
        "SUMMARY: the whole text in one sentence\n"
        "Write a REWRITE for each sentence, which begins with another part of it than the text does, three IMPLICATION "
        f"lines, no guesses at what may be, and one SUMMARY. {COMMON}"
    ),
    "links": (
        "Write two questions that need both texts above, one on each line, in this form:\n"
        "LINK: question that describes by one text what the other tells of | answer\n"
        f"If nothing connects the texts, write NONE. {ANSWERS.format('one of the texts')} {COMMON}"
    ),
}
