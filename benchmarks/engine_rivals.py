"""The card engine and its alternatives, generating the same documents, for the engine's benchmarks.

Base and adapters are random, since the time of a step does not depend on the weights. Every procedure generates the
same number of tokens after the same prompt, at temperature 1 from the top 50, in the number format of the base, without
stopping early.
"""

import copy
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, OPTConfig, OPTForCausalLM

from kcard.cards.models import weights
from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import families, lora
from kcard.cards.models.batched.decoder import Decoder, Linear, packed
from kcard.cards.models.batched.generate import DecodingBatch, decode
from kcard.system import quiet_loading
from kcard.token_sampling import Sampler

TOP_K = 50
# Width, feed-forward width, layers, heads.
SHAPES = {"125m": (768, 3072, 12, 12), "1.3b": (2048, 8192, 24, 32), "tiny": (64, 256, 2, 4)}


@dataclass(frozen=True)
class Work:
    """So many cards write so many documents of so many tokens, after a prompt of `prompt` tokens."""

    cards: int = 25
    documents: int = 3
    tokens: int = 64
    prompt: int = 32

    @property
    def rows(self) -> int:
        return self.cards * self.documents


def make_base(folder: Path, shape: str, dtype: torch.dtype) -> Any:
    """An OPT of that shape with random weights, in the folder and in memory."""
    width, inner, layers, heads = SHAPES[shape]
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=50272, hidden_size=width, word_embed_proj_dim=width, ffn_dim=inner, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=2048, dtype=dtype,
    )  # fmt: skip
    model: Any = OPTForCausalLM(config)
    model = model.to(dtype).eval()
    model.generation_config = GenerationConfig()
    model.save_pretrained(folder)
    return model


def make_adapters(base_folder: Path, folder: Path, count: int) -> list[Path]:
    """LoRA adapters of rank 8 on queries and values, as peft writes them, each with random weights of its own."""
    base: Any = OPTForCausalLM.from_pretrained(base_folder)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    get_peft_model(base, config).save_pretrained(str(folder / "card0"))
    names = load_file(folder / "card0" / "adapter_model.safetensors")
    settings = (folder / "card0" / "adapter_config.json").read_text(encoding="utf-8")
    folders = []
    for number in range(count):
        where = folder / f"card{number}"
        where.mkdir(exist_ok=True)
        torch.manual_seed(number)
        tensors = {name: torch.randn_like(tensor) * 0.02 for name, tensor in names.items()}
        save_file(tensors, where / "adapter_model.safetensors", {"format": "pt"})
        (where / "adapter_config.json").write_text(settings, encoding="utf-8")
        folders.append(where)
    return folders


class Rivals:
    """Every procedure on one base and its adapters, each a call that writes all documents once."""

    def __init__(
        self, base_folder: Path, base: Any, folders: Sequence[Path], work: Work, device: str = "cpu"
    ) -> None:
        self._base_folder, self._base, self._folders = base_folder, base.to(device), folders
        self._work, self._device = work, device
        decoder = families.decoder(weights.of_model(self._base))
        self.plain: Decoder = decoder
        dtype = decoder.embed.table.dtype
        read = [lora.read(folder, dtype) for folder in folders[: work.cards]]
        bare = packed(decoder)
        self.bare: Decoder = _on(bare, device)
        self.decoder = _on(lora.stacked(bare, read), device)
        torch.manual_seed(1)
        self.prompt = torch.randint(5, 50000, (1, work.prompt), device=device)
        self._peft: Any = None

    def of(self, work: Work) -> "Rivals":
        """The same weights with other work."""
        copied = copy.copy(self)
        copied._work = work
        return copied

    def prepare(self) -> None:
        """Give peft its adapters, which no figure contains."""
        self._with_adapters()

    def stacked(self) -> None:
        """The engine, all cards at once."""
        work = self._work
        batch = DecodingBatch(self.prompt.expand(work.cards, -1), None, work.documents)
        decode(self.decoder, batch, Sampler(self._seeds(), 1.0, TOP_K), work.tokens, ())

    def base(self, attention: str) -> None:
        """The bare base with as many rows under transformers' generate, with its cache."""
        self._base.config._attn_implementation = attention
        self._generate(self._base, self._work.rows)

    def mixed(self) -> None:
        """peft's mixed batch: each row names its adapter."""
        work = self._work
        names = [f"card{number}" for number in range(work.cards) for _ in range(work.documents)]
        self._generate(self._with_adapters(), work.rows, adapter_names=names)

    def sequential(self) -> None:
        """peft, one adapter after another."""
        peft = self._with_adapters()
        for number in range(self._work.cards):
            peft.set_adapter(f"card{number}")
            self._generate(peft, self._work.documents)

    def reference(self) -> None:
        """The reference procedure: load each card's whole checkpoint, from a warm page cache, and generate."""
        for _ in range(self._work.cards):
            with quiet_loading():
                model: Any = OPTForCausalLM.from_pretrained(
                    self._base_folder, dtype=self.plain.embed.table.dtype
                )
            self._generate(model.to(self._device).eval(), self._work.documents)

    def _generate(self, model: Any, rows: int, **more: Any) -> None:
        ids = self.prompt.expand(rows, -1).contiguous()
        config = GenerationConfig(
            max_new_tokens=self._work.tokens, do_sample=True, temperature=1.0, top_k=TOP_K, use_cache=True,
            eos_token_id=None, pad_token_id=1, bos_token_id=None,
        )  # fmt: skip
        out = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config, **more
        )
        assert out.shape[1] == self._work.prompt + self._work.tokens

    def _with_adapters(self) -> Any:
        if self._peft is None:
            model: Any = OPTForCausalLM.from_pretrained(self._base_folder, dtype=self.plain.embed.table.dtype)
            peft: Any = PeftModel.from_pretrained(model, self._folders[0], adapter_name="card0")
            for number in range(1, self._work.cards):
                peft.load_adapter(self._folders[number], adapter_name=f"card{number}")
            self._peft = peft.to(device=self._device, dtype=self.plain.embed.table.dtype).eval()
        return self._peft

    def _seeds(self) -> torch.Tensor:
        return torch.arange(self._work.rows, device=self._device)


