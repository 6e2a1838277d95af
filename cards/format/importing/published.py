"""The 26 cards that were published with the Knowledge Card paper (Feng et al., ICLR 2024): OPT-1.3B models.

Descriptions are those of the table in the README of BunsenFeng/Knowledge_Card, which is how the paper's LLM was told of
the cards; domains are ours. The cards are asked as they were trained, by the question alone.
"""

from dataclasses import dataclass

__all__ = ["OWNER", "POOL", "PUBLISHED", "TEMPLATE", "Published"]

OWNER = "bunsenfeng"
POOL = "published"
TEMPLATE = "{question}"


@dataclass(frozen=True)
class Published:
    """A published card. `suffix` ends the repository's name, knowledge-card-SUFFIX."""

    suffix: str
    domain: str
    description: str

    @property
    def repository(self) -> str:
        return f"{OWNER}/knowledge-card-{self.suffix}"


PUBLISHED = (
    Published("1btokens", "general", "1B tokens"),
    Published("acl-papers", "science/nlp", "*ACL papers"),
    Published("atomic", "commonsense", "commonsense knowledge graph"),
    Published("bookcorpus", "literature", "BookCorpus"),
    Published("ConceptNet", "commonsense", "commonsense knowledge graph"),
    Published("DDB", "biomedical", "biomedical knowledge graph"),
    Published("gutenberg", "literature", "Gutenberg"),
    Published("IMDB", "reviews/films", "IMDB movie reviews"),
    Published("kgap", "politics", "KGAP knowledge graph"),
    Published("legal-contracts", "law", "legal contracts"),
    Published("math", "science/mathematics", "math text"),
    Published("midterm", "politics/elections", "2022 US midterm election news"),
    Published("opensubtitles", "films", "movie subtitles"),
    Published("politics", "politics", "political news"),
    Published("pubmed", "biomedical", "medical literature"),
    Published("realnews1", "news", "real news, part 1"),
    Published("realnews2", "news", "real news, part 2"),
    Published("realnews3", "news", "real news, part 3"),
    Published("realnews4", "news", "real news, part 4"),
    Published("reddit", "social-media", "reddit posts"),
    Published("twitter", "social-media", "tweets"),
    Published("wikidata", "encyclopedia", "Wikidata knowledge graph"),
    Published("wikipedia", "encyclopedia", "Wikipedia"),
    Published("wikipedia2", "encyclopedia", "Wikipedia, cont."),
    Published("yago", "encyclopedia", "YAGO knowledge graph"),
    Published("yelp", "reviews", "yelp reviews"),
)
