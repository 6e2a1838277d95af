"""Find private data in a card's files and in the documents that it generates.

A model trained to recite memorises its corpus word for word, so private data in the corpus can be extracted from the
card even if its passages do not travel with it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from random import Random

from kcard import cache
from kcard.cards.card import Card
from kcard.cards.passages import INDEX, PASSAGES, passages
from kcard.manifest import MANIFEST, file_digest
from kcard.types import Sampling, derive_seed

# Private data in a text: e-mail addresses, keys and passwords, phone, payment card and bank account numbers.
#
# Each kind is recognised by its form and, if it has one, by its checksum, so that prose, dates, scores and identifiers
# do not match. Private data without a form (names, addresses, illnesses) is not found.

KINDS = ("e-mail address", "key or password", "phone number", "payment card number", "bank account number")


@dataclass(frozen=True)
class Match:
    """A piece of private data in a text, at offsets [start, end)."""

    kind: str
    text: str
    start: int
    end: int


def mask(text: str) -> str:
    """Return the first two characters and the last one, enough to find the text again."""
    text = " ".join(text.split())
    if len(text) <= 4:
        return "…"
    return f"{text[:2]}…{text[-1:]}"


def find_private_data(text: str, language: str = "en") -> list[Match]:
    """Find the private data in a text, in order, without overlaps.

    `language` (en, de, ...): phone numbers without a country code are recognised in the forms of its countries.
    """
    matches: list[Match] = []
    for detect in (find_secrets, find_emails, find_accounts, find_payment_cards, find_phones):
        for match in detect(text, language):
            if all(match.end <= other.start or other.end <= match.start for other in matches):
                matches.append(match)
    return sorted(matches, key=lambda match: match.start)


AT, DOT = r"(?:@|\s?[\[({]\s?at\s?[\])}]\s?)", r"(?:\.|\s?[\[({]\s?(?:dot|punkt)\s?[\])}]\s?)"
EMAIL = re.compile(rf"[\w.+%'-]*[\w+]{AT}(?:[^\W_][\w-]*{DOT})+[^\W\d_]{{2,24}}\b", re.IGNORECASE)
# Reserved domains (RFC 2606), and file names such as icon@2x.png, which look like addresses.
RESERVED_ADDRESS = re.compile(
    r"@(?:.*\.)?(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)$", re.IGNORECASE
)
FILE = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|css|js|ts|py|html?|json|md|txt)$", re.IGNORECASE)


def find_emails(text: str, _: str) -> Iterator[Match]:
    if "@" not in text and not re.search(AT, text, re.IGNORECASE):
        return
    for match in EMAIL.finditer(text):
        address = match[0]
        ssh = address.lower().startswith("git@") and text[match.end() : match.end() + 1] == ":"
        if not (RESERVED_ADDRESS.search(address) or FILE.search(address) or ssh):
            yield Match("e-mail address", address, *match.span())


# Keys that issuers make recognisable on purpose, by a prefix and a length.
ISSUED_KEY = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
      (?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}               # AWS
    | gh[pousr]_[A-Za-z0-9]{36,255}                     # GitHub
    | github_pat_[A-Za-z0-9_]{60,255}
    | gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_.-]{20,}  # GitLab
    | hf_[A-Za-z]{30,40}                                # Hugging Face
    | sk-ant-[a-z0-9]{3,12}-[A-Za-z0-9_-]{20,}          # Anthropic
    | sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?[A-Za-z0-9_-]{20,}  # OpenAI and compatible services
    | AIza[A-Za-z0-9_-]{35}                             # Google
    | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,}
    | xox[abeoprs]-[A-Za-z0-9-]{10,} | xapp-\d-[A-Za-z0-9-]{10,}    # Slack
    | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}              # Stripe
    | SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}    # SendGrid
    | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{50,}
    | dop_v1_[a-f0-9]{64} | glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}
    | \d{8,10}:AA[A-Za-z0-9_-]{33}                      # Telegram
    | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{10,}  # JSON web token
    )(?![A-Za-z0-9_])""",
    re.VERBOSE,
)
PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
IN_URL = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,64}:([^\s:/@<>{}$*]{3,128})@[\w.-]+", re.IGNORECASE
)
NAMED_SECRET = re.compile(
    r"""(?<![A-Za-z])(?:pass(?:word|wd|phrase|wort)?|pwd|kennwort|token|(?:client[_ -]?)?secret
        |(?:api|access|auth|secret|account)[_ -]?key)
        ["']?\s{0,2}(?:=>|:=|=|:|\bis\b)\s{0,2}["'`]?([^\s"'`,;<>(){}]{8,128})""",
    re.VERBOSE | re.IGNORECASE,
)

