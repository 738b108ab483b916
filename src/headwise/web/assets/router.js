// Which page is asked for, and how is one linked? A route is {page, rest, query}: "study", ["profile"], ?figure=relative.
//
// In a report a route stands after the #; served it is the address itself, /ATLAS/study/profile, so that it can be pasted and
// reloaded. Links are plain <a href>: in a served page a click on one of ours is taken over (no reload), all else is left to
// the browser. This module does not know any page.

import {served, settings} from "headwise/settings";

const base = `/${encodeURIComponent(settings.atlas)}`;

/** The address of a path such as "study/profile", with a query if there is one. */
export function link(path = "", query = null) {
  const asked = query && new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const clean = path.split("/").map(encodeURIComponent).join("/");
  return `${served ? base : "#"}/${clean}${asked ? `?${asked}` : ""}`;
}

/** The route that the address stands for. */
export function route() {
  const full = served ? location.pathname.replace(/^\/[^/]*/, "") + location.search : location.hash.replace(/^#/, "");
  const [path, query = ""] = full.split(/\?(.*)/s);
  const [page = "", ...rest] = path.split("/").filter(Boolean).map(decoded);
  return {page, rest, query: new URLSearchParams(query)};
}

/** Open another page. */
export function go(path, query = null) {
  if (!served) {
    location.hash = link(path, query);
    return;
  }
  history.pushState(null, "", link(path, query));
  dispatchEvent(new Event("route"));
}

/** Change the address of this page without opening it anew. */
export function note(path, query = null) {
  history.replaceState(null, "", link(path, query));
}

/** Call a function whenever another page is asked for. */
export function onroute(turn) {
  for (const name of ["hashchange", "popstate", "route"]) {
    if (name === "hashchange" && served) continue;
    if (name === "popstate" && !served) continue;
    addEventListener(name, turn);
  }
  if (served) document.addEventListener("click", taken);
}

function taken(event) {
  const anchor = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !plain || event.defaultPrevented || anchor.hasAttribute("download") || anchor.target) return;
  if (anchor.origin !== location.origin || !`${anchor.pathname}/`.startsWith(`${base}/`)) return;
  event.preventDefault();
  history.pushState(null, "", anchor.href);
  dispatchEvent(new Event("route"));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
