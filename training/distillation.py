"""Context distillation: train a card to answer as its base does with the passage in the prompt."""

import functools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from kcard.batching import batched
from kcard.cards.models.prompting import prompt_ids
from kcard.errors import CardError, TrainingInterrupted, UsageError
from kcard.events import Event, OnEvent, ignore, note
from kcard.llms.generation import generate, padded_rows
from kcard.text import passage_digest, spaced_words
from kcard.training.embedded.pseudo_queries import trained_wording
from kcard.training.epochs import Epochs, Lazy, ReplayMix, Spool, TrainingExample, windowed_epochs
from kcard.training.execution import Execution, autocast, forked_rng
from kcard.training.losses import LEAST_LOG, TopTokens, top_tokens
from kcard.training.run import Interrupt
from kcard.training.study import QUESTIONS, StudyItem
from kcard.types import Source, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

# The prompts of teacher and student: with the passage, and without it.

# The instruction for chat models, since a document must say by itself what it is about.
SENTENCE = "Answer in a full sentence."


@dataclass(frozen=True)
class AnswerPrompts:
    """Templates of the student's prompt, with {question}, and of the teacher's, with {passage} as well.

    one_line  whether an answer ends with its line, since a model without a chat template would continue
    """

    student: str
    teacher: str
    one_line: bool

    def student_prompt(self, question: str) -> str:
        return self.student.replace("{question}", question)

    def teacher_prompt(self, passage: str, question: str) -> str:
        before, _, after = self.teacher.partition("{passage}")
        return before + passage + after.replace("{question}", question)


PLAIN = AnswerPrompts("Question: {question}\nAnswer:", "{passage}\n\nQuestion: {question}\nAnswer:", True)


def answer_prompts(tokenizer: Any) -> AnswerPrompts:
    """Make prompts of the tokenizer's chat template, without a bos token, which prompt_ids adds; PLAIN without one."""
    if not getattr(tokenizer, "chat_template", None):
        return PLAIN

    def render(content: str) -> str:
        # Disable thinking, or thoughts would be learned as the answer.
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return str(text).removeprefix(tokenizer.bos_token or "")

    request = f"{{question}}\n{SENTENCE}"
    return AnswerPrompts(render(request), render(f"{{passage}}\n\n{request}"), False)


# The questions of study material that the student answers, with the passages that the teacher reads.


@dataclass(frozen=True)
class PassageQuestion:
    """A question and its answer, from study material, and the text that contains the answer.

    is_old  whether the card's last version has learned all of its passages (in an update)
    """

    text: str
    answer: str
    passage: str
    is_old: bool = False


def passage_questions(
    items: Iterable[StudyItem], passages: Iterable[Source], old_count: int = 0
) -> Sequence[PassageQuestion]:
    """Select the items that are questions with an answer about passages of the corpus, without duplicates.

    A question that an exam might ask gets a few words prepended (kcard.training.embedded.pseudo_queries).

    old_count  how many of the first passages are the last version's
    """
    candidates = [item for item in items if item.kind in QUESTIONS and item.answer]
    digests = {digest for item in candidates for digest in item.passages}
    texts: dict[str, tuple[str, bool]] = {}
    for place, passage in enumerate(passages):
        if (digest := passage_digest(passage.text)) in digests:
            texts.setdefault(digest, (passage.text, place < old_count))
    questions = []
    for item in candidates:
        sources = [texts[digest] for digest in item.passages if digest in texts]
        text = trained_wording(item.text)
        if text and sources and len(sources) == len(item.passages):
            about = "\n\n".join(text for text, _ in sources)
            questions.append(PassageQuestion(text, item.answer, about, all(old for _, old in sources)))
    return [*dict.fromkeys(questions)]


@dataclass(frozen=True)
class DistilledExample(TrainingExample):
    """An example with the teacher's distribution at each token of the target."""

    teacher: TopTokens = field(kw_only=True)


# The teacher's answers on disk: one record per question, so that an interrupted run resumes where it stopped.

BYTES_A_TOKEN = 8  # per token of the teacher's distribution: its id and its log-probability
HEAD_NUMBERS = 4  # numbers at the beginning of a record
# The student's example for a question, or the number of the reason why it is left out.
TeacherAnswer = DistilledExample | int


