// Resolves the bare names of the front end ("headwise/NAME"), as the import map of a page does, and stands in for the few browser
// objects that modules use when they are loaded.

import {register} from "node:module";

const assets = new URL("../../src/headwise/web/assets/", import.meta.url).href;
const hook = `export function resolve(name, context, next) {
  return name.startsWith("headwise/") ? {url: "${assets}" + name.slice(9) + ".js", shortCircuit: true} : next(name, context);
}
export async function load(url, context, next) {
  return next(url, url.startsWith("${assets}") ? {...context, format: "module"} : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

/** A canvas whose letters are all 6 pixels wide. */
const canvas = {getContext: () => ({font: "", measureText: (text) => ({width: 6 * text.length})})};
Object.assign(globalThis, {
  document: {getElementById: () => null, createElement: () => canvas, querySelectorAll: () => [], documentElement: {dataset: {}}},
  location: {hash: "", pathname: "/", search: ""},
  matchMedia: () => ({matches: false, addEventListener() {}}),
  addEventListener() {},
});
