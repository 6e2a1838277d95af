"""Commands and code that use a card, for copying.

Whatever comes from the card is quoted or checked, since people run what they copy.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from kcard.hub.repositories.values import Repository
from kcard.manifest import Manifest

__all__ = ["Use", "uses"]

KCARD = """\
kcard pull {name}{at} --hub {url}
kcard ask {shell_question} --cards {card}"""

PYTHON = """\
import kcard

kcard.pull("{name}{at}", hub="{url}")
print(kcard.ask({python_question}, cards=["{card}"]).answer)"""

DOWNLOAD = """\
from huggingface_hub import snapshot_download

folder = snapshot_download("{name}"{kind}, revision="{revision}", endpoint="{url}")"""

ADAPTER = """
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

MODEL = """
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)"""

FETCH = "HF_ENDPOINT={url} hf download {name}{option} --revision {revision} --local-dir {folder}"
VLLM_ADAPTER = (
    FETCH + "\nvllm serve {base} --enable-lora --max-lora-rank 64 --lora-modules {folder}=./{folder}"
)
VLLM = FETCH + "\nvllm serve ./{folder}"
CURL = "curl -LO {url}{prefix}/{name}/resolve/{revision}/{path}"
BASE = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
QUESTION = "…"
MAIN = "main"


@dataclass(frozen=True)
class Use:
    """A way to use a card: its title, and what to type."""

    key: str
    title: str
    text: str


def uses(
    repository: Repository,
    manifest: Manifest | None,
    *,
    url: str,
    revision: str,
    path: str,
    published: bool,
    question: str = "",
) -> list[Use]:
    """Ways to use a repository at a revision; `path` is a file of it, `question` one that its card may answer."""
    return list(_uses(repository, manifest, url, revision, path, published, question))


def _uses(
    repository: Repository,
    manifest: Manifest | None,
    url: str,
    revision: str,
    path: str,
    published: bool,
    question: str,
) -> Iterator[Use]:
    dataset = repository.type == "dataset"
    line = " ".join(question.split()) or QUESTION
    base = manifest.base.name if manifest is not None and BASE.fullmatch(manifest.base.name) else ""
    values = {
        "name": repository.name,
        "at": "" if revision == MAIN else f"@{revision}",
        "url": url,
        "revision": revision,
        "shell_question": shlex.quote(line),
        "python_question": json.dumps(line, ensure_ascii=False),
        "card": manifest.name if manifest is not None else "",
        "base": base,
        "folder": repository.name.partition("/")[2],
        "kind": ', repo_type="dataset"' if dataset else "",
        "option": " --repo-type dataset" if dataset else "",
        "prefix": "/datasets" if dataset else "",
        "path": shlex.quote(quote(path)),
    }
    if manifest is not None and published:
        yield Use("kcard", "kcard", KCARD.format(**values))
        yield Use("python", "Python", PYTHON.format(**values))
    if base and manifest is not None and manifest.is_adapter:
        yield Use("transformers", "transformers + peft", (DOWNLOAD + "\n" + ADAPTER).format(**values))
        if manifest.kind == "lora":
            yield Use("vllm", "vLLM", VLLM_ADAPTER.format(**values))
    elif manifest.kind == "full" if manifest is not None else repository.library == "transformers":
        yield Use("transformers", "transformers", (DOWNLOAD + "\n" + MODEL).format(**values))
        yield Use("vllm", "vLLM", VLLM.format(**values))
    else:
        yield Use("download", "huggingface_hub", DOWNLOAD.format(**values))
    yield Use("hf", "hf", FETCH.format(**values))
    if path:
        yield Use("curl", "curl", CURL.format(**values))