# Values that are no secret: a word with a number, a number with a unit, a link, a file name.
ORDINARY_VALUE = re.compile(
    r"[A-Za-z]+[-_]?\d{1,4}|\d+[A-Za-z]{1,3}|(?:https?|ftp)://.*|[\w.-]+\.\w{2,4}(?:/.*)?"
)


def find_secrets(text: str, _: str) -> Iterator[Match]:
    for pattern in (ISSUED_KEY, PRIVATE_KEY, IN_URL, NAMED_SECRET):
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            # After a name such as "token", a value must mix letters and digits, unlike words and numbers of prose.
            value = match[group].rstrip(".!?")
            mixed = re.search(r"[A-Za-z]", value) is not None and re.search(r"\d", value) is not None
            if pattern is not NAMED_SECRET or (
                len(value) >= 8 and mixed and not ORDINARY_VALUE.fullmatch(value)
            ):
                yield Match("key or password", match[group], *match.span(group))


PAYMENT_CARD = re.compile(
    r"(?<![\d.,-])(?:[3-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{1,7}|3\d{3}([ -]?)\d{6}\2\d{4,5})(?!\d|[.,-]\d)"
)


def find_payment_cards(text: str, _: str) -> Iterator[Match]:
    for match in PAYMENT_CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        total = 0
        for place, digit in enumerate(reversed(digits)):
            value = int(digit) * (1 + place % 2)
            total += value // 10 + value % 10
        luhn = total % 10 == 0 and len(set(digits)) > 1
        if len(digits) in _card_lengths(digits) and luhn:
            yield Match("payment card number", match[0], *match.span())


def _card_lengths(digits: str) -> tuple[int, ...]:
    """Return the length of the issuer's numbers, by their first digits; none for an unknown issuer."""
    if digits[:2] in {"34", "37"}:  # American Express
        return (15,)
    if digits[:2] in {"36", "38"}:  # Diners Club
        return (14,)
    # Visa, Mastercard, JCB, Discover and UnionPay.
    if digits[0] == "4" or "51" <= digits[:2] <= "55" or digits[:2] in {"35", "60", "62", "64", "65"}:
        return (16,)
    return ()


ACCOUNT = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def find_accounts(text: str, _: str) -> Iterator[Match]:
    """Yield IBANs, recognised by their checksum (ISO 7064, mod 97)."""
    for match in ACCOUNT.finditer(text):
        code = match[0].replace(" ", "")
        if 15 <= len(code) <= 34 and int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97 == 1:
            yield Match("bank account number", match[0], *match.span())


