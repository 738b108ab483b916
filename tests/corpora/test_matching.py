"""How answers are labelled. Each case is a way in which a simpler rule goes wrong."""

import pytest

from headwise.corpora.matching import judge, token_f1


def label(answer: str, *golds: str, **options: object) -> tuple[str, str]:
    verdict = judge(answer, golds, **options)  # type: ignore[arg-type]
    return verdict.label, verdict.rule


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("Paris", "Paris"),
        ("paris.", "Paris"),
        ("  The Beatles! ", "Beatles"),
        ("Beatles", "The Beatles"),
        ("François Truffaut", "Francois Truffaut"),
        ("Nuku’alofa", "Nuku'alofa"),
        ("Nukualofa", "Nuku'alofa"),
        ("the U.S.A.", "USA"),
        ("J.K. Rowling", "J. K. Rowling"),
        ("JK Rowling", "J. K. Rowling"),
        ("St. Petersburg", "Saint Petersburg"),
        ("ice-cream", "ice cream"),
        ("icecream", "ice cream"),
        ("Simon & Garfunkel", "Simon and Garfunkel"),
        ("McDonald’s", "McDonald's"),
        ("H₂O", "H2O"),
        ("Łódź", "Lodz"),
        ("Campbell–Bannerman", "Campbell-Bannerman"),
        ("straße", "strasse"),
        ("A", "A"),
        ("C.", "C"),
        ("yes", "Yes"),
        ("no", "No"),
        ("unknown", "unknown"),
        ("I can't get no satisfaction", "I Can't Get No Satisfaction"),
        ("巴黎", "巴黎"),
        ("Paris. It lies on the Seine.", "Paris"),
        ("red, white and blue", "red, white, and blue"),
    ],
)
def test_the_same_answer_written_otherwise(answer, gold):
    assert label(answer, gold) == ("correct", "exact")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("It is Paris.", "Paris"),
        ("The capital of France is Paris.", "Paris"),
        ("The capital is called Paris, which lies on the Seine.", "Paris"),
        ("Answer: Paris", "Paris"),
        ('The plural is "wolves".', "wolves"),
        ("Au, from the Latin aurum", "Au"),
        ("The chemical symbol for carbon is C.", "C"),
        ("Carbon (C)", "C"),
        ("Cadmium is an element with the symbol Cd.", "Cd"),
        ("The band is U2.", "U2"),
        ("No, she lived with her mother.", "no"),
        ("the US, since 1776", "US"),
        ("The answer to this question is: France", "France"),
    ],
)
def test_a_whole_phrase(answer, gold):
    assert label(answer, gold) == ("correct", "phrase")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("It lies in Paris", "Paris"),
        ("Paris is the capital of France.", "Paris"),
        ("The city lies on the river Thames, in the south", "Thames"),
        ("Zambia lies on the continent of Africa.", "Africa"),
        ("Cambodia is a country in Southeast Asia.", "Asia"),
        ("Kenya lies in East Africa.", "Africa"),
        ("It was not Lyon but Paris", "Paris"),
        ("Not Lyon, it must have been Paris", "Paris"),
        ("I believe it was the great Marie Curie", "Marie Curie"),
        ("It lies in Madrid, Spain", "Madrid"),
        ("It stands in Florence, Tuscany, Italy", "Italy"),
        ("The forest is in South America, specifically in Brazil, Peru, and Ecuador.", "South America"),
        ("It was dropped on August 6, 1945, in Hiroshima, Japan", "Hiroshima"),
        ("答案是巴黎", "巴黎"),
    ],
)
def test_whole_words_of_the_first_sentence(answer, gold):
    assert label(answer, gold) == ("correct", "contained")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("Parisian", "Paris"),
        ("Goosebumps", "goose"),
        ("It is used by us all", "US"),
        ("He is a noble man", "He"),
        ("I think it is Io", "I"),
        ("It can hold a lot", "C"),
        ("North Korea", "Korea"),
        ("It lies in New Mexico", "Mexico"),
        ("It lies in South Africa", "Africa"),
        ("the United Kingdom", "United States"),
        ("sheeps", "sheep"),
        ("Berlin", "Paris"),
        ("George Bush", "George Washington"),
        ("In the city of Aarhus, Denmark, the answer is Aarhus.", "Denmark"),
        ("In the 1960s", "1960"),
    ],
)
def test_what_only_looks_alike(answer, gold):
    assert label(answer, gold) == ("wrong", "no match")


