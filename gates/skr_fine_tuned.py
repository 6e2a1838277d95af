"""SKR's classifier as in the paper: the whole encoder is trained with its head to tell D+ from D- (section 3.2).

A gate of this kind is as large as its encoder, and takes minutes where kcard.gates.skr_classifier takes seconds.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from kcard import encoder
from kcard.batches import batched, by_length
from kcard.errors import UsageError
from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.skr import sorted_out
from kcard.protocols import Array
from kcard.quiet import loading

if TYPE_CHECKING:
    import torch

__all__ = ["FineTuned", "FineTunedSettings"]

KIND = "skr-fine-tuned"
TOKENS = 128
ROWS = 64


@dataclass(frozen=True)
class FineTunedSettings:
    """encoder: minilm, or hf:NAME of an encoder of transformers (the paper's: hf:bert-base-uncased).

    The rates are those of the paper's code; one that is so much smaller than BERT needs a higher one: 0 takes 2e-5,
    and 2e-4 for minilm.
    """

    encoder: str = "minilm"
    epochs: int = 10
    learning_rate: float = 0.0
    batch: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not 0 <= self.learning_rate < 1:
            raise ValueError("epochs and batch must be at least 1, learning_rate from 0 to 1")


@dataclass(frozen=True, eq=False)
class FineTuned:
    """The score is the network's probability that a question is of D+; it is not calibrated. The threshold is 0.5.

    The weights are held as half precision stores them, so that a stored gate scores as it did before.
    """

    given: FineTunedSettings
    model: Any
    tokenizer: Any
    kind: ClassVar[str] = KIND
    threshold: ClassVar[float] = 0.5

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """Records wrong both ways are left out. Raises UsageError where D+ or D- is empty, and for too high a rate."""
        import torch

        del resources
        given = typed(FineTunedSettings, settings, KIND)
        given = replace(
            given, learning_rate=given.learning_rate or (2e-4 if given.encoder == "minilm" else 2e-5)
        )
        held, known = sorted_out(records, KIND)
        with torch.random.fork_rng():
            torch.manual_seed(given.seed)
            model, tokenizer = _pretrained(given.encoder)
            _train(model, tokenizer, [record.question for record in held], known.tolist(), given)
        return cls(given, model.half().float().eval(), tokenizer)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        import torch

        del resources
        given = typed(FineTunedSettings, settings, KIND)
        model, tokenizer = _pretrained(given.encoder)
        found = _digest(model, tokenizer)
        if found != state.values["encoder_sha256"]:
            raise UsageError(
                f"this gate was fitted on the encoder {given.encoder} "
                f"({state.values['encoder_sha256'][:12]}…), not on the model that now has this name "
                f"({found[:12]}…): use that one, or fit the gate again"
            )
        weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in state.arrays.items()}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError("its arrays do not match its encoder") from error
        if threshold != cls.threshold:
            raise ValueError("its threshold is invalid")
        return cls(given, model.eval(), tokenizer)

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.given)

    def scores(self, queries: Sequence[Query]) -> Array:
        import torch

        found = np.zeros(len(queries), dtype=np.float32)
        with torch.inference_mode():
            for rows in batched(by_length([len(query.question) for query in queries]), ROWS):
                logits = _logits(self.model, self.tokenizer, [queries[row].question for row in rows])
                found[rows] = logits.softmax(-1)[:, 1].numpy()
        return found

    def state(self) -> GateState:
        weights = self.model.state_dict().items()
        arrays = {name: weight.half().numpy().copy() for name, weight in weights}
        return GateState(arrays, {"encoder_sha256": _digest(self.model, self.tokenizer)})


def _pretrained(name: str) -> tuple[Any, Any]:
    """The encoder with a new head for two classes, and its tokenizer. Raises UsageError, ModelUnavailable."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    kind, _, where = name.partition(":")
    if name != "minilm" and (kind != "hf" or not where):
        raise UsageError(f"gate {KIND}: encoder is {name!r}, expected minilm or hf:NAME")
    source = encoder.folder() if name == "minilm" else where
    with loading(f"the encoder {name}"):
        model = AutoModelForSequenceClassification.from_pretrained(
            source, num_labels=2, dtype="float32", trust_remote_code=False
        )
        return model, AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _train(
    model: Any, tokenizer: Any, questions: Sequence[str], known: Sequence[bool], given: FineTunedSettings
) -> None:
    """AdamW at a rate that falls to 0, the order drawn anew in each epoch."""
    import torch

    model.train()
    truth = torch.tensor(known, dtype=torch.long)
    steps = given.epochs * -(-len(questions) // given.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for rows in _batches(len(questions), given):
        loss = torch.nn.functional.cross_entropy(
            _logits(model, tokenizer, [questions[row] for row in rows]), truth[rows]
        )
        if not torch.isfinite(loss):
            raise UsageError(
                f"gate {KIND}: training diverged at learning_rate {given.learning_rate:g}: choose a lower one"
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def _batches(count: int, given: FineTunedSettings) -> Iterable[list[int]]:
    rng = np.random.default_rng(given.seed)
    for _ in range(given.epochs):
        yield from batched(rng.permutation(count).tolist(), given.batch)


def _logits(model: Any, tokenizer: Any, questions: Sequence[str]) -> "torch.Tensor":
    """Shape (n, 2): seeks, knows."""
    inputs = tokenizer(list(questions), padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
    found: torch.Tensor = model(**inputs).logits
    return found


def _digest(model: Any, tokenizer: Any) -> str:
    """sha256 of the encoder's form and vocabulary; its weights are the gate's own."""
    form = model.config.to_diff_dict()
    shape = {key: value for key, value in form.items() if not key.startswith(("_", "transformers"))}
    vocabulary = sorted(tokenizer.get_vocab().items())
    text = json.dumps([shape, vocabulary], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
