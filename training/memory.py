"""How much memory a training takes, before anything is loaded: from the shape of the model alone.

The model is built of tensors without contents (torch's fake tensors), and a forward pass of one micro-batch tells what
autograd would keep.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcard.training.base_model import Origin, bare_model
from kcard.training.execution import Execution
from kcard.training.optimizers import state_bytes
from kcard.training.precision import autocast
from kcard.training.prefix import length

if TYPE_CHECKING:
    from kcard.training.finetune import Options

__all__ = ["MemoryEstimate", "estimate_memory", "size_of"]

SLACK = (
    1.1  # for the scratch space of matrix products and what allocators keep (benchmarks/training_memory.py)
)
# Tokens of a question and a statement of 60 words, or of a question and its answer, about the longest there are.
RECITED = 192


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on each device, without the libraries' own. `activations`: what a micro-batch takes at its peak besides.

    head, layer  gradients of the largest matrix, and weights of a layer, which FSDP puts together for a while
    parts        micro-batches a step in each process
    """

    weights: int
    gradients: int
    states: int
    activations: int
    logits: int
    head: int
    parts: int
    layer: int = 0

    @property
    def total(self) -> int:
        """The peak: of the forward pass, of the backward pass, in which gradients come as activations go, or of the
        step."""
        kept = self.gradients if self.parts > 1 else 0
        forward = kept + self.activations + 2 * self.logits
        backward = kept + self.logits + max(self.activations + self.head, 0 if kept else self.gradients)
        exact = self.weights + self.states + self.layer + max(forward, backward, self.gradients)
        return round(SLACK * exact)

    def __str__(self) -> str:
        working = self.total - self.weights - self.states - self.gradients
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer states": self.states,
            "activations": max(0, working),
        }
        return (
            f"{size_of(self.total)} ({', '.join(f'{what} {size_of(size)}' for what, size in parts.items())})"
        )


def estimate_memory(options: "Options", execution: Execution, origin: Origin, device: str) -> MemoryEstimate:
    """What training takes on each device. Raises ModelUnavailable where the model's shape can't be read."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with _quiet():
        bare = bare_model(options, execution, origin, device)
        keeping = replace(execution, checkpointing=False)
        plain = bare_model(options, keeping, origin, device) if execution.checkpointing else None
    with FakeTensorMode(), _quiet():
        model = _filled(bare)
        room = int(getattr(model.config, "max_position_embeddings", None) or 2048)
        if options.method == "prefix":
            room -= length(options, model.config)
        tokens = min(options.block if options.objective == "clm" else RECITED, room)
        share = -(-options.batch_size // execution.processes)
        rows = min(execution.rows(tokens), share)
        kept, logits = _kept(model, rows, tokens)
        if plain is not None:  # one layer at a time is computed again
            kept += (_kept(_filled(plain), rows, tokens)[0] - kept) // max(1, _layers(model.config))
    weights = [*model.parameters()]
    trained = [weight for weight in weights if weight.requires_grad]
    width = {weight: weight.element_size() for weight in weights}
    divided = execution.processes if options.method == "full" else 1
    whole = sum(weight.numel() * width[weight] for weight in weights)
    states = sum(state_bytes(options.optimizer, weight.numel(), width[weight]) for weight in trained)
    gradients = sum(weight.numel() * width[weight] for weight in trained)
    head = max(weight.numel() * width[weight] for weight in trained)
    around = 0 if divided == 1 else 2 * (head + whole // max(1, _layers(model.config)))
    return MemoryEstimate(
        whole // divided,
        gradients // divided,
        states // divided,
        kept,
        logits,
        head,
        -(-share // rows),
        around,
    )


def size_of(count: int) -> str:
    """Bytes, for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _kept(model: Any, rows: int, length: int) -> tuple[int, int]:
    """Bytes that autograd keeps of a forward pass, besides the weights, and bytes of the logits."""
    import torch
    from torch.autograd.graph import saved_tensors_hooks

    own = {weight.untyped_storage()._cdata for weight in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage  # held, so that its address is not given to another
        return tensor

    model.train()
    with saved_tensors_hooks(pack, lambda tensor: tensor), autocast(model.device.type):
        ids = torch.zeros(rows, length, dtype=torch.long, device=model.device)
        logits = model(input_ids=ids, use_cache=False).logits
    return sum(storage.nbytes() for storage in kept.values()), logits.numel() * logits.element_size()


def _filled(model: Any) -> Any:
    """The model with fake tensors in place of those on "meta", which autocast does not know."""
    import torch

    made: dict[int, Any] = {}
    for module in model.modules():
        for name, weight in [*module.named_parameters(recurse=False)]:
            if id(weight) not in made:
                empty = torch.empty(weight.shape, dtype=weight.dtype)
                made[id(weight)] = torch.nn.Parameter(empty, weight.requires_grad)
            module.register_parameter(name, made[id(weight)])
        for name, buffer in [*module.named_buffers(recurse=False)]:
            module.register_buffer(name, torch.empty(buffer.shape, dtype=buffer.dtype), persistent=False)
    for name, numbers in getattr(model, "prompt_tokens", {}).items():  # of a prefix, which peft counts
        model.prompt_tokens[name] = torch.zeros(numbers.shape, dtype=numbers.dtype)
    return model


def _layers(config: Any) -> int:
    return int(getattr(config, "num_hidden_layers", 1))


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