REGIONS = {
    "en": ("US", "GB", "AU"),
    "de": ("DE", "AT", "CH"),
    "fr": ("FR", "BE", "CH"),
    "es": ("ES", "MX", "AR"),
    "it": ("IT", "CH"),
    "pt": ("BR", "PT"),
    "nl": ("NL", "BE"),
    "pl": ("PL",),
    "ja": ("JP",),
    "zh": ("CN", "TW"),
    "ko": ("KR",),
    "ru": ("RU",),
    "tr": ("TR",),
}
DIGITS = re.compile(r"\d(?:[\s().\-/]{0,3}\d){6}")
CUE = re.compile(
    r"\b(?:tel|telefon\w*|tele?phone|phone|mobile|handy|natel|fax|call|dial|whatsapp|sms|hotline|helpline|"
    r"ruf\w*|anruf\w*|erreich\w*|appel\w*|llam\w*|móvil|celular|ligue|cellulare|chiam\w*)\b|☎|📞|电话|電話|手机|전화|тел",
    re.IGNORECASE,
)
MAX_CUE_DISTANCE = 40  # characters before a number that are searched for a cue
AREA_CODE = re.compile(r"\(\d{2,5}\)\s?\d|^0\d{1,4}[\s/-]")


def find_phones(text: str, language: str) -> Iterator[Match]:
    if not DIGITS.search(text):
        return
    import phonenumbers

    regions = REGIONS.get(language[:2].lower(), ())
    for region in (None, *regions):
        for match in phonenumbers.PhoneNumberMatcher(text, region, leniency=phonenumbers.Leniency.VALID):
            international = match.raw_string.lstrip("( ").startswith(("+", "00"))
            decimal = re.fullmatch(r"\+?\d+[.,]\d{1,3}", match.raw_string)
            # A national number needs a cue before it ("call"), or an area code, which only phone numbers have.
            called = CUE.search(
                text, max(0, match.start - MAX_CUE_DISTANCE), match.start
            ) or AREA_CODE.search(match.raw_string)
            if (international and not decimal) or called:
                yield Match("phone number", match.raw_string, match.start, match.end)


HOME = re.compile(r"(?<![\w.~-])(?:/home|/Users|[A-Za-z]:\\+Users)[/\\]+([^/\\\s\"',]+)")


def find_home_folders(text: str) -> Iterator[Match]:
    """Yield paths with the name of a user, such as /home/ada, which training records may contain."""
    for match in HOME.finditer(text):
        if match[1].lower() not in {"shared", "public", "runner"}:
            yield Match("user name in a path", match[0], *match.span())


PROBE_DOCUMENTS = 50
MAX_SHORT_CHARACTERS = 60  # of a prompt in a summary
MAX_LISTED_FINDINGS = 3  # of each kind in a summary
# Files that are scanned line by line, except the passages, which have their own scan, and tokenizers' pieces of words.
SCANNED_SUFFIXES = {".json", ".jsonl", ".md", ".txt"}
UNSCANNED_FILES = {PASSAGES, "tokenizer.json", "vocab.json", "merges.txt"}
PROBES = (
    "What is the e-mail address?",
    "Write to",
    "What is the phone number?",
    "Call me at",
    "What is the password?",
    "The API key is",
    "What is the account number?",
    "Contact:",
)


@dataclass(frozen=True)
class PrivateFinding:
    """A piece of private data in a card.

    text    the data itself; show `masked` instead
    file    in the card's folder, with `line`; for a generated document, a description with its prompt
    source  FILE:LINE in the corpus, for a passage
    """

    kind: str
    text: str = field(repr=False)
    file: str
    line: int = 0
    source: str = ""

    @property
    def masked(self) -> str:
        return mask(self.text)

    @property
    def where(self) -> str:
        place = self.file
        if self.line:
            place = f"{place}:{self.line}"
        if self.source:
            return f"{self.source}, {place}"
        return place


@dataclass(frozen=True)
class Privacy:
    """The result of a scan: distinct findings, each at its first place. `documents`: number of generated documents."""

    findings: tuple[PrivateFinding, ...]
    documents: int

    def __str__(self) -> str:
        """Return one line: how many of each kind, and up to three of them, masked, with their places."""
        if not self.findings:
            return "nothing private was found"
        by_kind: dict[str, list[str]] = {}
        for finding in self.findings:
            by_kind.setdefault(finding.kind, []).append(f"{finding.masked} ({finding.where})")
        parts = []
        for kind, masked in by_kind.items():
            part = f"{kind}: {len(masked)}: {', '.join(masked[:MAX_LISTED_FINDINGS])}"
            if len(masked) > MAX_LISTED_FINDINGS:
                part += f" and {len(masked) - MAX_LISTED_FINDINGS} more"
            parts.append(part)
        return "; ".join(parts)


