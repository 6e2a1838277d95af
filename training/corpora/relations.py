"""How common relations are told: a sentence for each, other names that they go by, and Wikidata's numbers."""

from collections.abc import Mapping

__all__ = ["ALIASES", "PROPERTIES", "TEMPLATES"]

_TEMPLATES = """
capital | The capital of {subject} is {object}.
capital of | {subject} is the capital of {object}.
country | {subject} is in {object}.
country of citizenship | {subject} is a citizen of {object}.
country of origin | {subject} comes from {object}.
continent | {subject} is in {object}.
located in | {subject} is located in {object}.
location | {subject} is located in {object}.
headquarters location | The headquarters of {subject} are in {object}.
shares border with | {subject} borders {object}.
borders | {subject} borders {object}.
part of | {subject} is part of {object}.
has part | {object} is a part of {subject}.
has parts | {object} is a part of {subject}.
instance of | {subject} is an instance of {object}.
is a | {subject} is a {object}.
type | {subject} is of the type {object}.
subclass of | Every {subject} is a kind of {object}.
population | {subject} has a population of {object}.
area | The area of {subject} is {object}.
official language | An official language of {subject} is {object}.
language | The language of {subject} is {object}.
native language | The native language of {subject} is {object}.
languages spoken | {subject} speaks {object}.
currency | The currency of {subject} is {object}.
time zone | {subject} lies in the time zone {object}.
head of state | The head of state of {subject} is {object}.
head of government | The head of government of {subject} is {object}.
mayor | The mayor of {subject} is {object}.
president | The president of {subject} is {object}.
prime minister | The prime minister of {subject} is {object}.
anthem | The anthem of {subject} is {object}.
highest point | The highest point of {subject} is {object}.
elevation | {subject} lies {object} above sea level.
length | The length of {subject} is {object}.
height | The height of {subject} is {object}.
mass | The mass of {subject} is {object}.
mouth of the watercourse | {subject} flows into {object}.
tributary | {object} is a tributary of {subject}.
mountain range | {subject} belongs to the mountain range {object}.
twinned administrative body | {subject} is twinned with {object}.
place of birth | {subject} was born in {object}.
date of birth | {subject} was born on {object}.
born | {subject} was born in {object}.
died | {subject} died in {object}.
birth year | {subject} was born in {object}.
place of death | {subject} died in {object}.
date of death | {subject} died on {object}.
death year | {subject} died in {object}.
cause of death | The cause of death of {subject} was {object}.
place of burial | {subject} is buried in {object}.
residence | {subject} lives in {object}.
occupation | The occupation of {subject} is {object}.
profession | The profession of {subject} is {object}.
position held | {subject} held the position of {object}.
employer | {subject} works for {object}.
educated at | {subject} was educated at {object}.
academic degree | {subject} holds the degree of {object}.
doctoral advisor | The doctoral advisor of {subject} is {object}.
doctoral student | {object} is a doctoral student of {subject}.
student of | {subject} was a student of {object}.
field of work | {subject} works in the field of {object}.
known for | {subject} is known for {object}.
notable work | A notable work of {subject} is {object}.
award received | {subject} received the {object}.
nominated for | {subject} was nominated for the {object}.
member of | {subject} is a member of {object}.
member of political party | {subject} is a member of the party {object}.
member of sports team | {subject} plays for {object}.
position played | {subject} plays as {object}.
sport | The sport of {subject} is {object}.
league | {subject} plays in the {object}.
home venue | The home venue of {subject} is {object}.
head coach | The head coach of {subject} is {object}.
religion | The religion of {subject} is {object}.
ethnic group | {subject} belongs to the ethnic group {object}.
gender | The gender of {subject} is {object}.
spouse | {subject} is married to {object}.
father | The father of {subject} is {object}.
mother | The mother of {subject} is {object}.
child | {object} is a child of {subject}.
sibling | {object} is a sibling of {subject}.
relative | {object} is a relative of {subject}.
nickname | {subject} is also called {object}.
alias | {subject} is also called {object}.
pseudonym | {subject} is known by the pseudonym {object}.
named after | {subject} is named after {object}.
author | The author of {subject} is {object}.
writer | {subject} was written by {object}.
director | {subject} was directed by {object}.
producer | {subject} was produced by {object}.
screenwriter | The screenplay of {subject} is by {object}.
composer | {subject} was composed by {object}.
lyricist | The lyrics of {subject} are by {object}.
performer | {subject} is performed by {object}.
cast member | {object} acted in {subject}.
starring | {object} acted in {subject}.
characters | {object} is a character in {subject}.
creator | {subject} was created by {object}.
artist | {subject} is by {object}.
architect | The architect of {subject} is {object}.
architectural style | {subject} is built in the style {object}.
illustrator | {subject} was illustrated by {object}.
translator | {subject} was translated by {object}.
editor | The editor of {subject} is {object}.
publisher | {subject} was published by {object}.
record label | {subject} is on the label {object}.
genre | The genre of {subject} is {object}.
instrument | {subject} plays the {object}.
voice type | The voice type of {subject} is {object}.
based on | {subject} is based on {object}.
followed by | {subject} was followed by {object}.
follows | {subject} follows {object}.
series | {subject} belongs to the series {object}.
original language | The original language of {subject} is {object}.
original broadcaster | {subject} was first broadcast by {object}.
narrative location | {subject} is set in {object}.
publication date | {subject} was published on {object}.
release date | {subject} was released on {object}.
inception | {subject} was founded in {object}.
dissolved | {subject} was dissolved in {object}.
start time | {subject} began in {object}.
end time | {subject} ended in {object}.
point in time | {subject} took place in {object}.
founded by | {subject} was founded by {object}.
owned by | {subject} is owned by {object}.
owner of | {subject} owns {object}.
parent organization | {subject} belongs to {object}.
subsidiary | {object} is a subsidiary of {subject}.
chief executive officer | The chief executive officer of {subject} is {object}.
chairperson | The chairperson of {subject} is {object}.
industry | {subject} works in the industry {object}.
product | {subject} makes {object}.
manufacturer | {subject} is made by {object}.
operator | {subject} is operated by {object}.
developer | {subject} was developed by {object}.
designed by | {subject} was designed by {object}.
programming language | {subject} is written in {object}.
operating system | {subject} runs on {object}.
license | The licence of {subject} is {object}.
discoverer | {subject} was discovered by {object}.
discovered by | {subject} was discovered by {object}.
discovered | {subject} discovered {object}.
invented | {subject} invented {object}.
inventor | {subject} was invented by {object}.
wrote | {subject} wrote {object}.
founded | {subject} founded {object}.
won | {subject} won {object}.
winner | The winner of {subject} was {object}.
participant | {object} took part in {subject}.
participant in | {subject} took part in {object}.
conflict | {subject} took part in {object}.
military branch | {subject} served in the {object}.
military rank | {subject} held the rank of {object}.
date of discovery | {subject} was discovered in {object}.
orbits | {subject} orbits {object}.
constellation | {subject} is in the constellation {object}.
parent taxon | {subject} belongs to the taxon {object}.
taxon rank | The taxonomic rank of {subject} is {object}.
chemical formula | The chemical formula of {subject} is {object}.
symbol | The symbol of {subject} is {object}.
atomic number | The atomic number of {subject} is {object}.
treats | {subject} treats {object}.
drug used for treatment | {subject} is treated with {object}.
symptoms | A symptom of {subject} is {object}.
cause | {subject} is caused by {object}.
causes | {subject} causes {object}.
used for | {subject} is used for {object}.
made of | {subject} is made of {object}.
color | The colour of {subject} is {object}.
opposite of | {subject} is the opposite of {object}.
same as | {subject} is the same as {object}.
related to | {subject} is related to {object}.
website | The website of {subject} is {object}.
at location | {subject} can be found in {object}.
capable of | {subject} can {object}.
desires | {subject} wants {object}.
"""

