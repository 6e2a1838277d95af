"""Results in a card's README.md: other tools read them, people too, and the rest of the page stays."""

from dataclasses import replace
from typing import Any

import pytest
from huggingface_hub import EvalResult, ModelCard

from kcard.cards.model_card import ExamResult, readme, with_results
from kcard.manifest import Manifest

PAGE = readme(Manifest("rivers", "Rivers of Europe", "geography"))
RECALL = ExamResult("recall", "Recall", 0.9, 0.85, 0.94, "own corpus", "corpus-abc", "ab" * 32)
FACTUALITY = replace(
    RECALL, metric="factuality", name="Factuality against atlas.txt", mean=0.5, args={"evidence": "atlas.txt"}
)
GIVEN = replace(RECALL, mean=0.7, dataset="seas.jsonl", dataset_type="questions-def", sha256="cd" * 32)


def data_of(page: str) -> Any:
    """What the Hub's tools read of the page."""
    return ModelCard(page).data


def test_the_results_are_read_by_the_tools_of_the_hub() -> None:
    data = data_of(with_results(PAGE, "rivers", [RECALL, FACTUALITY, GIVEN], []))
    assert data.model_name == "rivers"
    read = [(r.dataset_name, r.metric_type, r.metric_value, r.dataset_revision) for r in data.eval_results]
    assert read == [
        ("own corpus", "recall", 0.9, "ab" * 32),
        ("own corpus", "factuality", 0.5, "ab" * 32),
        ("seas.jsonl", "recall", 0.7, "cd" * 32),
    ]
    assert {r.task_type for r in data.eval_results} == {"question-answering"}
    assert data.eval_results[1].metric_args == {"evidence": "atlas.txt"}
    assert data.tags == ["kcard", "knowledge-card", "geography"]


def test_people_read_them_as_a_section_and_the_page_stays_as_it_was() -> None:
    page = with_results(PAGE, "rivers", [RECALL], ["Asked of 200 passages."])
    assert "| Recall | 0.90 | 0.85 to 0.94 | own corpus |" in page
    assert "Asked of 200 passages." in page
    body = PAGE.split("---\n", 2)[2]
    assert page.split("---\n", 2)[2].startswith(body.rstrip())
    assert page.endswith("\n")


def test_writing_them_again_changes_nothing_and_newer_ones_replace_them() -> None:
    once = with_results(PAGE, "rivers", [RECALL, GIVEN], ["One."])
    assert with_results(once, "rivers", [RECALL, GIVEN], ["One."]) == once
    newer = with_results(once, "rivers", [replace(RECALL, mean=0.95)], ["Two."])
    assert newer == with_results(PAGE, "rivers", [replace(RECALL, mean=0.95)], ["Two."])
    assert "seas.jsonl" not in newer


def test_what_others_measured_stays() -> None:
    theirs = EvalResult(
        task_type="text-generation",
        dataset_type="squad",
        dataset_name="SQuAD",
        metric_type="f1",
        metric_value=0.3,
    )
    card: Any = ModelCard(PAGE)
    card.data.model_name, card.data.eval_results = "their-name", [theirs]
    page = with_results(with_results(str(card), "rivers", [RECALL], []), "rivers", [RECALL], [])
    data = data_of(page)
    assert data.model_name == "their-name"
    assert [r.metric_type for r in data.eval_results] == ["f1", "recall"]


def test_without_any_result_there_is_no_model_index() -> None:
    page = with_results(PAGE, "rivers", [], ["Nothing could be asked."])
    assert "model-index" not in page
    assert "Nothing could be asked." in page


def test_names_are_text_and_never_markup() -> None:
    nasty = replace(RECALL, dataset="a|b <!-- end of exam --> <script>\n# c")
    page = with_results(PAGE, "rivers", [nasty], ["<b>| x"])
    assert "a\\|b &lt;!-- end of exam --> &lt;script> # c |" in page
    assert with_results(page, "rivers", [nasty], ["<b>| x"]) == page
    assert data_of(page).eval_results[0].dataset_name == nasty.dataset


def test_front_matter_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="metadata"):
        with_results("---\n- a list\n---\n# Page\n", "rivers", [RECALL], [])
