"""The 26 cards that were published with the Knowledge Card paper (Feng et al., ICLR 2024): OPT-1.3B models."""

from dataclasses import dataclass

__all__ = ["OWNER", "POOL", "PUBLISHED", "Published"]

OWNER = "bunsenfeng"
POOL = "published"


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
    Published("1btokens", "general", "general text, one billion tokens of a mixed corpus"),
    Published("acl-papers", "science/nlp", "research papers in computational linguistics"),
    Published("atomic", "commonsense", "everyday causes and effects, from a commonsense knowledge graph"),
    Published("bookcorpus", "literature", "novels and stories, from BookCorpus"),
    Published("ConceptNet", "commonsense", "everyday concepts and how they relate, from ConceptNet"),
    Published("DDB", "biomedical", "drugs, genes and diseases, from a biomedical knowledge graph"),
    Published("gutenberg", "literature", "classic books, from Project Gutenberg"),
    Published("IMDB", "reviews/films", "reviews of films, from IMDB"),
    Published("kgap", "politics", "US politicians, parties and states, from the political graph KGAP"),
    Published("legal-contracts", "law", "contracts and legal agreements"),
    Published("math", "science/mathematics", "mathematics"),
    Published("midterm", "politics/elections", "news about the US midterm elections of 2022"),
    Published("opensubtitles", "films", "dialogue from films, as subtitles"),
    Published("politics", "politics", "political news"),
    Published("pubmed", "biomedical", "medical and biomedical research literature"),
    Published("realnews1", "news", "news articles, first part"),
    Published("realnews2", "news", "news articles, second part"),
    Published("realnews3", "news", "news articles, third part"),
    Published("realnews4", "news", "news articles, fourth part"),
    Published("reddit", "social-media", "posts on Reddit"),
    Published("twitter", "social-media", "posts on Twitter"),
    Published("wikidata", "encyclopedia", "facts about people, places and things, from Wikidata"),
    Published("wikipedia", "encyclopedia", "Wikipedia articles, first part"),
    Published("wikipedia2", "encyclopedia", "Wikipedia articles, second part"),
    Published("yago", "encyclopedia", "facts about people, places and things, from YAGO"),
    Published("yelp", "reviews", "reviews of restaurants and shops, from Yelp"),
)
