"""Contrast agent: the name of a T1-weighted scan goes in; whether it was taken with or without an agent comes out.

A word of absence, presence or time ("without", "mit", "avant") governs the noun behind it: "ohne KM" means that no agent was
given, "ohne FS" and "post op" are no evidence. The words below are in lower case and without accents, as `_tokens` makes them,
in English, German, French, Spanish, Italian and Portuguese, with a few of Dutch, Scandinavian and Slavic languages;
Korean, Chinese, Japanese and Turkish are rewritten in English first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum


class Agent(Enum):
    """Whether an agent was given, by a name or a field."""

    GIVEN = "given"
    NONE = "none"
    UNCLEAR = "unclear"  # contradictory or ambiguous
    UNKNOWN = "unknown"


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words))


# What governs the noun behind it. The bare ones mean the agent where no noun follows: "AX T1 PRE", "AX T1 W/O".
BEFORE_BARE = _any("pre|prae|pra|before|vor|vorher|avant|avt|antes|previo|prima|voor|før|fore|innan|przed|pred|prije|до")
AFTER_BARE = _any(
    "post", "after", "nach", "nachher", "apres", "despues", "depois", "dopo", "apos", "pos", "efter", "etter", "nakon", "после"
)
WITHOUT_BARE = _any(
    "wo", "without", "ohne", "sans", "sin", "senza", "sem", "zonder", "uden", "utan", "uten", "bez", "fara", "без"
)
WITHOUT = _any(
    r"geen|ingen|brak|no|non|not|nao|nicht|pas|ss|kein\w*|aucun\w*|ningun\w*|nessun\w*|nenhum\w*|refus\w*|declin\w*",
    r"verweiger\w*|minus|zero|ausencia|absence|lacking|contraindicat\w*",
)
WITH = _any("with", "w", "mit", "avec", "con", "com", "met", "med")
BEFORE, AFTER = _any("prior", "previous", "ante"), _any("tras", "following", "na", "po")  # "tras" is also a plane
GOVERNING = _any(*(kind.pattern for kind in (BEFORE_BARE, AFTER_BARE, WITHOUT_BARE, WITHOUT, WITH, BEFORE, AFTER)))
NONE_BEHIND = _any(  # "Contrast: None", "KM: keine"
    r"none|nil|nein|kein\w*|aucun\w*|ningun\w*|nessun\w*|nenhum\w*|free|frei\w*|off|not|nicht|nao|refus\w*|declin\w*",
    r"verweiger\w*|contraindicat\w*|absent\w*|neg(?:ativ\w*)?",
)

NOUN = (  # any of these means that an agent was given
    r"gd(?:dtpa|dota|bopta)?|gad\w*|gbca|contr(?:ast\w*)?|kontr(?:ast\w*)?|контраст\w*|ce|mdc|km|pdc|civ|enh(?:anc\w*)?|inj(?:e[ck]t\w*)?"
    r"|injizier\w*|dotarem|dotagraf|magnevist|multihance|omniscan|prohance|clariscan|optimark|elucirem|vueway|artirem"
)
STRONG = re.compile(NOUN)
WEAK = _any(  # an agent only where something governs them
    "c|agent|cont|con|dye|medium|media|mezzo|produit|medio|meio|mc|cte|dtpa|dota|gabe"
)
NATIVE = _any(r"nativ\w*|plain|basale|simples?|spontane|smdc|unkontrast\w*|unverst\w*|vierge|bianc[ao]|dirett[ao]|nce")
GIVEN_WORD = _any("cmdc")
AMBIGUOUS = _any("nc", r"n(?:gad\w*|gd)", "av", "unclear")  # "av" is avant or avec
ALONE = ((NATIVE, Agent.NONE), (GIVEN_WORD, Agent.GIVEN), (AMBIGUOUS, Agent.UNCLEAR))
FILLER = _any(
    r"and|und|et|en|och|og|y|i|и|e|a|von|ed|the|any|use|of|jegliche\w*|to|iv|intraven\w*|endoven\w*|d|de|del|della|dello|di|da|do|du|des|der|dem|l|la|le|el|il|admin\w*"
)
PLANE = _any(r"ax\w*|tra|trans(?:v\w*|ax\w*)?|sag\w*|cor(?:on\w*)?|obl\w*|dors?|2d|3d|t1w?|\d+(?:mm)?|iso")
EVENT = _any(  # what a scan may lie before or after, other than the agent
    r"op|ops|oper\w*|surg\w*|chir\w*|cirug\w*|cirurg\w*|qx|quirurg\w*|interv\w*|resec\w*|resek\w*|resez\w*|exer\w*|biops\w*|bx",
    r"crani\w*|kraniot\w*|rt|rth|xrt|crt|rct|ccrt|radio\w*|radiat\w*|wbrt|strahl\w*|bestrahl\w*|irrad\w*",
    r"chemo\w*|chimio\w*|quimio\w*|srs|sbrt|gk|gk\w+|lgk|gamma|cyber\w*|proton\w*|brachy\w*|rads?|litt|laser\w*|ablat\w*|therap\w*|terap\w*|behandl\w*|tx|trt|treat\w*|trait\w*|tratt?a\w*",
    r"steroid\w*|dex\w*|avastin|bev\w*|immun\w*|tmz|cycles?|dose|embo\w*|coil\w*|clip\w*|stent\w*|shunt|vps|etv|evd|dbs|vns|seeg|ieeg|grid|hifu|fus|implant\w*|ele[ck]trod\w*|transplant\w*",
    r"\w*ectom\w*|excis\w*|exzis\w*|punkt\w*|drain\w*|evac\w*|debulk\w*|neurosurg\w*|neurochir\w*|stereotaxie|scan|plan\w*",
    r"stroke|trauma\w*|ictal|seiz\w*|concuss\w*|injur\w*|bleed\w*|ha?emorr\w*|mva|mi|fall|deliver\w*|infect\w*|covid|sedat\w*|ana?esth\w*|exerc\w*|term|rx",
    r"mortem|natal|partum|foss|fossa|fosse|fosa|fossae|proc|process\w*|ant|anterior|visit\w*|day|days|tag|jour|dia|admission|discharge",
    r"\d*(?:h|hrs?|hours?|wks?|weeks?|wochen?|mo|months?|monate?|mois|mesi|meses|yrs?|years?)",
)
NEAR_EVENT = _any(  # an event right behind "post", but the scan's own property farther away: "POST ORBITS RT", "POST HEAD COIL"
    r"rt|rads?|coil|grid|fus|dose|cycles?|cranial\w*|interval|scan|plan\w*|term|rx|mi|mortem|foss\w*|fosa|proc|process\w*|ant|anterior",
    r"visit\w*|day|days|tag|jour|dia|admission|discharge|exer\w*|\d*(?:h|hrs?|hours?|wks?|weeks?|wochen?|mo|months?|monate?|mois|mesi)",
    r"\d*(?:meses|yrs?|years?)",
)
EVENT_REACH = 4  # words: "post right frontal lobe resection"
OTHER = _any(  # what a scan may have or lack, other than the agent
    r"fs|fat\w*|fatsat|sat|satur\w*|spair|spir|stir|mtc?|magnet\w*|motion|moco|grappa|ipat|pat|sense|asset|arc|flow|fc|norm\w*|filter",
    r"dis\d?d?|dc|blade|propeller|gating|trigger\w*|dixon|water|cs|ai|dl|air|gap|angul\w*|inversion|ir",
)

SEQUENCE = r"(?:[a-z]*t1w?|mprage|mpr|tfe|tse|fse|se|ffe|fl[23]d|bravo|f?spgr|vibe|space|spc|cube|[23]d|ax|axial|cor|sag|tra)"
SEQUENCE_WORD = re.compile(SEQUENCE)
PURPOSE = _any("for", "fur", "fuer", "pour", "para", "per")
PREFIX = (
    "pre|prae|pra|post|pos|ohne|wo|mit|nach|vor|no|non|nao|sans|sin|con|senza|sem|com|avec|apres|avant|without|with|dopo|despues"
    "|apos"
)
COMPOUNDS = (  # of two words that are written as one
    re.compile(rf"({PREFIX})({NOUN}|con|cont|{EVENT.pattern})"),
    re.compile(rf"{SEQUENCE}({PREFIX})({NOUN})"),
    re.compile(rf"{SEQUENCE}({NOUN}|pre|post|nativ\w*)({NOUN})?"),
    re.compile(r"(pre)(post)"),
    re.compile(r"(pre|post)(\d)"),
    re.compile(rf"({NOUN}|pre|post|nativ\w*)(?:[a-z]*t1w?|mprage)"),
    re.compile(r"(?:un|non)(enh(?:anc\w*)?|contrasted)"),
)
_KOREAN = r"(?<!혈관)(?:조영\s*증강|조영제|조영|증강)\s*(?:투여|주입|주사|사용)?"  # but not 혈관조영, angiography
_DENIED = r"안\s*함|미\s*(?:사용|투여|주입|시행)|거부"
SIGNS = (  # how signs and abbreviations are spelt out, in this order
    (r"\ufffd|\?{2,}", " unclear "),  # words that were lost in another encoding
    (rf"{_KOREAN}\s*전\s*[·/,&-]?\s*(?:{_KOREAN})?\s*후", " with without agent "),
    (
        rf"(?:비|무|미)\s*(?:조영\s*증강|조영제|조영)|조영제[가-힣\s]{{0,12}}?(?:{_DENIED})|{_KOREAN}\s*(?:전|없이|없음|{_DENIED}|\(-\)|x(?![a-z]))",
        " without agent ",
    ),
    (rf"{_KOREAN}", " with agent "),
    (r"(?:造影|增强|増強|增強)剤?前[·/,、&-]?(?:造影|增强|増強|增強)?[後后]", " with without agent "),
    (
        r"[非未無无不](?:造影|增强|増強|增強)|(?<!血管)(?:造影|增强|増強|增強)剤?(?:前|なし|無)|平扫|平掃|単純(?!ヘルペス)",
        " without agent ",
    ),
    (r"(?<!血管)(?:造影|增强|増強|增強)剤?(?:後|后|あり)?", " with agent "),
    (r"(?<![a-z])[ck]ontrast(?:mittel)?(?:s[iı]z|los|frei|less|free)[a-z]*", " without agent "),
    (r"(?:수술|치료|방사선|항암|시술|생검|절제)\w*\s*(?:전|후)", " "),  # before or after an operation or a therapy
    (rf"(?:(?<![a-z])(?:c|iv|{NOUN})|(?<!\w))\s*(?:투여|주입|주사)?\s*전(?!\w)", " without agent "),
    (rf"(?:(?<![a-z])(?:c|iv|{NOUN})|(?<!\w))\s*후(?!\w)", " with agent "),
    (r"(?<![a-z])([a-z])\.(?=[a-z](?![a-z]))", r"\1"),  # i.v., k.m., m.d.c.
    (r"[_-](?:w|f|in|opp)$", " "),  # Dixon's images of water, fat and phase
    (r"_", " "),
    (r"\b(?:brain|head)[ -]rt\b", " radiotherapy "),  # elsewhere "RT" behind a part of the body is the right side
    (r"\+ ?/ ?-|- ?/ ?\+|±", " with without agent "),
    (r"\bw ?[/&+]? ?(?:and )?w ?/? ?o\b|\bw ?/ ?o ?[/&+] ?w\b|\bwo ?[/&+] ?w\b", " with without agent "),
    (rf"\bw ?[/ -] ?o(?:ut)?\b|\bw/o(?={NOUN}|con)|\bwo\b|\bw/0\b", " wo "),
    (r"\bw ?/ *$", " with agent "),
    (r"\bw ?/", " with "),
    (r"\bo[. ]*(?=km\b|gd\b|gad|kontr)", " ohne "),
    (r"\bm[. ]*(?=km\b)", " mit "),
    (r"(?<!\bi )(?<!\bi\. )\bv[. ]*(?=km\b|kontr)", " vor "),
    (r"\bn[. ]*(?=km\b|kontr)", " nach "),
    (rf"\b(?:{NOUN}) ?(?:[=:] ?(?:n|0|-+)|[=:]? ?0+(?:[.,]0+)? ?ml)(?![\w.,])", " without agent "),
    (r"\bc ?/ ?c\b", " with agent "),
    (r"\bs ?/ ?c\b", " without agent "),
    (r"\bc/ ?e? ?s/? ?(?=con|gad)", " with without "),
    (r"\bc/ ?(?=con|cte|gad|gd|iv|inj|mdc)", " con "),
    (r"\bs/ ?(?=con|cte|gad|gd|iv|inj|mdc)", " sin "),
    (r"t1w?-c(?![a-z0-9+(])| - c(?![a-z0-9+(])", " unclear "),  # "T1-C" is minus C or T1c
    (rf"(?<![a-z0-9])(?:c|iv|{NOUN}) ?\(\+\)|(?<![a-z0-9])c ?\+|(?<![a-z0-9])(?:iv|{NOUN})\+(?![a-z0-9])", " with agent "),
    (rf"(?<![a-z0-9])(?:c|iv|{NOUN}) ?\(-\)|(?<![a-z0-9])(?:c|iv|{NOUN})-(?![a-z0-9])", " without agent "),
    (r"\(?\+ ?\)? ?(?:c(?![a-z0-9])|iv\b)", " with agent "),
    (r"(?<![a-z0-9])-c(?![a-z0-9])", " without agent "),
    (rf"(?<!\S)-(?=(?:{NOUN})\b)", " unclear "),
    (rf"\+ ?(?=(?:{NOUN})\b)", " with "),
    (r"(t1w?) ?\(?\++\)?(?= *(?:$|ax|tra|sag|cor))", r"\1 with agent "),
    (r"(t1w?|mprage)[ _]c(?![a-z0-9])(?! ?-?spine)|\b(?:[a-z]*t1w?)c\b", " with agent "),
    (rf"\bt1wi? ?\(-\)|\bt1 ?\(-\)|(?<![a-z0-9])(?:c|{NOUN}) - *$", " unclear "),
    (r"\b(?:phase|tissue|high|low|multi|dual|image|transfer|matter|edge|flow|echo)[ _-]+(?:contrast|enhanc)\w*", " "),
    (r"[+&/]", " and "),
)
NO_AGENT = re.compile(  # values of an agent's field that mean none
    r"n|no|non|not|nao|none|saline|nacl(?: 0[.,]9 ?%?)?|kochsalz\w*"
    r"|n ?/? ?a|nil|null|false|0+(?:[.,]0+)?|-+|nothing|nein|ohne|sans|sin|senza|sem|without|kein\w*"
    r"|aucun\w*|ningun\w*|nessun\w*|nenhum\w*|no aplica|non applicable|not (?:applicable|given|administered|used|injected)"
    r"|declined|refused|entfallt|없음|무|아니오|미사용|사용 ?안 ?함"
)
HANGUL = re.compile(r"[가-힣]{2}")  # one alone may be two letters with accents
NO_VOLUME = re.compile(r"(?<![\d.,])0+(?:[.,]0+)? ?(?:(?:ml|cc|mmol)\b|$)")
UNKNOWN_AGENT = re.compile(  # an oral agent is no evidence for the scan
    r"n ?/? ?d|oral|p ?\.?o\.?|(?:not|no|non|nicht) (?:specified|known|recorded|stated|available|documented)"
    r"|unknown|undefined|unspecified|unbekannt|inconnu|desconocido|desconhecido|sconosciuto|tbd|x|[?.*_ ]*"
)


def named(name: str) -> Agent:
    """Whether an agent was given, by a name: a series description, a file's name, labels of BIDS."""
    verdicts = set(_verdicts(_tokens(name)))
    if not verdicts:
        return Agent.UNKNOWN
    return verdicts.pop() if len(verdicts) == 1 else Agent.UNCLEAR


