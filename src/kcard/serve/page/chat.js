// A conversation with the endpoint's own API, POST v1/chat/completions.

import { showAnswer, showUnderstood } from "./answer.js";
import { showMarkdown } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const MODES = { direct: "no cards", "bottom-up": "bottom-up: all cards", "top-down": "top-down: the LLM asks", hybrid: "hybrid" };
const SHOWN_CARDS = 12; // names, before the first question
const messages = []; // of the conversation, as OpenAI's API has them
let endpoint = { llms: [], cards: [], modes: [], examples: [], uploads: null }; // what GET v1/kcard tells
let running = null; // the AbortController of the answer that is being written, or of the file that is being read

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

// The choice of an LLM and of its cards. A model is an LLM, alone or followed by a mode or a card.

async function loadEndpoint() {
  const response = await fetch("v1/kcard", { headers: headers() });
  if (!response.ok) throw await problem(response);
  endpoint = await response.json();
  const { llms, cards, examples } = endpoint;
  $("llm").replaceChildren(...llms.map(({ name }) => new Option(name, name)));
  $("llm").hidden = llms.length < 2;
  $("only-llm").hidden = llms.length > 1;
  $("only-llm").textContent = llms[0].name;
  const rest = cards.length > SHOWN_CARDS ? " …" : "";
  $("cards").textContent = cards.length
    ? `${cards.length} card${cards.length === 1 ? "" : "s"}: ${cards.slice(0, SHOWN_CARDS).join(", ")}${rest}`
    : `There are no cards yet, so the language model answers alone: ${endpoint.uploads ? "ask a file, or " : ""}kcard train, then kcard publish.`;
  $("examples").replaceChildren(
    ...examples.map((question) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: question });
      button.onclick = () => {
        ask(question);
        $("question").focus();
      };
      return button;
    }),
  );
  $("file-row").hidden = !endpoint.uploads;
  showWelcome(!document.querySelector(".turn"));
  chooseLinked();
}

function setRunning(controller) {
  running = controller;
  $("send").hidden = $("pick-file").disabled = Boolean(controller);
  $("stop").hidden = !controller;
}

function showWelcome(isShown) {
  $("lead").hidden = $("cards").hidden = !isShown;
  $("examples").hidden = !isShown || !endpoint.examples.length;
}

function files() {
  return endpoint.uploads?.files || [];
}

function parts() {
  return ["", ...endpoint.modes, ...files().map(({ card }) => card), ...endpoint.cards];
}

// List what the chosen LLM may answer from, and say whether it remembers.
function showParts(part = "") {
  const llm = $("llm").value;
  $("model").replaceChildren(
    ...parts().map((name) => {
      const file = files().find(({ card }) => card === name)?.file;
      const label = name === "" ? "all cards" : MODES[name] || `only ${file || name}`;
      return new Option(label, name ? `${llm}:${name}` : llm, false, name === part);
    }),
  );
  const continues = readsConversations();
  $("memory").textContent = continues
    ? "A follow-up continues the conversation;"
    : `${llm} answers each question by itself, so name what it is about;`;
  $("new").textContent = continues ? "start a new one" : "clear the page";
  showFile();
}

// Say so if the answers come from an uploaded file alone.
function showFile() {
  const file = files().find(({ card }) => $("model").value === `${$("llm").value}:${card}`);
  $("only-file").hidden = !file;
  if (!file) return;
  $("only-file").querySelector("b").textContent = file.file;
  $("only-file").querySelector("span").textContent = `${file.passages} passage${file.passages === 1 ? "" : "s"}`;
}

function readsConversations() {
  return endpoint.llms.find(({ name }) => name === $("llm").value)?.reads === "conversations";
}

// Choose what the page's address names: ?model=MODEL or ?card=CARD. Return whether it is there.
function chooseLinked() {
  const link = new URLSearchParams(location.search);
  const model = link.get("model");
  const card = link.get("card");
  const [first] = endpoint.llms;
  $("llm").value = first.name;
  $("notice").textContent = "";
  if (model) {
    for (const { name: llm } of endpoint.llms) {
      const part = parts().find((name) => model === (name ? `${llm}:${name}` : llm));
      if (part === undefined) continue;
      $("llm").value = llm;
      showParts(part);
      return true;
    }
    $("notice").textContent = `There is no model “${model}” here. Choose another one above.`;
  }
  if (card && !model) {
    // A card of a shared hub, namespace/name, has lost its namespace if it was pulled.
    const cards = [...files().map((file) => file.card), ...endpoint.cards];
    const part = [card, card.split("/").pop()].find((name) => cards.includes(name));
    showParts(part);
    if (part !== undefined) return true;
    $("notice").textContent = `There is no card “${card}” here. The answers come from all cards.`;
  }
  showParts();
  return !model && !card;
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

// What the endpoint does at present, and for how long: the line below a question until its answer is there.
class Stage {
  constructor(turn) {
    this.place = turn.querySelector(".stage");
    this.place.hidden = false;
    this.started = performance.now();
    this.firstWord = null; // seconds
    this.timer = setInterval(() => this.showClock(), 100);
    this.show("waiting");
  }

  get seconds() {
    return (performance.now() - this.started) / 1000;
  }

  show(name, cards) {
    const stages = {
      waiting: "waiting",
      rewriting: "reading the conversation",
      searching: `searching ${cards} card${cards === 1 ? "" : "s"}`,
      reading: "reading",
      writing: "writing",
      checking: "checking each sentence",
    };
    this.place.querySelector(".what").textContent = stages[name] || name;
    this.showClock();
  }

  showClock() {
    this.place.querySelector(".clock").textContent = `${this.seconds.toFixed(1)} s`;
  }

  hasWord() {
    if (this.firstWord !== null) return;
    this.firstWord = this.seconds;
    this.show("writing");
  }

  // End it; return the times in words.
  end() {
    clearInterval(this.timer);
    this.place.hidden = true;
    const first = this.firstWord === null ? "" : `first word after ${this.firstWord.toFixed(1)} s, `;
    return `${first}${this.seconds.toFixed(1)} s in all`;
  }
}

// Show the text of an unfinished answer, at most once a frame.
class Draft {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.frame = 0;
  }

  add(piece) {
    this.text += piece;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      showMarkdown(this.place, this.text);
    });
  }

  end() {
    cancelAnimationFrame(this.frame);
  }
}