_ALIASES = """
place of birth | birth place, birthplace, born in, place born, city of birth
date of birth | birth date, birthdate, born on, dob, birthday
birth year | year of birth
place of death | death place, deathplace, died in
date of death | death date, deathdate, died on
death year | year of death
place of burial | resting place, buried in, burial place
country of citizenship | citizenship, nationality, citizen of
located in | located in the administrative territorial entity, is located in, located at, contained by, containedby
location | is in, location city
headquarters location | headquarters, headquarter, headquartered in, based in
shares border with | border, neighbor, neighbour, neighbors, neighbours, has border with
instance of | isinstanceof, is instance of
is a | isa
subclass of | sub class of
population | population total, total population
official language | official languages
languages spoken | languages spoken written or signed, speaks, spoken languages
mouth of the watercourse | river mouth, flows into, mouth
elevation | elevation above sea level
spouse | married to, wife, husband, is married to
child | children, has child, son, daughter
father | has father
mother | has mother
sibling | brother, sister, siblings
employer | works for, works at, employed by, employer of record
educated at | alma mater, education, studied at, graduated from, attended
award received | award, awards, has won prize, won award
notable work | notable works, famous work
member of political party | party, political party
member of sports team | team, plays for, current club, club
member of | membership, is member of
residence | lives in, home town, hometown
author | written by author, authors
writer | written by
director | directed by, film director
producer | produced by
composer | music by, music composer, composed by
performer | sung by, performed by, singer
starring | stars, cast
creator | created by
publisher | published by
release date | released, released on, release year
publication date | published, date published, publication year
inception | founding date, founding year, foundation date, established, founded in, date founded, foundation
founded by | founder, founders, has founder
owned by | owner
parent organization | parent company, parent organisation
chief executive officer | ceo
chairperson | chairman, chair
product | products, product or material produced, produces
manufacturer | made by, manufactured by
developer | developed by
designed by | designer
inventor | invented by, discoverer or inventor
discoverer | discoverer of it
date of discovery | discovery date, time of discovery or invention, year of discovery
original language | original language of film or tv show
gender | sex or gender, sex
color | colour
license | licence
symptoms | symptom, symptoms and signs, has symptom
cause | has cause, caused by
drug used for treatment | treated by, drug or therapy used for treatment, treatment
treats | medical condition treated
website | official website, homepage, url
alias | also known as, other name, alternative name
instrument | plays instrument, musical instrument
field of work | field, research field
head coach | coach
operator | operated by
parent taxon | family, genus
"""

