"""A causal language model of transformers as the LLM, in this process, with its chat template if it has one."""

import math
from typing import TYPE_CHECKING, Any

from kcard.errors import LLMError, ModelUnavailable, UsageError
from kcard.llms.prompts import messages, render
from kcard.llms.yes_no import from_probabilities, from_text
from kcard.quiet import quiet_loading
from kcard.request import Reply, Request

if TYPE_CHECKING:
    import torch

__all__ = ["LocalLLM"]

TOP_TOKENS = 50
NEED_TOKENS = 4


class LocalLLM:
    """`model`: a folder or a Hugging Face name. Temperature 0 is greedy; the same seed gives the same replies.

    Raises ModelUnavailable where it can't be loaded. It runs on a CUDA device where there is one.
    """

    def __init__(self, model: str, temperature: float = 0.1, max_tokens: int = 128, seed: int = 0) -> None:
        if temperature < 0:
            raise UsageError(f"temperature {temperature} must be 0 or more")
        self.name, self.temperature, self.max_tokens, self.seed = model, temperature, max_tokens, seed
        self._model, self._tokenizer = _load(model)

    @property
    def announcement(self) -> str:
        """What answers, for the user."""
        return f"LLM: {self.name}, a local transformers model"

    def reply(self, request: Request) -> Reply:
        """Raises LLMError where the prompt does not fit into the model."""
        row = self._tokens(request)
        if request.kind != "need":
            return Reply(self._generate(row, self.max_tokens))
        text = self._generate(row, NEED_TOKENS)
        yes = from_probabilities(self._next_tokens(row))
        return Reply(text, from_text(text) if yes is None else yes)

    def _tokens(self, request: Request) -> "torch.Tensor":
        """Input ids, shape (1, tokens)."""
        if self._tokenizer.chat_template:
            prompt = self._tokenizer.apply_chat_template(
                messages(request), tokenize=False, add_generation_prompt=True
            )
            encoded = self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        else:
            encoded = self._tokenizer(render(request), return_tensors="pt")
        row: torch.Tensor = encoded.input_ids
        room = getattr(self._model.config, "max_position_embeddings", None) or math.inf
        if row.shape[1] + self.max_tokens > room:
            raise LLMError(
                f"the prompt has {row.shape[1]} tokens, {self.name} takes {room} with its reply of {self.max_tokens}: "
                "give fewer or shorter documents (--n3, --card-tokens)"
            )
        return row.to(self._model.device)

    def _next_tokens(self, row: "torch.Tensor") -> list[tuple[str, float]]:
        """(token, log-probability) of the likeliest next tokens."""
        import torch

        with torch.inference_mode():
            scores = torch.log_softmax(self._model(input_ids=row).logits[0, -1].float(), -1)
        values, tokens = scores.topk(min(TOP_TOKENS, len(scores)))
        return [
            (self._tokenizer.decode([t]), v) for t, v in zip(tokens.tolist(), values.tolist(), strict=True)
        ]

    def _generate(self, row: "torch.Tensor", tokens: int) -> str:
        import torch

        sampled = (
            {"do_sample": True, "temperature": self.temperature} if self.temperature else {"do_sample": False}
        )
        with torch.inference_mode(), torch.random.fork_rng():
            torch.manual_seed(self.seed)
            out = self._model.generate(
                input_ids=row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=tokens,
                pad_token_id=self._padding(),
                **sampled,
            )
        text: str = self._tokenizer.decode(out[0, row.shape[1] :], skip_special_tokens=True)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if self._tokenizer.chat_template:
            return " ".join(lines)
        return lines[0] if lines else ""

    def _padding(self) -> int:
        for token in (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0


def _load(name: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_loading():
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(name, dtype="auto").eval()
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ModelUnavailable(
            f"the model {name!r} can't be loaded: name a folder with config.json and weights, or a model of a "
            f"reachable hub ({reason})"
        ) from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer
