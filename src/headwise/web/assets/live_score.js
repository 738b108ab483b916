// Is the answer wrong? What the atlas’s detector says, and what every head added to it.

import {el} from "headwise/element";
import {draw} from "headwise/figure";
import {percent} from "headwise/live_answer";
import {told} from "headwise/numbers";

/** A section that waits for the score: {element, busy(now), show(scored), failed(text), leave()}. `onhead` opens a head. */
export function scoreSection(onhead) {
  const body = el("div", {class: "live-score-body"});
  const element = el("section", {class: "live-score", "aria-label": "Hallucination score", "aria-live": "polite"}, el("h2", {}, "Is it wrong?"), body);
  let handle = null;
  const say = (words) => body.replaceChildren(el("p", {class: "small"}, words));
  return {
    element,
    busy: (now) => say(now.event === "waiting" ? "The score waits for its turn …" : `${now.stage ?? "scoring"} …`),
    failed: say,
    show(scored) {
      handle?.remove();
      const stage = el("div", {class: "figure-stage"});
      body.replaceChildren(verdict(scored), blocks(scored), stage,
        el("p", {class: "small"}, "Every cell is what a head’s attention added to the log-odds of “wrong”, against the average answer the detector knows. It accounts for the detector; it does not say that the head causes an error."));
      handle = scored.figure ? draw(stage, scored.figure, {onhead, heading: false, notes: false}) : null;
    },
    leave: () => handle?.remove(),
  };
}

function verdict({probability, out_of_range: unusual}) {
  if (probability === null) return el("p", {}, "An empty answer has no score.");
  return el("div", {}, el("p", {class: "verdict"}, el("strong", {}, percent(probability)), " probability that the answer is wrong, by the atlas’s detector."),
    unusual.length ? el("p", {class: "warning"}, `Unlike every answer the detector was fitted on (${unusual.join(", ")}): its probability is a guess here.`) : null);
}

function blocks({block_contributions: others}) {
  const parts = Object.entries(others).map(([name, added]) => `${name} ${added > 0 ? "+" : ""}${told(added)}`);
  return parts.length ? el("p", {class: "small"}, `Log-odds added: ${parts.join(", ")}.`) : null;
}
