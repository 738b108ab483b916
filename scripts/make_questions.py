"""Build Headwise's packaged question set from tables of facts.

Why a question set at all?
    To find the attention heads that give a hallucination away we need answers of both sorts: some that the
    model got right, some that it made up.  A small language model (135M to 8B parameters) asked short factual
    questions, with no source to read from, supplies both by itself: it knows the capital of France, and it
    invents the capital of Palau.  What we need is therefore not a hard exam but a *graded* one, with enough
    easy questions that even the smallest model is sometimes right, and enough hard ones that the largest is
    sometimes wrong.

What makes a question usable here?
    * It has ONE right answer, and the answer is short, so that a string comparison can mark it.
    * Every true way to write that answer is listed (``"7"`` and ``"seven"``; ``"USA"`` and ``"the United
      States"``): a missing alias would mark a right answer as a hallucination and poison the labels.
    * The answer does not stand in the question: a model that merely echoes must not be marked right.
    * No fact is asked twice: a repeated fact would leak from a training split into a test split.

How the set is made
    ``scripts/facts/<topic>.tsv`` holds one fact per line, in four tab-separated columns::

        kind      difficulty   subject   answers
        country   1            Norway    Oslo

    ``kind`` names a family of phrasings in `TEMPLATES` ("What is the capital of Norway?"); the kind ``ask``
    means that the subject is already a whole question.  ``difficulty`` runs from 1 (widely known) to 3 (known
    to few).  ``answers`` are separated by `` | ``, the canonical one first.  To keep the tables short, some
    aliases are left to this script (see `expand_answers`): a trailing ``+`` says that the surname alone will
    do, a leading ``the`` may be dropped, and numbers, accents, initials and country names get their variants.
    Arithmetic has no table: its operands are drawn, and its answers computed and checked, right here.

    Nothing is random: the phrasing of a fact and the operands of a sum depend on checksums only, so the same
    tables give the same bytes on every machine, and mending one row leaves the wording of the others alone.

Use
    ``python scripts/make_questions.py``             write the set and print the counts
    ``python scripts/make_questions.py --check``     fail if the file on disk is not what the tables give
    ``python scripts/make_questions.py --sample 20`` also print 20 questions to read over
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "scripts" / "facts"
OUTPUT = ROOT / "src" / "headwise" / "corpora" / "data" / "questions.jsonl"

MIN_QUESTIONS, MIN_TOPICS, MIN_PER_TOPIC, MAX_TOPIC_SHARE = 1600, 14, 60, 0.15
MIN_DIFFICULTY_SHARE = 0.18  # of each difficulty in each topic; the aim is about 40, 35 and 25 %
MAX_ANSWER_WORDS = 4  # of the canonical answer
NEAR_DUPLICATE = 0.75  # share of their words that two questions with one answer may not have in common

# Phrasings.  {x} is the subject; {a} the subject after "a" or "an"; {title} the subject in quotation marks,
# with a closing bracket, such as a year, left outside them.  Where a kind has several phrasings, each subject
# gets one of them, picked by its checksum.  A topic without kinds has whole questions (kind "ask") only.
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "animals": {
        "young": ("What is the young of {a} called?", "What do you call a baby {x}?"),
        "male": ("What is a male {x} called?",),
        "female": ("What is a female {x} called?",),
        "group": ("What is a group of {x} called?",),
        "home": ("What is the home of {a} called?",),
        "class": ("To which class of animals does the {x} belong?",),
        "adjective": ('Which animal does the adjective "{x}" refer to?',),
    },
    "art": {
        "painting": ("Who painted {title}?", "Which artist created {title}?"),
        "sculptor": ("Which sculptor made {x}?",),
        "architect": ("Which architect designed {x}?",),
    },
    "astronomy": {},
    "body": {},
    "books": {
        "novel": ("Who wrote the novel {title}?", "Who is the author of the novel {title}?"),
        "play": ("Who wrote the play {title}?",),
        "poem": ("Who wrote {title}?",),
        "book": ("Who wrote the book {title}?", "Who is the author of the book {title}?"),
    },
    "capitals": {
        "country": ("What is the capital of {x}?", "Which city is the capital of {x}?"),
        "state": ("What is the capital of the US state of {x}?",),
    },
    "companies": {
        "founder": ("Who founded {x}?",),
        "country": ("From which country does the company {x} come?",),
    },
    "continents": {
        "country": ("On which continent does {x} lie?", "Which continent is {x} in?"),
        "place": ("On which continent would you find {x}?",),
    },
    "currencies": {
        "country": ("What is the currency of {x}?", "Which currency is used in {x}?"),
    },
    "elements": {
        "symbol": (
            "What is the chemical symbol for {x}?",
            "What symbol does {x} have in the periodic table?",
        ),
        "name": ("Which chemical element has the symbol {x}?",),
        "number": ("What is the atomic number of {x}?",),
    },
    "films": {
        "director": ("Who directed the film {title}?", "Who was the director of the film {title}?"),
        "lead": ("Which actor or actress played {x}?",),
    },
    "geography": {
        "incountry": ("In which country is {x}?", "Which country would you visit to see {x}?"),
        "cityriver": ("On which river does the city of {x} lie?",),
    },
    "history": {
        "firstleader": ("Who was the first {x}?",),
        "explorer": ("Which explorer {x}?",),
    },
    "inventions": {
        "invented": ("Who invented {x}?", "Who is known as the inventor of {x}?"),
        "discovered": ("Who discovered {x}?",),
        "proposed": ("Who put forward {x}?",),
    },
    "languages": {
        "official": ("What is the official language of {x}?",),
        "thanks": ('In which language does "{x}" mean "thank you"?',),
        "origin": ('From which language did English borrow "{x}"?',),
    },
    "mathematics": {
        "sides": ("How many sides does {a} have?",),
        "roman": ("Which number does the Roman numeral {x} stand for?",),
        "sqrt": ("What is the square root of {x}?",),
    },
    "music": {
        "composer": ("Who composed {x}?", "Which composer wrote {x}?"),
        "band": ("Which band recorded the song {x}?",),
        "singer": ("Which musician released {x}?",),
    },
    "mythology": {
        "greek": ("In Greek mythology, what is the name of {x}?", "Who is {x} in Greek mythology?"),
        "roman": ("What is the Roman name of the Greek deity {x}?",),
        "norse": ("In Norse mythology, what is the name of {x}?",),
        "egypt": ("In ancient Egyptian mythology, what is the name of {x}?",),
    },
    "science": {},
    "sports": {
        "players": ("Not counting substitutes, how many players make up one side in {x}?",),
        "sport": ("Which sport is {x} famous for?", "In which sport did {x} become famous?"),
    },
    "units": {
        "howmany": ("How many {x}?",),
    },
    "words": {
        "opposite": ("What is the opposite of {title}?",),
        "plural": ("What is the plural of the noun {title}?",),
        "past": ("What is the simple past tense of the verb {title}?",),
        "study": ("What is the study of {x} called?",),
        "fear": ("What is the fear of {x} called?",),
    },
    "years": {
        "when": ("In which year {x}?", "In what year {x}?"),
    },
}

COUNTRY_ALIASES: dict[str, tuple[str, ...]] = {
    "United States": ("United States of America", "USA", "US", "U.S.", "U.S.A.", "America"),
    "United Kingdom": ("UK", "U.K.", "Great Britain", "Britain"),
    "Netherlands": ("Holland",),
    "Czech Republic": ("Czechia",),
    "South Korea": ("Republic of Korea",),
    "China": ("People's Republic of China",),
}

ONES = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}

# Letters that Unicode does not take apart into a base letter and an accent.
PLAIN_LETTERS = str.maketrans({"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ı": "i", "ß": "ss"})

# Words that carry no fact; two questions are compared without them (see `content_words`).
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be by called did do does for from has have how in is it its made many name of on
        or s than that the there they this to was were what when which who whose with would you""",
    )
)


