// Routes and links. A route is {page, rest, query}: "study", ["profile"], ?figure=relative.
//
// In a report the route follows the #; in the explorer it is the URL itself, /ATLAS/study/profile, so that it can be shared and
// reloaded. Links are plain <a href>: in the explorer a click on one of ours is handled without a reload. This module knows no page.

import {served, settings} from "headwise/settings";

const basePath = `/${encodeURIComponent(settings.atlas)}`;

/**
 * The URL of a path such as "study/profile", with an optional query.
 * @param {string} [path]
 * @param {Query} [query]
 */
export function link(path = "", query = null) {
  const search =
    query && new URLSearchParams(/** @type {[string, string][]} */ (Object.entries(query).filter(([, value]) => value))).toString();
  const clean = path.split("/").map(encodeURIComponent).join("/");
  return `${served ? basePath : "#"}/${clean}${search ? `?${search}` : ""}`;
}

/** The route of the current URL. */
export function route() {
  const full = served ? location.pathname.replace(/^\/[^/]*/, "") + location.search : location.hash.replace(/^#/, "");
  const [path, query = ""] = full.split(/\?(.*)/s);
  const [page = "", ...rest] = path.split("/").filter(Boolean).map(decodePart);
  return {page, rest, query: new URLSearchParams(query)};
}

/**
 * Open another page.
 * @param {string} path
 * @param {Query} [query]
 */
export function navigate(path, query = null) {
  if (!served) {
    location.hash = link(path, query);
    return;
  }
  history.pushState(null, "", link(path, query));
  dispatchEvent(new Event("route"));
}

/**
 * Change the URL without reloading the page.
 * @param {string} path
 * @param {Query} [query]
 */
export function replaceUrl(path, query = null) {
  history.replaceState(null, "", link(path, query));
}

/**
 * Call a function on every navigation.
 * @param {() => void} listener
 */
export function onRoute(listener) {
  for (const name of ["hashchange", "popstate", "route"]) {
    if (name === "hashchange" && served) continue;
    if (name === "popstate" && !served) continue;
    addEventListener(name, listener);
  }
  if (served) document.addEventListener("click", interceptClick);
}

/** @param {MouseEvent} event */
function interceptClick(event) {
  const anchor = /** @type {HTMLAnchorElement | null} */ (/** @type {HTMLElement} */ (event.target).closest?.("a[href]"));
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !plain || event.defaultPrevented || anchor.hasAttribute("download") || anchor.target) return;
  if (anchor.origin !== location.origin || !`${anchor.pathname}/`.startsWith(`${basePath}/`)) return;
  event.preventDefault();
  history.pushState(null, "", anchor.href);
  dispatchEvent(new Event("route"));
}

/** @param {string} part */
function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
