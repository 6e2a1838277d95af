"""A causal language model of transformers as the LLM, in this process, with its chat template if it has one."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from kcard.errors import LLMError, UsageError
from kcard.llms.prompts import messages, render, without_control
from kcard.llms.token_scores import DRAFT_TOKENS, from_logits
from kcard.llms.wordings import NEED
from kcard.llms.yes_no import from_probabilities, from_text
from kcard.quiet import loading
from kcard.request import Reply, Request
from kcard.sampling import derive_seed

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
        self._control = _control_tokens(self._tokenizer)

    @property
    def window(self) -> int | None:
        """Tokens that a prompt may take; None where the model has no limit."""
        positions = getattr(self._model.config, "max_position_embeddings", None)
        return None if not positions else positions - self.max_tokens

    def count(self, request: Request) -> int:
        return len(self._encoded(request).input_ids[0])

    @property
    def announcement(self) -> str:
        """What answers, for the user."""
        return f"LLM: {self.name}, a local transformers model"

    def reply(self, request: Request) -> Reply:
        """Raises LLMError where the prompt does not fit into the model."""
        row = self._tokens(request)
        if request.draft:
            return self._draft(row)
        if request.kind != "need":
            return self._reply(row, self._generate(row, self.max_tokens, request))
        reply = self._reply(row, self._generate(row, NEED_TOKENS, request))
        yes = from_probabilities(self._next_tokens(row))
        yes = from_text(reply.text) if yes is None else yes
        return replace(reply, yes=NEED[request.template].needed(yes))

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """The answer as it is generated, in a thread of its own."""
        from transformers import TextIteratorStreamer

        row = self._tokens(request)
        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        ended: list[Any] = []

        def generate() -> None:
            try:
                ended.append(self._generate(row, self.max_tokens, request, streamer))
            except Exception as error:  # noqa: BLE001 - whoever reads the stream raises it, else they would wait for ever
                ended.append(error)
                streamer.end()

        thread = Thread(target=generate, daemon=True)
        thread.start()
        pieces = _spaced(streamer) if self._tokenizer.chat_template else _first_line(streamer)
        yield from (piece for piece in pieces if piece)
        thread.join()
        if isinstance(ended[0], Exception):
            raise ended[0]
        yield self._reply(row, ended[0])

    def _draft(self, row: "torch.Tensor") -> Reply:
        """The likeliest first words of an answer and the scores of their tokens."""
        import torch

        with torch.inference_mode():
            out = self._model.generate(
                input_ids=row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=min(DRAFT_TOKENS, self.max_tokens),
                pad_token_id=self._padding(),
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        new = out.sequences[0, row.shape[1] :]
        new = new[: self._said(new)]
        logits = torch.stack(out.logits)[: len(new), 0]
        return replace(self._reply(row, new), tokens=from_logits(logits, new.tolist()))

    def _said(self, new: "torch.Tensor") -> int:
        """How many of the tokens belong to the reply: all of a chat model, else those up to the first line's end."""
        if self._tokenizer.chat_template:
            return len(new)
        texts = (self._tokenizer.decode(new[:n], skip_special_tokens=True) for n in range(1, len(new)))
        return next((n for n, text in enumerate(texts, 1) if "\n" in text.lstrip()), len(new))

    def _reply(self, row: "torch.Tensor", new: "torch.Tensor") -> Reply:
        """A reply of the new tokens: all lines of a chat model, the first of one that only continues a text."""
        text: str = self._tokenizer.decode(new, skip_special_tokens=True)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = " ".join(lines if self._tokenizer.chat_template else lines[:1])
        return Reply(said, None, row.shape[1], len(new))

    def _encoded(self, request: Request) -> Any:
        """The prompt's tokens; only the template may speak in control tokens."""
        if not self._tokenizer.chat_template:
            text = without_control(render(request), self._control)
            return self._tokenizer(text, return_tensors="pt", verbose=False)
        turns = [
            {"role": turn["role"], "content": without_control(turn["content"], self._control)}
            for turn in messages(request)
        ]
        prompt = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False, verbose=False)

    def _tokens(self, request: Request) -> "torch.Tensor":
        """Input ids, shape (1, tokens)."""
        row: torch.Tensor = self._encoded(request).input_ids
        if self.window is not None and row.shape[1] > self.window:
            raise LLMError(
                f"the prompt has {row.shape[1]} tokens, {self.name} takes {self.window} and writes {self.max_tokens}: "
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

    def _generate(
        self, row: "torch.Tensor", tokens: int, request: Request, streamer: Any = None
    ) -> "torch.Tensor":
        """The new tokens, shape (n,)."""
        import torch

        temperature = self.temperature if request.temperature is None else request.temperature
        sampled = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        with torch.inference_mode(), torch.random.fork_rng():
            torch.manual_seed(derive_seed(self.seed, request.sample) if request.sample else self.seed)
            out = self._model.generate(
                input_ids=row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=tokens,
                pad_token_id=self._padding(),
                streamer=streamer,
                **sampled,
            )
        new: torch.Tensor = out[0, row.shape[1] :]
        return new

    def _padding(self) -> int:
        for token in (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0


def _control_tokens(tokenizer: Any) -> list[str]:
    """Words that the tokenizer reads as one token with a meaning of its own, such as the end of a turn."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted(
        {t.content for t in added if len(t.content) > 2 and (t.special or t.content[0] in "<[")},
        key=len,
        reverse=True,
    )


def _spaced(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces on one line, from the first word on."""
    begun = False
    for piece in pieces:
        text = piece.replace("\n", " ")
        text = text if begun else text.lstrip()
        begun = begun or bool(text)
        yield text


def _first_line(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces up to the end of the first line that is not blank; the rest is read and dropped."""
    begun = ended = False
    for piece in pieces:
        text = piece if begun else piece.lstrip()
        begun = begun or bool(text)
        if not ended:
            line, end, _ = text.partition("\n")
            ended = bool(end)
            yield line


def _load(name: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with loading(f"the model {name!r}"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(name, dtype="auto", trust_remote_code=False)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer
