"""Which base model a card is made from when none is named: the papers', where it can be had, else none."""

from kcard.cards.embedded import BASE
from kcard.config import settings

__all__ = ["EMBEDDED", "EMBEDDED_RANK", "PAPER", "default_base"]

EMBEDDED = BASE
EMBEDDED_RANK = 56  # with the embeddings of 1,536 tokens: just under a megabyte
PAPER = "facebook/opt-1.3b"
PROBE_SECONDS = 3.0


def default_base() -> tuple[str, str]:
    """(base, why). The embedded one where there is no GPU, no hub, or HF_HUB_OFFLINE forbids to look."""
    if settings().offline:
        return EMBEDDED, "HF_HUB_OFFLINE is set"
    import torch

    if not torch.cuda.is_available():
        return EMBEDDED, "no GPU was found"
    if not _reachable(PAPER):
        return EMBEDDED, f"{PAPER} can't be reached"
    return PAPER, "a GPU and the hub are available"


def _reachable(model: str) -> bool:
    import huggingface_hub

    if huggingface_hub.try_to_load_from_cache(model, "config.json"):
        return True
    try:
        huggingface_hub.HfApi().model_info(model, timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - a probe: DNS, TLS, proxy and HTTP failures all mean the same here
        return False
    return True
