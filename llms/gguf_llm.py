"""LLMs in GGUF files, run by llama.cpp within this process.

xllamacpp is llama.cpp's own server as a library: slots, prefix cache, grammars, probabilities. It listens on a loopback
port with a key that only this process knows, so that requests, streams and errors are those of any other
OpenAI-compatible endpoint (kcard.llms.openai_endpoint).
"""

import hashlib
import json
import re
import secrets
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from kcard import system
from kcard.config import let_threads_sleep, settings
from kcard.errors import LLMError, ModelUnavailable, printable
from kcard.gguf_file import GgufFile, read_gguf
from kcard.io import shown_size
from kcard.llms.local_models import find_pulled, record_speed
from kcard.llms.openai_endpoint import Chat, Completions, OpenAIEndpoint, Tokens, failure
from kcard.llms.prompts import Message, messages, render, without_control
from kcard.types import Request, derive_seed

WINDOW = 4096  # tokens that each question may have, with its reply, unless --llm-window says otherwise
SLOTS = 2  # questions at a time
WORK_BYTES = 200_000_000  # memory that llama.cpp takes besides the weights and the caches of the slots
REMEMBERED_PROMPTS = 1000
LIKELIEST_TOKENS = 20  # at each place, with their probabilities
REPLY_SECONDS = 3600.0  # time-out of a reply: a large model on a slow processor takes minutes
LOADING_SECONDS = 60.0  # time in which a process of its own says what is wrong with a file
KEY_BYTES = 32
# Tokens of one reply from which its speed says something.
MIN_TIMED_TOKENS_IN = 32
MIN_TIMED_TOKENS_OUT = 8
REASON = re.compile(r"error loading model: (.+)")


class GgufLLM(OpenAIEndpoint):
    """The model in a GGUF file. Temperature 0 is greedy; equal seeds give equal replies.

    path     a file with a chat template, or of a base model, which continues a text
    window   tokens of a request and its reply together; None: WINDOW, or what the model was trained for if that is less
    threads  None: as configured (llm_threads), else one for each physical core
    slots    requests at a time
    on_speed called with (tokens read a second, tokens written a second, threads), once, as llama.cpp measured them

    Where only some replies are possible (yes or no, an option's letter, the name of a card), a grammar admits no other.
    Raises ModelUnavailable, in one line, if there is no such file, if it is no GGUF, damaged, of an architecture that
    llama.cpp does not know, or too large for the memory that is free.
    """

    is_deterministic = True

    def __init__(
        self,
        path: str | Path,
        temperature: float = 0.1,
        max_tokens: int = 256,
        seed: int = 0,
        window: int | None = None,
        threads: int | None = None,
        slots: int = SLOTS,
        on_speed: Callable[[float, float, int], None] | None = None,
    ) -> None:
        self.file = read_gguf(Path(path).expanduser())
        self.seed = seed
        self._on_speed = on_speed
        context = min(window or WINDOW, self.file.window or WINDOW)
        self._server = running(self.file, context, threads or settings().llm_threads, slots)
        form = GgufChat(self.file) if self.file.has_chat_template else GgufText(self.file)
        super().__init__(
            self.file.path.stem,
            url=f"{self._server.address}/v1",
            key=self._server.key,
            temperature=temperature,
            timeout=REPLY_SECONDS,
            max_tokens=max_tokens,
            retries=0,
            window=context,
            form=form,
        )
        # The server's end waits for every connection, and that of a stream that was interrupted lasts for 30 seconds.
        weakref.finalize(self, self._client.close)
        self._where = f"the model {self.model}"
        self.concurrency = slots
        self.announcement = f"LLM: {self.model}, on this computer ({self.file.path})"

    def count(self, request: Request) -> int:
        """Count the request's tokens, chat template included."""
        import httpx
        import openai

        path, key = "/chat/completions/input_tokens", "input_tokens"
        body: dict[str, Any] = {"messages": self._form.turns(request)}
        if not self.is_chat:
            path, key = f"{self._server.address}/tokenize", "tokens"
            body = {"content": self._form.prompt_text(request), "add_special": True, "parse_special": True}
        try:
            counted = self._client.post(path, body=body, cast_to=httpx.Response).json()[key]
        except (openai.OpenAIError, ValueError, LookupError) as error:
            raise failure(self._where, self.model, error) from error
        return counted if isinstance(counted, int) else len(counted)

    def _complete(self, request: Request, tokens: int, extra: dict[str, Any]) -> Any:
        answer = super()._complete(request, tokens, extra)
        if self._on_speed is None:
            return answer
        if extra.get("stream"):
            return self._timed(answer)
        self._report_speed(answer)
        return answer

    def _timed(self, chunks: Any) -> Iterator[Any]:
        for chunk in chunks:
            self._report_speed(chunk)
            yield chunk

    def _report_speed(self, answer: Any) -> None:
        """Report llama.cpp's timings of a reply that is long enough, the first time."""
        timings = getattr(answer, "timings", None)
        if self._on_speed is None or not isinstance(timings, dict):
            return
        tokens_in, tokens_out = timings.get("prompt_n", 0), timings.get("predicted_n", 0)
        reads, writes = timings.get("prompt_per_second"), timings.get("predicted_per_second")
        is_long = tokens_in >= MIN_TIMED_TOKENS_IN and tokens_out >= MIN_TIMED_TOKENS_OUT
        if is_long and reads and writes:
            report, self._on_speed = self._on_speed, None
            report(reads, writes, self._server.threads)

    def _sampling(self, request: Request) -> dict[str, Any]:
        sampling = super()._sampling(request)
        sampling["seed"] = derive_seed(self.seed, request.question, request.sample) % 2**31
        body: dict[str, Any] = {}
        grammar = grammar_of(request)
        if grammar:
            body["grammar"] = grammar
        # Of a prompt that is wholly in the cache, the last token would be read alone, whose sums are rounded otherwise:
        # the same request would get another reply.
        if self._server.is_repeated(self._form.prompt_text(request)):
            body["cache_prompt"] = False
        return sampling | {"extra_body": body}


