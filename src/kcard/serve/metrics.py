"""Counters of the endpoint for Prometheus."""

from collections.abc import Callable, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

__all__ = ["Metrics"]

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """`waiting`: gives how many questions wait."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "kcard_answer_seconds",
            "Time of a question, with its wait.",
            ["mode"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter("kcard_llm_tokens", "Tokens of the LLM.", ["kind"], registry=self._registry)
        self._errors = Counter(
            "kcard_errors", "Requests that were not answered.", ["code"], registry=self._registry
        )
        self._cached = Counter(
            "kcard_cached_answers", "Answers that were there already.", registry=self._registry
        )
        gauge = Gauge("kcard_waiting_questions", "Questions that wait.", registry=self._registry)
        gauge.set_function(waiting)

    def answered(self, mode: str, seconds: float, usage: Mapping[str, int], *, cached: bool) -> None:
        self._seconds.labels(mode).observe(seconds)
        self._tokens.labels("prompt").inc(usage["prompt_tokens"])
        self._tokens.labels("completion").inc(usage["completion_tokens"])
        self._cached.inc(cached)

    def failed(self, code: str) -> None:
        self._errors.labels(code).inc()

    def exposed(self) -> tuple[bytes, str]:
        """The counters as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
