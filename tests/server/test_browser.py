"""The served pages and the live page, in a browser: what a person does, and what is on the page then."""

from __future__ import annotations

import threading

import pytest
from chromium import watched
from explorer import Slow, Stepwise, until

from headwise.atlas import Atlas
from headwise.server import create_app

TEXT = "the old river house door the old river <script>alert(1)</script> house"


@pytest.fixture
def opened(page, where):
    """The live page, its model ready."""
    page.goto(f"{where}small/live")
    page.wait_for_selector("#prompt")
    return page


def run(page, text, *, mode="text"):
    page.fill("#prompt", text)
    page.check(f'input[name="mode"][value="{mode}"]')
    before = page.locator(".live-results").get_attribute("data-run")
    page.locator("#prompt").press("Control+Enter")
    page.wait_for_function(
        "before => { const run = document.querySelector('.live-results').dataset.run; return run && run !== before }",
        arg=before,
    )


def test_a_prompt_shows_every_head_and_one_opens_large(opened):
    run(opened, TEXT)
    assert opened.locator(".live-generated .token").first.is_visible()
    assert opened.locator(".live-distribution .distribution tr").count() == 12
    assert opened.evaluate("document.querySelector('.live-grid canvas').width") > 100
    assert "<script>" not in opened.locator(".live-prompt").evaluate(
        "node => [...node.querySelectorAll('*')].map(n => n.tagName).join()"
    )
    stage = opened.locator(".live-grid .hw-canvas").first
    stage.focus()
    stage.press("ArrowRight")
    stage.press("Enter")
    opened.wait_for_selector(".live-map[data-window]")
    assert opened.locator(".live-head h2").inner_text().startswith("L")
    assert "head=L" in opened.url


