"""The encodings of texts: byte order marks, what web pages declare, and a guess for a message."""

import codecs
import re
import unicodedata
from collections import Counter

# UTF-32 comes first, since its mark begins with that of UTF-16.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# What the label of a web page means, where it is not what Python takes it for, as browsers read it
# (https://encoding.spec.whatwg.org/#names-and-labels).
BROWSER_ENCODINGS = {
    **dict.fromkeys(("ascii", "iso8859-1", "cp1252"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("euc_kr", "johab"), "cp949"),
    "shift_jis": "cp932",
    "big5": "big5hkscs",
    # A page in UTF-16 without a mark could not be searched for its label.
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be", "utf-7"), "utf-8"),
}
DECLARATION = re.compile(
    rb"<meta\b[^>]{0,500}?\bcharset\s*=\s*[\"']?\s*([\w:.-]{1,40})|^\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([\w:.-]{1,40})",
    re.IGNORECASE,
)
MAX_DECLARATION_BYTES = 4096  # bytes


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding of a byte order mark at the beginning, with which it is removed."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    return None


def decode_page(page: bytes) -> str:
    """Decode a web page: by its byte order mark, else by what it declares, else as UTF-8; by a guess if most
    of its letters beyond ASCII are none then. Bytes that the encoding lacks become U+FFFD."""
    marked = marked_encoding(page)
    if marked is not None:
        return page.decode(marked, "replace")
    declared = declared_encoding(page)
    text = page.decode(declared or "utf-8", "replace")
    broken = text.count("\ufffd")
    if broken and 2 * broken > sum(not character.isascii() for character in text):
        text = page.decode(guess_encoding(page) or declared or "cp1252", "replace")
    return text


def declared_encoding(page: bytes) -> str | None:
    """Return the encoding that a web page declares; None for one that is not known."""
    match = DECLARATION.search(page[:MAX_DECLARATION_BYTES])
    if match is None:
        return None
    try:
        name = codecs.lookup((match[1] or match[2]).decode("ascii")).name
    except LookupError:
        return None
    return BROWSER_ENCODINGS.get(name, name)


# A guess at the encoding of a text that is not UTF-8: the one in which it reads most like its languages. It names the
# remedy of a message; the text is not read by it.

CANDIDATES = {
    "cp1252": "en fr de es it pt nl sv no nb da fi",
    "cp1250": "pl cs hu sk sl hr ro",
    "cp1251": "ru uk bg sr",
    "koi8-r": "ru",
    "cp1253": "el",
    "cp1254": "tr",
    "cp1255": "he",
    "cp1256": "ar fa",
    "gb18030": "zh",
    "big5": "zh",
    "cp932": "ja",
    "cp949": "ko",
}
LATIN = ("cp1252", "cp1250", "cp1254")
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC")
GUESSED_BYTES = 4000
MIN_PROBABILITY = 0.2
MAX_OTHER_SHARE = 0.1  # of the letters beyond ASCII, in another script
MIN_LETTER_SHARE = 0.2  # of such letters, to ASCII's
MIN_ODD = 2
# Of signs and of capitals within words, to such letters and to ASCII's.
MAX_ODD_SHARE, MAX_PLAIN_ODD_SHARE = 0.3, 0.1


def guess_encoding(data: bytes) -> str | None:
    """Return the most likely encoding of a text that is not UTF-8; None for what is no text."""
    sample = data[:GUESSED_BYTES]
    even, odd = sample[::2].count(0), sample[1::2].count(0)  # zeros
    if len(sample) > 8 and even > len(sample) / 4 and odd < even / 8:
        return "utf-16-be"
    if len(sample) > 8 and odd > len(sample) / 4 and even < odd / 8:
        return "utf-16-le"
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    best, most = None, MIN_PROBABILITY
    for encoding, languages in CANDIDATES.items():
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(sample, final=len(sample) == len(data))
        except UnicodeDecodeError:
            continue
        if not is_plausible(text, is_latin=encoding in LATIN):
            continue
        best = best or encoding
        probabilities = dict(identifier.rank(text))
        likely = 0.0
        for language in languages.split():
            likely += float(probabilities.get(language, 0))
        if likely > most:
            best, most = encoding, likely
    return best


def is_plausible(text: str, is_latin: bool) -> bool:
    """Return whether a text has no control characters, and letters beyond ASCII that are of one script, with few other
    signs and capitals within words. Unless it `is_latin`, they must not be rare."""
    scripts = Counter[str]()
    odd, before = 0, ""
    for character in text:
        odd += character.isupper() and before.islower()
        before = character
        if character.isascii() or character.isspace():
            if unicodedata.category(character) == "Cc" and character not in "\t\n\r\f":
                return False
        elif character.isalpha():
            script = unicodedata.name(character, "").partition(" ")[0]
            if script in EAST_ASIAN:
                script = "CJK"
            scripts[script] += 1
        elif unicodedata.category(character) in ("Cc", "Co", "Cn"):
            return False
        else:
            odd += unicodedata.category(character)[0] != "P"
    letters = scripts.total()
    others = letters - max(scripts.values(), default=0)
    plain = sum(character.isascii() and character.isalpha() for character in text)
    most_odd = MAX_ODD_SHARE * letters
    if is_latin:
        most_odd += MIN_ODD + MAX_PLAIN_ODD_SHARE * plain
    if not is_latin and letters < MIN_LETTER_SHARE * plain:
        return False
    return others <= MAX_OTHER_SHARE * letters and odd <= most_odd
