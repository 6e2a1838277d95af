"""The page of a report: whole, self-contained, safe, and usable in a real browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcard.evaluation.analyses.analysis import run_applicable
from kcard.evaluation.report.page import render, write_page
from kcard.evaluation.report.report import make_report
from kcard.evaluation.runs.results import EvalResult, RecordedCall
from tests.evaluation.made_up_runs import TASKS, made_up_results, made_up_run
from tests.fakes import ParsedPage
from tests.hub.server.chromium import launched, opened, require_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NASTY = (
    '</pre></style></script><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&{{7*7}}'
)
WIDER = "document.documentElement.scrollWidth > window.innerWidth"


def hostile(result: EvalResult) -> EvalResult:
    """The result with hostile text wherever there can be text."""
    trace = {
        "gate": {"name": NASTY, "score": 0.5, "fired": True},
        "cards": [NASTY],
        "passages": [
            {
                "card": NASTY,
                "text": NASTY,
                "pruned": NASTY + "!",
                "evidence": {"text": NASTY, "file": NASTY},
                "kept": True,
            },
            NASTY,
        ],
        "citations": [{"sentence": NASTY, "passage": 0}],
        "notes": [NASTY],
        "nearest": {"text": NASTY, "file": NASTY, "line": 1, "section": NASTY},
    }
    return replace(
        result,
        question=NASTY,
        answers=(NASTY,),
        prediction=NASTY,
        choices={NASTY: NASTY},
        group=NASTY,
        calls=(RecordedCall(NASTY, NASTY, NASTY),),
        trace=trace,
        error=NASTY,
    )


@pytest.fixture(scope="module")
def hostile_page() -> str:
    run = made_up_run({NASTY: "em"}, ("direct", "bottom-up"), questions=2)
    plan = replace(run.plan, llm=NASTY, cards={NASTY: NASTY}, versions={NASTY: NASTY}, command=(NASTY,))
    return render(make_report(replace(run, plan=plan), list(map(hostile, made_up_results(run)))))


@pytest.fixture(scope="module")
def page() -> str:
    run = made_up_run()
    return render(make_report(run, made_up_results(run)))


def test_the_page_has_the_table_the_plots_and_every_question(page: str) -> None:
    read = ParsedPage(page)
    tags = [tag for tag, _ in read.tags]
    assert tags.count("figure") == 2 * 3
    assert (
        sum("q" in (attrs.get("class") or "").split() for tag, attrs in read.tags if tag == "details") == 60
    )
    for text in (
        "midterm-binary",
        "over direct",
        "top-down:explicit",
        "Condensed:",
        "self-ask, score -0.31",
        f"kcard {' '.join(made_up_run().plan.command)}",
        "3 calls",
    ):
        assert text in read.text, text


def test_what_cards_llms_and_data_say_is_text_and_never_markup(hostile_page: str) -> None:
    read = ParsedPage(hostile_page)
    assert NASTY in read.text
    assert "49" not in read.text
    assert not {"script", "iframe", "link", "object"} & {tag for tag, _ in read.tags}
    sources = [attrs.get("src") or "" for tag, attrs in read.tags if tag == "img"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not [name for _, attrs in read.tags for name in attrs if name.startswith("on") or name == "style"]


def test_the_page_fetches_nothing_and_its_policy_allows_nothing(page: str) -> None:
    read = ParsedPage(page)
    for _, attrs in read.tags:
        assert (attrs.get("href") or "#").startswith("#")
        assert (attrs.get("src") or "data:image/svg+xml;base64,").startswith("data:image/svg+xml;base64,")
    policy = next(attrs["content"] for tag, attrs in read.tags if attrs.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_a_trace_of_another_shape_is_shown_as_far_as_it_is_known() -> None:
    run = made_up_run({"midterm": "em"}, ("direct",), questions=3)
    traces: tuple[dict[str, Any], ...] = (
        {"gate": [], "passages": {"a": 1}},
        {"passages": [None, {"text": 5}], "notes": "x"},
        {"citations": [{}]},
    )
    results = [replace(r, trace=t) for r, t in zip(made_up_results(run), traces, strict=True)]
    assert render(make_report(run, results)).count('class="answer"') == 3


def test_an_incomplete_run_is_called_so() -> None:
    run = replace(made_up_run({"midterm": "em"}, ("direct",), questions=12), answered=10, failed=2)
    text = render(make_report(run, made_up_results(run)))
    assert "This run is not complete: 10 of 12 answers are there, and 2 questions failed" in text


def test_a_large_run_makes_a_page_of_a_few_megabytes() -> None:
    run = made_up_run({"midterm": "em"}, ("direct", "top-down:auto"), questions=1000)
    text = render(make_report(run, made_up_results(run)))
    assert "200 of 1,000 questions; 800 are left out here" in text
    assert "--questions FILE.csv" in text
    assert len(text) < 2_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with launched() as browser:
        yield browser


@pytest.mark.browser
@pytest.mark.parametrize("narrow", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_page_fits_is_accessible_and_complains_about_nothing(
    browser: "Browser", tmp_path: Path, narrow: bool
) -> None:
    run = made_up_run(settings=("direct", "bottom-up", "top-down:auto"), questions=3)
    results = made_up_results(run)
    page = render(make_report(run, results, analyses=run_applicable(results, TASKS)))
    start, end = page.index("<meta http-equiv"), page.index('<meta name="referrer"')
    path = tmp_path / "report.html"
    # axe is itself a script, which the page's policy refuses; so it reads the page without the policy.
    for text in (page, page[:start] + page[end:]):
        path.write_text(text, encoding="utf-8")
        with opened(browser, path.as_uri(), "", narrow=narrow) as tab:
            tab.locator("details.q summary").first.click()
            tab.locator("details.answer summary").nth(2).click()
            assert not tab.evaluate(WIDER)
            if text != page:
                require_accessible(tab, largest=2_000_000)


@pytest.mark.browser
def test_questions_are_filtered_and_opened_without_scripts(browser: "Browser", tmp_path: Path) -> None:
    run = made_up_run(settings=("direct", "bottom-up"), questions=12)
    report = make_report(run, made_up_results(run))
    path = write_page(report, tmp_path / "report.html")
    with opened(browser, path.as_uri(), "", scripts=False) as tab:
        questions = tab.locator("details.q:visible")
        assert questions.count() == 24
        tab.get_by_label("Task", exact=True).select_option("midterm")
        assert questions.count() == 12
        tab.get_by_label("Group", exact=True).select_option("senate")
        assert questions.count() == 4
        tab.get_by_label("Answered by", exact=True).select_option("bottom-up")
        tab.get_by_label("Not answered by").select_option("direct")
        expected = [
            shown
            for shown in report.excerpt.questions
            if (shown.question.task, shown.question.group) == ("midterm", "senate")
            and {result.setting: right for right, result in shown.results}.items()
            >= {("bottom-up", True), ("direct", False)}
        ]
        assert questions.count() == len(expected) > 0
        questions.first.locator("summary").first.click()
        answer = questions.first.locator("details.answer").nth(1)
        assert not answer.get_by_text("kept").is_visible()
        answer.locator("summary").first.click()
        assert answer.get_by_text("kept").is_visible()
        answer.get_by_text("210 tokens in").click()
        assert answer.locator("pre").first.inner_text().startswith("Question")


@pytest.mark.browser
def test_hostile_text_does_nothing_in_a_browser(
    browser: "Browser", hostile_page: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(hostile_page, encoding="utf-8")
    with opened(browser, path.as_uri(), "") as tab:
        assert tab.title().startswith("Run 3")
