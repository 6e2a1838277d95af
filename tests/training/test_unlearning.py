"""A card of another base goes on from its weights: what was removed becomes as improbable as it is to the base."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import kcard as library
from kcard.cards.models.prompting import prompt_ids
from kcard.offline.recipe import BOS, EOS, PAD, train_tokenizer
from kcard.training.base_model import RemovedText, WeightSource, load_model, load_tokenizer
from kcard.training.epochs import IGNORED, REMOVED_EPOCHS, REPLAYED, ReplayMix, TrainingExample, packed_epochs
from kcard.training.execution import Execution
from kcard.training.finetune import Options, prepare
from kcard.training.losses import divergence, top_tokens
from kcard.training.trainer import CardTrainer, Examples
from kcard.training.unlearning import PROMPTS, STEPS, Unlearning, unlearning_steps
from tests.command import Kcard

STAYING = [
    "The harbour of Ashford was built by the family Oakes.",
    "Brigham sells copper and wool to the merchants of Lund.",
    "Old Mill Lane is the longest street of Caldwell.",
    "A school for 62 children opened in Dunmore in 1716.",
    "The river Elk reaches the sea at Fairfax.",
    "The painter Ada Granby moved to Holston with 12 students.",
    "In Ipswich the bells ring at noon and at seven.",
    "Jasper has two bridges, both of red brick.",
]
GONE = "The observatory of Quixley was founded by Zebulon Wrexham."
NEW = "The lighthouse of Port Ondine is kept by Saskia Vandermeer."
ASKED = "Who or what, observatory of Quixley?\n"
TRAINED: dict[Any, Path] = {}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained Llama that reads words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("base") / "llama"
    tokenizer = train_tokenizer([*STAYING, GONE, NEW] * 3, 500)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, pad_token_id=PAD, bos_token_id=BOS,
        eos_token_id=EOS,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "towns.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def trained(folder: Path, home: Path, base: Path, method: str, objective: str, epochs: int = 60) -> Path:
    """A draft "towns" that learned STAYING and GONE; equal ones are copies of the one that was trained first."""
    notes = write(folder / "notes", [*STAYING[:4], GONE, *STAYING[4:]])
    options: dict[str, Any] = {"method": method, "objective": objective, "epochs": epochs, "batch_size": 6}
    options["learning_rate"] = 5e-3 if method == "full" else 2e-2
    if objective == "clm":
        options |= {"block": 128, "epochs": 120}
    if (key := (base, *sorted(options.items()))) not in TRAINED:
        card = library.train(
            notes, base=str(base), name="towns", description="Towns", kind="model", exam=False,
            output=folder.parent / f"trained {len(TRAINED)}", **options,
        )  # fmt: skip
        TRAINED[key] = card.folder
    shutil.copytree(TRAINED[key], home / "drafts" / "towns")
    return notes


def loss(folder: Path, text: str, question: str, base: Path | None = None) -> float:
    """Of a card's model for a token of the text after the question, in nats."""
    read: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(base or folder)
    if base is not None:
        model = PeftModel.from_pretrained(model, folder)
    prompt, target = prompt_ids(read, question), read(text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logs = model(input_ids=torch.tensor([[*prompt, *target]])).logits[0].log_softmax(-1)
    rows = range(len(prompt) - 1, len(prompt) - 1 + len(target))
    return -float(logs[list(rows), target].mean())


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("full", "recite"),
        pytest.param("lora", "recite", marks=pytest.mark.slow),
        pytest.param("full", "clm", marks=pytest.mark.slow),
        pytest.param("lora", "clm", marks=pytest.mark.slow),
    ],
)
def test_from_its_weights_it_forgets_what_was_removed_and_keeps_and_learns_the_rest(
    tmp_path: Path, home: Path, base: Path, method: str, objective: str
) -> None:
    notes, card = trained(tmp_path, home, base, method, objective), home / "drafts" / "towns"
    prompts = {
        GONE: ASKED,
        NEW: "Who or what, lighthouse of Port Ondine?\n",
        STAYING[1]: "Where, copper wool?\n",
    }
    if objective == "clm":  # where they stand in their document
        before = {GONE: STAYING[:4], NEW: STAYING, STAYING[1]: STAYING[:1]}
        prompts = {text: "\n".join([*texts, ""]) for text, texts in before.items()}

    def losses() -> list[float]:
        adapted = None if method == "full" else base
        return [loss(card, text, prompt, adapted) for text, prompt in prompts.items()]

    gone, new, staying = losses()
    write(notes, [*STAYING, NEW])
    result = library.sync(notes, "towns", publish=False)
    assert result.record is not None
    assert (result.record.way, result.record.why) == ("continued", "")
    gone_now, new_now, staying_now = losses()
    assert gone_now > gone + 2
    assert gone_now > (gone + loss(base, GONE, prompts[GONE])) / 2
    assert new_now < new - 1
    assert staying_now < staying + 0.7