def pack_answer(question: int, answer: TeacherAnswer) -> bytes:
    """Return the record of the answer to question number `question`."""
    if isinstance(answer, int):
        return np.array([question, answer, 0, 0], np.uint32).tobytes()
    head = [question, 0, len(answer.prompt), len(answer.target)]
    numbers = np.array([*head, *answer.prompt, *answer.target], np.uint32).tobytes()
    ids, logs = answer.teacher.ids, answer.teacher.logs
    return numbers + ids.astype(np.uint32).tobytes() + logs.astype(np.float32).tobytes()


def unpack_answer(record: bytes) -> TeacherAnswer:
    numbers = np.frombuffer(record, np.uint32)
    _, reason, prompt, target = map(int, numbers[:HEAD_NUMBERS])
    if not target:
        return reason
    first = HEAD_NUMBERS + prompt + target
    k = (len(numbers) - first - target) // (2 * target)
    ids = numbers[first : first + target * k].reshape(target, k)
    logs: npt.NDArray[np.float32] = np.frombuffer(record, np.float32)[first + target * k :]
    top = TopTokens(ids, logs.reshape(target, k + 1))
    tokens = numbers[HEAD_NUMBERS:first].tolist()
    return DistilledExample(tuple(tokens[:prompt]), tuple(tokens[prompt:]), teacher=top)


class TeacherAnswers(Sequence[TeacherAnswer]):
    """The teacher's answers in a file, in the order of the questions; 8 bytes of memory each.

    path         None: a temporary file, removed with the process
    fingerprint  of the run, which is the first record; a file of another run is refused
    resume       whether to keep the file's records

    Raises UsageError for a file of another run, and CardError if the disk is full.
    """

    def __init__(self, path: Path | None, fingerprint: str = "", resume: bool = False) -> None:
        def full(error: OSError) -> CardError:
            return CardError(
                f"the teacher's answers can't be written to {path}: {error.strerror}; free some space, or keep "
                "fewer tokens (--teacher-top-k)"
            )

        try:
            file = None
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                file = path.open("r+b" if resume and path.is_file() else "w+b")
        except OSError as error:
            raise CardError(f"the teacher's answers can't be written to {path}: {error.strerror}") from error
        self._records = Spool(file, full, bytes, bytes)
        self.flush = self._records.flush
        if not self._records:
            self._records.append(fingerprint.encode())
        elif self._records[0] != fingerprint.encode():
            raise UsageError(
                f"{path} belongs to another corpus or other settings: repeat the original arguments, or train "
                "without resume"
            )

    def __len__(self) -> int:
        return len(self._records) - 1

    def __getitem__(self, index: int) -> TeacherAnswer:  # type: ignore[override] # slices are not needed
        return unpack_answer(self._records[index + 1])

    def append(self, answer: TeacherAnswer) -> None:
        self._records.append(pack_answer(len(self), answer))


ANSWER_TOKENS = 96  # maximum tokens of an answer
TEMPERATURE = 0.25  # at which answers are sampled; low, since each must be right
# Reasons why a question is left out, by number; 0: it is not.
REASONS = (
    "",
    "prompts longer than the base reads",
    "answers without an end",
    "answers other than the study material's",
)


