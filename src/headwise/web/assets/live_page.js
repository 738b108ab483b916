// The live page: run a prompt, show its answer as it is generated, every head, one head's map large, scale heads and compare.
//
// The page is usable while the model is loading, and says so. One computation runs at a time, and can be cancelled. The URL contains
// the prompt (a short one), the open head and the scaled heads, so that it can be shared; it runs nothing by itself: the prompt is
// filled in, and Enter on the focused button runs it. A refused or cancelled prompt leaves the earlier result, marked as such.

import {fetchStatus, startJob} from "headwise/data_loader";
import {countSeconds, el} from "headwise/dom";
import {drawFigure} from "headwise/figure";
import {ablationPanel} from "headwise/live_ablation";
import {AnswerView, scoreSection} from "headwise/live_answer";
import {HeadMapView} from "headwise/live_head_map";
import {promptForm} from "headwise/live_prompt_form";
import {begin, reduce, wholeAnswer} from "headwise/live_stream";
import {scoreChooser} from "headwise/live_tokens";
import {duration, formatNumber} from "headwise/numbers";
import {link, replaceUrl} from "headwise/router";

const STATUS_INTERVAL = 1000; // milliseconds between status requests while the model is loading
const LONG_PROMPT_TOKENS = 1500; // above which fewer random heads are drawn by default: each takes a forward pass
const CLOCK_INTERVAL = 500; // milliseconds between two looks at how long a job takes
const MIN_VISIBLE = 120; // pixels of a growing answer that are in the window, else it is scrolled to
const MAX_URL_CHARACTERS = 600; // of a prompt in the URL

/**
 * The page.
 * @param {HTMLElement} main
 * @param {Route} route
 */
export async function livePage(main, {query}) {
  const live = new LivePage(main, query);
  await live.open();
  return {leave: () => live.leave(), shown: () => live.focus()};
}

class LivePage {
  /** @type {ReturnType<typeof promptForm>} */ form;
  /** @type {ReturnType<typeof ablationPanel>} */ panel;
  /** @type {ReturnType<typeof headGrid>} */ grid;
  /** @type {ReturnType<typeof scoreSection> | null} */ score = null;
  /** @type {HeadMapView | null} */ map = null;
  /** @type {LiveInfo} */ facts;
  /** @type {RunResult} */ result; // of the last run
  /** @type {AnswerView | null} */ answer = null; // of the last run, which may still be generated
  /** @type {AnswerView | null} */ shown = null; // of the results
  /** @type {ReturnType<typeof scoreChooser>} */ chooser;
  /** @type {HTMLElement} */ streamed; // where an answer grows
  /** @type {HTMLElement} */ results;
  /** @type {HTMLElement} */ head;
  /** @type {{name: string, button: HTMLElement} | null} */ off = null; // the button that switches the open head off
  /** @type {Job | null} */ job = null;
  /** @type {Job | null} */ scoring = null;
  timer = 0;
  waited = el("span", {class: "live-time", role: "timer"}); // how long the model has been loading, as seen from here
  /** @type {() => void} */ stopClock = () => {};

  /** @param {HTMLElement} main @param {URLSearchParams} query */
  constructor(main, query) {
    this.query = query;
    this.state = Object.fromEntries(query); // the parameters of the URL
    this.container = el("div", {class: "live-container page"});
    this.title = el("p", {class: "lede"});
    main.append(
      el("header", {class: "study-header"}, el("p", {class: "label"}, "Live"), el("h1", {}, "Inspect the heads of a prompt"), this.title),
      this.container,
    );
  }

  async open() {
    const facts = await fetchStatus("live");
    if (facts.state !== "loading") this.stopClock();
    else if (!this.timer) this.stopClock = countSeconds((time) => (this.waited.textContent = `${time} so far`));
    if (facts.state === "ready") this.#showForm(facts);
    else this.#showWaiting(facts);
  }

  focus() {
    this.form?.focus(Boolean(this.query.get("text")) && !this.result);
  }

  leave() {
    clearTimeout(this.timer);
    this.stopClock();
    this.job?.cancel();
    this.scoring?.cancel();
    this.#clear();
  }