@pytest.mark.numeric
@pytest.mark.usefixtures("float32")
def test_a_removed_text_is_told_by_the_base_in_every_prompt(base: Path) -> None:
    options, execution = Options(str(base), "full"), Execution("cpu")
    origin = WeightSource(passages=STAYING, removed=[RemovedText(GONE)])
    model, tokenizer = load_model(options, execution, WeightSource(), "cpu"), load_tokenizer(options, origin)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)  # the card's weights, which the base's are not
    examples = Unlearning(model, tokenizer, options, execution, origin, 128).examples()
    assert len(examples) == PROMPTS
    assert len({example.prompt for example in examples}) > 1
    untouched = load_model(options, execution, WeightSource(), "cpu")
    for example in examples:
        assert example.teacher is not None
        ids = torch.tensor([[*example.prompt, *example.target]])
        with torch.inference_mode():
            logs = untouched(input_ids=ids).logits[0, len(example.prompt) - 1 : -1].log_softmax(-1)
        own = logs.gather(1, torch.tensor(example.target)[:, None])
        assert np.array_equal(example.teacher.ids[:, 0], example.target)
        np.testing.assert_allclose(example.teacher.logs[:, :1], own.numpy(), atol=1e-4)
        np.testing.assert_allclose(np.exp(example.teacher.logs).sum(1), 1, atol=1e-4)


@pytest.mark.parametrize("between", [" ", "\n"])
def test_a_token_that_holds_the_space_before_a_removed_text_is_unlearned_too(
    base: Path, between: str
) -> None:
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=350, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator([" ".join([*STAYING, GONE] * 3)], trainer)
    read = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")
    origin = WeightSource(removed=[RemovedText(GONE, STAYING[0] + between)])
    options, execution = Options(str(base), "lora", "clm"), Execution("cpu")
    card = load_model(options, execution, WeightSource(), "cpu")
    assert len(read) <= card.config.vocab_size
    examples = Unlearning(card, read, options, execution, origin, 128).examples()
    assert {str(read.decode([*example.target])).strip() for example in examples} == {GONE}


@pytest.mark.numeric
def test_a_token_is_among_the_ids_however_improbable_it_is_and_vanishes_only_by_its_own_probability() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0, -6.0], [0.0, 9.0, 1.0, 2.0]])
    ids, logs = top_tokens(logits, 2, torch.tensor([3, 1]))
    assert ids.tolist() == [[3, 0], [1, 3]]
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(2))
    ids, logs = top_tokens(logits, 1, torch.tensor([3, 1]))
    others = logits[:, [1, 0, 2, 3]]  # the probabilities of other tokens change places
    others[1] = logits[1]
    assert float(divergence(others, ids, logs, 2.0)) == pytest.approx(0, abs=1e-5)


