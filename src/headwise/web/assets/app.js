// The page frame: navigation on the left, the current page, keyboard shortcuts, theme; and the switch between pages.
//
// A page is a function `page(main, route, context)` that fills <main> and may return {keys: {j: f}, leave: f, shown: f}. Pages are
// loaded one at a time; if another page is requested while one is loading, only the last one is shown.

import {agreementPage as agreement, comparePage as compare} from "headwise/comparison_pages";
import {loadData} from "headwise/data_loader";
import {countSeconds, el} from "headwise/dom";
import {headPage as head} from "headwise/head_page";
import {headsPage as heads} from "headwise/heads_page";
import {listenForKeys, markCurrent, navigation} from "headwise/navigation";
import {overviewPage as overview} from "headwise/overview_page";
import {navigate, onRoute, route} from "headwise/router";
import {served} from "headwise/settings";
import {printPage as print, studyPage as study} from "headwise/study_page";

/** @type {Record<string, (main: HTMLElement, route: Route, context: PageContext) => Promise<PageHandle | void>>} */
const PAGES = {"": overview, study, heads, head, agreement, compare, print};
/** @type {PageHandle} */
let current = {};
let requests = 0;

async function start() {
  const main = el("main", {id: "main", tabindex: "-1"});
  const frame = /** @type {HTMLElement} */ (document.getElementById("app"));
  const loading = frame.querySelector(".loading");
  frame.append(main);
  document.querySelector("[data-skip]")?.addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  const stop = countSeconds((time) => loading?.replaceChildren(`Loading … ${time}`));
  try {
    const atlas = await loadData("atlas").finally(stop);
    loading?.remove();
    const context = {atlas, title: atlas.model.short};
    main.before(navigation(atlas));
    listenForKeys(() => current.keys ?? {});
    onRoute(() => showPage(main, context, true));
    await showPage(main, context, false);
  } catch (error) {
    loading?.remove();
    main.replaceChildren(failure(error));
  }
}

/** @param {HTMLElement} main @param {PageContext} context @param {boolean} navigated */
async function showPage(main, context, navigated) {
  const target = route();
  const request = ++requests;
  current.leave?.();
  current = {};
  markCurrent(target);
  main.setAttribute("aria-busy", "true");
  const container = el("div", {class: `page page-${target.page || "overview"}`});
  if (!main.childElementCount) main.append(el("p", {class: "loading", role: "status"}, "Loading …"));
  const stop = countSeconds((time) => {
    main.dataset.waited = time;
    main.querySelector(":scope > .loading")?.replaceChildren(`Loading … ${time}`);
  });
  /** @type {PageHandle} */
  let found = {};
  try {
    found = (await (await pageFunction(target.page))(container, target, context)) ?? {};
  } catch (error) {
    container.replaceChildren(failure(error));
  } finally {
    stop();
  }
  if (request !== requests) return found.leave?.();
  current = found;
  main.replaceChildren(container);
  main.removeAttribute("aria-busy");
  delete main.dataset.waited;
  found.shown?.();
  const name = container.querySelector("h1")?.textContent;
  document.title = [name, context.title, "Headwise"].filter((part, index, all) => part && all.indexOf(part) === index).join(" · ");
  document.body.dataset.ready = target.page || "overview";
  if (navigated) {
    scrollTo(0, 0);
    main.focus({preventScroll: true});
  }
}

/** @param {string} name */
async function pageFunction(name) {
  if (Object.hasOwn(PAGES, name)) return PAGES[name];
  if (name === "live" && served) return (await import("headwise/live_page")).livePage;
  throw new Error(`There is no page “${name}”.`);
}

/** @param {any} error */
function failure(error) {
  console.warn(error);
  return el(
    "div",
    {class: "failure", role: "alert"},
    el("h1", {}, "Not found"),
    el("p", {}, error.message),
    el("p", {}, el("button", {type: "button", on: {click: () => navigate("")}}, "Home")),
  );
}

start();