@dataclass(frozen=True)
class Teacher:
    """A teacher. `model`: a PEFT model; `room`: its input length in tokens; `k`: see top_tokens."""

    model: Any
    tokenizer: Any
    prompts: AnswerPrompts
    room: int
    k: int
    seed: int = 0

    @functools.cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        eos = self.model.generation_config.eos_token_id
        ends = {*(eos if isinstance(eos, list) else [eos]), self.tokenizer.eos_token_id} - {None}
        if self.prompts.one_line:
            each = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
            ends |= {token for token, text in enumerate(each) if "\n" in text}
        return frozenset(ends)

    def examples(self, batch: Sequence[PassageQuestion]) -> list[TeacherAnswer]:
        """Return, for each question, the student's example, or the number of the reason why it is left out."""
        training = self.model.training
        # The teacher is the base: the adapter is off, and there is no dropout.
        self.model.eval()
        try:
            with self.model.disable_adapter():
                results: list[TeacherAnswer] = [1] * len(batch)
                fitting = [
                    i
                    for i, question in enumerate(batch)
                    if self.length(question) + ANSWER_TOKENS <= self.room
                ]
                answers = self.sample_answers([batch[i] for i in fitting])
                for i, answer in zip(fitting, answers, strict=True):
                    if not answer or answer[-1] != self.tokenizer.eos_token_id:
                        results[i] = 2
                        continue
                    reply = self.tokenizer.decode(answer, skip_special_tokens=True)
                    results[i] = 0 if spaced_words(batch[i].answer) in spaced_words(reply) else 3
                learned = [(i, answer) for i, answer in zip(fitting, answers, strict=True) if not results[i]]
                tops = self.distributions([(batch[i], answer) for i, answer in learned])
                for (i, answer), top in zip(learned, tops, strict=True):
                    prompt = tuple(self._student_prompt(batch[i]))
                    results[i] = DistilledExample(prompt, tuple(answer), teacher=top)
        finally:
            self.model.train(training)
        return results

    def length(self, question: PassageQuestion) -> int:
        return len(self._teacher_prompt(question))

    def _student_prompt(self, question: PassageQuestion) -> list[int]:
        return prompt_ids(self.tokenizer, self.prompts.student_prompt(question.text))

    def _teacher_prompt(self, question: PassageQuestion) -> list[int]:
        return prompt_ids(self.tokenizer, self.prompts.teacher_prompt(question.passage, question.text))

    def sample_answers(self, batch: Sequence[PassageQuestion]) -> list[list[int]]:
        """Sample answers, each with an end-of-text token where it ended, also at the end of its line."""
        if not batch:
            return []
        rows = [self._teacher_prompt(question) for question in batch]
        seeds = [derive_seed(self.seed, "teacher", question.passage, question.text) for question in batch]
        written = generate(
            self.model, rows, ANSWER_TOKENS, TEMPERATURE, seeds, padding=self._padding, ends=self.ends
        )
        end = self.tokenizer.eos_token_id
        return [
            [*row.tokens[:-1], end] if row.tokens and row.tokens[-1] in self.ends else row.tokens
            for row in written
        ]

    def distributions(self, pairs: Sequence[tuple[PassageQuestion, list[int]]]) -> list[TopTokens]:
        """Return the teacher's distribution at each token of the answers."""
        import torch

        if not pairs:
            return []
        prompts = [self._teacher_prompt(question) for question, _ in pairs]
        rows = [[*prompt, *answer] for prompt, (_, answer) in zip(prompts, pairs, strict=True)]
        ids, mask = padded_rows(rows, self._padding, left=False)
        device = self.model.device
        with torch.inference_mode(), autocast(device.type):
            logits = self.model(
                input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
            ).logits
        tops = []
        for row, prompt, (_, answer) in zip(logits, prompts, pairs, strict=True):
            predicted = row[len(prompt) - 1 : len(prompt) - 1 + len(answer)]
            top, logs = top_tokens(self.merge_ends(predicted), self.k)
            tops.append(TopTokens(top.cpu().numpy().astype(np.uint32), logs.cpu().numpy()))
        return tops

    def merge_ends(self, logits: "Tensor") -> "Tensor":
        """Return logits (n, vocabulary) in which the end-of-text token replaces all tokens that end an answer."""
        ends = sorted(self.ends)
        merged = logits.float().clone()
        merged[:, ends] = LEAST_LOG
        merged[:, self.tokenizer.eos_token_id] = logits[:, ends].float().logsumexp(dim=1)
        return merged

    @property
    def _padding(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)


# The student's training data: the teacher's answers to all questions, made once before training.

MIN_ANSWERED_SHARE = 0.5  # share of questions below which the user is warned that the base answers poorly
FILE = "teacher.bin"


@dataclass(frozen=True)
class Distillation:
    """What distillation needs besides the model.

    folder   where the teacher's answers are stored until training has ended; None: nowhere
    resume   whether to continue with the answers that are stored there
    remedy   how to continue after Ctrl-C, in words
    limit    maximum number of questions, for an estimate, which extrapolates from them; None: all
    """

    questions: Sequence[PassageQuestion]
    folder: Path | None = None
    resume: bool = False
    on_event: OnEvent = ignore
    remedy: str = ""
    limit: int | None = None