  /** @param {{state: string, message: string}} options */
  #showWaiting({state, message}) {
    const words = {
      loading: "The model is being loaded. The other pages are available.",
      off: "No model is loaded.",
      failed: "The model could not be loaded.",
    }[state];
    this.container.replaceChildren(
      el("p", {class: "live-waiting", role: "status", "data-state": state}, words),
      state === "loading"
        ? el("div", {class: "live-tools"}, el("progress", {"aria-label": "Loading the model"}), this.waited)
        : el("p", {class: "small"}, state === "off" ? `${message[0].toUpperCase()}${message.slice(1)}.` : message),
    );
    if (state === "loading")
      this.timer = setTimeout(
        () => this.open().catch((error) => this.#showWaiting({state: "failed", message: error.message})),
        STATUS_INTERVAL,
      );
  }

  /** @param {LiveInfo} facts */
  #showForm(facts) {
    this.facts = facts;
    this.title.textContent = `${facts.model}, ${facts.layers} layers of ${facts.heads} heads, on ${facts.device}.`;
    this.form = promptForm(facts, {run: () => this.runPrompt(), cancel: () => this.job?.cancel()});
    this.form.fill({text: this.state.text, mode: this.state.mode});
    if (this.state.text) this.form.idle("from a link; press Run (or Enter)");
    this.chooser = scoreChooser(facts, this.state.score, (score) => this.#showScoreBy(score));
    this.streamed = el("div", {class: "live-streamed"});
    this.results = el("div", {class: "live-results"});
    this.container.replaceChildren(this.form.element, this.chooser.element, this.streamed, this.results);
    this.focus();
  }

  /**
   * Run a prompt and show all heads.
   * @param {Factors} [changes]
   */
  async runPrompt(changes = {}) {
    const {text, mode, length} = this.form.values();
    this.job?.cancel();
    this.scoring?.cancel();
    const body = {text, mode, answer: length > 0, max_new_tokens: Math.max(1, length), changes};
    const onhead = (head) => this.openHead(head, true);
    const answer = new AnswerView({score: this.chooser.score, requested: length > 0, changes, onhead});
    const job = followJob("live/run", body, (state, now) => {
      this.form.busy(state, now);
      if (!state.parts.answer) return;
      if (this.answer !== answer) this.#showGrowing(answer);
      answer.update(state.parts.answer);
    });
    this.job = job;
    try {
      const run = await job.result;
      this.form.idle(`done in ${formatNumber(run.seconds)} seconds`);
      this.#updateUrl({text: text.length <= MAX_URL_CHARACTERS ? text : "", mode: String(mode)});
      if (run.steps.length) answer.update(wholeAnswer(run));
      this.answer = answer;
      this.#showResult(run);
    } catch (error) {
      if (this.answer === answer) answer.line.stopped(duration(job.elapsed()));
      this.#showError(error, this.form);
      this.#markStale();
    }
  }

