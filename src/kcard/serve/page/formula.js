// Formulas of an answer, in the part of TeX that LLMs use, as MathML. The text is parsed here and enters the page as text;
// a formula that has anything else in it is shown as it was written.

const MATHML = "http://www.w3.org/1998/Math/MathML";
const MAX_DEPTH = 12; // of groups within each other
const MAX_TOKENS = 2000; // of a formula
const TOKEN = /\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|\s+|./gsu;

const NAMES =
  `alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ
  pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π
  Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ hbar ℏ ell ℓ partial ∂ nabla ∇ emptyset ∅ degree °
  times × cdot ⋅ div ÷ pm ± mp ∓ ast ∗ circ ∘ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ sim ∼ equiv ≡ propto ∝
  ll ≪ gg ≫ to → rightarrow → leftarrow ← Rightarrow ⇒ Leftrightarrow ⇔ implies ⇒ iff ⇔ mapsto ↦
  in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩ setminus ∖ forall ∀ exists ∃ neg ¬ land ∧ lor ∨
  sum ∑ prod ∏ int ∫ oint ∮ ldots … cdots ⋯ dots … mid ∣ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ prime ′`.split(/\s+/);
const SYMBOLS = new Map();
for (let i = 0; i < NAMES.length; i += 2) SYMBOLS.set(NAMES[i], NAMES[i + 1]);
const IDENTIFIERS = /^[α-ωΑ-Ωϵϕ∞ℏℓ∅]$/u;
const FUNCTIONS = new Set("sin cos tan log ln exp min max lim det dim gcd arg deg".split(" "));
const TEXTS = new Set("text mathrm mathbf mathit operatorname textbf textit mathcal mathbb".split(" "));
const FRACTIONS = new Set(["frac", "dfrac", "tfrac"]);
const SPACES = new Set([",", ";", ":", " ", "quad", "qquad"]);
const ESCAPED = new Set(["{", "}", "%", "$", "&", "#", "_", "|"]);

function node(name, ...children) {
  const element = document.createElementNS(MATHML, name);
  element.append(...children);
  return element;
}

// A parser of one formula, from left to right. Throws an Error at what it does not know.
class Parser {
  constructor(tex) {
    this.tokens = tex.match(TOKEN) || [];
    this.at = 0;
    if (this.tokens.length > MAX_TOKENS) throw new Error("a long formula");
  }

  skipSpace() {
    while (/^\s/.test(this.tokens[this.at] || "")) this.at += 1;
  }

  // Everything up to `end`, or to the end of the formula.
  row(end, depth) {
    if (depth > MAX_DEPTH) throw new Error("a deep formula");
    const children = [];
    for (;;) {
      this.skipSpace();
      if (this.at >= this.tokens.length) {
        if (end) throw new Error(`no ${end}`);
        return node("mrow", ...children);
      }
      if (this.tokens[this.at] === end) {
        this.at += 1;
        return node("mrow", ...children);
      }
      children.push(this.scripted(depth));
    }
  }

  // An atom with what stands below and above it.
  scripted(depth) {
    const base = this.tokens[this.at] === "^" || this.tokens[this.at] === "_" ? node("mrow") : this.atom(depth);
    const scripts = {};
    for (;;) {
      this.skipSpace();
      const mark = this.tokens[this.at];
      if ((mark !== "^" && mark !== "_") || scripts[mark]) break;
      this.at += 1;
      scripts[mark] = this.atom(depth);
    }
    if (scripts._ && scripts["^"]) return node("msubsup", base, scripts._, scripts["^"]);
    if (scripts._) return node("msub", base, scripts._);
    return scripts["^"] ? node("msup", base, scripts["^"]) : base;
  }

  atom(depth) {
    this.skipSpace();
    const token = this.tokens[this.at];
    this.at += 1;
    if (token === undefined || "}^_&".includes(token)) throw new Error("no atom");
    if (token === "{") return this.row("}", depth + 1);
    if (token.startsWith("\\")) return this.command(token.slice(1), depth);
    if (/^\d/.test(token)) return node("mn", token);
    if (/^\p{L}$/u.test(token)) return node("mi", token);
    return node("mo", token === "-" ? "−" : token === "'" ? "′" : token);
  }

  command(name, depth) {
    if (FRACTIONS.has(name)) return node("mfrac", this.atom(depth + 1), this.atom(depth + 1));
    if (name === "sqrt") return this.root(depth);
    if (TEXTS.has(name)) return node("mtext", this.words());
    if (name === "left" || name === "right") return this.delimiter(depth);
    if (FUNCTIONS.has(name)) return node("mi", name);
    if (SPACES.has(name)) return node("mtext", " ");
    if (name === "!") return node("mrow");
    if (ESCAPED.has(name)) return node("mo", name === "|" ? "‖" : name);
    const symbol = SYMBOLS.get(name);
    if (!symbol) throw new Error(`\\${name}`);
    return node(IDENTIFIERS.test(symbol) ? "mi" : "mo", symbol);
  }

  root(depth) {
    this.skipSpace();
    if (this.tokens[this.at] !== "[") return node("msqrt", this.atom(depth + 1));
    this.at += 1;
    const degree = this.row("]", depth + 1);
    return node("mroot", this.atom(depth + 1), degree);
  }

  // What follows \left or \right; a point stands for nothing.
  delimiter(depth) {
    this.skipSpace();
    if (this.tokens[this.at] !== ".") return this.atom(depth);
    this.at += 1;
    return node("mrow");
  }

  // The text of a group, spaces included.
  words() {
    if (this.tokens[this.at] !== "{") throw new Error("no group");
    const end = this.tokens.indexOf("}", this.at);
    if (end < 0) throw new Error("no }");
    const words = this.tokens.slice(this.at + 1, end).join("");
    this.at = end + 1;
    return words;
  }
}

// A formula as a node: MathML, or the text itself where it can't be read.
export function formulaNode(tex, isBlock) {
  try {
    const math = node("math", new Parser(tex).row(null, 0));
    if (isBlock) math.setAttribute("display", "block");
    return math;
  } catch {
    return Object.assign(document.createElement("code"), { className: "formula", textContent: tex.trim() });
  }
}