@dataclass(frozen=True)
class DistillationSet:
    """Examples about `new` passages, and about `old` ones of the last version.

    record   for the manifest
    seconds  that the teacher takes for all questions
    share    of the questions that the teacher was asked; below 1 in an estimate
    """

    new: Sequence[DistilledExample]
    old: Sequence[DistilledExample]
    record: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    share: float = 1.0


def ask_teacher(
    distillation: Distillation, teacher: Teacher, execution: Execution, fingerprint: str
) -> DistillationSet:
    """Have the teacher answer every question that it has not answered yet.

    Raises UsageError if nothing can be learned from its answers, and TrainingInterrupted after Ctrl-C.
    """
    questions = distillation.questions
    if distillation.limit is not None and len(questions) > distillation.limit:
        questions = Random(derive_seed(0, "estimate")).sample(questions, distillation.limit)
    path = None if distillation.folder is None else distillation.folder / FILE
    answers = TeacherAnswers(path, fingerprint, distillation.resume)
    begun, before = time.monotonic(), len(answers)
    with forked_rng(teacher.model.device), Interrupt() as interrupt:
        for window in batched(questions[before:], 100):
            # As many questions at a time as the longest prompt of a hundred allows.
            longest = max(map(teacher.length, window)) + ANSWER_TOKENS
            for rows in batched(window, execution.rows(min(longest, teacher.room))):
                for answer in teacher.examples(rows):
                    answers.append(answer)
                answers.flush()
                distillation.on_event(Event("teacher", "questions answered", len(answers), len(questions)))
                if interrupt.is_requested:
                    raise TrainingInterrupted(
                        f"stopped after {len(answers)} of {len(questions)} questions to the teacher: "
                        f"{distillation.remedy}"
                    )
    answered = max(1, len(questions) - before)
    seconds = (time.monotonic() - begun) * len(distillation.questions) / answered
    return split_answers(answers, questions, distillation, seconds)


def distilled_epochs(examples: DistillationSet, size: int, seed: int) -> Epochs:
    """Batch all new examples in random order with as many old ones, drawn again in each epoch, by similar length."""
    shown = ReplayMix(examples.new, examples.old, size, seed)
    return windowed_epochs(shown, lambda rows, _: [shown.items[row] for row in rows])


def split_answers(
    answers: TeacherAnswers, questions: Sequence[PassageQuestion], distillation: Distillation, seconds: float
) -> DistillationSet:
    """Divide the answers by whether their passages are old, and report how many can be learned. Raises UsageError if
    none about a new passage can."""
    # The places of the learned answers, and the reasons for the others.
    places: dict[bool, list[int]] = {False: [], True: []}
    reasons: Counter[int] = Counter()
    for place, answer in enumerate(answers):
        if isinstance(answer, int):
            reasons[answer] += 1
        else:
            places[questions[place].is_old].append(place)
    answered = len(places[False]) + len(places[True])
    left_out = ", ".join(f"{count:,} with {REASONS[number]}" for number, count in sorted(reasons.items()))
    # Report them.
    if not places[False]:
        raise UsageError(
            f"the teacher answers none of {len(questions):,} questions ({left_out}): choose a base that reads the "
            "passage in its prompt, or other study material"
        )
    left = f"; left out: {left_out}" if left_out else ""
    distillation.on_event(
        note(f"the teacher's answers to {answered:,} of {len(questions):,} questions are learned{left}")
    )
    if answered < MIN_ANSWERED_SHARE * len(questions):
        distillation.on_event(
            note(
                "the base model answers poorly even with the passage in its prompt: a larger one, or an instruct "
                "model, may help"
            )
        )

    # Read them from disk on access.
    def examples(*, is_old: bool) -> Sequence[DistilledExample]:
        own = places[is_old]
        return Lazy(len(own), lambda index: cast(DistilledExample, answers[own[index]]))

    return DistillationSet(
        examples(is_old=False),
        examples(is_old=True),
        {"teacher_questions": len(questions), "teacher_answers": answered},
        seconds,
        len(questions) / len(distillation.questions),
    )
