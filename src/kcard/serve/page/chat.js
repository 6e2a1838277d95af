"use strict";
// A conversation with the endpoint's own API, POST v1/chat/completions. Texts enter the page as text, never as HTML.

const $ = (id) => document.getElementById(id);
const messages = []; // of the conversation, as OpenAI's API has them
let running = null; // the AbortController of the answer that is being written

function headers() {
  const key = sessionStorage.getItem("kcard-key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function problem(response) {
  const body = await response.json().catch(() => ({}));
  const error = new Error(body.error?.message || `The endpoint answered with status ${response.status}.`);
  error.status = response.status;
  return error;
}

// The models of the endpoint: the LLM, the LLM with each mode, and the LLM with each card.
async function loadModels() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) throw await problem(response);
  const names = (await response.json()).data.map((model) => model.id);
  const [llm] = names;
  const link = new URLSearchParams(location.search); // to a question, a model or a card
  // A card of a shared hub, namespace/name, has lost its namespace if it was pulled.
  const card = link.get("card") || "";
  const linked = [card, card.split("/").pop()].map((name) => `${llm}:${name}`).find((name) => names.includes(name));
  const wanted = link.get("model") || linked || $("model").value;
  const modes = { direct: "no cards", "bottom-up": "bottom-up: all cards", "top-down": "top-down: the LLM asks", hybrid: "hybrid" };
  const cards = names.slice(1).map((name) => name.slice(llm.length + 1)).filter((part) => !(part in modes));
  $("cards").hidden = !$("log").matches(":empty");
  $("cards").textContent = cards.length
    ? `${cards.length} card${cards.length === 1 ? "" : "s"}: ${cards.slice(0, 12).join(", ")}${cards.length > 12 ? " …" : ""}`
    : "There are no cards yet, so the language model answers alone: kcard train, then kcard publish.";
  $("model").replaceChildren(
    ...names.map((name) => {
      const part = name === llm ? "" : name.slice(llm.length + 1);
      const label = part === "" ? `${llm}, all cards` : modes[part] || `only ${part}`;
      return new Option(label, name, false, name === wanted);
    }),
  );
}

// Show `text` with the cited sentences followed by the numbers of their passages; those that no passage supports, or
// that one contradicts, are marked and followed by a word that says so.
function showText(place, text, kcard, id) {
  const kept = kcard.passages.flatMap((passage, i) => (passage.kept ? [i] : []));
  place.replaceChildren();
  let rest = text;
  for (const citation of kcard.citations || []) {
    const number = kept.indexOf(citation.passage);
    const at = rest.indexOf(citation.sentence);
    if (at < 0 || (number < 0 && citation.passage !== null)) continue;
    const end = at + citation.sentence.length;
    const isSupported = citation.verdict === "supported";
    place.append(rest.slice(0, at));
    place.append(isSupported ? citation.sentence : Object.assign(document.createElement("span"), {
      className: "doubtful", textContent: citation.sentence,
    }));
    if (!isSupported) {
      place.append(Object.assign(document.createElement("span"), { className: "verdict", textContent: ` (${citation.verdict})` }));
    }
    rest = rest.slice(end);
    if (number < 0) continue;
    const link = Object.assign(document.createElement("a"), {
      className: "cite", href: `#${id}-${number + 1}`, textContent: `[${number + 1}]`,
    });
    link.setAttribute("aria-label", `Passage ${number + 1}`);
    link.onclick = () => { link.closest(".answer").querySelector(".sources").open = true; };
    place.append(link);
  }
  place.append(rest);
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
  const mark = Object.assign(document.createElement("mark"), { textContent: answer });
  place.append(quote.slice(0, at), mark, quote.slice(at + answer.length));
}

function percent(value) {
  return value === null || value === undefined ? "unknown" : value.toFixed(2);
}

