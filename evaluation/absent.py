"""Questions that a corpus does not answer, to see whether that is admitted: its own questions about somebody or
something that is not in it, and questions on quite other subjects."""

from collections.abc import Collection, Iterable, Sequence
from random import Random

from kcard.answer import Source
from kcard.evaluation.questions import Question
from kcard.sampling import derive_seed
from kcard.training.spans import entities

__all__ = ["absent"]

# Names that mean nobody and nothing, by how many words they have.
INVENTED: dict[int, Sequence[str]] = {
    1: (
        "Brindlemoor", "Talvekson", "Orsimund", "Quorvane", "Heddlefoss", "Marvinski", "Ulbrecht", "Sendaris",
        "Polwick",
        "Tamsordia", "Granfell", "Istveros",
    ),
    2: (
        "Edgar Brimsole", "Lake Vandora", "Tilda Marrowick", "Port Anselmo", "Corvin Haldred", "New Tarrow",
        "Mount Ezelrod", "Wenda Ostrell", "Fort Quillane", "Nils Aberrand",
    ),
    3: ("Johan van Terrick", "Bay of Umbrel", "Sisters of Calvane", "Anna de Morlay"),
}  # fmt: skip
# On subjects that few corpora have all of.
ELSEWHERE = (
    "Who painted the ceiling of the Sistine Chapel?", "How many strings does a cello have?",
    "What is the boiling point of mercury?", "When did the Titanic sink?",
    "Which country has won the most football World Cups?",
    "How long does it take to hard-boil an egg?", "Why do leaves turn red in autumn?",
    "What is the capital of Mongolia?",
    "Who wrote the Moonlight Sonata?", "How do bees find their way home?", "What is seven times eight?",
    "Is a tomato a fruit?", "Which river flows through Baghdad?", "How far is it from the Earth to the Sun?",
    "Who was the first woman to win a Nobel Prize?", "What do pandas eat?", "When was the printing press invented?",
    "How many bones has an adult human?", "Where are the Galapagos Islands?", "Why is the sky blue?",
    "What language is spoken in Brazil?", "How do I get red wine out of a carpet?",
    "Who plays the violin concerto by Sibelius best?",
    "What is the fastest land animal?", "How tall is the Eiffel Tower?", "Which planet has the most moons?",
    "When does daylight saving time end?", "What is the recipe for pancakes?", "Can cats see in the dark?",
    "Who is the patron saint of Ireland?",
)  # fmt: skip


def absent(asked: Sequence[Question], corpus: Iterable[Source], count: int, seed: int) -> list[Question]:
    """`count` questions without an answer: half of them like `asked` with another name, half on other subjects."""
    rng = Random(derive_seed(seed, "absent"))
    known = _known(corpus)
    strange = [renamed for question in asked if (renamed := _renamed(question.text, known, rng))]
    near = [Question(text, ()) for text in list(dict.fromkeys(strange))[: (count + 1) // 2]]
    others = [text for text in ELSEWHERE if not _is_about(text, known)]
    far = [Question(text, ()) for text in rng.sample(others, min(len(others), count - len(near)))]
    return [*near, *far]


def _known(corpus: Iterable[Source]) -> Collection[str]:
    """The words of a corpus that begin with a capital."""
    return {
        word.strip(".,;:()\"'") for source in corpus for word in source.text.split() if word[:1].isupper()
    }


def _renamed(question: str, known: Collection[str], rng: Random) -> str | None:
    """The question about somebody or something that is not in the corpus; None where it names nothing."""
    first = len(question.split(" ")[0])
    names = [(a, b) for a, b in entities(question) if a > first and question[a].isupper()]
    if not names:
        return None
    start, end = rng.choice(names)
    words = min(3, question[start:end].count(" ") + 1)
    invented = [name for name in INVENTED[words] if not any(part in known for part in name.split())]
    before = question[:start].removesuffix("the ").removesuffix("The ")
    return f"{before}{rng.choice(invented)}{question[end:]}" if invented else None


def _is_about(question: str, known: Collection[str]) -> bool:
    """Whether the corpus may hold the answer: it has a name of the question."""
    return any(word.strip("?") in known for word in question.split()[1:] if word[:1].isupper())
