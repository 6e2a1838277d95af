// Markdown of an answer as nodes of the page. Every text of the answer becomes a text node, and every element is one that
// is named here: no HTML is parsed, so that none has to be cleaned. Pictures are not loaded.

import { formulaNode } from "./formula.js";

const MAX_CHARACTERS = 60_000; // of a text that is formatted; a longer one is shown as it is
const MAX_DEPTH = 8; // of lists, quotations and emphasis within each other
const MAX_SPAN = 2000; // characters of a formula, of code within a line, of emphasised text
const MAX_ITEMS = 1_000_000; // number with which a list begins, at most

// Marks of sentences within the text: BEGIN opens one that is doubtful, END and a number closes the sentence.
const BEGIN = "\u{F0000}";
const END = 0xf0001;
const MAX_MARKS = 1000;
const MARK = /([\u{F0000}-\u{F03E9}])/u;
const ALL_MARKS = new RegExp(MARK.source, "gu");

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}#{1,6}\s+(.*?)\s*#*$/u;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const QUOTATION = /^ {0,3}> ?/;
const ITEM = /^( *)(?:([-*+])|(\d{1,9})[.)])(?: +|$)/;
const TABLE_RULE = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;
const OUTER_BAR = /^([\u{F0000}-\u{F03E9}]*)\||\|([\u{F0000}-\u{F03E9}]*)$/gu;
const LINK = /\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()<>]{1,1000}|mailto:[^\s()<>]{1,200})(?: +"[^"\n]{0,200}")?\)/y;
const ADDRESS = /https?:\/\/[^\s<>()[\]"'`*|\\]{1,1000}/y;
const WORD = /[\p{L}\p{N}]/u;

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function bare(line) {
  return line.replace(ALL_MARKS, "");
}

// Show `text` in `place`. `sentences`: [{ start, end, isDoubtful, after }] in order, without overlap; the nodes `after`
// follow the sentence.
export function showMarkdown(place, text, sentences = []) {
  place.replaceChildren();
  new Markdown(sentences.slice(0, MAX_MARKS)).show(place, text);
}

class Markdown {
  constructor(sentences) {
    this.sentences = sentences;
    this.isDoubtful = false;
    this.behindCode = null; // what follows the sentences of a block of code
  }

  show(place, text) {
    let marked = "";
    let at = 0;
    this.sentences.forEach(({ start, end, isDoubtful }, i) => {
      marked += bare(text.slice(at, start)) + (isDoubtful ? BEGIN : "") + bare(text.slice(start, end));
      marked += String.fromCodePoint(END + i);
      at = end;
    });
    marked += bare(text.slice(at));
    if (marked.length > MAX_CHARACTERS) this.addText(place, marked);
    else this.addBlocks(place, marked.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
  }

  // Text with its line breaks; doubtful sentences in a span of their own, and behind each sentence what follows it.
  addText(parent, text) {
    for (const part of text.split(MARK)) {
      if (part === BEGIN) this.isDoubtful = true;
      else if (MARK.test(part)) {
        this.isDoubtful = false;
        const { after } = this.sentences[part.codePointAt(0) - END];
        if (this.behindCode) this.behindCode.push(...after);
        else parent.append(...after);
      } else {
        part.split("\n").forEach((line, i) => {
          if (i) parent.append(element("br"));
          if (!line) return;
          parent.append(this.isDoubtful ? Object.assign(element("span", line), { className: "doubtful" }) : line);
        });
      }
    }
  }

  // A node that is no text, then the marks that its source had in it.
  addNode(parent, child, source) {
    parent.append(child);
    this.addText(parent, (source.match(ALL_MARKS) || []).join(""));
  }

  addBlocks(parent, lines, depth) {
    let at = 0;
    while (at < lines.length) {
      const line = bare(lines[at]);
      if (!line.trim()) {
        this.addText(parent, lines[at].trim()); // a mark may stand alone
        at += 1;
      } else if (FENCE.test(line)) at = this.addCode(parent, lines, at);
      else if (/^ *(?:\$\$|\\\[)/.test(line) && this.formulaEnd(lines, at) >= 0) at = this.addFormula(parent, lines, at);
      else if (RULE.test(line)) {
        this.addNode(parent, element("hr"), lines[at]);
        at += 1;
      } else if (HEADING.test(line)) {
        const heading = element("h3");
        this.addInline(heading, lines[at].replace(/^(\W*?)#{1,6}\s+/u, "$1"), depth + 1);
        parent.append(heading);
        at += 1;
      } else if (QUOTATION.test(line) && depth < MAX_DEPTH) at = this.addQuotation(parent, lines, at, depth);
      else if (ITEM.test(line) && depth < MAX_DEPTH) at = this.addList(parent, lines, at, depth);
      else if (this.isTable(lines, at)) at = this.addTable(parent, lines, at, depth);
      else at = this.addParagraph(parent, lines, at, depth);
    }
  }

  addCode(parent, lines, at) {
    const [, fence] = FENCE.exec(bare(lines[at]));
    let end = at + 1;
    while (end < lines.length && !bare(lines[end]).trim().startsWith(fence)) end += 1;
    const code = element("code");
    this.behindCode = [];
    this.addText(code, lines.slice(at + 1, end).join("\n"));
    this.addNode(parent, element("pre", code), lines[at] + (lines[end] || ""));
    // One of each, since every line of code counts as a sentence.
    const after = new Map(this.behindCode.map((node) => [node.textContent, node]));
    this.behindCode = null;
    if (after.size) parent.append(element("p", ...after.values()));
    return end + 1;
  }

  // The line that ends the formula which begins with a line; -1 if none does.
  formulaEnd(lines, at) {
    const opening = bare(lines[at]).trim();
    const closing = opening.startsWith("$$") ? "$$" : "\\]";
    if (opening.length > 3 && opening.endsWith(closing)) return at;
    for (let end = at + 1; end < Math.min(lines.length, at + 50); end += 1) {
      if (bare(lines[end]).trim().endsWith(closing)) return end;
    }
    return -1;
  }

  addFormula(parent, lines, at) {
    const end = this.formulaEnd(lines, at);
    const source = lines.slice(at, end + 1).join("\n");
    const tex = bare(source).trim().slice(2, -2);
    this.addNode(parent, element("p", formulaNode(tex, true)), source);
    return end + 1;
  }

  addQuotation(parent, lines, at, depth) {
    let end = at;
    while (end < lines.length && QUOTATION.test(bare(lines[end]))) end += 1;
    const quotation = element("blockquote");
    const inner = lines.slice(at, end).map((line) => this.withoutStart(line, QUOTATION.exec(bare(line))[0].length));
    this.addBlocks(quotation, inner, depth + 1);
    parent.append(quotation);
    return end;
  }

  // A line without its first characters; marks among them stay.
  withoutStart(line, length) {
    const marks = [];
    let rest = line;
    for (let left = length; left > 0; ) {
      const mark = MARK.exec(rest.slice(0, 2));
      if (mark?.index === 0) {
        marks.push(mark[0]);
        rest = rest.slice(2);
      } else {
        rest = rest.slice(1);
        left -= 1;
      }
    }
    return marks.join("") + rest;
  }

  addList(parent, lines, at, depth) {
    const [, indent, , number] = ITEM.exec(bare(lines[at]));
    const list = element(number === undefined ? "ul" : "ol");
    if (number !== undefined) list.start = Math.min(Number(number), MAX_ITEMS);
    while (at < lines.length) {
      const start = ITEM.exec(bare(lines[at]));
      if (!start || start[1].length !== indent.length || (start[3] === undefined) !== (number === undefined)) break;
      // The item: its line, further lines that are indented, and lines directly below them that begin nothing.
      const inner = [this.withoutStart(lines[at], start[0].length)];
      at += 1;
      for (; at < lines.length; at += 1) {
        const line = bare(lines[at]);
        const isIndented = line.search(/\S/) > indent.length;
        const isBlank = !line.trim();
        const isLazy = bare(inner[inner.length - 1]).trim() && !this.beginsBlock(line);
        if (!isBlank && !isIndented && !isLazy) break;
        const spaces = /^ */.exec(line)[0].length;
        inner.push(this.withoutStart(lines[at], Math.min(spaces, start[0].length)));
      }
      const item = element("li");
      this.addBlocks(item, inner, depth + 1);
      list.append(item);
    }
    parent.append(list);
    return at;
  }

  beginsBlock(line) {
    return [FENCE, HEADING, RULE, QUOTATION, ITEM].some((pattern) => pattern.test(line));
  }

  isTable(lines, at) {
    const below = lines[at + 1];
    return below !== undefined && lines[at].includes("|") && below.includes("-") && TABLE_RULE.test(bare(below));
  }

  addTable(parent, lines, at, depth) {
    const table = element("table");
    let row = at;
    for (; row < lines.length && lines[row].includes("|"); row += 1) {
      if (row === at + 1) {
        this.addText(parent, (lines[row].match(ALL_MARKS) || []).join(""));
        continue;
      }
      const cells = element("tr");
      const inner = lines[row].trim().replace(OUTER_BAR, "$1$2");
      for (const cell of inner.split("|")) {
        const place = element(row === at && bare(cell).trim() ? "th" : "td");
        this.addInline(place, cell.trim(), depth + 1);
        cells.append(place);
      }
      table.append(cells);
    }
    parent.append(table);
    return row;
  }

  addParagraph(parent, lines, at, depth) {
    let end = at + 1;
    while (end < lines.length && bare(lines[end]).trim() && !this.beginsBlock(bare(lines[end]))) {
      if (this.isTable(lines, end)) break;
      end += 1;
    }
    const paragraph = element("p");
    this.addInline(paragraph, lines.slice(at, end).map((line) => line.trim()).join("\n"), depth);
    parent.append(paragraph);
    return end;
  }

  // Emphasis, code, formulas and links.
  addInline(parent, text, depth) {
    let plain = 0; // where the text begins that has not been added
    let at = 0;
    while (at < text.length) {
      const span = "\\`$*_~[!h<".includes(text[at]) ? this.span(text, at, depth) : null;
      if (span === null) {
        at += 1;
        continue;
      }
      this.addText(parent, text.slice(plain, at));
      span.add(parent);
      at = plain = span.end;
    }
    this.addText(parent, text.slice(plain));
  }

  // What begins at a place of the text: { end, add }; null if it is text.
  span(text, at, depth) {
    const character = text[at];
    const next = text[at + 1] || "";
    if (character === "\\") {
      if (next === "(" || next === "[") return this.formula(text, at, 2, next === "(" ? "\\)" : "\\]");
      if (!/[!-/:-@[-`{-~]/.test(next)) return null;
      return { end: at + 2, add: (parent) => this.addText(parent, next) };
    }
    if (character === "`") return this.code(text, at);
    if (character === "$") {
      if (next === "$") return this.formula(text, at, 2, "$$");
      return /[\s$]/.test(next) ? null : this.formula(text, at, 1, "$");
    }
    if (character === "[" || character === "!") return this.link(text, at);
    if (character === "h") return this.address(text, at);
    if (character === "<") {
      const line = /^<br ?\/?>/i.exec(text.slice(at, at + 6));
      return line && { end: at + line[0].length, add: (parent) => parent.append(element("br")) };
    }
    return depth < MAX_DEPTH ? this.emphasis(text, at, depth) : null;
  }

  // Where `closing` stands, at most MAX_SPAN characters further; -1 if nowhere.
  closingAt(text, closing, from) {
    const distance = text.slice(from, from + MAX_SPAN).indexOf(closing);
    return distance < 0 ? -1 : from + distance;
  }

  formula(text, at, width, closing) {
    const end = this.closingAt(text, closing, at + width);
    if (end <= at + width) return null;
    // "$5 and $10" are no formula.
    const isMoney = closing === "$" && (/\s/.test(text[end - 1]) || /\d/.test(text[end + 1] || ""));
    if (isMoney) return null;
    const source = text.slice(at + width, end);
    const isBlock = closing === "$$" || closing === "\\]";
    return {
      end: end + closing.length,
      add: (parent) => this.addNode(parent, formulaNode(bare(source), isBlock), source),
    };
  }

  code(text, at) {
    const [run] = /^`+/.exec(text.slice(at, at + 20));
    const end = this.closingAt(text, run, at + run.length);
    if (end < 0) return { end: at + run.length, add: (parent) => this.addText(parent, run) };
    const add = (parent) => {
      const code = element("code");
      this.addText(code, text.slice(at + run.length, end));
      parent.append(code);
    };
    return { end: end + run.length, add };
  }

  link(text, at) {
    LINK.lastIndex = text[at] === "!" ? at + 1 : at;
    const link = LINK.exec(text);
    if (!link) return null;
    return { end: LINK.lastIndex, add: (parent) => this.addLink(parent, link[1], link[2]) };
  }

  address(text, at) {
    if (at && WORD.test(text[at - 1])) return null;
    ADDRESS.lastIndex = at;
    const address = ADDRESS.exec(text)?.[0].replace(ALL_MARKS, "|").split("|")[0].replace(/[.,:;!?]+$/, "");
    if (!address) return null;
    return { end: at + address.length, add: (parent) => this.addLink(parent, address, address) };
  }

  addLink(parent, label, address) {
    const link = Object.assign(element("a"), { href: bare(address), rel: "nofollow noopener noreferrer", target: "_blank" });
    this.addText(link, label);
    parent.append(link);
  }

  emphasis(text, at, depth) {
    const [run] = /^(?:\*{1,3}|_{1,3}|~~|~)/.exec(text.slice(at, at + 3));
    const character = run[0];
    const behind = text[at + run.length] || "";
    const isInWord = character === "_" && at > 0 && WORD.test(text[at - 1]);
    if (run === "~" || !behind || /\s/.test(behind) || behind === character || isInWord) return null;
    const rest = text.slice(at + run.length, at + MAX_SPAN);
    for (let end = rest.indexOf(run); end >= 0; ) {
      let length = run.length;
      while (rest[end + length] === character) length += 1;
      const after = rest[end + length] || "";
      const closes = !/\s/.test(rest[end - 1]) && !(character === "_" && WORD.test(after));
      if (length === run.length && closes) {
        return this.emphasised(rest.slice(0, end), run, at + 2 * run.length + end, depth);
      }
      end = rest.indexOf(run, end + length);
    }
    return null;
  }

  emphasised(inner, run, end, depth) {
    const add = (parent) => {
      const outer = element(run === "~~" ? "s" : run.length === 1 ? "em" : "strong");
      const place = run.length === 3 ? element("em") : outer;
      if (place !== outer) outer.append(place);
      this.addInline(place, inner, depth + 1);
      parent.append(outer);
    };
    return { end, add };
  }
}