@dataclass(frozen=True)
class Fact:
    """One line of a facts table."""

    topic: str
    kind: str
    difficulty: int
    subject: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """One line of the product; the order of the fields is the order of the JSON keys."""

    id: str
    topic: str
    difficulty: int
    question: str
    answers: list[str]


def require(condition: bool, message: str) -> None:
    """Stop with `message` unless `condition` holds (an ``assert`` that ``python -O`` does not switch off)."""
    if not condition:
        raise SystemExit(f"make_questions: {message}")


# ---------------------------------------------------------------------------------------------- text helpers


def plain(text: str) -> str:
    """Return `text` without its accents: ``"Bogotá"`` becomes ``"Bogota"``."""
    parts = unicodedata.normalize("NFKD", text.translate(PLAIN_LETTERS))
    return "".join(char for char in parts if not unicodedata.combining(char))


def normalise(text: str) -> str:
    """Return `text` in lower case, without accents and punctuation, words parted by single spaces."""
    return " ".join(re.findall(r"[^\W_]+", plain(text).casefold()))


def checksum(text: str) -> int:
    """Return a number that depends on `text` alone, on every machine and Python version."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")


def number_words(number: int, link: str = " ") -> str:
    """Spell a whole number below a million: 144 is "one hundred forty-four", or with "and" as `link`."""
    if not 0 <= number < 1_000_000:
        raise ValueError(f"cannot spell {number}")
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens] + (f"-{ONES[ones]}" if ones else "")
    unit, unit_name = (100, "hundred") if number < 1000 else (1000, "thousand")
    count, rest = divmod(number, unit)
    words = f"{number_words(count, link)} {unit_name}"
    return words + ((link if rest < 100 else " ") + number_words(rest, link) if rest else "")


def number_variants(digits: str) -> list[str]:
    """Return the ways to write a whole number: 1024 also as 1,024 and, American and British, in words."""
    number = int(digits)
    commas = [f"{number:,}"] if number >= 1000 else []
    return [digits, *commas, number_words(number), number_words(number, " and ")]


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral; used to check the facts table, which gives it too."""
    values = [ROMAN_DIGITS[letter] for letter in numeral]
    return sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))