def test_a_large_map_tells_cells_and_zooms(opened):
    run(opened, TEXT)
    opened.evaluate("document.querySelector('.live-grid .hw-canvas').focus()")
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".live-map[data-window]")
    canvas = opened.locator(".live-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    opened.mouse.move(box["x"] + 104 + 8, box["y"] + 92 + 8)
    tip = opened.locator(".live-map .hw-tooltip")
    assert "weight 1" in tip.inner_text()  # the first token sees itself alone
    assert "<s> (0)" in tip.inner_text()
    whole = opened.locator(".live-map").get_attribute("data-window")
    canvas.focus()
    opened.keyboard.press("+")
    until(lambda: opened.locator(".live-map").get_attribute("data-window") != whole)
    assert "rows" in opened.locator(".live-map .count").inner_text()
    opened.keyboard.press("0")
    until(lambda: opened.locator(".live-map").get_attribute("data-window") == whole)
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowDown")
    assert "query" in opened.locator(".live-map [role=status]").inner_text()


def test_a_head_is_switched_off_and_the_next_token_changes(opened):
    run(opened, TEXT)
    opened.fill("input[placeholder='L3H7']", "L9H9")
    opened.click("text=Add head")
    assert "L0H0 to L2H3" in opened.locator(".live-adding [role=alert]").inner_text()
    opened.fill("input[placeholder='L3H7']", "l0h1")
    opened.click("text=Add head")
    assert "heads=L0H1" in opened.url
    opened.click("text=Run with these heads scaled")
    opened.wait_for_selector(".live-effect")
    sides = opened.locator(".live-side .distribution")
    before, after = (sides.nth(place).locator("tr").all_inner_texts() for place in (0, 1))
    assert [row.split("\t")[:3] for row in before] != [row.split("\t")[:3] for row in after]
    assert "was" in after[0]
    facts = opened.locator(".live-effect .facts").inner_text()
    assert "KL of the next token" in facts and "nats" in facts
    assert opened.locator(".dots .random").count() == 5 and opened.locator(".dots .own").count() == 1
    control = opened.locator(".live-control").inner_text()
    assert "5 random draws" in control and "this KL of the next token, at the prompt’s end" in control
    opened.click("text=Show all maps with these changes")
    opened.wait_for_selector("text=The model below has L0H1 off")


def test_a_head_that_is_switched_off_shows_what_the_atlas_measured_without_it(page, running, causal_atlas, session):
    page.goto(f"{running(create_app([causal_atlas], open_session=lambda: session))}causal/live?heads=L1H2:0")
    page.wait_for_selector("#prompt")
    run(page, TEXT)
    page.click("text=Run with these heads scaled")
    page.wait_for_selector(".live-stored")
    causal = Atlas.open(causal_atlas)["causal"].sel(ablation="mean", token_class="all", layer=1, head=2)
    (row,) = page.locator(".live-stored tbody tr").all_inner_texts()
    assert row.startswith("L1H2") and f"{int(causal['rank'])} of 4" in row and " to " in row
    assert ("(estimated)" in row) == (str(causal["checked"].values) == "")
    assert "not measured" in row  # no questions in this atlas
    assert "nats per token" in page.locator(".live-stored").inner_text()


def test_a_question_is_answered_and_scored_with_its_heads(opened):
    run(opened, "where was the old house", mode="question")
    opened.wait_for_selector(".verdict")
    assert "probability that the answer is wrong" in opened.locator(".verdict").inner_text()
    assert opened.locator(".live-score .hw-canvas canvas").count() >= 1
    assert "Log-odds added" in opened.locator(".live-score").inner_text()


def test_a_prompt_that_is_too_long_is_told(chromium, where):
    page = chromium.new_page()  # a page of its own: the browser writes refused requests into its console
    page.goto(f"{where}small/live")
    page.fill("#prompt", "the " * 400)
    page.check('input[name="mode"][value="text"]')
    page.click("text=Run")
    page.wait_for_selector(".live-state[data-failed]")
    assert "shorten it" in page.locator(".live-state").inner_text()
    assert page.locator("[data-stale]").count() == 0  # nothing was shown before
    run(page, TEXT)
    page.fill("#prompt", "the " * 400)
    page.click("text=Run")
    page.wait_for_selector(".live-results[data-stale]")
    assert "Still showing the earlier prompt: “the old river" in page.locator(".live-results > .warning").inner_text()
    run(page, TEXT)
    assert page.locator("[data-stale]").count() == 0 and page.locator(".live-results > .warning").count() == 0
    page.close()


def test_without_a_model_the_menu_leads_to_how_to_get_one(page, running, atlas):
    page.goto(f"{running(create_app([atlas]))}small/")
    page.click("text=Live: how to enable it")
    page.wait_for_selector("body[data-ready=live]")
    assert "headwise serve ATLAS --live" in page.locator("main").inner_text()


def test_what_runs_is_shown_and_can_be_cancelled(page, running, atlas):
    slow = Slow()
    where = running(create_app([atlas], open_session=lambda: slow))
    page.goto(f"{where}small/live?text=slow&mode=text")
    page.wait_for_selector("#prompt")
    assert page.locator("#prompt").input_value() == "slow"
    assert not slow.begun  # a link runs nothing by itself: Run is focused, and Enter runs it
    assert "from a link" in page.locator(".live-state").inner_text()
    page.wait_for_function("document.activeElement.textContent === 'Run'")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.live-state').textContent === 'slow …'")
    page.click(".live-form button:has-text('Cancel')")
    page.wait_for_function("() => document.querySelector('.live-state').textContent === 'cancelled'")
    until(lambda: slow.ended == ["slow"])
    assert page.locator("button:has-text('Run')").first.is_enabled()


def test_a_model_that_loads_long_says_how_long(page, running, atlas):
    begun, loaded = threading.Event(), threading.Event()

    def load():
        begun.set()
        loaded.wait(60)
        return Slow()

    page.goto(f"{running(create_app([atlas], open_session=load))}small/live")
    page.wait_for_selector(".live-waiting[data-state=loading]")
    assert begun.wait(30)
    page.wait_for_function("() => /^[2-9] s so far$/.test(document.querySelector('.live-time').textContent)")
    loaded.set()
    page.wait_for_selector("#prompt")


def test_a_page_that_loads_long_says_how_long(page, where):
    page.goto(f"{where}small/")
    page.wait_for_selector("body[data-ready=overview]")
    held = []
    page.route("**/api/small/agreement", lambda route: held.append(route))
    page.click("text=Do the studies agree?")
    page.wait_for_function("() => /^[2-9] s$/.test(document.querySelector('main').dataset.waited ?? '')")
    shown = page.evaluate("getComputedStyle(document.querySelector('main'), '::before').content")
    assert "Loading" in shown and " s" in shown
    held[0].continue_()
    page.wait_for_selector("body[data-ready=agreement]")
    assert page.locator("main").get_attribute("data-waited") is None


@pytest.fixture
def stepwise(running, model, scored_atlas):
    """The live page of a model that waits before each token, at two widths."""
    session = Stepwise(model)
    yield session, f"{running(create_app([scored_atlas], open_session=lambda: session))}scored/live"
    session.let.release(1000)


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_tokens_appear_as_they_are_generated(chromium, stepwise, width, scheme):
    session, address = stepwise
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "reduced_motion": "reduce"}
    for page in watched(chromium, **options):
        page.goto(address)
        page.select_option("#score", "Heads + log-probability")
        assert "AUROC" in page.locator("#score-note").inner_text()
        page.fill("#prompt", "where was the old house")
        page.locator("#prompt").press("Control+Enter")
        tokens = page.locator(".live-streamed .token")
        for count in (1, 2, 3):
            page.wait_for_function("n => document.querySelectorAll('.live-streamed .token').length === n", arg=count)
            if count < 3:
                session.let.release()
        assert page.locator(".live-results").get_attribute("data-run") is None  # the run goes on
        assert "3 of at most 32 tokens" in page.locator(".live-time").first.inner_text()
        assert "so far" in page.locator(".live-time").first.inner_text()
        assert tokens.first.is_visible() and tokens.first.get_attribute("data-kind") == "probability"
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        tokens.nth(2).focus()
        page.keyboard.press("ArrowLeft")
        assert tokens.nth(1).get_attribute("aria-pressed") == "true"
        detail = page.locator(".live-streamed .live-token").inner_text()
        assert "Token 2" in detail and "if it ended here" in detail
        assert page.locator(".live-streamed .live-token button").count() == 5  # heads
        session.let.release(1000)
        page.wait_for_selector(".live-results[data-run]")
        page.wait_for_selector(".verdict")
        assert page.evaluate("() => document.activeElement.getAttribute('aria-label')").startswith(
            tokens.page.locator(".live-generated .token").nth(1).get_attribute("aria-label")
        )  # the focus stays on the token
        assert page.locator(".live-score .hw-canvas canvas").count() >= 1
        page.select_option("#score", "RAUQ")
        page.wait_for_selector("text=This score is no sum over heads")
        assert "score=RAUQ" in page.url


