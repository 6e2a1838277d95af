"""The embedded card: a 1.1M-parameter OPT trained from scratch to recite its corpus, in about a minute.

No pretrained weights are needed, so it works where no hub is reachable. It learns pseudo-query -> passage,
because a plain causal LM of this size knows its sentences but never the one that was asked for. The question
reaches it either as tokens or as a prefix that the sentence encoder makes of it, and it answers with the passage's
address first (docs/training.md).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.manifest import Base, Prompt
from kcard.quiet import quiet_loading
from kcard.sampling import derive_seed
from kcard.training import exposure
from kcard.training.addresses import Addresses
from kcard.training.batches import Example, collate
from kcard.training.estimate import Estimate
from kcard.training.inheritance import inherit, is_heir
from kcard.training.loop import Job, cosine
from kcard.training.preparation import Preparation
from kcard.training.progress import Note, Report, silent
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import BOS, EOS, PAD, train_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

__all__ = ["prepare"]

# So few steps are done before their time could be told.
INSTANT = 150


@dataclass(frozen=True)
class _Trainee:
    """A model before its first step, with what moves it. `projection`: of the style encoder-prefix."""

    model: "OPTForCausalLM"
    projection: "Linear | None"
    optimizers: Sequence[Any]

    @property
    def modules(self) -> dict[str, Any]:
        return {"model": self.model} | ({} if self.projection is None else {"projection": self.projection})


def prepare(
    texts: Sequence[str],
    recipe: Recipe,
    fingerprint: str = "",
    report: Report = silent,
    start: Path | None = None,
) -> Preparation:
    """Everything that training the card on `texts` needs, before its first step. Tells how long it will take.

    start   the folder of the card's last version, whose passages are the first of `texts`: it goes on from its
            weights, in fewer steps. One of another shape is trained anew, which is said
    """
    ask = PseudoQueries(texts)
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    addresses = Addresses.for_passages(texts, len(tokenizer), recipe)
    tokens = len(tokenizer) + addresses.count
    epoch = exposure.epochs(texts, ask, tokenizer, addresses, recipe)
    trainee = _trainee(tokens, recipe)
    if start is not None and not is_heir(trainee.model, trainee.projection, start):
        report(Note("training anew, since the last version's model has another shape than this kcard's"))
        start = None
    steps = exposure.steps(texts, ask.rarity, epoch, recipe)
    if start is not None and recipe.epochs is None:
        steps = ceil(recipe.going_on * steps)
    questions = exposure.questions(texts, ask, recipe) if recipe.style == "encoder-prefix" else []

    def job(trainee: _Trainee, vectors: "Tensor | None") -> Job:
        return Job(
            modules=trainee.modules,
            optimizers=trainee.optimizers,
            steps=steps,
            epoch=epoch,
            losses=_losses(trainee, vectors, recipe),
            rate=cosine(steps, recipe.warm),
            seed=recipe.seed,
            fingerprint=fingerprint,
            timed=steps > INSTANT,
        )

    told = {}
    if steps > INSTANT:
        trial = job(_trainee(tokens, recipe), exposure.blank(questions))
        estimate = Estimate.of(trial, questions, exposure.embedded)
        report(estimate.note())
        told = {"estimated_seconds": round(estimate.seconds, 1)}
    if start is not None:
        inherit(trainee.model, trainee.projection, tokenizer, start)
    vectors = exposure.embedded(questions) if questions else None
    recorded = asdict(recipe) | {"steps": steps} | told
    save = partial(_save, trainee, tokenizer)
    return Preparation(job(trainee, vectors), save, "full", Base(), _prompt(recipe), recorded)


def _save(trainee: _Trainee, tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    from safetensors.torch import save_file

    with quiet_loading():
        trainee.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if trainee.projection is not None:
        named = trainee.projection.named_parameters()
        tensors = {name: weight.detach().contiguous() for name, weight in named}
        save_file(tensors, folder / "projection.safetensors")


def _trainee(tokens: int, recipe: Recipe) -> _Trainee:
    """Fresh weights, the same for the same seed."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(recipe.seed, "weights"))
        model, projection = _model(tokens, recipe), _projection(recipe)
    modules: list[Any] = [model] if projection is None else [model, projection]
    return _Trainee(model, projection, _optimizers(modules, recipe))


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


def _optimizers(modules: Sequence[Any], recipe: Recipe) -> "list[Any]":
    """Muon for the matrices inside the layers, AdamW for the rest; one shared schedule scales both."""
    import torch

    from kcard.training.muon import Muon

    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for module in modules:
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
    trainee: _Trainee, vectors: "Tensor | None", recipe: Recipe
) -> "Callable[[list[Example]], Iterator[tuple[Tensor, int]]]":
    import torch
    from torch.nn.functional import cross_entropy, normalize

    from kcard.training.precision import autocast

    model, projection = trainee.model, trainee.projection

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