# ---------------------------------------------------------------------------------- from facts to questions


def expand_answers(answers: Iterable[str], *, spell_numbers: bool) -> list[str]:
    """Add to the answers of a table the aliases that follow from them by rule.

    ``Jane Austen+`` -> Jane Austen, Austen; ``the Moon`` -> Moon, the Moon; ``J. K. Rowling`` -> also
    J.K. Rowling, JK Rowling; ``Bogotá`` -> also Bogota; ``7`` -> also seven; ``the United States`` -> also
    USA and the like.  Variants that differ only in case are dropped.
    """
    found: list[str] = []
    for answer in answers:
        surname = answer.endswith("+")
        answer = answer.removesuffix("+").strip()
        forms = [answer]
        if answer.startswith("the "):
            forms = [answer[4:], answer]
        elif answer.startswith("The "):
            forms.append(answer[4:])
        if re.fullmatch(r"\d+", answer) and spell_numbers:
            forms = number_variants(answer)
        initials = re.match(r"(?:[A-Z]\. ){2,}", answer)
        if initials:
            tight = initials.group().replace(" ", "")
            forms += [f"{start} {answer[initials.end() :]}" for start in (tight, tight.replace(".", ""))]
        if surname:
            forms.append(answer.split()[-1])
        forms += COUNTRY_ALIASES.get(forms[0], ())
        found += forms
    unique: dict[str, str] = {}  # by lower case; the first comes first, so the canonical answer stays so
    for form in [*found, *map(plain, found)]:
        unique.setdefault(form.casefold(), form)
    return list(unique.values())


def phrase(fact: Fact) -> str:
    """Put a fact into words."""
    if fact.kind == "ask":
        return fact.subject
    templates = TEMPLATES[fact.topic][fact.kind]
    template = templates[checksum(fact.subject) % len(templates)]
    subject = fact.subject
    article = "an" if subject[0].lower() in "aeiou" else "a"
    title, bracket = re.fullmatch(r"(.*?)( \([^()]*\))?", subject).groups("")  # type: ignore[union-attr]
    return template.format(x=subject, a=f"{article} {subject}", title=f'"{title}"{bracket}')


