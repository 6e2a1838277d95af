"""What the simulation of a fleet starts from: figures measured on two cores of a server CPU, each with its script.

A GPU's are not among them, because none has been measured: whoever has one sets `fixed`, `each`, `most`, the
gigabytes and the price.
"""

from dataclasses import dataclass, fields, replace

from benchmarks.scale.worker import Costs

__all__ = ["KINDS", "Kind", "Parts", "changed"]


@dataclass(frozen=True)
class Kind:
    """A kind of card, and a worker of two cores that writes with such cards.

    fixed, each  seconds of a batch of n questions, fixed + n * each: three documents of 64 tokens a question
    mixed        whether a batch may hold questions of different cards: adapters on one base, but not whole models
    most         questions in a batch
    megabytes    of a card's weights
    cached       seconds of a load from the page cache
    disked       seconds of a load from the disk
    memory       gigabytes of weights that a worker holds ready, beside the base of adapters
    host         gigabytes of its page cache
    disk         gigabytes of its disk
    hour         price of an hour of the worker, USD
    watts        that the worker's cores draw
    """

    fixed: float
    each: float
    mixed: bool
    megabytes: float
    cached: float
    disked: float
    most: int = 32
    memory: float = 2.0
    host: float = 4.0
    disk: float = 100.0
    hour: float = 0.0816
    watts: float = 2.2

    def capacities(self, cards: int) -> tuple[int, int, int]:
        """Cards in memory, page cache and disk."""
        room = (self.memory, self.host, self.disk)
        first, second, third = (
            min(cards, max(1, int(1000 * gigabytes / self.megabytes))) for gigabytes in room
        )
        return first, second, third

    def costs(self, parts: "Parts") -> Costs:
        loads = (0.0, self.cached, self.disked, self.cached + parts.download(self.megabytes))
        return Costs(lambda questions: self.fixed + self.each * questions, lambda tier: loads[tier])

    @property
    def rate(self) -> float:
        """Questions a second that a worker can answer without loads: in full batches, or where a batch is of one card,
        one by one, since two questions seldom wait for the same card."""
        questions = self.most if self.mixed else 1
        return questions / (self.fixed + self.each * questions)


@dataclass(frozen=True)
class Parts:
    """What serves the workers, each on two cores.

    llm        answers a second of the LLM
    choice     seconds of a core to choose among a million cards, for each question
    request    seconds of a core for a request about a card at the hub
    bandwidth  megabytes a second that the hub sends
    poll       requests a second in which each worker asks the hub for what is new
    """

    llm: float = 76.0
    choice: float = 0.12
    request: float = 0.0049
    bandwidth: float = 237.0
    poll: float = 1.0

    def download(self, megabytes: float) -> float:
        """Seconds: the card's information, then its files."""
        return 2 * self.request + megabytes / self.bandwidth


# adapter   LoRA of rank 8 on OPT-125m. benchmarks/engine.py: 1, 25, 64 cards 1.07, 5.07, 12.0 s
# embedded  1.1 million parameters. benchmarks/engine_full.py: 8 cards 0.35 s, one 0.79 / 8 s
# whole     OPT-125m in bf16; a batch is of one card. Nothing measured it alone: as one adapter, and as n adapters more
# Loads: benchmarks/scale_inputs.py
KINDS = {
    "adapter": Kind(0.90, 0.173, True, 1.2, 0.0014, 0.0024),
    "embedded": Kind(0.063, 0.036, True, 4.8, 0.0026, 0.0069),
    "whole": Kind(0.90, 0.173, False, 250.5, 0.292, 0.525),
}


def changed(kind: Kind, settings: list[str]) -> Kind:
    """The kind with settings such as "hour=1.006" in place of its own. ValueError where one is unknown."""
    types = {field.name: type(getattr(kind, field.name)) for field in fields(kind)}
    values = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in types or not value:
            raise ValueError(f"--set {setting!r} must be NAME=VALUE with a name of {', '.join(types)}")
        values[name] = value.lower() in ("true", "1") if types[name] is bool else types[name](value)
    return replace(kind, **values)