def in_field(value: str) -> Agent:
    """Whether an agent was given, by the field that names it: empty, a word for none, or a name."""
    text = re.sub(r"(?<![a-z])([a-z])\.(?=[a-z]\b)", r"\1", " ".join(_plain(value).split()))  # n.a.
    if UNKNOWN_AGENT.fullmatch(text):
        return Agent.UNKNOWN
    if NO_AGENT.fullmatch(text.strip(" .")) or NO_VOLUME.search(text) or any(map(NONE_BEHIND.fullmatch, _tokens(value))):
        return Agent.NONE
    verdict = named(value)
    return Agent.GIVEN if verdict is Agent.UNKNOWN else Agent.UNKNOWN if verdict is Agent.UNCLEAR else verdict


def _plain(text: str) -> str:
    """Lower case without accents; Hangul stays whole."""
    apart = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z][a-z])(?=[A-Z])", " ", _decoded(text))).lower()
    return unicodedata.normalize("NFC", "".join(sign for sign in apart if not unicodedata.combining(sign)))


def _decoded(text: str) -> str:
    """UTF-8 or Korean that was read as Latin-1, as headers that do not declare their characters are; any other text as it is."""
    try:
        raw = text.encode("latin-1")
    except UnicodeEncodeError:
        return text
    for encoding in ("utf-8", "cp949"):
        with suppress(UnicodeDecodeError):
            decoded = raw.decode(encoding)
            if encoding == "utf-8" or HANGUL.search(decoded):
                return decoded
    return text


