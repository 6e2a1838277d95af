"""Commands and code that use a card, for copying.

Everything that comes from the card is quoted or checked, since people run what they copy.
"""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from kcard.hub.db.models import Repository
from kcard.hub.values import MAIN
from kcard.manifest import Manifest

KCARD = """\
kcard pull {name}{at} --hub {url}
kcard ask {shell_question} --cards {card}"""

LLM = """\
kcard llm pull kcard:{name}/{path} --hub {url}
kcard llm use {llm}"""

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
BASE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
QUESTION = "…"


@dataclass(frozen=True)
class Use:
    """A way to use a card: its title, and the command or code."""

    key: str
    title: str
    text: str


def list_uses(
    repository: Repository,
    manifest: Manifest | None,
    *,
    url: str,
    revision: str,
    path: str,
    published: bool,
    question: str = "",
) -> list[Use]:
    """Return ways to use a repository at a revision; `path` is one of its files, `question` suits its card."""
    line = " ".join(question.split()) or QUESTION
    values = {
        "name": repository.name,
        "at": "" if revision == MAIN else f"@{revision}",
        "url": url,
        "revision": revision,
        "shell_question": shlex.quote(line),
        "python_question": json.dumps(line, ensure_ascii=False),
        "card": "",
        "base": "",
        "folder": repository.name.partition("/")[2],
        "kind": "",
        "option": "",
        "prefix": "",
        "path": shlex.quote(quote(path)),
        "llm": shlex.quote(PurePosixPath(path).stem),
    }
    if repository.type == "dataset":
        values |= {"kind": ', repo_type="dataset"', "option": " --repo-type dataset", "prefix": "/datasets"}
    is_whole_model = repository.library == "transformers"
    if manifest is not None:
        is_whole_model = manifest.method == "full"
        values["card"] = manifest.name
        if BASE_NAME.fullmatch(manifest.base.name):
            values["base"] = manifest.base.name
    # With kcard, with the library that loads the model, by download.
    uses: list[tuple[str, str, str]] = []
    if manifest is not None and published:
        uses.append(("kcard", "kcard", KCARD))
        uses.append(("python", "Python", PYTHON))
    elif path.endswith(".gguf") and repository.type == "model" and revision == MAIN:
        uses.append(("kcard", "kcard", LLM))
    if values["base"] and manifest is not None and manifest.is_adapter:
        uses.append(("transformers", "transformers + peft", f"{DOWNLOAD}\n{ADAPTER}"))
        uses.append(("vllm", "vLLM", VLLM_ADAPTER))
    elif is_whole_model:
        uses.append(("transformers", "transformers", f"{DOWNLOAD}\n{MODEL}"))
        uses.append(("vllm", "vLLM", VLLM))
    else:
        uses.append(("download", "huggingface_hub", DOWNLOAD))
    uses.append(("hf", "hf", FETCH))
    if path:
        uses.append(("curl", "curl", CURL))
    return [Use(key, title, template.format(**values)) for key, title, template in uses]
