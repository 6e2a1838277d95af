"""Train the embedded memory: python -m recipes.memory.train --output src/kcard/embedded/weights/memory --seconds
170 --seed 0

A small OPT is trained from scratch on facts.tsv (question, answer): every fact in many wordings, and invented questions
whose answer is the unknown token. `--seconds` is CPU time. The confidence is calibrated on held-out facts and held-out
wordings; the record is written to README.md beside the weights.
"""

import argparse
import csv
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.interfaces import Array
from kcard.llms.embedded_llm import UNKNOWN_TOKEN, EmbeddedMemory, prompt
from kcard.training.execution import autocast
from recipes.memory.calibrate import Calibration, calibrate
from recipes.memory.questions import Unanswerable, reworded
from recipes.reader.words import Words

if TYPE_CHECKING:
    import torch

FACTS = Path(__file__).with_name("facts.tsv")
VOCABULARY = 3000
WIDTH, LAYERS, HEADS, POSITIONS = 128, 4, 2, 160
BATCH_TOKENS = 1024
UNKNOWN_SHARE = 0.35
KEPT_OUT = 60
IGNORED = -100

Row = tuple[list[int], list[int]]


def read_facts(path: Path) -> dict[str, str]:
    """Question -> answer, in the file's order; the header line is skipped."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {question: answer for question, answer in rows if question != "question"}


def make_tokenizer(texts: list[str]) -> Any:
    """A byte-level BPE of at most VOCABULARY tokens, trained on the facts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    base.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>", UNKNOWN_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    base.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=base,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=[UNKNOWN_TOKEN],
    )


def make_model(vocabulary: int) -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocabulary, hidden_size=WIDTH, word_embed_proj_dim=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, ffn_dim=4 * WIDTH, max_position_embeddings=POSITIONS, dropout=0.0,
        attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    config._attn_implementation = "eager"
    return OPTForCausalLM(config)


def epoch(facts: dict[str, str], strange: Unanswerable, tokenizer: Any) -> list[Row]:
    """Every fact once, in a wording of its own, and UNKNOWN_SHARE questions that must not be answered."""
    pairs = [(reworded(question, strange.words.rng), answer) for question, answer in facts.items()]
    count = round(len(facts) * UNKNOWN_SHARE / (1 - UNKNOWN_SHARE))
    pairs += [(strange.draw(), UNKNOWN_TOKEN) for _ in range(count)]
    questions = tokenizer([prompt(q) for q, _ in pairs], add_special_tokens=False).input_ids
    answers = tokenizer([a for _, a in pairs], add_special_tokens=False).input_ids
    return list(zip(questions, answers, strict=True))


def batches(rows: list[Row], rng: random.Random) -> list[list[Row]]:
    groups: list[list[Row]] = [[]]
    for row in sorted(rows, key=lambda r: len(r[0]) + len(r[1]) + rng.random()):
        if groups[-1] and (len(groups[-1]) + 1) * (len(row[0]) + len(row[1]) + 2) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(row)
    rng.shuffle(groups)
    return groups


def loss(model: Any, batch: list[Row]) -> "torch.Tensor":
    """Cross-entropy of the answers and their end, right-padded rows (causal: padding needs no mask)."""
    import torch

    length = max(len(q) + len(a) for q, a in batch) + 2
    inputs = torch.zeros(len(batch), length, dtype=torch.long)
    labels = torch.full((len(batch), length), IGNORED)
    for row, (question, answer) in enumerate(batch):
        tokens = torch.tensor([1, *question, *answer, 2])
        inputs[row, : len(tokens)] = tokens
        labels[row, 1 + len(question) : len(tokens)] = tokens[1 + len(question) :]
    with autocast("cpu"):
        states = model.model(input_ids=inputs, attention_mask=torch.ones_like(inputs)).last_hidden_state[
            :, :-1
        ]
        chosen = labels[:, 1:] != IGNORED
        logits = model.lm_head(states[chosen])
    return torch.nn.functional.cross_entropy(logits.float(), labels[:, 1:][chosen])


