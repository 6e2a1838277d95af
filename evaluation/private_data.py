"""Finds private data in text: e-mail addresses, keys and passwords, phone, card and account numbers.

It knows texts only, no cards. Each kind is recognised by its form and, where the form has a checksum, by that;
so that prose, dates, scores and identifiers are left alone. What has no form (names, addresses, illnesses) is
not found.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["KINDS", "Match", "find", "home_folders", "masked"]

KINDS = ("e-mail address", "key or password", "phone number", "payment card number", "bank account number")


@dataclass(frozen=True)
class Match:
    """What was found, and where in the text: offsets [start, end)."""

    kind: str
    text: str
    start: int
    end: int


def masked(text: str) -> str:
    """Enough of it to be found again, and no more: the first two characters and the last."""
    text = " ".join(text.split())
    return f"{text[:2]}…{text[-1:]}" if len(text) > 4 else "…"


def find(text: str, language: str = "en") -> list[Match]:
    """Everything private in the text, in its order, without overlaps.

    `language` (en, de, ...) says in which countries' forms a phone number without +country may be written.
    """
    found: list[Match] = []
    for detect in (_secrets, _emails, _accounts, _payment_cards, lambda t: _phones(t, language)):
        for match in detect(text):
            if all(match.end <= other.start or other.end <= match.start for other in found):
                found.append(match)
    return sorted(found, key=lambda match: match.start)


AT, DOT = r"(?:@|\s?[\[({]\s?at\s?[\])}]\s?)", r"(?:\.|\s?[\[({]\s?(?:dot|punkt)\s?[\])}]\s?)"
EMAIL = re.compile(rf"[\w.+%'-]*[\w+]{AT}(?:[^\W_][\w-]*{DOT})+[^\W\d_]{{2,24}}\b", re.IGNORECASE)
# Names that belong to nobody (RFC 2606), files such as icon@2x.png, and git@host:path.
NOBODY = re.compile(r"@(?:.*\.)?(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)$", re.IGNORECASE)
FILE = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|css|js|ts|py|html?|json|md|txt)$", re.IGNORECASE)


def _emails(text: str) -> Iterator[Match]:
    if "@" not in text and not re.search(AT, text, re.IGNORECASE):
        return
    for found in EMAIL.finditer(text):
        address = found[0]
        ssh = address.lower().startswith("git@") and text[found.end() : found.end() + 1] == ":"
        if not (NOBODY.search(address) or FILE.search(address) or ssh):
            yield Match("e-mail address", address, *found.span())


# What issuers make recognisable on purpose: a prefix and a length.
ISSUED = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
      (?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}               # AWS
    | gh[pousr]_[A-Za-z0-9]{36,255}                     # GitHub
    | github_pat_[A-Za-z0-9_]{60,255}
    | gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_.-]{20,}  # GitLab
    | hf_[A-Za-z]{30,40}                                # Hugging Face
    | sk-ant-[a-z0-9]{3,12}-[A-Za-z0-9_-]{20,}          # Anthropic
    | sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?[A-Za-z0-9_-]{20,}  # OpenAI and those who follow it
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
NAMED = re.compile(
    r"""(?<![A-Za-z])(?:pass(?:word|wd|phrase|wort)?|pwd|kennwort|token|(?:client[_ -]?)?secret
        |(?:api|access|auth|secret|account)[_ -]?key)
        ["']?\s{0,2}(?:=>|:=|=|:|\bis\b)\s{0,2}["'`]?([^\s"'`,;<>(){}]{8,128})""",
    re.VERBOSE | re.IGNORECASE,
)

# A word with a number, a number with a unit, a link, a file name.
ORDINARY = re.compile(r"[A-Za-z]+[-_]?\d{1,4}|\d+[A-Za-z]{1,3}|(?:https?|ftp)://.*|[\w.-]+\.\w{2,4}(?:/.*)?")


def _secrets(text: str) -> Iterator[Match]:
    for pattern in (ISSUED, PRIVATE_KEY, IN_URL, NAMED):
        for found in pattern.finditer(text):
            group = found.lastindex or 0
            if pattern is not NAMED or _looks_made_up(found[group]):
                yield Match("key or password", found[group], *found.span(group))


def _looks_made_up(value: str) -> bool:
    """Letters and digits mixed, as in no word, name or number of prose."""
    value = value.rstrip(".!?")
    mixed = re.search(r"[A-Za-z]", value) is not None and re.search(r"\d", value) is not None
    return len(value) >= 8 and mixed and not ORDINARY.fullmatch(value)


PAYMENT_CARD = re.compile(
    r"(?<![\d.,-])(?:[3-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{1,7}|3\d{3}([ -]?)\d{6}\2\d{4,5})(?!\d|[.,-]\d)"
)


def _payment_cards(text: str) -> Iterator[Match]:
    for found in PAYMENT_CARD.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        if len(digits) in _lengths(digits) and _luhn(digits):
            yield Match("payment card number", found[0], *found.span())


def _lengths(digits: str) -> tuple[int, ...]:
    """How long a number of the issuer is: 4 Visa, 34/37 Amex, 51-55 and 22-27 Mastercard, 36 Diners, 60/65, 35."""
    if digits[:2] in {"34", "37"}:
        return (15,)
    if digits[:2] in {"36", "38"}:
        return (14,)
    if digits[0] == "4" or "51" <= digits[:2] <= "55" or digits[:2] in {"35", "60", "62", "64", "65"}:
        return (16,)
    return ()


def _luhn(digits: str) -> bool:
    doubled = (int(d) * 2 if i % 2 else int(d) for i, d in enumerate(reversed(digits)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0 and len(set(digits)) > 1


ACCOUNT = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def _accounts(text: str) -> Iterator[Match]:
    """IBANs, by their checksum (ISO 7064, mod 97)."""
    for found in ACCOUNT.finditer(text):
        code = found[0].replace(" ", "")
        if 15 <= len(code) <= 34 and int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97 == 1:
            yield Match("bank account number", found[0], *found.span())


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
NEAR = 40  # characters before a number in which a cue may stand
PLACED = re.compile(r"\(\d{2,5}\)\s?\d|^0\d{1,4}[\s/-]")


def _phones(text: str, language: str) -> Iterator[Match]:
    if not DIGITS.search(text):
        return
    import phonenumbers

    regions = REGIONS.get(language[:2].lower(), ())
    for region in (None, *regions):
        for found in phonenumbers.PhoneNumberMatcher(text, region, leniency=phonenumbers.Leniency.VALID):
            international = found.raw_string.lstrip("( ").startswith(("+", "00"))
            decimal = re.fullmatch(r"\+?\d+[.,]\d{1,3}", found.raw_string)
            if (international and not decimal) or _is_told(text, found.start, found.raw_string):
                yield Match("phone number", found.raw_string, found.start, found.end)


def _is_told(text: str, start: int, written: str) -> bool:
    """Whether a national number is called a phone number, or is written as only phone numbers are."""
    return CUE.search(text, max(0, start - NEAR), start) is not None or PLACED.search(written) is not None


HOME = re.compile(r"(?<![\w.~-])(?:/home|/Users|[A-Za-z]:\\+Users)[/\\]+([^/\\\s\"',]+)")


def home_folders(text: str) -> Iterator[Match]:
    """Paths that name a user of the machine, such as /home/ada: for records of how a card was made."""
    for found in HOME.finditer(text):
        if found[1].lower() not in {"shared", "public", "runner"}:
            yield Match("user name in a path", found[0], *found.span())
