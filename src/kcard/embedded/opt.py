"""Small OPT models without transformers: a tokenizer, and the base of embedded LoRA cards."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
KINDS = ("TokenizersBackend", "PreTrainedTokenizerFast")
# Keys of a config, besides special tokens, that do not affect tokenisation.
HARMLESS = {
    *("backend", "tokenizer_class", "model_max_length"),
    *("extra_special_tokens", "is_local", "local_files_only"),
}
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class PlainTokenizer:
    """A tokenizer equivalent to transformers' PreTrainedTokenizerFast. Missing tokens have the id None."""

    tokenizer: "Tokenizer"
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None

    @classmethod
    def read(cls, folder: Path) -> "PlainTokenizer | None":
        """Load a folder's tokenizer; None if `tokenizer.json` does not define it fully. Raises as tokenizers does."""
        from tokenizers import Tokenizer

        if not (folder / FILE).is_file() or not (folder / CONFIG).is_file():
            return None
        named = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        texts = {key: value for key, value in named.items() if key in SPECIAL}
        plain = named.get("tokenizer_class") in KINDS and named.keys() <= {*HARMLESS, *SPECIAL}
        if not plain or not all(isinstance(text, str) for text in texts.values()):
            return None
        tokenizer = Tokenizer.from_file(str(folder / FILE))
        if tokenizer.truncation is not None or tokenizer.padding is not None:
            return None
        ids = {key: tokenizer.token_to_id(text) for key, text in texts.items()}
        if None in ids.values():
            return None
        return cls(tokenizer, ids.get("bos_token"), ids.get("eos_token"), ids.get("pad_token"))

    def __call__(self, text: str | list[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """Return `input_ids` of a text or of each in a list."""
        if isinstance(text, str):
            return {"input_ids": list(self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)}
        encodings = self.tokenizer.encode_batch(text, add_special_tokens=add_special_tokens)
        return {"input_ids": [list(one.ids) for one in encodings]}

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return a token's id; None if it is unknown."""
        token_id: int | None = self.tokenizer.token_to_id(token)
        return token_id

    def decode(
        self,
        ids: Sequence[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """Decode token ids, leaving whitespace as is."""
        del clean_up_tokenization_spaces
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


# The shared base of embedded LoRA cards: a small model inside the package (weights/base/README.md).

BASE = "embedded"
FOLDER = Path(__file__).resolve().parent / "weights" / "base"


def base_folder(name: str) -> str:
    """Return where to load a manifest's base from: the package's folder for BASE, else the name itself."""
    return str(FOLDER) if name == BASE else name
