"""Cards for tests of the pages: with exams, versions, audits, quarantine, long names, files of all kinds."""

import json
import random
import struct

from kcard.evaluation.metrics import interval
from kcard.hub.audits import AuditFinding
from kcard.manifest import Base, Training
from tests.hub.shared_hub import Shared
from tests.hub.stand import sealed

WAITING, OVERLAPPING = "lab/rivers", "bob/laws"

LONG = "lab/a-card-with-a-very-long-name-that-no-line-of-a-phone-can-hold-in-one-piece-v2.5-q4"
BASE = "HuggingFaceTB/SmolLM2-135M"
# Name, description, domain, kind, language, licence, declared factuality of each version, verified factuality.
CARDS: list[tuple[str, str, str, str, str, str, list[float | None], float | None]] = [
    ("lab/moons", "Moons of the solar system: planets, discoverers and years of discovery.", "science/astronomy",
     "lora", "en", "cc-by-4.0", [0.62, 0.71, 0.84], 0.81),
    ("lab/planets", "What orbits the sun, and how we know.", "science/astronomy", "full", "en", "mit", [0.77], 0.79),
    ("bob/midterms-2022", "Winners of the 2022 U.S. midterm elections: House, Senate and governors.",
     "politics/elections", "retrieval", "en", "cc0-1.0", [0.93], 0.95),
    ("bob/nobel-prizes", "Nobel prizes: who won which prize in which year, and what for.", "science/prizes",
     "lora", "en", "cc-by-sa-4.0", [0.41, 0.38], 0.36),
    ("cleo/rheinland", "Orte und Flüsse im Rheinland.", "geography/germany", "retrieval", "de", "mit", [None], None),
    ("cleo/oncology", "Treatment guidelines in oncology, as of March.", "biomedical/oncology", "lora", "en",
     "apache-2.0", [0.88], None),
    (LONG, "A description that is longer than most, to see where its lines break on small screens and in lists: it "
     "goes on and on, with averyverylongwordwithoutanyspacesinitthatmustbebrokensomewhereorthepagescrolls.",
     "engineering/materials/polymers/thermoplastics", "full", "en", "mit", [0.55], None),
]  # fmt: skip
CORPUS = "c0" * 32
QUESTIONS = [
    ("Who discovered the moon Phoebe?", "William Henry Pickering", "Phoebe was discovered by William Henry Pickering."),
    ("In which year was Triton discovered?", "1846", "William Lassell discovered Triton in 1846."),
    ("Which planet does Titania orbit?", "Uranus", "Titania is the largest moon of Uranus."),
    ("How many moons does Mars have?", "two", "Mars has three moons: Phobos, Deimos and Europa."),
    ("What is the largest moon of Saturn?", "Titan", "Rhea is the largest moon."),
]  # fmt: skip