def test_a_cancelled_answer_stays_and_says_where_it_stopped(page, stepwise):
    session, address = stepwise
    page.goto(address)
    page.fill("#prompt", TEXT)
    page.check('input[name="mode"][value="text"]')
    page.click(".live-form button:has-text('Run')")
    page.wait_for_selector(".live-streamed .token")
    assert (
        page.locator(".live-streamed .token").first.get_attribute("data-kind") == "logprob"
    )  # not calibrated for texts
    page.click(".live-form button:has-text('Cancel')")
    session.let.release(1000)
    page.wait_for_selector("text=stopped after 1 token,")
    assert page.locator(".live-state").first.inner_text() == "cancelled"
    assert page.locator(".live-time").first.inner_text() == ""


def test_without_scores_the_page_names_the_command(opened):
    assert "headwise build --studies streaming -o small" in opened.locator("#score-note").inner_text()
    run(opened, TEXT)
    assert opened.locator(".live-generated .token").first.get_attribute("data-kind") == "logprob"
    assert "improbable" in opened.locator(".live-legend").inner_text()


def test_pages_survive_a_reload_and_a_pasted_link(page, where):
    page.goto(f"{where}small/head/L1H2")
    page.wait_for_selector("h1")
    assert "L1H2" in page.locator("h1").inner_text()
    page.reload()
    page.wait_for_selector("h1")
    assert "L1H2" in page.locator("h1").inner_text() and page.url.endswith("/small/head/L1H2")
    page.goto(f"{where}atlas/study/profile")
    page.wait_for_selector("h1")
    assert page.url.endswith("/small/study/profile")
    page.go_back()
    page.wait_for_selector("text=L1H2")
