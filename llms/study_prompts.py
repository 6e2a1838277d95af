"""How a text LLM is asked for study material about a passage; its replies are read by kcard.training.study.parsing.

The kinds of questions and statements follow MeMo (direct, indirect and reverse questions, rewrites that stand alone)
and SEAL (implications).
"""

from collections.abc import Mapping

__all__ = ["STUDY"]

COMMON = (
    "Use only what the text says. Every line must be understood by someone who does not see the text: write names "
    "instead of pronouns, and never mention the text. Write in its language. Write nothing but these lines."
)
STUDY: Mapping[str, str] = {
    "questions": (
        "Write questions about the text above, one on each line, in these forms:\n"
        "DIRECT: question | answer\n"
        "REVERSE: question that gives a detail and asks what or whom it belongs to | answer\n"
        "FAR: question in words that the text does not use | answer\n"
        "UNANSWERABLE: question on the same subject that the text leaves open\n"
        "Write four DIRECT lines, two REVERSE, three FAR and one UNANSWERABLE. Answers are a few words copied from the "
        f"text. {COMMON}"
    ),
    "statements": (
        "Write statements about the text above, one on each line, in these forms:\n"
        "REWRITE: a sentence of the text in other words\n"
        "IMPLICATION: something that follows from the text\n"
        "SUMMARY: the whole text in one sentence\n"
        f"Write a REWRITE for each sentence, three IMPLICATION lines and one SUMMARY. {COMMON}"
    ),
    "links": (
        "Write two questions that need both texts above, one on each line, in this form:\n"
        "LINK: question | answer\n"
        f"Answers are a few words copied from one of the texts. {COMMON}"
    ),
}