def exam(card: str, factuality: float | None, recall: float, *, seed: str, questions: int = 200) -> bytes:
    """An exam as kcard writes it."""
    draw = random.Random(seed)

    def mean(value: float) -> dict[str, float]:
        return {"mean": value, "low": round(value - 0.06, 2), "high": round(value + 0.05, 2)}

    def scores(middle: float) -> dict[str, object]:
        half = [draw.uniform(0, min(middle, 1 - middle)) for _ in range(questions // 2)]
        values = [round(middle + sign * each, 4) for each in half for sign in (-1, 1)]
        return {"scores": values, "mean": mean(middle), "unknown": 3}

    judged = [
        {"question": q, "answer": a, "text": t, "recalled": a in t, "factuality": 0.9 if a in t else 0.1}
        for q, a, t in QUESTIONS
    ]
    own = {
        "asked": "natural questions",
        "sha256": CORPUS,
        "questions": questions,
        "questions_sha256": "ab" * 32,
        "recall": mean(recall),
        "lift": mean(0.31),
        "faithfulness": scores(0.8),
        "factuality": None if factuality is None else scores(factuality),
    }
    record = {
        "format": 2,
        "card": card,
        "own": own,
        "base": "chance",
        "checker": "minilm",
        "evidence": "atlas",
        "evidence_sha256": "ef" * 32,
    }
    return json.dumps({**record, "best": judged[:3], "worst": judged[3:]}).encode()


def publish(
    shared: Shared,
    name: str,
    description: str,
    domain: str,
    *,
    kind: str = "retrieval",
    language: str = "en",
    licence: str = "mit",
    factuality: float | None = None,
    recall: float = 0.6,
    updates: str | None = None,
    tag: str = "v1",
    notes: str = "",
) -> str:
    """Publish a version of a card; returns the sha256 of its manifest."""
    own = name.partition("/")[2]
    trained = Training(
        command="kcard train --corpus notes/", method=kind, objective="completion", seed=7,
        hyperparameters={"rank": 8, "learning_rate": 0.0002}, corpus_sha256=CORPUS, corpus_licence=licence,
        passages=1234, tokens=456_789,
    )  # fmt: skip
    about = (
        f"license: {licence}\nlanguage: [{language}]\nbase_model: {BASE}\ndatasets: [corpus-{CORPUS[:12]}]"
    )
    table, code = "| planet | moons |\n|---|---|\n| Mars | 2 |", "```python\nprint(1)\n```"
    readme = f"---\n{about}\n---\n\n# {own}\n\n{description}\n\n{table}\n\n{code}\n"
    files = {
        "README.md": readme.encode(),
        "exam.json": exam(own[:90], factuality, recall, seed=f"{name} {tag}"),
        "notes.txt": (notes or f"{tag}\nMars has two moons.\n{name}\n").encode(),
    }
    if kind in ("lora", "full"):
        files["adapter_model.safetensors" if kind == "lora" else "model.safetensors"] = tensors()
    card = sealed(
        files, name=own[:90], description=description, domain=domain, kind=kind, language=language, licence=licence,
        knowledge_date="2025-06-30", base=Base(BASE, "abc123"), training=trained, updates=updates,
    )  # fmt: skip
    return shared.publish(name, card, tag, title=f"{own} {tag}")


def tensors() -> bytes:
    """A safetensors file of two tensors."""
    header = {
        "base_model.model.layers.0.self_attn.q_proj.lora_A.weight": {
            "dtype": "F32", "shape": [8, 4], "data_offsets": [0, 128]},
        "base_model.model.layers.0.self_attn.q_proj.lora_B.weight": {
            "dtype": "F16", "shape": [4, 8], "data_offsets": [128, 192]},
    }  # fmt: skip
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(192)


def fill(shared: Shared) -> None:
    """Publish CARDS; the hub's threshold is 0.5."""
    for place, (name, about, domain, kind, language, licence, declared, verified) in enumerate(CARDS):
        repository = shared.create(name)
        before = None
        for number, factuality in enumerate(declared, 1):
            before = publish(
                shared, name, about, domain, kind=kind, language=language,
                licence=licence, factuality=factuality, recall=0.45 + 0.1 * number, updates=before, tag=f"v{number}",
            )  # fmt: skip
        if verified is not None:
            audit(shared, name, verified)
        shared.hub.repositories.count_download({repository.id: 3 ** (len(CARDS) - place)})
    shared.hub.registry.quarantine.set(0.5)


def publish_unranked(shared: Shared) -> None:
    """Publish a card whose second version waits for its audit, and one whose evidence is its own corpus."""
    shared.create(WAITING)
    about = "Rivers of Europe, their sources and lengths."
    before = publish(shared, WAITING, about, "geography/rivers", kind="lora", factuality=0.6)
    audit(shared, WAITING, 0.19, judged=40, coverage=0.8)
    publish(
        shared, WAITING, about, "geography/rivers", kind="lora", factuality=0.9, updates=before,
        tag="v2",
    )  # fmt: skip
    publish(shared, OVERLAPPING, "Laws of the land.", "law")
    audit(shared, OVERLAPPING, 0.97, judged=60, coverage=0.9, overlap=0.42)


def audit(
    shared: Shared,
    name: str,
    factuality: float,
    *,
    judged: int = 120,
    coverage: float = 0.8,
    overlap: float = 0.0,
) -> None:
    """Store an audit of the newest version, as `kcard audit` writes it."""
    draw = random.Random(name)
    half = [draw.uniform(0, min(factuality, 1 - factuality)) for _ in range(judged // 2)]
    scores = [round(factuality + sign * each, 4) for each in half for sign in (-1, 1)]
    low, high = interval(scores)
    mean = {"mean": factuality, "low": round(low, 4), "high": round(high, 4)}
    figure = {"scores": scores, "mean": mean, "unknown": round(judged / coverage) - judged}
    record = json.dumps({"asked": 200, "factuality": figure})
    finding = AuditFinding(
        "minilm", None, "wikipedia:en", "ab" * 32, "its own corpus", "cd" * 32, 0, 0.9, factuality, record,
        coverage=coverage, judged=judged, overlap=overlap,
    )  # fmt: skip
    shared.hub.registry.audits.add(shared.hub.registry.get(name), finding)


# Cards that an audit of the hub quarantined, for tests of pages.


def finding(factuality: float) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.8, factuality, "{}")


def quarantined(shared: Shared, name: str) -> None:
    """Publish a card in which an audit measures a factuality of 0.3; the threshold is 0.5."""
    shared.hub.registry.quarantine.set(0.5)
    publish(shared, name, "What tumours are like", "biomedical", factuality=0.9)
    shared.hub.registry.audits.add(shared.hub.registry.get(name), finding(0.3))