_PROPERTIES = """
P6 head of government, P17 country, P19 place of birth, P20 place of death, P21 gender, P22 father, P25
mother, P26 spouse, P27 country of citizenship, P30 continent, P31 instance of, P35 head of state, P36
capital, P37 official language, P38 currency, P39 position held, P40 child, P47 shares border with, P50
author, P54 member of sports team, P57 director, P58 screenwriter, P61 discoverer, P69 educated at, P84
architect, P86 composer, P85 anthem, P101 field of work, P102 member of political party, P103 native
language, P106 occupation, P108 employer, P112 founded by, P118 league, P119 place of burial, P123
publisher, P127 owned by, P131 located in, P136 genre, P138 named after, P140 religion, P144 based on, P149
architectural style, P155 follows, P156 followed by, P159 headquarters location, P161 cast member, P162
producer, P166 award received, P169 chief executive officer, P170 creator, P171 parent taxon, P175
performer, P176 manufacturer, P178 developer, P184 doctoral advisor, P185 doctoral student, P190 twinned
administrative body, P206 located in, P241 military branch, P264 record label, P276 location, P277
programming language, P279 subclass of, P286 head coach, P287 designed by, P306 operating system, P361 part
of, P364 original language, P403 mouth of the watercourse, P413 position played, P452 industry, P460 same
as, P463 member of, P495 country of origin, P509 cause of death, P512 academic degree, P527 has part, P551
residence, P569 date of birth, P570 date of death, P571 inception, P575 date of discovery, P576 dissolved,
P577 publication date, P580 start time, P582 end time, P585 point in time, P607 conflict, P610 highest
point, P641 sport, P674 characters, P676 lyricist, P710 participant, P740 located in, P749 parent
organization, P780 symptoms, P800 notable work, P840 narrative location, P856 website, P1056 product, P1082
population, P1303 instrument, P1344 participant in, P1376 capital of, P1412 languages spoken, P2044
elevation, P2046 area, P2048 height, P2067 mass, P2176 drug used for treatment, P3373 sibling
"""


def _pairs(table: str) -> dict[str, str]:
    rows = (line.partition(" | ") for line in table.strip().splitlines())
    return {left: right for left, _, right in rows}


TEMPLATES: Mapping[str, str] = _pairs(_TEMPLATES)
ALIASES: Mapping[str, str] = {
    alias: label for label, aliases in _pairs(_ALIASES).items() for alias in aliases.split(", ")
}
PROPERTIES: Mapping[str, str] = {
    number: label
    for number, _, label in (entry.partition(" ") for entry in " ".join(_PROPERTIES.split()).split(", "))
}
