"""AsciiDoc (.adoc) and Org (.org): converted into Markdown, each line with its number in the file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markup import front_fields, markdown_blocks
from kcard.training.readers.text import lines
from kcard.training.readers.web_tables import grid_of

Line = tuple[int, str]  # the number of a line in the file, and its text

# Signs of Markdown; struck-through words stand between STRUCK and STRUCK_END until the others are escaped.
MARKS = re.compile(r"([\\`*_\[\]<>#|~&!])")
FIRST_MARK = re.compile(r"(\d*)([-+=:.)])")  # of a list, a definition or a line under a heading
STRUCK, STRUCK_END = "\ue000", "\ue001"
MAX_HEADING_LEVEL = 6


def escaped(text: str) -> str:
    """Return a text in which no sign means anything in Markdown."""
    text = MARKS.sub(r"\\\1", text)
    return text.replace(STRUCK, "~~").replace(STRUCK_END, "~~")


def without_struck_words(text: str) -> str:
    return re.sub(f"{STRUCK}[^{STRUCK_END}]*{STRUCK_END}", "", text).strip()


def paragraph(text: str) -> str:
    """Return the line of a paragraph, escaped, also where it begins as an item of a list does."""
    words = text.strip()
    if mark := FIRST_MARK.match(words):
        return f"{mark[1]}\\{mark[2]}{escaped(words[mark.end() :])}"
    return escaped(words)


def numbered_blocks(rows: Sequence[Line], skips: SkipReport) -> Iterator[Block]:
    """Yield the blocks of lines of Markdown, by their numbers."""
    numbers = [number for number, _ in rows]
    texts = enumerate((text for _, text in rows), 1)
    for block in markdown_blocks(texts, skips):
        places = tuple((words, numbers[line - 1]) for words, line in block.lines)
        yield replace(block, line=numbers[block.line - 1], lines=places)


def markdown_table(grid: Sequence[Sequence[str]], has_names: bool, numbers: Sequence[int]) -> Iterator[Line]:
    """Yield the rows of a table, whose texts are in Markdown, after its names or empty ones."""
    width = max((len(cells) for cells in grid), default=0)
    if not width:
        return
    first = numbers[0]
    rows = [*zip(numbers, grid, strict=True)]
    if not has_names:
        rows.insert(0, (first, []))
    yield first, ""
    for at, (number, cells) in enumerate(rows):
        if at == 0:
            cells = [*cells, *[""] * (width - len(cells))]
        yield number, f"| {' | '.join(cells)} |"
        if at == 0:
            yield number, "|" + "---|" * width
    yield rows[-1][0], ""


# Org.

ORG_FIELD = re.compile(r"#\+(title|author|date|description|keywords):\s*(.+)", re.IGNORECASE)
ORG_HEADING = re.compile(r"(\*+)\s+(.*?)(?:\s+:([\w@#%:]+):)?\s*$")
ORG_BLOCK = re.compile(r"\s*#\+(begin|end)_(\w+)", re.IGNORECASE)
ORG_CODE = ("src", "example", "export")
ORG_DRAWER = re.compile(r"\s*:(PROPERTIES|LOGBOOK|CLOCK|[A-Z]+):\s*$")
ORG_RULE = re.compile(r"\s*\|[-+:\s|]*-[-+:\s|]*\|?\s*$")
ORG_ITEM = re.compile(r"(\s*)(?:[-+]|\s\*|(\d+)[.)])\s+(?:\[([ xX-])\]\s+)?(.*)")
ORG_EMPHASIS = re.compile(r"(?<![\w*/_=~+])([*/_])(?=\S)([^*/_\n]*?\S)\1(?![\w*/_=~+])")
ORG_CODE_MARKS = re.compile(r"(?<![\w*/_=~+])([=~])(?=\S)([^=~\n]*?\S)\1(?![\w*/_=~+])")
ORG_PRIORITY = re.compile(r"\[#[A-Z\d]\]\s*")
ORG_STRUCK = re.compile(r"(?<![\w+])\+(?=\S)([^+\n]*\S)\+(?![\w+])")
ORG_LINK = re.compile(r"\[\[[^\[\]]*\]\[([^\[\]]*)\]\]")
ORG_BARE_LINK = re.compile(r"\[\[(?:\w+:)?([^\[\]]*)\]\]")
ORG_NOTE = re.compile(r"\[fn:[^\[\]]*\]")
UNPUBLISHED = {"noexport", "ARCHIVE"}  # tags of sections that are not exported


def read_org(document: Document) -> Iterator[Block]:
    source = [*lines(document.path)]
    fields = dict[str, str]()
    for _, line in source:
        if field := ORG_FIELD.match(line):
            fields.setdefault(field[1].lower(), without_struck_words(org_text(field[2].strip())))
    yield from front_fields(fields, 1)
    yield from numbered_blocks([*org_lines(source, "title" in fields)], document.skips)


def org_lines(source: Iterable[Line], has_title: bool) -> Iterator[Line]:
    unpublished = 0  # level of the section that is left out
    code = drawer = comment = False
    table: list[Line] = []
    for number, line in [*source, (0, "")]:
        if table and not line.lstrip().startswith("|"):
            yield from org_table(table)
            table = []
        if not number:
            return
        is_heading = line.startswith("*") and not code
        heading = ORG_HEADING.match(" ".join(line.split())) if is_heading else None
        if heading and (not unpublished or len(heading[1]) <= unpublished):
            tags = {*(heading[3] or "").split(":")}
            hides = bool(tags & UNPUBLISHED) or heading[2].startswith("COMMENT")
            unpublished = len(heading[1]) if hides else 0
        if unpublished:
            continue
        block = ORG_BLOCK.match(line)
        if block:
            begins, kind = block[1].lower() == "begin", block[2].lower()
            if kind in ORG_CODE:
                code = begins
                yield number, "```"
            elif kind == "comment":
                comment = begins
        elif code:
            yield number, line.replace("```", "` ` `")
        elif comment:
            continue
        elif drawer:
            drawer = line.strip().upper() != ":END:"
        elif ORG_DRAWER.match(line):
            drawer = True
        elif heading:
            level = min(len(heading[1]) + has_title, MAX_HEADING_LEVEL)
            yield number, f"{'#' * level} {escaped(org_text(ORG_PRIORITY.sub('', heading[2])))}"
        elif line.lstrip().startswith("|"):
            table.append((number, line))
        elif caption := re.match(r"\s*#\+caption:\s*(.*)", line, re.IGNORECASE):
            yield number, escaped(org_text(caption[1]))
            yield number, ""
        elif not re.match(r"\s*#(?:\+|\s|$)", line):
            yield number, org_line(line)


def org_line(line: str) -> str:
    item = ORG_ITEM.match(line)
    if item is None:
        return paragraph(org_text(line))
    indent, count, state, text = item.groups()
    box = f"[{'x' if state in 'xX' else ' '}] " if state else ""
    term, is_term, meaning = text.partition(" :: ")
    words = f"{term}: {meaning}" if is_term else text
    return f"{indent}{f'{count}.' if count else '-'} {box}{escaped(org_text(words))}"


def org_table(rows: Sequence[Line]) -> Iterator[Line]:
    grid: list[list[str]] = []
    numbers: list[int] = []
    has_names = False
    for number, line in rows:
        if ORG_RULE.match(line):
            has_names = has_names or len(grid) == 1
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if all(re.fullmatch(r"<[lcr]?\d*>|", cell) for cell in cells):
            continue  # widths of columns
        grid.append([escaped(org_text(cell)) for cell in cells])
        numbers.append(number)
    yield from markdown_table(grid, has_names, numbers)


def org_text(text: str) -> str:
    text = ORG_BARE_LINK.sub(r"\1", ORG_LINK.sub(r"\1", ORG_NOTE.sub("", text)))
    text = ORG_STRUCK.sub(f"{STRUCK}\\1{STRUCK_END}", text)
    return ORG_CODE_MARKS.sub(r"\2", ORG_EMPHASIS.sub(r"\2", text))


# AsciiDoc.

ADOC_HEADING = re.compile(r"(={1,6}|#{1,6})\s+(\S.*)")
ADOC_ATTRIBUTE = re.compile(r":(!?[\w-]+!?):(?:\s+(.*))?$")
ADOC_AUTHOR = re.compile(r"([^\W\d_][^<>;:]*?)(?:\s*<[^<>]*>)?(?:;.*)?$")
ADOC_REVISION = re.compile(r"v?([\d.]+)?(?:,\s*)?(\d[\d-]{7,9}|[^\W\d_]+ \d{1,2},? \d{4})?(?::.*)?$")
ADOC_FIELDS = {"author": "author", "revdate": "date", "revnumber": "version", "description": "description",
               "keywords": "keywords"}  # fmt: skip
ADOC_CODE = re.compile(r"(-{4,}|\.{4,}|`{3,}.*)$")
ADOC_COMMENT = re.compile(r"/{4,}$")
ADOC_FRAME = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\+{4,}|\+|'{3,}|<{3,})$")
ADOC_OPTIONS = re.compile(r"\[([^\[\]]*)\]$")
ADOC_SILENT = re.compile(r"(?:ifdef|ifndef|ifeval|endif|toc)::|\[\[[^\[\]]*\]\]$|//(?!/)")
ADOC_ITEM = re.compile(r"\s*(?:(\*{1,5}|-)|(\.{1,5})|(\d+)\.)\s+(?:\[([ xX*])\]\s+)?(\S.*)")
ADOC_TERM = re.compile(r"\s*(\S.*?):{2,4}(?:\s+(.*))?$")
ADOC_TABLE = re.compile(r"\|={3,}$")
ADOC_CELL = re.compile(r"(?<!\\)(?:(?<!\S)(?:(\d+)?(?:\.(\d+))?\+|(\d+)\*)?[<^>.]*[aehlmsdv]?)?\|")
ADOC_NAME = re.compile(r"\{([\w-]+)\}")
ADOC_LINK = re.compile(r"(?:link:|xref:|mailto:|image::?|https?://|ftp://)([^\s\[\]]{0,1000})\[([^\[\]]*)\]")
ADOC_STRUCK = re.compile(r"\[\.?line-through\](#{1,2})(.+?)\1")
ADOC_ROLE = re.compile(r"\[[.\w#-]+\](?=[#*_`])")
ADOC_EMPHASIS = re.compile(r"(\*\*|__|``|##)(.+?)\1|(?<!\w)([*_`#+])(?=\S)([^*_`#+\n]*?\S)\3(?!\w)")
MAX_TABLE_COLUMNS = 100
MAX_HEADER_CHARACTERS = 500  # of the line with the author


def read_asciidoc(document: Document) -> Iterator[Block]:
    source = [*lines(document.path)]
    attributes, title = dict[str, str](), ""
    # The header: a title, the author, the revision and attributes, to the first empty line.
    body = 0
    for at, (_, line) in enumerate(source):
        if at == 0 and (heading := ADOC_HEADING.match(line)) and len(heading[1]) == 1:
            title = heading[2]
        elif attribute := ADOC_ATTRIBUTE.match(line):
            attributes[attribute[1]] = attribute[2] or ""
        elif title and at == 1 and (author := ADOC_AUTHOR.match(line[:MAX_HEADER_CHARACTERS])):
            attributes["author"] = author[1]
        elif title and at == 2 and "author" in attributes and (revision := ADOC_REVISION.match(line)):
            attributes |= {"revnumber": revision[1] or "", "revdate": revision[2] or ""}
        elif not line.startswith("//") and (line.strip() or at):
            break
        body = at + 1
    fields = {name: attributes[key] for key, name in ADOC_FIELDS.items() if attributes.get(key)}
    title = without_struck_words(asciidoc_text(title, attributes))
    yield from front_fields({"title": title} | fields, 1)
    yield from numbered_blocks([*asciidoc_lines(source[body:], attributes, document.skips)], document.skips)


def asciidoc_lines(source: Sequence[Line], attributes: dict[str, str], skips: SkipReport) -> Iterator[Line]:
    end = ""  # of the block that is open
    options, table = "", list[Line]()
    term = False  # whether the line before is one without its meaning
    for number, line in source:
        text = line.rstrip()
        if end:
            if text == end:
                if end.startswith("|"):
                    yield from asciidoc_table(table, options, attributes)
                elif not end.startswith("/"):
                    yield number, "```"
                end, options = "", ""
            elif end.startswith("|"):
                table.append((number, text))
            elif not end.startswith("/"):
                yield number, line.replace("```", "` ` `")
        elif ADOC_TABLE.match(text):
            end, table = text, []
        elif ADOC_COMMENT.match(text):
            end = text
        elif ADOC_CODE.match(text):
            end = "```" if text.startswith("`") else text
            yield number, "```"
        elif text.startswith("include::"):
            skips.dropped["included files"] += 1
        elif attribute := ADOC_ATTRIBUTE.match(text):
            attributes[attribute[1]] = attribute[2] or ""
        elif settings := ADOC_OPTIONS.match(text):
            options = settings[1]
        elif ADOC_FRAME.match(text):
            yield number, ""
        elif ADOC_SILENT.match(text):
            continue
        elif heading := ADOC_HEADING.match(text):
            yield number, ""
            yield number, f"{'#' * len(heading[1])} {escaped(asciidoc_text(heading[2], attributes))}"
            yield number, ""
        elif item := ADOC_ITEM.match(text):
            yield number, asciidoc_item(item, attributes)
        elif (entry := ADOC_TERM.match(text)) and "://" not in entry[1]:
            yield number, ""
            yield number, escaped(asciidoc_text(entry[1], attributes))
            if entry[2]:
                yield number, f": {escaped(asciidoc_text(entry[2], attributes))}"
                yield number, ""
            term = not entry[2]
            continue
        elif re.match(r"\.[^\s.]", text):  # the title of a block
            yield number, escaped(asciidoc_text(text[1:], attributes))
            yield number, ""
        else:
            words = paragraph(asciidoc_text(text.removesuffix(" +"), attributes))
            if term and not words:
                continue
            yield number, f": {words}" if term else words
        term = False


def asciidoc_item(item: re.Match[str], attributes: dict[str, str]) -> str:
    bullet, dots, count, state, text = item.groups()
    depth = len(bullet or dots or ".") - 1
    box = f"[{' ' if state == ' ' else 'x'}] " if state else ""
    mark = "-" if bullet else f"{count or 1}."
    return f"{'   ' * depth}{mark} {box}{escaped(asciidoc_text(text, attributes))}"


def asciidoc_table(rows: Sequence[Line], options: str, attributes: dict[str, str]) -> Iterator[Line]:
    # Cells with their spans: (text, columns, rows, number of the line).
    cells: list[tuple[str, int, int, int]] = []
    first_line = 0  # cells of it
    has_names = "header" in options
    for at, (number, line) in enumerate(rows):
        marks = [*ADOC_CELL.finditer(line)]
        if not first_line and not line.strip():
            continue
        before = line[: marks[0].start()] if marks else line
        if cells and before.strip():
            more = ADOC_ITEM.match(before)
            words = asciidoc_text(more[5] if more else before.strip(), attributes)
            text, columns, height, begins = cells[-1]
            cells[-1] = (
                f"{text}; {words}" if text and more else f"{text} {words}".strip(),
                columns,
                height,
                begins,
            )
        ends = [*(mark.start() for mark in marks), len(line)][1:]
        for mark, end in zip(marks, ends, strict=True):
            inner = line[mark.end() : end].strip()
            more = ADOC_ITEM.match(inner)
            words = asciidoc_text(more[5] if more else inner, attributes)
            columns, height = (min(int(span or 1), MAX_TABLE_COLUMNS) for span in (mark[1], mark[2]))
            for _ in range(min(int(mark[3] or 1), MAX_TABLE_COLUMNS)):
                cells.append((words, columns, height, number))
        if not first_line and cells:
            first_line = sum(columns for _, columns, _, _ in cells)
            is_alone = at + 1 < len(rows) and not rows[at + 1][1].strip()
            has_names = has_names or (at == 0 and is_alone and len(cells) > 1 and "noheader" not in options)
    width = min(columns_of(options) or first_line, MAX_TABLE_COLUMNS)
    # Rows of as many columns as the table has, less those that cells above cover.
    divided: list[list[tuple[str, int, int]]] = []
    numbers: list[int] = []
    covered: list[int] = []  # by column: rows that a cell from above still covers
    filled = 0
    for text, columns, height, number in cells:
        if not filled:
            divided.append([])
            numbers.append(number)
            covered = [max(0, more - 1) for more in covered] or [0] * width
            filled = sum(more > 0 for more in covered)
            if filled >= width:  # by cells of the same height, which leave no room for others
                covered, filled = [0] * width, 0
        columns = min(columns, width - filled)
        divided[-1].append((escaped(text), columns, height))
        free = [at for at, more in enumerate(covered) if not more][:columns]
        for at in free:
            covered[at] = height
        filled += columns
        if filled >= width:
            covered = [more or 1 for more in covered]
            filled = 0
    yield from markdown_table(grid_of(divided), has_names and len(divided) > 1, numbers)


def columns_of(options: str) -> int:
    """Return the number of columns that the options of a table name; 0 if they don't."""
    widths = re.search(r"cols\s*=\s*(?:\"([^\"]*)\"|([^\s,\]]*))", options)
    if widths is None:
        return 0
    count = 0
    for width in (widths[1] or widths[2] or "").replace(";", ",").split(","):
        times = re.match(r"\s*(\d+)\*", width)
        count += int(times[1]) if times else 1
    return min(count, MAX_TABLE_COLUMNS)


def asciidoc_text(text: str, attributes: dict[str, str]) -> str:
    """Return a text without marks, with the values of attributes and the words of links."""
    text = ADOC_NAME.sub(lambda name: attributes.get(name[1], name[0]), text)
    text = ADOC_STRUCK.sub(lambda part: f"{STRUCK}{part[2].strip()}{STRUCK_END}", text)
    text = ADOC_LINK.sub(lambda link: link[2].partition(",")[0].rstrip("^") or link[1], text)
    text = re.sub(r"<<[^<>,]*,\s*([^<>]*)>>", r"\1", re.sub(r"<<#?([^<>,]*)>>", r"\1", text))
    text = re.sub(r"footnote:\w*\[([^\[\]]*)\]", r" (\1)", text)
    text = re.sub(r"(?:kbd|btn|pass):\w*\[([^\[\]]*)\]|menu:(\w+)\[([^\[\]]*)\]", r"\1\2 \3", text)
    text = re.sub(r"\[\[[^\[\]]*\]\]|\(\(\([^()]*\)\)\)", "", text)
    text = ADOC_ROLE.sub("", re.sub(r"\(\(([^()]*)\)\)", r"\1", text))
    return ADOC_EMPHASIS.sub(lambda part: part[2] or part[4], text)