def floor(decoder: Decoder, work: Work) -> None:
    """Only the products with the base's weights that the engine needs, of as many rows: a prefill, then a step a token.

    decoder  the base as the engine holds it, its weights packed. Of the last layer's prompts only the last place goes
             on, as in the engine
    """
    layers = [(layer.qkv, layer.out, layer.mlp.up, layer.mlp.down) for layer in decoder.layers]
    _multiply(layers[:-1], work.cards * work.prompt)
    _multiply([layers[-1][:1]], work.cards * work.prompt)
    _multiply([layers[-1][1:], (decoder.head,)], work.cards)
    for _ in range(work.tokens - 1):
        _multiply([*layers, (decoder.head,)], work.rows)


def _multiply(layers: Sequence[Sequence[Linear]], rows: int) -> None:
    """So many rows by the shared weights of each linear layer; inputs are made once a width."""
    inputs: dict[int, torch.Tensor] = {}
    for linear in (linear for layer in layers for linear in layer):
        bare = replace(linear, low=None, own=None)
        width = bare.weight.shape[1]
        if width not in inputs:
            inputs[width] = torch.ones(rows, width, dtype=bare.weight.dtype)
        bare(inputs[width])


def greedy_equal(base_folder: Path, folders: Sequence[Path], tokens: int = 24, device: str = "cpu") -> bool:
    """Whether the engine writes in fp32, greedily, what peft writes with each of these adapters, token for token."""
    model: Any = OPTForCausalLM.from_pretrained(base_folder, dtype=torch.float32).eval().to(device)
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=1)
    decoder = families.decoder(weights.of_model(model))
    both = _on(
        lora.stacked(packed(decoder), [lora.read(folder, torch.float32) for folder in folders]), device
    )
    torch.manual_seed(2)
    prompts = torch.randint(5, 50000, (2, 12)).to(device)
    batch = DecodingBatch(prompts.repeat(len(folders), 1), None, 1)
    sampler = Sampler(torch.zeros(2 * len(folders), dtype=torch.int64, device=device), 0.0, TOP_K)
    written = decode(both, batch, sampler, tokens, ()).view(len(folders), 2, -1)
    peft: Any = PeftModel.from_pretrained(model, folders[0], adapter_name="card0")
    for number, folder in enumerate(folders):
        if number:
            peft.load_adapter(folder, adapter_name=f"card{number}")
        peft.to(device).set_adapter(f"card{number}")
        out = peft.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=tokens, do_sample=False
        )
        if not torch.equal(out[:, 12:], written[number]):
            return False
    return True


def machine(device: str = "cpu") -> dict[str, object]:
    """What was measured on, and with which versions."""
    import transformers

    able: dict[str, str] = getattr(torch.cpu, "get_capabilities", dict)()
    name = able.get("cpu_name", platform.processor())
    return {
        "machine": name if device == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def synchronised(run: Any, device: str) -> float:
    """Seconds until it is really done."""
    if device != "cpu":
        torch.cuda.synchronize()
    started = time.perf_counter()
    with torch.inference_mode():
        run()
        if device != "cpu":
            torch.cuda.synchronize()
    return time.perf_counter() - started


def _on(decoder: Decoder, device: str) -> Decoder:
    return batched_decoder.mapped(decoder, lambda tensor: tensor.to(device))
