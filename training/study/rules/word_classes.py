"""Classes of English words that the rules know by heart."""

__all__ = ["ADVERBS", "AFTER_VERB", "AUXILIARIES", "DETERMINERS", "INSIDE", "NO_SUBJECT", "TYPES"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AUXILIARIES = _words(
    "is are was were has have had can could will would may might must should does did do cannot"
)
DETERMINERS = _words("a an the this that these those its his her their all any both each no")
# What follows a verb more often than a noun of the same form.
AFTER_VERB = DETERMINERS | _words(
    """in on at by for from with to into onto up down out off away back as over under between about after before during
    through until not only also many more most several some one two three four five six seven eight nine ten"""
)
# Words that begin something else than a subject.
NO_SUBJECT = _words(
    """in on at by for from with without to of as if when while after before since until because although though
    unless despite during under over between among per via once according another instead like no nor and but or so
    then thus hence however what which who how why where it this these those that they he she we i you there here its
    his her our their my your not one some many most such other both either neither each"""
)
# Words that a subject holds only with a clause of its own, or another subject.
INSIDE = _words("that which who whom whose where when if because although while to and or but as than")
ADVERBS = _words(
    "also first soon then often later still never always now once again even just eventually thus"
)
# The last word of a name that says what it names.
TYPES = _words(
    """university college school company corporation council museum institute association party army church act war
    empire republic river city street league bowl treaty law union society park island valley ocean sea lake mountain
    county parliament court station center centre bridge stadium conference championship game award festival series
    agency department committee commission bank hospital airport castle palace temple cathedral theatre theater hotel
    tower railway road highway agreement convention constitution movement revolution dynasty kingdom province district
    region fort mission program programme project protocol theorem"""
)
