"""The embedded card: a 1.1M-parameter OPT trained from scratch to recite its corpus, in about a minute.

No pretrained weights are needed, so it works where no hub is reachable. It learns pseudo-query -> passage,
because a plain causal LM of this size knows its sentences but never the one that was asked for. The question
reaches it either as tokens or as a prefix that the sentence encoder makes of it (docs/training.md).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.manifest import Base, Prompt
from kcard.quiet import quiet_loading
from kcard.sampling import derive_seed
from kcard.training import exposure
from kcard.training.batches import Example, collate
from kcard.training.loop import Job, cosine
from kcard.training.preparation import Preparation
from kcard.training.progress import Note, Report, silent
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import BOS, EOS, PAD, train_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM

__all__ = ["prepare"]


def prepare(
    texts: Sequence[str], recipe: Recipe, fingerprint: str = "", report: Report = silent
) -> Preparation:
    """Everything that training the card on `texts` needs, before its first step."""
    import torch

    ask = PseudoQueries(texts)
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        model = _model(len(tokenizer), recipe)
        projection = _projection(recipe)
    vectors = None
    if projection is not None:
        report(Note("embedding pseudo-queries with the sentence encoder"))
        vectors = exposure.question_vectors(texts, ask, recipe)
    epoch = exposure.epochs(texts, ask, tokenizer, recipe)
    modules: dict[str, Any] = {"model": model} | ({} if projection is None else {"projection": projection})
    steps = exposure.steps(texts, ask.rarity, epoch, recipe)
    job = Job(
        modules=modules,
        optimizers=_optimizers(modules, recipe),
        steps=steps,
        epoch=epoch,
        losses=_losses(model, projection, vectors, recipe),
        rate=cosine(steps, recipe.warm),
        seed=recipe.seed,
        fingerprint=fingerprint,
    )

    def save(folder: Path) -> None:
        from safetensors.torch import save_file

        with quiet_loading():
            model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if projection is not None:
            tensors = {name: weight.detach().contiguous() for name, weight in projection.named_parameters()}
            save_file(tensors, folder / "projection.safetensors")

    return Preparation(job, save, "full", Base(), _prompt(recipe), asdict(recipe) | {"steps": steps})


def _model(vocabulary: int, recipe: Recipe) -> "OPTForCausalLM":
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        word_embed_proj_dim=recipe.width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        ffn_dim=4 * recipe.width,
        max_position_embeddings=recipe.positions,
        dropout=0.0,
        attention_dropout=0.0,
        layerdrop=0.0,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )
    # Plain matrix products were 1.6 times cheaper than fused attention at this size on a CPU.
    config._attn_implementation = "eager"
    return OPTForCausalLM(config)


def _projection(recipe: Recipe) -> "Linear | None":
    from torch.nn import Linear

    from kcard.encoder import DIMENSIONS

    return None if recipe.style == "tokens" else Linear(DIMENSIONS, recipe.vectors * recipe.width)


def _prompt(recipe: Recipe) -> Prompt:
    from kcard import encoder

    if recipe.style == "tokens":
        return Prompt() if recipe.objective == "recite" else Prompt(template="{question}")
    return Prompt("encoder-prefix", "", recipe.vectors, encoder.NAME, encoder.SHA256)


def _optimizers(modules: dict[str, Any], recipe: Recipe) -> "list[Any]":
    """Muon for the matrices inside the layers, AdamW for the rest; one shared schedule scales both."""
    import torch

    from kcard.training.muon import Muon

    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for module in modules.values():
        for name, weight in module.named_parameters():
            inner = weight.ndim == 2 and ".layers." in name
            (matrices if inner else rest).append(weight)
    found: list[Any] = [
        Muon(matrices, lr=recipe.muon_rate, momentum=0.95, weight_decay=recipe.decay, steps=4),
        torch.optim.AdamW(
            rest, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
        ),
    ]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return found


def _losses(
    model: "OPTForCausalLM", projection: "Linear | None", vectors: "Tensor | None", recipe: Recipe
) -> "Callable[[list[Example]], Iterator[tuple[Tensor, int]]]":
    import torch
    from torch.nn.functional import cross_entropy, normalize

    from kcard.training.precision import autocast

    def losses(batch: list[Example]) -> "Iterator[tuple[Tensor, int]]":
        ids, labels = collate(batch, PAD)
        with autocast("cpu"):
            inputs = model.get_input_embeddings()(ids)
            if projection is not None and vectors is not None:
                asked = vectors[[example.vector for example in batch]]
                asked = normalize(asked + recipe.noise * torch.randn_like(asked), dim=-1)
                prefix = projection(asked).view(len(batch), recipe.vectors, -1)
                inputs = torch.cat([prefix.to(inputs.dtype), inputs], dim=1)
            states = model.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
            states = states[:, -ids.shape[1] : -1]
            learned = labels[:, 1:] != -100
            logits = model.lm_head(states[learned])
        yield cross_entropy(logits.float(), labels[:, 1:][learned]), int((ids != PAD).sum())

    return losses