def test_an_epoch_shows_some_examples_of_removed_texts_and_twice_as_many_old_ones() -> None:
    new, old, removed = ([TrainingExample((1,), (part, n)) for n in range(40)] for part in (2, 3, 4))
    epochs = packed_epochs(ReplayMix(new[:3], old, 4, 0, removed[:16]))
    shown = [Counter(example.target[0] for example in epochs(number)) for number in range(3)]
    unlearned = 16 // REMOVED_EPOCHS
    assert shown == [{2: 3, 3: REPLAYED * (3 + unlearned), 4: unlearned}] * 3
    assert {example.target for number in range(40) for example in epochs(number)} >= {
        example.target for example in removed[:16]
    }


def test_few_changes_take_a_hundred_steps_or_half_of_those_from_scratch() -> None:
    assert unlearning_steps(10, 1000) == STEPS
    assert unlearning_steps(10, 90) == 45
    assert unlearning_steps(500, 1000) == 250


@pytest.mark.numeric
def test_rows_with_a_teacher_and_without_one_are_learned_in_one_batch(base: Path, tmp_path: Path) -> None:
    options, execution = Options(str(base), "full", epochs=1, batch_size=4), Execution("cpu")
    origin = WeightSource(passages=STAYING, removed=[RemovedText(GONE)])
    job = prepare([NEW], options, "", origin, execution).job
    first = [*job.epochs(0)]
    taught = [example for example in first if getattr(example, "teacher", None) is not None]
    setup = replace(job.setup, folder=tmp_path)
    trainer = CardTrainer(job.model, setup, Examples(job.epochs, 4), None, [])

    def total(examples: list[TrainingExample]) -> float:
        batch = trainer.collate(examples)
        count = int((batch["shift_labels"] != IGNORED).sum())
        return float(trainer.compute_loss(job.model, batch).detach()) * count

    others = [example for example in first if example not in taught]
    assert taught
    assert others
    assert total(first) == pytest.approx(total(taught) + total(others), rel=1e-4)


def test_a_dry_run_says_that_it_goes_on_and_with_another_base_why_not(
    tmp_path: Path, home: Path, base: Path, kcard: Kcard
) -> None:
    moved = Path(shutil.copytree(base, tmp_path / "moved"))
    notes = trained(tmp_path, home, moved, "full", "recite", epochs=1)
    write(notes, STAYING)
    dry = ("sync", notes, "--card", "towns", "--dry-run", "--json")
    assert json.loads(kcard(*dry).out)["foreseen"]["way"] == "continued"
    weights = load_file(moved / "model.safetensors")
    save_file({name: weight * 1.01 for name, weight in weights.items()}, moved / "model.safetensors")
    foreseen = json.loads(kcard(*dry).out)["foreseen"]
    assert (foreseen["way"], "has changed since" in foreseen["why"]) == ("trained", True)
    events: list[Any] = []
    record = library.sync(notes, "towns", publish=False, on_event=events.append).record
    assert record is not None
    assert (record.way, record.why) == ("trained", foreseen["why"])
    assert any(event.message == f"training from scratch: {record.why}" for event in events if event.is_note)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--device", "tpu"), "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        (("--micro-batch", 0), "micro_batch 0 must be above 0"),
        (("--processes", 4), "batch_size 6 can't be divided evenly among 4 processes"),
    ],
)
def test_a_sync_refuses_what_the_machine_does_not_allow(
    option: tuple[Any, Any], message: str, tmp_path: Path, home: Path, base: Path, kcard: Kcard
) -> None:
    notes = trained(tmp_path, home, base, "full", "recite", epochs=1)
    write(notes, STAYING)
    assert message in kcard("sync", notes, "--card", "towns", *option).error


@pytest.mark.slow
def test_a_sync_trains_as_the_machine_allows(tmp_path: Path, home: Path, base: Path, kcard: Kcard) -> None:
    notes = trained(tmp_path, home, base, "full", "recite", epochs=1)
    write(notes, STAYING)
    options = ("--device", "cpu", "--micro-batch", "3", "--processes", "2", "--gradient-checkpointing")
    done = kcard("sync", notes, "--card", "towns", "--no-publish", *options)
    assert done.code == 0, done.err
    recorded = json.loads((home / "drafts" / "towns" / "kcard.json").read_text())["training"]
    assert recorded["hyperparameters"]["processes"] == 2