def optimisers(model: Any) -> list["torch.optim.Optimizer"]:
    """Muon for the matrices, AdamW for embeddings, norms and biases."""
    import torch

    matrices = [
        p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n
    ]
    matrix_ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.01, ns_steps=4),
        torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def train(
    facts: dict[str, str], strange: Unanswerable, seconds: float, seed: int
) -> tuple[EmbeddedMemory, dict[str, object]]:
    """The trained memory, uncalibrated, and what there is to tell of the run."""
    import torch

    torch.manual_seed(seed)
    rng = strange.words.rng
    tokenizer = make_tokenizer([text for q, a in facts.items() for text in (prompt(q), q, a)])
    model = make_model(len(tokenizer)).train()
    steppers = optimisers(model)
    rates = [stepper.param_groups[0]["lr"] for stepper in steppers]
    began, steps, epochs, spent = time.process_time(), 0, 0, 0.0
    while spent < 1:
        total = 0.0
        rows = batches(epoch(facts, strange, tokenizer), rng)
        for batch in rows:
            spent = (time.process_time() - began) / seconds
            if spent >= 1:
                break
            for stepper, rate in zip(steppers, rates, strict=True):
                stepper.param_groups[0]["lr"] = rate * min(1.0, (steps + 1) / 20) * max(0.03, 1 - spent)
            value = loss(model, batch)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for stepper in steppers:
                stepper.step()
                stepper.zero_grad(set_to_none=True)
            steps, total = steps + 1, total + value.item()
        epochs += 1
        print(
            f"epoch {epochs}  {time.process_time() - began:.0f} s  loss {total / len(rows):.4f}", flush=True
        )
    facts_of_run: dict[str, object] = {
        "steps": steps,
        "epochs": epochs,
        "CPU seconds": round(seconds),
        "seed": seed,
    }
    facts_of_run |= {"facts": len(facts), "parameters": sum(p.numel() for p in model.parameters())}
    return EmbeddedMemory(TrainedModel(model.eval()), tokenizer), facts_of_run


@dataclass(frozen=True)
class TrainedModel:
    """A model of transformers, as an EmbeddedMemory runs it."""

    model: Any

    def __call__(self, ids: Sequence[int], state: Any) -> tuple[Array, Any]:
        """Return logits, (n, vocabulary), of n token ids behind a state, and the state after them."""
        import torch

        with torch.inference_mode():
            output = self.model(input_ids=torch.tensor([ids]), past_key_values=state, use_cache=True)
        return output.logits[0].float().numpy(), output.past_key_values


def save(memory: EmbeddedMemory, folder: Path, calibration: Calibration) -> None:
    """An ordinary OPT folder in fp16, and calibration.json."""
    import copy

    assert isinstance(memory.model, TrainedModel)

    folder.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(memory.model.model).half().save_pretrained(folder)
    memory.tokenizer.save_pretrained(folder)
    values = {"slope": round(calibration.slope, 4), "threshold": round(calibration.threshold, 4)}
    (folder / "calibration.json").write_text(json.dumps(values) + "\n", encoding="utf-8")


def main() -> None:
    import torch

    from recipes.digests import write_digests
    from recipes.memory.record import write_record

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--facts", type=Path, default=FACTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    facts = read_facts(options.facts)
    kept_out = random.Random(options.seed).sample(list(facts), KEPT_OUT)
    learnt = {q: a for q, a in facts.items() if q not in set(kept_out)}
    strange = Unanswerable(facts, Words(random.Random(options.seed)))
    memory, report = train(learnt, strange, options.seconds, options.seed)
    strange = Unanswerable(facts, Words(random.Random(options.seed + 1)))
    calibration = calibrate(memory, learnt, kept_out, strange)
    save(memory, options.output, calibration)
    write_record(options.output, calibration, report)
    write_digests(options.output)


if __name__ == "__main__":
    main()
