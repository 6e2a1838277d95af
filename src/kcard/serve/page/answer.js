// An answer with its trace (the field `kcard`): marked sentences, sources, quotation, facts. Texts enter the page as text.

import { showMarkdown } from "./markdown.js";

const HEADING = /^\s*#{1,6}\s/;
const WORD = /[\p{L}\p{N}]/u;

function element(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

// The sentences of the answer as showMarkdown takes them: the number of the passage behind each that has one; those that no
// passage supports, or that one contradicts, are doubtful, and a word says so. A heading or a rule claims nothing.
function judgedSentences(text, kcard, id) {
  const kept = kcard.passages.flatMap((passage, i) => (passage.kept ? [i] : []));
  const sentences = [];
  let from = 0;
  for (const citation of kcard.citations || []) {
    const number = kept.indexOf(citation.passage);
    const start = text.indexOf(citation.sentence, from);
    const claims = !HEADING.test(citation.sentence) && WORD.test(citation.sentence);
    if (!claims || start < 0 || (number < 0 && citation.passage !== null)) continue;
    from = start + citation.sentence.length;
    const isDoubtful = citation.verdict !== "supported";
    const after = [];
    if (isDoubtful) after.push(element("span", { className: "verdict", textContent: ` (${citation.verdict})` }));
    if (number >= 0) after.push(citeLink(number + 1, id));
    sentences.push({ start, end: from, isDoubtful, after });
  }
  return sentences;
}

function citeLink(number, id) {
  const link = element("a", { className: "cite", href: `#${id}-${number}`, textContent: `[${number}]` });
  link.setAttribute("aria-label", `Passage ${number}`);
  link.onclick = () => { link.closest(".answer").querySelector(".sources").open = true; };
  return link;
}

// Show the sentence that an answer was taken from, with the answer marked in it; or the passage nearest to it.
function showQuote(place, kcard) {
  const citation = (kcard.citations || []).find((one) => one.quote && one.verdict === "supported");
  const quote = citation ? citation.quote : kcard.nearest?.text;
  if (!quote) return;
  place.hidden = false;
  const answer = citation ? kcard.answer : "";
  const at = answer ? quote.indexOf(answer) : -1;
  if (at < 0) {
    place.textContent = citation ? quote : `Nearest passage: ${quote}`;
    return;
  }
  const mark = element("mark", { textContent: answer });
  place.append(quote.slice(0, at), mark, quote.slice(at + answer.length));
}

function score(value) {
  return value === null || value === undefined ? "unknown" : value.toFixed(2);
}

function passageItem(passage, line, id) {
  const item = document.getElementById("passage").content.firstElementChild.cloneNode(true);
  const source = passage.source;
  if (id) item.id = id;
  item.querySelector(".card").textContent = passage.card;
  const where = source ? [source.file, line || source.line].filter(Boolean).join(":") : "written by its model";
  item.querySelector(".where").textContent = [where, source?.section].filter(Boolean).join(" · ");
  item.querySelector("blockquote").textContent = passage.pruned ?? passage.text;
  for (const name of ["faithfulness", "factuality"]) {
    item.querySelector(`.${name} b`).textContent = score(passage[name]);
  }
  return item;
}

function showSources(turn, kcard, id) {
  const lines = new Map((kcard.citations || []).filter((one) => one.line).map((one) => [one.passage, one.line]));
  const groups = { sources: [], others: [] };
  kcard.passages.forEach((passage, i) => {
    const group = groups[passage.kept ? "sources" : "others"];
    const anchor = passage.kept ? `${id}-${group.length + 1}` : "";
    if (passage.text) group.push(passageItem(passage, lines.get(i), anchor));
  });
  const titles = { sources: "Sources that the LLM read", others: "Passages that were not kept" };
  for (const [name, items] of Object.entries(groups)) {
    const place = turn.querySelector(`.${name}`);
    place.hidden = items.length === 0;
    place.querySelector("summary").textContent = `${titles[name]} (${items.length})`;
    place.querySelector("ol").replaceChildren(...items);
  }
}

function showFacts(turn, kcard) {
  const facts = [`mode ${kcard.mode}`];
  facts.push(kcard.cards.length ? `cards ${kcard.cards.join(", ")}` : `no cards used (gate: ${kcard.gate.name})`);
  if (kcard.known !== false && kcard.confidence !== undefined) {
    facts.push(`confidence ${kcard.confidence.toFixed(2)}${kcard.is_calibrated === false ? " (not calibrated for this LLM)" : ""}`);
  }
  if (kcard.known === false) facts.unshift("no answer found");
  facts.push(`${kcard.calls} LLM call${kcard.calls === 1 ? "" : "s"}`);
  turn.querySelector(".trace").textContent = `${facts.join(" · ")} · `;
  const items = (kcard.notes || []).map((text) => element("li", { textContent: text }));
  const notes = turn.querySelector(".notes");
  notes.hidden = items.length === 0;
  notes.replaceChildren(...items);
}

// Show a finished answer. `id`: of the turn, for the addresses of its sources.
export function showAnswer(turn, text, kcard, id) {
  showMarkdown(turn.querySelector(".text"), text, judgedSentences(text, kcard, id));
  showQuote(turn.querySelector(".quote"), kcard);
  showFacts(turn, kcard);
  showSources(turn, kcard, id);
}

// Show how the last question was understood, if the LLM rewrote it.
export function showUnderstood(turn, question) {
  const place = turn.querySelector(".understood");
  if (!question || question === turn.querySelector(".asked").textContent) return;
  place.hidden = false;
  place.querySelector("q").textContent = question;
}