function passageItem(passage, line, id) {
  const item = $("passage").content.firstElementChild.cloneNode(true);
  const source = passage.source;
  if (id) item.id = id;
  item.querySelector(".card").textContent = passage.card;
  const where = source ? [source.file, line || source.line].filter(Boolean).join(":") : "written by its model";
  item.querySelector(".where").textContent = [where, source?.section].filter(Boolean).join(" · ");
  item.querySelector("blockquote").textContent = passage.pruned ?? passage.text;
  for (const name of ["faithfulness", "factuality"]) {
    item.querySelector(`.${name} b`).textContent = percent(passage[name]);
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

function showFacts(turn, kcard, link) {
  const { gate } = kcard;
  const facts = [`mode ${kcard.mode}`];
  facts.push(kcard.cards.length ? `cards ${kcard.cards.join(", ")}` : `no cards used (gate: ${gate.name})`);
  if (kcard.known !== false && kcard.confidence !== undefined) {
    facts.push(`confidence ${kcard.confidence.toFixed(2)}${kcard.is_calibrated === false ? " (not calibrated for this LLM)" : ""}`);
  }
  if (kcard.known === false) facts.unshift("no answer found");
  facts.push(`${kcard.calls} LLM call${kcard.calls === 1 ? "" : "s"}`, `${kcard.seconds.toFixed(1)} s`);
  const anchor = Object.assign(document.createElement("a"), { href: link, textContent: "link to this question" });
  turn.querySelector(".facts").replaceChildren(`${facts.join(" · ")} · `, anchor);
  const notes = turn.querySelector(".notes");
  const items = (kcard.notes || []).map((text) => Object.assign(document.createElement("li"), { textContent: text }));
  notes.hidden = items.length === 0;
  notes.replaceChildren(...items);
}

// Yield the chunks of a stream of server-sent events.
async function* chunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function ask(question) {
  $("lead").hidden = $("cards").hidden = true;
  const id = `answer-${document.querySelectorAll(".turn").length + 1}`;
  const turn = $("turn").content.firstElementChild.cloneNode(true);
  const answer = turn.querySelector(".answer");
  const text = turn.querySelector(".text");
  turn.querySelector(".asked").textContent = question;
  $("log").append(turn);
  turn.scrollIntoView({ block: "nearest" });
  const model = $("model").value;
  const link = `?${new URLSearchParams({ q: question, model })}`;
  messages.push({ role: "user", content: question });
  running = new AbortController();
  $("send").hidden = true;
  $("stop").hidden = false;
  let said = "";
  try {
    const body = JSON.stringify({ model, messages, stream: true });
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body, signal: running.signal,
    });
    if (!response.ok) throw await problem(response);
    for await (const chunk of chunks(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      said += chunk.choices?.[0]?.delta?.content || "";
      text.textContent = said;
      if (chunk.kcard) {
        showText(text, chunk.kcard.answer || said, chunk.kcard, id);
        showQuote(turn.querySelector(".quote"), chunk.kcard);
        showFacts(turn, chunk.kcard, link);
        showSources(turn, chunk.kcard, id);
      }
    }
    messages.push({ role: "assistant", content: said });
  } catch (error) {
    messages.pop();
    answer.classList.add("error");
    text.textContent = error.name === "AbortError" ? `${said} (stopped)`.trim() : error.message;
    if (error.status === 401) askForKey();
  } finally {
    answer.setAttribute("aria-busy", "false");
    running = null;
    $("send").hidden = false;
    $("stop").hidden = true;
    turn.scrollIntoView({ block: "nearest" });
  }
}

function askForKey() {
  $("key-form").hidden = false;
  $("key").focus();
}

$("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  sessionStorage.setItem("kcard-key", $("key").value);
  try {
    await loadModels();
    $("key-form").hidden = true;
    $("question").focus();
  } catch (error) {
    $("key").setCustomValidity(error.message);
    $("key").reportValidity();
  }
});
$("key").addEventListener("input", () => $("key").setCustomValidity(""));

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = $("question").value.trim();
  if (!question || running) return;
  $("question").value = "";
  $("question").dispatchEvent(new Event("input"));
  ask(question);
});
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
$("question").addEventListener("input", ({ target }) => {
  target.style.height = "auto";
  target.style.height = `${target.scrollHeight + 2}px`;
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  $("log").replaceChildren();
  $("lead").hidden = $("cards").hidden = false;
  history.replaceState(null, "", location.pathname);
  $("question").focus();
});

// A link to a question asks it.
loadModels()
  .then(() => {
    const question = new URLSearchParams(location.search).get("q");
    if (question) ask(question);
  })
  .catch((error) => {
    if (error.status === 401) askForKey();
    else $("lead").textContent = error.message;
  });