def _tokens(name: str) -> list[str]:
    """The words of a name: signs spelt out, compounds taken apart."""
    text = _plain(name).strip()
    for pattern, words in SIGNS:
        text = re.sub(pattern, words, text)
    return [part for word in re.sub(r"[\W_]+", " ", text).split() for part in _apart(word)]


def _apart(word: str) -> Sequence[str]:
    """The words of a compound: "pregad" is pre gad, "t1km" is km, "unenhanced" is without enhanced."""
    for pattern in COMPOUNDS:
        if match := pattern.fullmatch(word):
            parts = [part for part in match.groups() if part]
            return ["without", *parts] if pattern is COMPOUNDS[-1] else parts
    return [word]


def _verdicts(tokens: list[str]) -> Iterator[Agent]:
    """The evidence of each noun with the words that govern it, and of each such word without a noun."""
    at = 0
    while at < len(tokens):
        words, end = _governing(tokens, at)
        head = tokens[end] if end < len(tokens) else ""
        if words:
            about_agent = _is_noun(head) or "iv" in tokens[at:end]
            if words[-1] == "con" and len(words) > 1 and not about_agent:  # "post con" is English
                words, about_agent = words[:-1], True
            if about_agent:
                followers = [*words[1:], ""]
                kept = [
                    w for w, behind in zip(words, followers, strict=True) if not WITHOUT.fullmatch(behind)
                ]  # "with no contrast"
                yield from (Agent.NONE if _denies(word) else Agent.GIVEN for word in kept)
            elif not _of_an_event(tokens, end, words[-1]) and "foss" not in (tokens[at - 1] if at else ""):
                yield from _without_noun(words, head)
            at = _behind_nouns(tokens, end) if about_agent else end
        elif STRONG.fullmatch(head):
            at = _behind_nouns(tokens, at)
            denied = at < len(tokens) and (
                NONE_BEHIND.fullmatch(tokens[at]) or (tokens[at] in ("no", "non", "minus", "zero") and _ends(tokens, at + 1))
            )
            yield Agent.NONE if denied else Agent.GIVEN
            at += bool(denied)
        else:
            yield from (verdict for pattern, verdict in ALONE if pattern.fullmatch(head))
            at += 1