def read_facts(path: Path) -> Iterator[Fact]:
    """Read one facts table, stopping at the first line that is not in order."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    require(header == "kind\tdifficulty\tsubject\tanswers", f"{path.name}: wrong header")
    for number, line in enumerate(lines, start=2):
        where, cells = f"{path.name}:{number}", line.split("\t")
        require(len(cells) == 4, f"{where}: {len(cells)} columns")
        require(all(cell and cell == cell.strip() for cell in cells), f"{where}: blank or padded cell")
        kind, difficulty, subject, answers = cells
        require(kind == "ask" or kind in TEMPLATES.get(path.stem, {}), f"{where}: unknown kind {kind!r}")
        require(kind != "ask" or subject.endswith("?"), f"{where}: not a question")
        require(difficulty in {"1", "2", "3"}, f"{where}: difficulty {difficulty!r}")
        if (path.stem, kind) == ("mathematics", "roman"):
            require(roman_value(subject) == int(answers), f"{where}: {subject} is not {answers}")
        if (path.stem, kind) == ("mathematics", "sqrt"):
            require(int(answers) ** 2 == int(subject), f"{where}: {answers} squared is not {subject}")
        yield Fact(path.stem, kind, int(difficulty), subject, tuple(answers.split(" | ")))


# ------------------------------------------------------------------------------------------------ arithmetic

# How many sums of each of the four operations there are at difficulty 1, 2 and 3.
SUMS_PER_OPERATION = {1: 18, 2: 16, 3: 11}

# The ranges that the two drawn numbers come from.  For division they are divisor and quotient, so that the
# division comes out even; for subtraction the larger drawn number goes first.
OPERAND_RANGES: dict[str, dict[int, tuple[range, range]]] = {
    "plus": {
        1: (range(2, 20), range(2, 20)),
        2: (range(21, 100), range(21, 100)),
        3: (range(101, 1000), range(101, 1000)),
    },
    "minus": {
        1: (range(3, 21), range(2, 20)),
        2: (range(30, 100), range(11, 90)),
        3: (range(300, 1000), range(101, 900)),
    },
    "times": {
        1: (range(2, 10), range(2, 10)),
        2: (range(3, 13), range(11, 26)),
        3: (range(13, 50), range(13, 50)),
    },
    "divided by": {
        1: (range(2, 10), range(2, 10)),
        2: (range(3, 13), range(11, 26)),
        3: (range(13, 30), range(13, 50)),
    },
}
SIGNS = {"plus": "+", "minus": "-", "times": "×", "divided by": "÷"}


def solve(operation: str, first: int, second: int) -> tuple[int, int, int]:
    """Turn two drawn numbers into (left operand, right operand, result), and check the result backwards."""
    if operation == "plus":
        left, right, result = first, second, first + second
        right_way = result - right == left
    elif operation == "minus":
        left, right = max(first, second), min(first, second)
        result = left - right
        right_way = right + result == left
    elif operation == "times":
        left, right, result = first, second, first * second
        right_way = sum([left] * right) == result
    else:
        left, right, result = first * second, first, second
        right_way = divmod(left, right) == (result, 0)
    require(right_way, f"{left} {operation} {right} is not {result}")
    return left, right, result


def arithmetic() -> Iterator[Fact]:
    """Draw the sums, difficulty by difficulty; skip repeats, zeros and sums that show their own answer."""
    for operation, levels in OPERAND_RANGES.items():
        seen: set[frozenset[int]] = set()
        for difficulty, (firsts, seconds) in levels.items():
            wanted, draw = SUMS_PER_OPERATION[difficulty], 0
            while wanted:
                draw += 1
                drawn = [
                    numbers[checksum(f"{operation}-{difficulty}-{draw}-{side}") % len(numbers)]
                    for side, numbers in enumerate((firsts, seconds))
                ]
                left, right, result = solve(operation, *drawn)
                if result in (0, left, right) or frozenset((left, right)) in seen:
                    continue
                seen.add(frozenset((left, right)))
                wanted -= 1
                sign = SIGNS[operation] if wanted % 2 else operation
                question = f"What is {left} {sign} {right}?"
                yield Fact("arithmetic", "ask", difficulty, question, (str(result),))


# ------------------------------------------------------------------------------------------------ validation


def appears_in(answer: str, question: str) -> bool:
    """Say whether `answer` stands in `question`: as whole words, or inside one word (Tunis in Tunisia)."""
    needle, hay = normalise(answer), normalise(question)
    if f" {needle} " in f" {hay} ":
        return True
    return len(needle) >= 3 and needle.isalpha() and any(needle in word for word in hay.split())


def question_problems(question: Question) -> Iterator[str]:
    """Say what is wrong with one question, looked at by itself."""
    text, answers = question.question, question.answers
    if not text.endswith("?") or "{" in text or "  " in text:
        yield f"{question.id}: malformed question {text!r}"
    if not answers or not all(normalise(answer) and answer == answer.strip() for answer in answers):
        yield f"{question.id}: an empty or padded answer in {answers}"
    if len({answer.lower() for answer in answers}) < len(answers):
        yield f"{question.id}: an alias twice in {answers}"
    if len(answers[0].split()) > MAX_ANSWER_WORDS:
        yield f"{question.id}: long answer {answers[0]!r}"
    for answer in answers:
        if appears_in(answer, text):
            yield f"{question.id}: {answer!r} stands in {text!r}"


def content_words(text: str) -> frozenset[str]:
    """Return the words of `text` that carry its meaning; a capital keeps a word (the element As)."""
    first, *others = re.findall(r"[^\W_]+", plain(text))
    return frozenset(word.casefold() for word in [first.casefold(), *others] if word not in STOP_WORDS)


def duplicate_problems(questions: list[Question]) -> Iterator[str]:
    """Find questions that ask the same thing in other words.

    Two questions are compared by their words, less the `STOP_WORDS`.  The same words, whatever their order,
    are always refused; with the same answer, nearly the same words are refused too.  Sums are left out:
    `arithmetic` already draws them apart, and their words are all alike.
    """
    by_words: dict[frozenset[str], Question] = {}
    by_answer: dict[str, list[tuple[Question, frozenset[str]]]] = defaultdict(list)
    for question in questions:
        if question.topic == "arithmetic":
            continue
        words = content_words(question.question)
        twin = by_words.setdefault(words, question)
        if twin is not question:
            yield f"same question: {twin.question!r} and {question.question!r}"
        rivals = by_answer[normalise(question.answers[0])]
        for rival, rival_words in rivals:
            if len(words & rival_words) >= NEAR_DUPLICATE * len(words | rival_words):
                yield f"near-duplicates: {rival.question!r} and {question.question!r}"
        rivals.append((question, words))


def set_problems(questions: list[Question]) -> Iterator[str]:
    """Say what is wrong with the set: its ids, its questions, and the size and balance that were promised."""
    for question in questions:
        yield from question_problems(question)
    for name, values in (("id", [q.id for q in questions]), ("question", [q.question for q in questions])):
        yield from (f"repeated {name}: {value}" for value, count in Counter(values).items() if count > 1)
    yield from duplicate_problems(questions)
    topics = Counter(question.topic for question in questions)
    if len(questions) < MIN_QUESTIONS or len(topics) < MIN_TOPICS:
        yield f"only {len(questions)} questions in {len(topics)} topics"
    for topic, count in topics.items():
        if not MIN_PER_TOPIC <= count <= MAX_TOPIC_SHARE * len(questions):
            yield f"{topic}: {count} questions are too few or too many"
        for difficulty in (1, 2, 3):
            share = sum(q.topic == topic and q.difficulty == difficulty for q in questions) / count
            if share < MIN_DIFFICULTY_SHARE:
                yield f"{topic}: only {share:.0%} of difficulty {difficulty}"


# ---------------------------------------------------------------------------------------------------- output


def build() -> list[Question]:
    """Make all questions, topics in alphabetical order, number them within their topic, and check the lot."""
    facts = {path.stem: list(read_facts(path)) for path in FACTS.glob("*.tsv")}
    require(set(facts) == set(TEMPLATES), f"tables and templates differ: {set(facts) ^ set(TEMPLATES)}")
    facts["arithmetic"] = list(arithmetic())
    questions = []
    for topic in sorted(facts):
        for number, fact in enumerate(facts[topic], start=1):
            answers = expand_answers(fact.answers, spell_numbers=topic != "years")
            questions.append(Question(f"{topic}-{number:03d}", topic, fact.difficulty, phrase(fact), answers))
    problems = list(set_problems(questions))
    require(not problems, "\n  ".join(["these must be mended:", *problems]))
    return questions


def render(questions: list[Question]) -> str:
    """Write the questions as JSON lines."""
    return "".join(json.dumps(asdict(question), ensure_ascii=False) + "\n" for question in questions)


def table(questions: list[Question]) -> str:
    """Lay out the counts, topic by difficulty."""
    counts = Counter((question.topic, question.difficulty) for question in questions)
    rows = []
    for topic in sorted({question.topic for question in questions}):
        levels = [counts[topic, difficulty] for difficulty in (1, 2, 3)]
        rows.append((topic, *levels, sum(levels)))
    totals = [sum(row[column] for row in rows) for column in (1, 2, 3, 4)]  # type: ignore[misc]
    rows.append(("all", *totals))
    lines = [f"{'topic':<14}{'easy':>7}{'medium':>8}{'hard':>7}{'all':>7}"]
    lines += [f"{name:<14}{easy:>7}{medium:>8}{hard:>7}{count:>7}" for name, easy, medium, hard, count in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return its exit status."""
    parser = argparse.ArgumentParser(description="Build the packaged question set from the facts tables.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N questions to read over")
    parser.add_argument("--seed", default="0", help="another seed, another sample")
    options = parser.parse_args(arguments)

    questions = build()
    text = render(questions)
    print(table(questions))
    for question in sorted(questions, key=lambda q: checksum(options.seed + q.id))[: options.sample]:
        aliases = " | ".join(question.answers)
        print(f"{question.id} [{question.difficulty}] {question.question}  ->  {aliases}")
    if options.check:
        current = OUTPUT.read_text(encoding="utf-8") if OUTPUT.exists() else ""
        if current != text:
            print(f"{OUTPUT} is out of date: run {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