@pytest.mark.parametrize(
    "answer",
    [
        "not Paris",
        "It is not Paris.",
        "It isn't Paris",
        "The capital was never Paris",
        "It is not in Paris, but in Lyon",
        "any city other than Paris",
        "Lyon rather than Paris",
        "Lyon instead of Paris",
        "Paris is not the capital.",
        "neither Paris",
    ],
)
def test_what_is_denied_is_wrong(answer):
    assert label(answer, "Paris") == ("wrong", "negated")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("Paris or Lyon", "Paris"),
        ("Either Lyon or Paris.", "Paris"),
        ("Paris/Lyon", "Paris"),
        ("It is Paris, Lyon or Nice.", "Nice"),
        ("Paris and Lyon", "Paris"),
        ("Paris, Lyon, Nice, Lille", "Paris"),
        ("Lyon, Paris, Nice", "Paris"),
        ("12 or 13", "12"),
        ("2, 3, 5, 7", "3"),
    ],
)
def test_several_candidates_are_no_answer(answer, gold):
    assert label(answer, gold) == ("wrong", "hedged")


@pytest.mark.parametrize(
    ("answer", "golds"),
    [
        ("a puppy (or pup)", ["puppy", "pup"]),
        ("Holland or the Netherlands", ["Netherlands", "Holland"]),
        ("Trinidad and Tobago, an island state", ["Trinidad and Tobago", "Trinidad"]),
        ("Paris, Paris, Paris, Paris", ["Paris"]),
        ("Paris, France", ["Paris"]),
        ("Paris, Paris, France", ["Paris"]),
    ],
)
def test_several_names_of_one_thing_are_an_answer(answer, golds):
    assert judge(answer, golds).label == "correct"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1,234", "1234"),
        ("1234", "1,234"),
        ("twenty-five", "25"),
        ("25", "twenty five"),
        ("two thousand three hundred and four", "2304"),
        ("2.50", "2.5"),
        ("1.5 million", "1,500,000"),
        ("nineteen forty-five", "1945"),
        ("a dozen", "12"),
        ("minus five", "-5"),
        ("−5", "-5"),
        ("$18", "18"),
        ("60°", "60"),
        ("Apollo eleven", "Apollo 11"),
        ("10km", "10"),
    ],
)
def test_numbers_however_written(answer, gold):
    assert label(answer, gold) == ("correct", "exact")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("A hexagon has 6 sides", "6"),
        ("There are seven days in a week", "7"),
        ("There are 60 seconds in 1 minute.", "60"),
        ("A meter has 100 centimeters", "one hundred"),
        ("It began on July 20, 1969", "1969"),
        ("The heart has four chambers: two atria and two ventricles", "4"),
        ("In 79 AD, Vesuvius buried Pompeii.", "79"),
        ("23", "23 years"),
        ("It fell in 1755, during the 18th century", "1755"),
    ],
)
def test_the_number_a_sentence_gives(answer, gold):
    assert label(answer, gold) == ("correct", "number")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("48 × 48 = 2304", "2304"),
        ("The answer to this question is 6 × 2 = 12.", "12"),
        ("7 x 8 is 56", "56"),
        ("1 + 1 = 1 x 2 = 2", "2"),
    ],
)
def test_the_result_of_a_sum(answer, gold):
    assert judge(answer, [gold]).label == "correct"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("32 divided by 8 equals 4.5.", "4"),
        ("12 x 4 = 44", "12"),
        ("10 minus 9 is 10.", "9"),
        ("888 keys", "88"),
        ("5", "-5"),
        ("1914 to 1918", "1918"),
        ("It is one of the largest", "1"),
        ("100 million", "100"),
        ("the 5th", "5"),
    ],
)
def test_another_number_is_wrong(answer, gold):
    assert label(answer, gold) == ("wrong", "no match")


def test_a_denied_number_is_wrong():
    assert label("There are not 7", "7") == ("wrong", "negated")


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I do not know the answer to that.",
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I do not know.",
        "Sorry.",
        "As an AI language model, I do not have opinions.",
        "I'm not sure.",
        "I'm not sure where to start. I'm a helpful assistant.",
        "Unknown",
        "N/A",
        "I cannot answer this question.",
        "It is not possible to say.",
        "The artist who made it is unknown.",
        "The author of the novel is not explicitly mentioned in the given information.",
        "The date is not known yet.",
        "I'm sorry for the confusion, but as a chatbot I'm made to assist, I'm unable to answer.",
        "I'm sorry. I cannot say. Ask someone else.",
    ],
)
def test_refusals_are_counted_apart(answer):
    assert label(answer, "Paris") == ("refused", "refusal")


