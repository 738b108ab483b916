import pytest
from planted import tiny_model

from headwise.core.errors import DataError
from headwise.corpora import Question, answer_ids, default_few_shot, has_chat_template, prompt_ids, question_prompt
from headwise.model import load

QUESTION = Question("q", "What is the old river?", ("stone",))
TEMPLATE = (  # writes the first token itself, as many do
    "{{ bos_token }}{% for m in messages %}{{ m.role }} : {{ m.content }} \n {% endfor %}"
    "{% if add_generation_prompt %}said :{% endif %}"
)


@pytest.fixture(scope="module")
def plain():
    return load(*tiny_model(layers=1))


@pytest.fixture(scope="module")
def chatty():
    hf, tokenizer = tiny_model(layers=1)
    tokenizer.chat_template = TEMPLATE
    return load(hf, tokenizer)


def test_a_base_model_gets_examples_and_the_question():
    text = question_prompt(QUESTION, few_shot=2, chat=False)
    assert text == (
        "Question: Which season comes after spring?\nAnswer: Summer\n\n"
        'Question: Who is the main character of the novel "Robinson Crusoe"?\nAnswer: Robinson Crusoe\n\n'
        "Question: What is the old river?\nAnswer:"
    )


def test_a_chat_is_one_user_turn_with_everything_inside():
    (turn,) = question_prompt(QUESTION, few_shot=0, chat=True)
    assert turn == {
        "role": "user",
        "content": "Give a short answer to the question.\n\nQuestion: What is the old river?",
    }
    (turn,) = question_prompt(QUESTION, few_shot=1, chat=True)
    assert turn["role"] == "user"
    assert turn["content"].startswith("Give a short answer")
    assert "Answer: Summer" in turn["content"]
    assert turn["content"].endswith("What is the old river?\nAnswer:")


def test_a_base_model_without_examples_gets_the_instruction():
    assert str(question_prompt(QUESTION, few_shot=0, chat=False)).startswith("Give a short answer")


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("few_shot", [0, 2])
def test_the_text_stands_before_its_question(chat, few_shot):
    question = Question("q", "Where?", ("x",), context="The house is in the garden.")
    prompt = question_prompt(question, few_shot=few_shot, chat=chat)
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]
    assert "Text: The house is in the garden.\n\nQuestion: Where?" in text


def test_word_problems_end_with_the_answer():
    (turn,) = question_prompt(Question("q", "1 + 1?", ("2",), numeric=True), few_shot=1, chat=True)
    assert "The answer is 10." in turn["content"]


def test_the_first_token_stands_there_once(plain, chatty):
    for model in (plain, chatty):
        ids = prompt_ids(model, QUESTION)
        assert ids[0] == model.tokenizer.bos_token_id
        assert ids.count(model.tokenizer.bos_token_id) == 1


def test_the_template_is_used_where_there_is_one(plain, chatty):
    assert (has_chat_template(plain), has_chat_template(chatty)) == (False, True)
    assert (default_few_shot(False), default_few_shot(True)) == (5, 0)
    assert chatty.tokenizer.decode(prompt_ids(chatty, QUESTION)[-2:]) == "said :"
    assert prompt_ids(chatty, QUESTION) == prompt_ids(chatty, QUESTION, chat=True, few_shot=0)
    assert prompt_ids(chatty, QUESTION, chat=False) == prompt_ids(plain, QUESTION)
    with pytest.raises(DataError, match="no chat template"):
        prompt_ids(plain, QUESTION, chat=True)


def test_a_given_answer_is_tokenised_as_it_would_be_said(plain):
    assert answer_ids(plain, "", chat=True) == ()
    ids = answer_ids(plain, "the stone", chat=False)
    assert plain.tokenizer.bos_token_id not in ids
    assert plain.tokenizer.convert_ids_to_tokens(list(ids)) == ["the", "stone"]


def test_there_are_only_so_many_examples():
    with pytest.raises(DataError, match="0 to 5 examples can be shown before a question, not 9"):
        question_prompt(QUESTION, few_shot=9, chat=True)
