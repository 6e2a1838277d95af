"""Which number format a machine trains in."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["autocast", "bf16"]


def bf16(device: str) -> bool:
    """Whether `device` multiplies bfloat16 in hardware; emulated, it is slower than float32."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16"))


def autocast(device: str) -> "torch.autocast":
    """Mixed precision where it pays, else a context that changes nothing."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16(device))