@pytest.mark.parametrize("answer", ["", "  ", "...", "?!", "\n", '""'])
def test_nothing_said_is_refused(answer):
    assert label(answer, "Paris") == ("refused", "empty")


def test_a_refusal_that_answers_is_an_answer():
    assert label("I'm not sure, but I think it is Paris.", "Paris")[0] == "correct"
    assert label("I'm not sure, but I think it is Lyon.", "Paris") == ("wrong", "no match")
    assert label("I'm sorry. The capital is Paris.", "Paris")[0] == "correct"
    assert label("Unknown Pleasures", "Closer") == ("wrong", "no match")
    assert label("He is not known for painting", "Monet") == ("wrong", "no match")


def test_a_later_sentence_is_named_as_such():
    assert label("It is a large city. Everyone calls it Paris today.", "Paris") == ("correct", "later")


def test_any_alias_will_do_and_is_named():
    verdict = judge("It is called Katmandu.", ["Kathmandu", "Katmandu"])
    assert (verdict.label, verdict.matched) == ("correct", "Katmandu")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("3 x 6 = 18. The answer is 18.", "correct"),
        ("She makes 9 * 2 = $18", "correct"),
        ("The answer is 18. That is more than 12.", "correct"),
        ("#### 1,450,000", "wrong"),
        ("18 eggs less 3 are 15", "wrong"),
        ("The answer is 9 + 9 = 18 dollars.", "correct"),
        ("The answer is 18 + 18 = 36 dollars.", "wrong"),
        ("18.00 dollars", "correct"),
        ("I don't know", "refused"),
        ("Many eggs", "wrong"),
    ],
)
def test_word_problems_take_the_final_number(answer, expected):
    assert judge(answer, ["18"], numeric=True).label == expected


def test_word_problems_know_thousands_and_signs():
    assert judge("The answer is $70,000.", ["70000"], numeric=True).label == "correct"
    assert judge("So he lost -10", ["-10"], numeric=True).label == "correct"
    assert judge("So he won 10", ["-10"], numeric=True).label == "wrong"


def test_long_right_answers_by_shared_words():
    gold = "with her mommy and five sisters"
    assert label("her mommy and her 5 sisters", gold) == ("correct", "f1")
    assert label("with nobody at all", gold) == ("wrong", "no match")
    assert label("the earth is not a flat disc", "the earth is a flat disc") == ("wrong", "no match")
    assert label("her mommy", gold) == ("wrong", "no match")


def test_known_wrong_answers_decide_which_is_nearer():
    right, wrong = ["The watermelon seeds pass through your digestive system"], ["You grow watermelons in your stomach"]
    assert judge("The seeds pass through your system", right, wrong=wrong).rule == "nearer"
    assert judge("Watermelons grow in your stomach", right, wrong=wrong).label == "wrong"
    assert judge("Nothing happens", right, wrong=wrong).label == "wrong"


def test_the_order_of_aliases_and_repeats_change_no_label():
    golds = ["Mexican peso", "peso", "peso", "", "the"]
    for answer in ("peso", "the Mexican peso", "It is the peso.", "dollar", "I don't know"):
        assert judge(answer, golds).label == judge(answer, golds[::-1]).label


@pytest.mark.parametrize(
    ("question", "answer", "golds", "expected"),
    [
        ("Who was the 8th president?", "The 8th president was John.", ["Van Buren", "8th president"], "wrong"),
        ("What is the clavicle?", "It is the clavicle.", ["collarbone", "clavicle"], "wrong"),
        ("Which is larger, the Sun or the Moon?", "The Sun", ["Sun"], "correct"),
        ("What is 12 x 1?", "12", ["12", "twelve"], "correct"),
    ],
)
def test_repeating_the_question_is_no_answer(question, answer, golds, expected):
    assert judge(answer, golds, question=question).label == expected


def test_no_right_answer_means_nothing_is_right():
    assert label("Paris") == ("wrong", "no match")


def test_token_f1():
    assert token_f1([], ["a"]) == 0
    assert token_f1(["a", "a"], ["a"]) == pytest.approx(2 / 3)
