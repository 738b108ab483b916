// The frame around every page: contents at the left, the page, keys, theme; and the turn from one page to the next.
//
// A page is a module with `page(main, route, context)`: it fills <main> and may return {keys: {j: f}, leave: f}. Pages are
// drawn one at a time; one that was asked for while another was still loading is the one that is shown.

import {page as agreement} from "headwise/agreement_page";
import {page as compare} from "headwise/compare_page";
import {contents, mark} from "headwise/contents";
import {el} from "headwise/element";
import {page as head} from "headwise/head_page";
import {page as heads} from "headwise/heads_page";
import {listen} from "headwise/keys";
import {page as overview} from "headwise/overview";
import {page as print} from "headwise/print_page";
import {go, onroute, route} from "headwise/router";
import {served} from "headwise/settings";
import {get} from "headwise/source";
import {page as study} from "headwise/study_page";

const PAGES = {"": overview, study, heads, head, agreement, compare, print};
let current = {};
let turns = 0;

async function start() {
  const main = el("main", {id: "main", tabindex: "-1"});
  const frame = document.getElementById("app");
  const waiting = frame.querySelector(".loading");
  frame.append(main);
  document.querySelector("[data-skip]").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  try {
    const atlas = await get("atlas");
    waiting?.remove();
    const context = {atlas, title: atlas.model.short};
    main.before(contents(atlas));
    listen(() => current.keys ?? {}, atlas);
    onroute(() => show(main, context, true));
    await show(main, context, false);
  } catch (error) {
    waiting?.remove();
    main.replaceChildren(failure(error));
  }
}

async function show(main, context, moved) {
  const asked = route();
  const turn = ++turns;
  current.leave?.();
  current = {};
  mark(asked);
  main.setAttribute("aria-busy", "true");
  const stage = el("div", {class: `page page-${asked.page || "overview"}`});
  if (!main.childElementCount) main.append(el("p", {class: "loading", role: "status"}, "Loading …"));
  let found = {};
  try {
    found = (await (await turner(asked.page))(stage, asked, context)) ?? {};
  } catch (error) {
    stage.replaceChildren(failure(error));
  }
  if (turn !== turns) return found.leave?.();
  current = found;
  main.replaceChildren(stage);
  main.removeAttribute("aria-busy");
  found.shown?.();
  const name = stage.querySelector("h1")?.textContent;
  document.title = [name, context.title, "Headwise"].filter((part, place, all) => part && all.indexOf(part) === place).join(" · ");
  document.body.dataset.ready = asked.page || "overview";
  if (moved) {
    scrollTo(0, 0);
    main.focus({preventScroll: true});
  }
}

async function turner(name) {
  if (Object.hasOwn(PAGES, name)) return PAGES[name];
  if (name === "live" && served) return (await import("headwise/live")).page;
  throw new Error(`There is no page “${name}”.`);
}

function failure(error) {
  console.warn(error);
  return el("div", {class: "failure", role: "alert"},
    el("h1", {}, "Not here"),
    el("p", {}, error.message),
    el("p", {}, el("button", {type: "button", on: {click: () => go("")}}, "To the opening page")));
}

start();