async function ask(question) {
  if (running) return;
  showWelcome(false);
  const id = `answer-${document.querySelectorAll(".turn").length + 1}`;
  const turn = $("turn").content.firstElementChild.cloneNode(true);
  const answer = turn.querySelector(".answer");
  const text = turn.querySelector(".text");
  turn.querySelector(".asked").textContent = question;
  $("log").append(turn);
  turn.scrollIntoView({ block: "nearest" });
  const model = $("model").value;
  turn.querySelector(".link").href = `?${new URLSearchParams({ q: question, model })}`;
  const before = messages.length;
  turn.querySelector(".retry").onclick = () => {
    if (running) return;
    messages.length = before;
    turn.remove();
    ask(question);
    $("question").focus();
  };
  messages.push({ role: "user", content: question });
  setRunning(new AbortController());
  const stage = new Stage(turn);
  const draft = new Draft(text);
  try {
    const sent = readsConversations() ? messages : messages.slice(-1);
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: { ...headers(), "X-Kcard-Stages": "1" },
      body: JSON.stringify({ model, messages: sent, stream: true }),
      signal: running.signal,
    });
    if (!response.ok) throw await problem(response);
    for await (const chunk of chunks(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.kcard_stage) {
        stage.show(chunk.kcard_stage.name, chunk.kcard_stage.cards);
        showUnderstood(turn, chunk.kcard_stage.question);
      }
      const piece = chunk.choices?.[0]?.delta?.content || "";
      if (piece) {
        stage.hasWord();
        draft.add(piece);
      }
      if (chunk.kcard) {
        draft.end();
        showAnswer(turn, chunk.kcard.answer || draft.text, chunk.kcard, id);
      }
    }
    messages.push({ role: "assistant", content: draft.text });
  } catch (error) {
    draft.end();
    messages.length = Math.min(messages.length, before);
    answer.classList.add("error");
    const isStopped = error.name === "AbortError";
    showMarkdown(text, draft.text);
    text.append(Object.assign(document.createElement("p"), { className: "failure", textContent: isStopped ? "(stopped)" : error.message }));
    if (error.status === 401) askForKey();
  } finally {
    turn.querySelector(".times").textContent = `${stage.end()} · `;
    answer.setAttribute("aria-busy", "false");
    setRunning(null);
    turn.scrollIntoView({ block: "nearest" });
  }
}

// Have the endpoint index a file, and answer from it alone.
async function upload(file) {
  if (running || !file) return;
  setRunning(new AbortController());
  $("file-error").textContent = "";
  $("only-file").hidden = true;
  const stage = new Stage($("file-row"));
  stage.show(`reading ${file.name}`);
  const { uploads } = endpoint;
  try {
    if (file.size > uploads.max_bytes) throw new Error(`${file.name} is larger than ${uploads.max_bytes >> 20} MB.`);
    const response = await fetch("v1/kcard/files", {
      method: "POST",
      headers: { ...headers(), "Content-Type": "application/octet-stream", "X-Kcard-File": encodeURIComponent(file.name) },
      body: file,
      signal: running.signal,
    });
    if (!response.ok) throw await problem(response);
    const uploaded = await response.json();
    uploads.files = [...uploads.files.filter(({ card }) => card !== uploaded.card), uploaded];
    showParts(uploaded.card);
    $("question").focus();
  } catch (error) {
    $("file-error").textContent = error.name === "AbortError" ? "(stopped)" : error.message;
    $("question").focus();
    if (error.status === 401) askForKey();
  } finally {
    stage.end();
    showFile();
    setRunning(null);
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
    await loadEndpoint();
    $("key-form").hidden = true;
    $("question").focus();
  } catch (error) {
    $("key").setCustomValidity(error.message);
    $("key").reportValidity();
  }
});
$("key").addEventListener("input", () => $("key").setCustomValidity(""));
$("llm").addEventListener("change", () => {
  const [chosen] = $("model").selectedOptions;
  const part = parts().find((name) => chosen.value.endsWith(`:${name}`) && name);
  showParts(part);
});
$("model").addEventListener("change", showFile);
$("all-cards").addEventListener("click", () => {
  showParts();
  $("question").focus();
});
$("pick-file").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", ({ target }) => {
  upload(target.files[0]);
  target.value = ""; // so that the same file can be chosen again
});
for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!endpoint.uploads || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (name === "drop") upload(event.dataTransfer.files[0]);
  });
}
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
  $("notice").textContent = "";
  showWelcome(true);
  history.replaceState(null, "", location.pathname);
  $("question").focus();
});

// A link to a question asks it; one with a card or model that is not there leaves that to the reader.
loadEndpoint()
  .then(() => {
    const question = new URLSearchParams(location.search).get("q");
    if (!question) return;
    if ($("notice").textContent) $("question").value = question;
    else ask(question);
  })
  .catch((error) => {
    if (error.status === 401) askForKey();
    else $("lead").textContent = error.message;
  });
