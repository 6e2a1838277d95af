"""Tokens a second of fine-tuning, against the plain procedure, on the same model and corpus to the same loss.

    python -m benchmarks.training_speed [--shape 125m] [--steps 8] [--runs 1] [--threads 2] [--path FILE ...] [--json]

plain   blocks of 128, batches of 16, fp32, transformers' Trainer with the settings that it comes with
kcard   the same batches of 2,048 tokens by `kcard train --objective clm`: what kcard.training.finetune makes of them

Both start from the same random OPT, see every token once or more in their own random order, with the same AdamW, rate
and warm-up, for the same number of steps; loading and tokenising are not timed. The held-out loss is that of the result
on passages that neither saw, in fp32, measured by one function. `--method lora` trains adapters: both by peft.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).resolve().parents[1] / "demo" / "corpora"
BLOCK, ROWS = 128, 16
HELD_OUT = 10  # every tenth passage


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    words: int


SHAPES = {
    "125m": Shape(12, 768, 12, 50_272),
    "30m": Shape(6, 512, 8, 16_000),
    "4m": Shape(4, 256, 4, 4_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="125m")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--runs", type=int, default=1, help="in turns; medians are reported")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--method", choices=["full", "lora"], default="full")
    parser.add_argument("--path", type=Path, nargs="*", help="text files; default: demo/corpora")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch, quiet():
        base = Path(scratch) / "base"
        learned, held = corpus(args.path or sorted(CORPORA.glob("*/*.txt")))
        write_base(base, SHAPES[args.shape], learned)
        rows: dict[str, list[tuple[float, float]]] = {"plain": [], "kcard": []}
        for _ in range(args.runs):
            for name, train in (("plain", plain), ("kcard", ours)):
                seconds, tokens, model = train(base, learned, args.steps, args.rate, args.method)
                rows[name].append((tokens / seconds, loss(model, base, held)))
    report: dict[str, Any] = {"shape": args.shape, "steps": args.steps, "threads": args.threads}
    report |= {"method": args.method, "tokens_a_step": BLOCK * ROWS}
    for name, found in rows.items():
        report[name] = {
            "tokens_per_second": round(statistics.median(rate for rate, _ in found), 1),
            "held_out_loss": round(statistics.median(value for _, value in found), 4),
        }
    report["ratio"] = round(report["kcard"]["tokens_per_second"] / report["plain"]["tokens_per_second"], 2)
    print(json.dumps(report) if args.json else table(report))


@contextmanager
def quiet() -> Iterator[None]:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield


def corpus(files: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Passages that are learned, and those that are held out."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    learned = [line for number, line in enumerate(lines) if number % HELD_OUT]
    return learned, lines[::HELD_OUT]


def write_base(folder: Path, shape: Shape, texts: Sequence[str]) -> None:
    """A random OPT with a tokenizer of its own; its table is as long as the shape says."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    from kcard.training.tokenizer import train_tokenizer

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=shape.words,
        hidden_size=shape.width,
        word_embed_proj_dim=shape.width,
        num_hidden_layers=shape.layers,
        ffn_dim=4 * shape.width,
        num_attention_heads=shape.heads,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    OPTForCausalLM(config).save_pretrained(folder)
    train_tokenizer(texts, 3000).save_pretrained(folder)


def plain(base: Path, texts: Sequence[str], steps: int, rate: float, method: str) -> tuple[float, int, Any]:
    """Seconds, tokens and the model of transformers' Trainer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    stream = [t for ids in tokenizer(list(texts))["input_ids"] for t in (*ids, tokenizer.eos_token_id)]
    blocks = [torch.tensor(stream[i : i + BLOCK]) for i in range(0, len(stream) - BLOCK, BLOCK)]
    rows = [{"input_ids": block, "labels": block} for block in blocks]
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, trust_remote_code=False)
    if method == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(
            model,
            LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            per_device_train_batch_size=ROWS,
            max_steps=steps,
            learning_rate=rate,
            warmup_steps=max(1, round(0.06 * steps)),
            weight_decay=1e-5,
            adam_epsilon=1e-6,
            adam_beta2=0.98,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started, steps * ROWS * BLOCK, model


def ours(base: Path, texts: Sequence[str], steps: int, rate: float, method: Any) -> tuple[float, int, Any]:
    """Seconds, tokens and the model of kcard's own loop."""
    from dataclasses import replace

    from kcard.training.finetune import Options, prepare
    from kcard.training.loop import linear, run

    options = Options(str(base), method, "clm", rate, 1.0, ROWS, block=BLOCK)
    job = prepare(texts, options).job
    job = replace(job, steps=steps, rate=linear(steps, max(1, round(0.06 * steps))))
    with tempfile.TemporaryDirectory() as scratch:
        outcome = run(job, Path(scratch) / "checkpoint")
    return outcome.seconds, outcome.tokens, job.modules["model"]


def loss(model: Any, base: Path, texts: Sequence[str]) -> float:
    """Mean loss a token over held-out passages."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    stream = [t for ids in tokenizer(list(texts))["input_ids"] for t in (*ids, tokenizer.eos_token_id)]
    blocks = torch.tensor([stream[i : i + BLOCK] for i in range(0, len(stream) - BLOCK, BLOCK)][: 4 * ROWS])
    model.eval()
    with torch.inference_mode():
        found = [model(input_ids=rows, labels=rows).loss.item() for rows in blocks.split(ROWS)]
    return statistics.fmean(found)


def table(report: dict[str, Any]) -> str:
    head = (
        f"OPT-{report['shape']} shape, {report['method']}, {report['steps']} steps of {report['tokens_a_step']} "
        f"tokens, {report['threads']} threads: {report['ratio']} times the plain procedure"
    )
    lines = [head, "", "| | tokens a second | held-out loss |", "|---|---|---|"]
    for name in ("plain", "kcard"):
        lines.append(f"| {name} | {report[name]['tokens_per_second']} | {report[name]['held_out_loss']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