  /**
   * Show an answer that is being generated, above what was there before.
   * @param {AnswerView} answer
   */
  #showGrowing(answer) {
    this.answer = answer;
    this.streamed.replaceChildren(answer.element);
    this.#markStale();
    const hidden = this.streamed.getBoundingClientRect().top > innerHeight - MIN_VISIBLE;
    if (hidden) this.streamed.scrollIntoView({block: "center", behavior: scrolling()});
  }

  /** Mark the results as those of an earlier prompt. */
  #markStale() {
    if (!this.result || this.results.hasAttribute("data-stale")) return;
    this.results.toggleAttribute("data-stale", true);
    const [start, rest] = [this.result.text.slice(0, 80), this.result.text.length > 80 ? "…" : ""];
    this.results.prepend(el("p", {class: "warning", role: "status"}, `Still showing the earlier prompt: “${start}${rest}”`));
  }

  /** @param {RunResult} run */
  #showResult(run) {
    this.#clear();
    this.result = run;
    this.head = el("section", {class: "live-head", "aria-label": "One head", hidden: true});
    this.grid = headGrid(run.figures, {
      onhead: (head) => this.openHead(head, true),
      initial: this.state.show,
      onSwitch: (key) => this.#updateUrl({show: key === "maps" ? "" : key}),
    });
    const draws = run.tokens.length > LONG_PROMPT_TOKENS ? 2 : this.facts.draws;
    this.panel = ablationPanel(this.facts, {
      draws,
      score: this.chooser.score,
      run: (changes, draws) => this.#compare(changes, draws),
      rerun: (changes) => this.#rerun(changes),
      cancel: () => this.job?.cancel(),
      onChange: (changes) => this.#onChange(changes),
      onhead: (head) => this.openHead(head, true),
    });
    const plain = !Object.keys(run.changes).length;
    const scored = plain && run.mode === "question" && run.answer;
    this.score = scored ? scoreSection((head) => this.openHead(head, true)) : null;
    this.results.removeAttribute("data-stale");
    const answer = (this.shown = this.answer);
    const focused = /** @type {HTMLElement} */ (document.activeElement);
    answer?.finish(run);
    this.results.replaceChildren(
      ...(plain ? [] : [changedWarning(run.changes)]),
      ...(answer ? [answer.element] : []),
      ...(this.score ? [this.score.element] : []),
      this.grid.element,
      this.head,
      this.panel.element,
    );
    this.streamed.replaceChildren();
    if (answer?.element.contains(focused)) focused.focus({preventScroll: true}); // moving an element takes its focus
    this.grid.show();
    this.panel.fill(parseFactors(this.state.heads ?? "", this.facts));
    if (this.state.head) this.openHead(this.state.head, false);
    this.results.dataset.run = run.id;
    if (this.score) this.#showScore(run);
  }

  /**
   * Run the same prompt with heads scaled, and show all heads.
   * @param {Factors} changes
   */
  #rerun(changes) {
    this.form.fill({text: this.result.text, mode: this.result.mode});
    this.form.element.scrollIntoView({block: "start"});
    this.runPrompt(changes);
  }

  #clear() {
    this.grid?.leave();
    this.map?.leave();
    this.score?.leave();
    this.scoring?.cancel();
  }

  /**
   * Show one head's map.
   * @param {string} name
   * @param {boolean} scrolls
   */
  openHead(name, scrolls) {
    const match = /^L(\d+)H(\d+)$/.exec(name);
    if (!match || Number(match[1]) >= this.facts.layers || Number(match[2]) >= this.facts.heads) return;
    this.map?.leave();
    this.map = new HeadMapView(this.result, name, this.result.figures[0].payload.scales.weight);
    const off = el("button", {type: "button", on: {click: () => this.#toggle(name)}});
    this.off = {name, button: off};
    this.head.replaceChildren(
      el("h2", {}, name),
      el(
        "div",
        {class: "live-head-title"},
        el("span", {class: "count"}, this.#statistics(Number(match[1]), Number(match[2]))),
        off,
        el("a", {href: link(`head/${name}`)}, "Page in the atlas"),
      ),
      this.map.element,
    );
    this.head.hidden = false;
    this.head.dataset.head = name;
    this.map.shown();
    this.grid.point(name);
    this.#onChange(this.panel.changes());
    this.#updateUrl({head: name});
    if (scrolls) this.head.scrollIntoView({block: "start", behavior: scrolling()});
  }

  /** @param {string} name */
  #toggle(name) {
    if (this.panel.has(name)) this.panel.remove(name);
    else this.panel.add(name, 0);
  }

  /** @param {number} layer @param {number} head */
  #statistics(layer, head) {
    const one = (key, label) => `${label} ${formatNumber(this.result.numbers[key]?.[layer]?.[head] ?? null)}`;
    return [
      one("sink", "first token"),
      one("entropy", "entropy"),
      one("previous", "previous token"),
      one("induction", "induction"),
      one("distance", "distance"),
    ].join(" · ");
  }

  /** @param {Factors} changes */
  #onChange(changes) {
    if (this.off)
      this.off.button.textContent = this.panel.has(this.off.name) ? `Remove ${this.off.name} from the list` : `Switch ${this.off.name} off`;
    this.#updateUrl({
      heads: Object.entries(changes)
        .map(([head, factor]) => `${head}:${factor}`)
        .join(","),
    });
  }

  /** @param {Factors} changes @param {number} draws */
  async #compare(changes, draws) {
    this.panel.clear();
    this.job?.cancel();
    const {panel, result} = this;
    const original = Object.keys(result.changes).length ? null : wholeAnswer(result);
    this.job = followJob("live/what_if", {run: result.id, changes, draws}, (state, now) => {
      panel.busy(state, now);
      panel.stream(state, changes, original);
    });
    try {
      panel.show(await this.job.result);
      panel.idle();
    } catch (error) {
      this.#showError(error, panel);
    }
  }

  /** @param {RunResult} run */
  async #showScore(run) {
    const {score, chooser} = this;
    if (!score) return;
    if (this.facts.scoring_unavailable) {
      score.failed(this.facts.scoring_unavailable);
      return;
    }
    this.scoring?.cancel();
    const watched = chooser.score === null ? undefined : run.scores[chooser.score];
    if (watched && !Object.keys(watched.heads).length) {
      score.show({probability: watched.probability, out_of_range: watched.unusual, block_contributions: {}, figure: null});
      return;
    }
    const body = {question: run.text, answer: run.answer, ...(watched ? {score: chooser.score} : {})};
    const scoring = followJob("live/score", body, (state, now) => score.busy(state, now));
    this.scoring = scoring;
    try {
      const found = await scoring.result;
      score.show(watched ? {...found, probability: watched.probability, out_of_range: watched.unusual} : found); // as the last token has it
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") score.failed(/** @type {Error} */ (error).message);
    }
  }

  /**
   * Shade all tokens by another score.
   * @param {string} score
   */
  #showScoreBy(score) {
    this.#updateUrl({score: score === this.facts.scores[0].name ? "" : score});
    for (const answer of new Set([this.answer, this.shown])) answer?.line.show(score);
    this.panel?.showScore(score);
    if (this.score && !this.results.hasAttribute("data-stale")) this.#showScore(this.result);
  }

  /** @param {any} error @param {{idle: (words?: string) => void, failed: (words: string) => void}} panel */
  #showError(error, panel) {
    if (error.name === "AbortError") panel.idle("cancelled");
    else panel.failed(error.message);
  }

  /** @param {Record<string, string>} values */
  #updateUrl(values) {
    Object.assign(this.state, values);
    replaceUrl("live", this.state);
  }
}

