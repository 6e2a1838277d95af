"""Whether the LLM that is configured would answer. No question is sent: an endpoint is asked for its models."""

from pathlib import Path

from kcard import plugins
from kcard.api.finding import Finding
from kcard.config import ENDPOINTS, Settings
from kcard.errors import UsageError, one_line

__all__ = ["SECONDS", "check_llm", "unanswered"]

SECONDS = 2.0  # how long an endpoint may take


def check_llm(configured: Settings) -> Finding:
    """Look at the configured LLM; only one of an endpoint is asked over the network."""
    llm = configured.llm
    backend, _, model = llm.partition(":")
    known = plugins.names("kcard.llms")
    if backend not in known:
        return _failed(f"unknown llm {llm!r}", f"choose {', '.join(known)}")
    if backend in ENDPOINTS:
        return _endpoint(model, configured)
    if backend == "hf" and not Path(model).is_dir():
        from huggingface_hub import try_to_load_from_cache

        if try_to_load_from_cache(model, "config.json") is None:
            return Finding(
                "llm", "warning", f"{model} is not on this machine", "the first question downloads it"
            )
    return Finding("llm", "ok", llm)


def unanswered(configured: Settings) -> Finding:
    """What to say when nothing came back in time."""
    return _failed(f"{configured.llm} did not answer in {SECONDS:g} s", "start it, or correct llm_url")


def _endpoint(model: str, configured: Settings) -> Finding:
    try:
        import openai
    except ImportError:
        return _failed("the openai package is not installed", "pip install 'kcard[openai]'")
    try:
        url, key = configured.llm_url, configured.llm_key or "none"
        where = url or "https://api.openai.com/v1"
        with openai.OpenAI(base_url=url, api_key=key, timeout=SECONDS, max_retries=0) as client:
            names = [found.id for found in client.models.list().data]
    except UsageError as error:
        return _failed(str(error), "choose the endpoint yourself")
    except openai.OpenAIError as error:
        return _failed(f"{where}: {one_line(error, 160)}", "start it, correct llm_url, or set OPENAI_API_KEY")
    except (ValueError, TypeError, AttributeError) as error:
        return _failed(f"{where} sent no list of models: {one_line(error, 160)}", "correct llm_url (…/v1)")
    if names and model not in names:
        return Finding(
            "llm", "warning", f"{where} does not list {model!r}", f"it lists {', '.join(names[:5])}"
        )
    return Finding("llm", "ok", f"{model} at {where}; questions and knowledge are sent there")


def _failed(found: str, remedy: str) -> Finding:
    return Finding("llm", "error", found, remedy)