def local_llm(name: str, **options: Any) -> GgufLLM:
    """Return an LLM that was pulled (kcard.llms.local_models), with options of GgufLLM; its speed is recorded."""
    return GgufLLM(find_pulled(name).path, on_speed=partial(record_speed, name), **options)


def grammar_of(request: Request) -> str:
    """Return the grammar (GBNF) of the replies that are possible; empty if any text is."""
    replies: Sequence[str] = ()
    if request.kind == "need":
        replies = ("Yes", "No", "yes", "no")
    elif request.kind == "choose" or (request.kind == "answer" and not request.draft):
        replies = [choice.name for choice in request.choices]
    # A text in quotation marks is written in a grammar as in JSON.
    alternatives = " | ".join(json.dumps(reply, ensure_ascii=False) for reply in replies)
    return f'root ::= " "? ({alternatives})' if replies else ""


class GgufChat(Chat):
    """Chat completions, without the file's own control tokens in what others wrote."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def turns(self, request: Request) -> list[Message]:
        return [
            {"role": turn["role"], "content": without_control(turn["content"], self._file.control_tokens)}
            for turn in messages(request)
        ]

    def logprob_parameters(self, top: int) -> dict[str, Any]:
        return super().logprob_parameters(max(top, LIKELIEST_TOKENS))

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        places = super().places(choice)
        if any(own is None for own, _ in places):  # JSON has no "not a number"
            raise LLMError(
                f"{self._file.path} is damaged, since its probabilities are no numbers: fetch it again"
            )
        return places


class GgufText(Completions):
    """Completions of a base model's text, likewise."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def prompt_text(self, request: Request) -> str:
        return without_control(render(request), self._file.control_tokens)


# One server for each file and setting, however many LLMs of this process use it: a change of mode loads nothing again.


class LlamaServer:
    """A loaded model. `address`: http://127.0.0.1:PORT; `key`: without which it answers nothing; `threads`: as
    llama.cpp counts them."""

    def __init__(self, file: GgufFile, context: int, threads: int | None, slots: int) -> None:
        _check_memory(file, context * slots)
        let_threads_sleep()
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file.path)
        params.n_ctx, params.n_parallel = context * slots, slots
        for processor in (params.cpuparams, params.cpuparams_batch):
            processor.n_threads = threads or system.physical_cores() or -1  # -1: as llama.cpp sees fit
        self.threads: int = params.cpuparams.n_threads
        params.cache_ram_mib = 0  # prompts are cached in the slots only
        devices = {device["type"] for device in xllamacpp.get_device_info()}
        if devices == {xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU}:
            # On a processor it is no faster, and its sums depend on how much of a prompt is in the cache.
            off = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
            params.flash_attn_type = off
        params.warmup = False
        params.verbosity = 0
        params.ui = params.endpoint_slots = False
        self.key = secrets.token_hex(KEY_BYTES)
        params.api_keys = [self.key]
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError:
            raise ModelUnavailable(f"{file.path} can't be loaded: {_reason(file.path)}") from None
        self.address: str = self._server.listening_address
        self._prompts: deque[str] = deque(maxlen=REMEMBERED_PROMPTS)
        self._lock = threading.Lock()

    def is_repeated(self, prompt: str) -> bool:
        """Return whether the prompt was sent before, as far as remembered; remember it."""
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        with self._lock:
            is_repeated = digest in self._prompts
            self._prompts.append(digest)
        return is_repeated


_servers: "weakref.WeakValueDictionary[Any, LlamaServer]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def running(file: GgufFile, context: int, threads: int | None, slots: int) -> LlamaServer:
    """Return the server of a file, which is loaded unless it runs in this process with the same settings."""
    changed = file.path.stat().st_mtime_ns
    key = (file.path.resolve(), changed, context, threads, slots)
    with _lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = LlamaServer(file, context, threads, slots)
    return server


def _check_memory(file: GgufFile, tokens: int) -> None:
    """Raise ModelUnavailable if the weights and the caches of all slots need more memory than is free, where known."""
    free = system.memory().free
    needed = file.size + tokens * file.token_bytes + WORK_BYTES
    if 0 < free < needed:
        raise ModelUnavailable(
            f"{file.path} needs {shown_size(needed)} of memory, and {shown_size(free)} are free: close other programs, "
            "choose a smaller model (`kcard llm list`), or a smaller --llm-window"
        )


def _reason(path: Path) -> str:
    """Return why llama.cpp can't load a file, in its own words, which it writes to stderr: of a process of its own."""
    script = (
        "import sys, xllamacpp; p = xllamacpp.CommonParams(); p.model.path = sys.argv[1]; p.n_ctx = 512; "
        "p.verbosity = 1; xllamacpp.Server(p)"
    )
    log = ""
    with suppress(subprocess.TimeoutExpired):
        process = subprocess.run(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOADING_SECONDS,
            check=False,
        )
        log = process.stderr.decode(errors="replace")
    reason = REASON.search(log)
    return printable(reason[1].strip())[:200] if reason else "llama.cpp does not say why; fetch it again"