/** @returns {ScrollBehavior} */
function scrolling() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
}

/**
 * Start a job; `onUpdate(state, now)` is called with every event, and twice a second, so that the page tells the time.
 * @param {string} path
 * @param {object} body
 * @param {(state: JobState, now: number) => void} onUpdate
 * @returns {Job & {elapsed: () => number}}
 */
function followJob(path, body, onUpdate) {
  let state = begin(performance.now());
  let ended = false;
  const tell = () => {
    if (!ended) onUpdate(state, performance.now());
  };
  const job = startJob(path, body, (event) => {
    state = reduce(state, event, performance.now());
    tell();
  });
  const clock = setInterval(tell, CLOCK_INTERVAL);
  const result = job.result.finally(() => {
    ended = true;
    clearInterval(clock);
  });
  tell();
  return {result, cancel: job.cancel, elapsed: () => performance.now() - state.started};
}

/** @param {Factors} changes */
function changedWarning(changes) {
  const heads = Object.entries(changes)
    .map(([head, factor]) => (factor === 0 ? `${head} off` : `${head} × ${formatNumber(factor)}`))
    .join(", ");
  return el("p", {class: "warning", role: "status"}, `The model below has ${heads}. Run the prompt again for the unchanged model.`);
}

/**
 * "L3H7:0,L4H0:0.5" as {L3H7: 0, L4H0: 0.5}.
 * @param {string} text
 * @param {LiveInfo} liveInfo
 */
function parseFactors(text, {layers, heads}) {
  const found = [...text.matchAll(/L(\d+)H(\d+):(\d+(?:\.\d+)?)/g)].filter(
    ([, layer, head]) => Number(layer) < layers && Number(head) < heads,
  );
  return Object.fromEntries(found.map(([, layer, head, factor]) => [`L${Number(layer)}H${Number(head)}`, Number(factor)]));
}

/**
 * {element, show(), point(head), leave()} for the figures of a run.
 * @param {RunResult["figures"]} figures
 * @param {{onhead: (head: string) => void, initial?: string, onSwitch?: (key: string) => void}} options
 */
function headGrid(figures, {onhead, initial = "maps", onSwitch = () => {}}) {
  const container = el("div", {class: "figure-container"});
  const choices = el("div", {class: "switch", role: "group", "aria-label": "What is shown per head"});
  const element = el(
    "section",
    {class: "figure-section live-grid", "aria-label": "Every head"},
    el("h2", {}, "Every head"),
    choices,
    container,
  );
  let chosen = figures.find((one) => one.key === initial) ?? figures[0];
  /** @type {FigureHandle | null} */
  let handle = null;
  let outlined = null;

  function show() {
    handle?.remove();
    choices.replaceChildren(
      ...figures.map((one) =>
        el("button", {type: "button", "aria-pressed": String(one === chosen), on: {click: () => choose(one)}}, one.label),
      ),
    );
    handle = drawFigure(container, chosen.payload, {onhead, heading: false});
    if (outlined) handle.point(outlined);
  }

  /** @param {RunResult["figures"][number]} one */
  function choose(one) {
    chosen = one;
    onSwitch(one.key);
    show();
    /** @type {HTMLElement} */ (choices.querySelector("[aria-pressed=true]"))?.focus();
  }

  return {
    element,
    show,
    leave: () => handle?.remove(),
    point(head) {
      outlined = head;
      handle?.point(head);
    },
  };
}