def _governing(tokens: Sequence[str], at: int) -> tuple[list[str], int]:
    """The words from `at` on that govern a noun, in a row, and the place behind them and their articles."""
    words = []
    end = at
    while end < len(tokens) and (GOVERNING.fullmatch(tokens[end]) or (words and FILLER.fullmatch(tokens[end]))):
        words += [tokens[end]] if GOVERNING.fullmatch(tokens[end]) else []
        end += 1
    return words, end


def _without_noun(words: Sequence[str], head: str) -> Iterator[Agent]:
    """The evidence of words that govern no noun: "pre" and "post" mean the agent, "without" where nothing else may be meant."""
    lacks = [word for word in words if WITHOUT_BARE.fullmatch(word)]
    for word in words:
        if BEFORE_BARE.fullmatch(word):
            yield Agent.NONE
        elif AFTER_BARE.fullmatch(word) or (lacks and WITH.fullmatch(word)):
            yield Agent.GIVEN
        elif word in lacks and not OTHER.fullmatch(head):
            yield Agent.NONE if word == "wo" or not head or PLANE.fullmatch(head) else Agent.UNCLEAR


def _denies(word: str) -> bool:
    return any(pattern.fullmatch(word) for pattern in (BEFORE_BARE, BEFORE, WITHOUT_BARE, WITHOUT))