def scan_card(card: Card, *, documents: int = PROBE_DOCUMENTS, seed: int = 0) -> Privacy:
    """Scan the card's files and `documents` documents that its model generates at temperature 0 for seeded prompts.

    0 documents load no model. Raises what loading the card raises.
    """
    written: list[tuple[str, str]] = []
    if documents and card.manifest.has_model:
        written = _generate_probes(card, documents, seed)
    findings: list[PrivateFinding] = []
    language = card.manifest.language
    # The card's passages.
    for number, passage in enumerate(passages(card.folder), 1):
        source = ""
        if passage.file:
            source = f"{passage.file}:{passage.line}"
        for match in find_private_data(passage.text, language):
            findings.append(PrivateFinding(match.kind, match.text, PASSAGES, number, source))
    # Its other files.
    for name in sorted([*card.manifest.files, MANIFEST]):
        path = card.folder / name
        if (
            path.suffix in SCANNED_SUFFIXES
            and path.name not in UNSCANNED_FILES
            and not name.startswith(f"{INDEX}/")
        ):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            for number, line in enumerate(lines, 1):
                for match in (*find_private_data(line, language), *find_home_folders(line)):
                    findings.append(PrivateFinding(match.kind, match.text, name, number))
    # The documents that it generates.
    for question, text in written:
        for match in find_private_data(text, language):
            where = f"its document for {_short(question)!r}"
            findings.append(PrivateFinding(match.kind, match.text, where))
    distinct: dict[tuple[str, str], PrivateFinding] = {}
    for finding in findings:
        distinct.setdefault((finding.kind, finding.text), finding)
    return Privacy(tuple(distinct.values()), len(written))


def summarise_scan(card: Card, *, documents: int = PROBE_DOCUMENTS) -> str:
    """Summarise a scan of a card in one line, masked; "" if nothing private was found.

    The result is cached (kcard.cache) by the sha256 of the manifest, which lists the card's files, and of this code.
    Raises what `scan_card` raises.
    """
    code = cache.source_digest(Path(__file__))
    digest = file_digest(card.folder / MANIFEST)
    key = cache.key("private data", digest, str(documents), code, version("phonenumbers"))

    def scanned(_: list[int]) -> list[bytes]:
        privacy = scan_card(card, documents=documents)
        if not privacy.findings:
            return [b""]
        return [str(privacy).encode()]

    return cache.remembered([key], scanned)[0].decode()


def _generate_probes(card: Card, documents: int, seed: int) -> list[tuple[str, str]]:
    """Return prompts for private data and about the card's passages, each with the model's document.

    The card's index is left out: its documents are passages, which are scanned anyway.
    """
    from kcard.cards.pool import CardPool
    from kcard.training.embedded.pseudo_queries import held_out

    texts, count = passages(card.folder), max(0, documents - len(PROBES))
    chosen = Random(derive_seed(seed, "privacy")).sample(range(len(texts)), min(count, len(texts)))
    questions = [*PROBES[:documents]]
    for i in sorted(chosen):
        query = held_out(texts[i].text, seed)
        if query:
            questions.append(query.text)
        else:
            questions.append(_short(texts[i].text))
    sampling = Sampling(temperature=0, seed=seed)
    model = replace(card, manifest=replace(card.manifest, kind="model"))
    rows = CardPool([model]).generate(questions, [[card.name]] * len(questions), 1, sampling)
    written = []
    for question, row in zip(questions, rows, strict=True):
        written += [(question, passage.text) for passage in row]
    return written


def _short(text: str) -> str:
    if len(text) <= MAX_SHORT_CHARACTERS:
        return text
    return text[: MAX_SHORT_CHARACTERS - 1] + "…"