def _is_noun(word: str) -> bool:
    return bool(STRONG.fullmatch(word) or WEAK.fullmatch(word))


def _of_an_event(tokens: Sequence[str], at: int, word: str) -> bool:
    """Whether a word governs an operation, a therapy or a time: "post 3 months", "pre op", "post left frontal biopsy"."""
    here = tokens[at : at + 2]
    if any(EVENT.fullmatch(token) for token in (here if here and here[0].isdigit() else here[:1])):
        return True
    if not (BEFORE_BARE.fullmatch(word) or AFTER_BARE.fullmatch(word)):
        return False
    for token in tokens[at : at + EVENT_REACH]:
        if EVENT.fullmatch(token) and not NEAR_EVENT.fullmatch(token):
            return True
        if GOVERNING.fullmatch(token) or _is_noun(token) or _is_of_the_scan(token):
            return False
    return False


def _is_of_the_scan(word: str) -> bool:
    """Whether a word names the sequence, the plane or what the scan is for, so that what follows belongs to another phrase."""
    ordinal = word.isdigit()  # "post 2 brain surgeries"
    return not ordinal and any(pattern.fullmatch(word) for pattern in (PLANE, OTHER, SEQUENCE_WORD, PURPOSE))


def _behind_nouns(tokens: Sequence[str], at: int) -> int:
    """The place behind nouns that speak of one agent: "injection de gado", "KM Gabe"."""
    while at < len(tokens):
        ahead = at
        while ahead < len(tokens) and FILLER.fullmatch(tokens[ahead]):
            ahead += 1
        if ahead == len(tokens) or not _is_noun(tokens[ahead]) or tokens[ahead] == "con":
            break
        at = ahead + 1
    return at


def _ends(tokens: Sequence[str], at: int) -> bool:
    """Whether nothing stands at a place that a "no" before it may govern."""
    return at >= len(tokens) or bool(PLANE.fullmatch(tokens[at]))
