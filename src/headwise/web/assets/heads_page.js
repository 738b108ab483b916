// All heads in one table: sorted by a column, filtered by a sentence, with the columns one wants; each row opens its head.

import {chooser, usual} from "headwise/column_choice";
import {csv, save} from "headwise/download";
import {el} from "headwise/element";
import {filterOf} from "headwise/filter";
import {BARS, headRows} from "headwise/heads_table";
import {go, note} from "headwise/router";
import {get} from "headwise/source";

const PRINTED = 6; // columns that A4 has room for, as print.css has it

/** The page; the filter, the column sorted by and the columns stand in the address. */
export async function page(main, {query}, {atlas}) {
  const data = await get("heads");
  const columns = columnsOf(data);
  const state = {
    where: query.get("where") ?? "",
    sort: columns.has(query.get("sort")) ? query.get("sort") : "",
    up: query.get("order") === "up",
    chosen: query.get("columns")?.split(",").filter((name) => columns.has(name)) ?? usual(data.columns),
  };
  const box = el("input", {type: "text", id: "where", value: state.where, "data-filter": true, spellcheck: "false", autocomplete: "off",
    placeholder: example(columns), "aria-describedby": "where-said"});
  const said = el("p", {class: "count", id: "where-said", role: "status"});
  const rows = headRows(data, {opened: (name) => go(`head/${name}`), sorted: (name) => sortBy(name)});
  const choose = chooser(data.columns, state.chosen, (chosen) => change({chosen}));
  let order = [];
  let read = ""; // the last filter that could be read: its heads are shown

  function sortBy(name) {
    const text = columns.get(name).kind === "text" || name === "layer" || name === "head" || name === "name";
    change(state.sort === name ? {up: !state.up} : {sort: name, up: text || columns.get(name).kind === "test"});
  }

  function change(what) {
    Object.assign(state, what);
    note("heads", {where: state.where, sort: state.sort, order: state.sort && state.up ? "up" : "",
      columns: same(state.chosen, usual(data.columns)) ? "" : state.chosen.join(",")});
    fill();
  }

  function fill() {
    let found = {holds: () => true, names: []};
    try {
      if (state.where.trim()) found = filterOf(state.where, columns);
      stale(false);
      read = state.where.trim();
    } catch (error) {
      stale(true);
      said.textContent = `${error.message} Still showing: ${read || "all heads"}.`;
      if (read) found = filterOf(read, columns);
      if (!order.length && !read) put(found);
      return;
    }
    put(found);
  }

  /** Whether the rows are those of an earlier filter: dimmed then, and not to be taken away. */
  function stale(is) {
    if (is) box.setAttribute("aria-invalid", "true");
    else box.removeAttribute("aria-invalid");
    rows.element.toggleAttribute("data-stale", is);
    for (const button of saving) button.disabled = is;
  }

  function put(found) {
    order = data.names.map((_, row) => row).filter(found.holds);
    if (state.sort) order = sorted(order, columns.get(state.sort), state.up);
    if (!rows.element.hasAttribute("data-stale")) said.textContent = `${order.length.toLocaleString("en")} of ${data.names.length.toLocaleString("en")} heads`;
    none.hidden = order.length > 0;
    const shown = shownColumns(found.names);
    onPaper.textContent = shown.length > PRINTED ? `On paper the first ${PRINTED} of ${shown.length} columns; choose others, or take the CSV.` : "";
    rows.show(order, shown, state);
  }

  function shownColumns(named) {
    const asked = [...named, state.sort].filter((name) => name && !["name", "layer", "head"].includes(name));
    const names = new Set([...state.chosen, ...asked]);
    return data.columns.filter((column) => names.has(column.name));
  }

  box.addEventListener("input", () => change({where: box.value}));
  const take = (label, act) => el("button", {type: "button", class: "plain", "aria-label": `Save what is shown as ${label}`, on: {click: act}}, label);
  const saving = [
    take("CSV", () => save(`${atlas.model.short}-heads.csv`, "text/csv", csv(sheet()))),
    take("JSON", () => save(`${atlas.model.short}-heads.json`, "application/json", JSON.stringify(records(), null, 1)))];
  const onPaper = el("p", {class: "small on-paper"});
  const none = el("p", {class: "none", hidden: true}, "No head is so.");
  rows.element.append(none);
  main.append(
    el("header", {class: "study-header"}, el("p", {class: "label"}, "All studies joined"), el("h1", {}, "All heads"),
      el("p", {class: "lede"}, "One row a head. Choose a column’s name to sort by it, a row to open the head.")),
    el("div", {class: "table-tools"},
      el("div", {class: "where"}, el("label", {class: "label", for: "where"}, "Where"), box, said),
      choose,
      el("div", {class: "figure-tools"}, el("span", {class: "label"}, "Take away"), saving)),
    el("div", {class: "table-section"}, rows.element, el("p", {class: "small"}, BARS), onPaper));

  function sheet() {
    const shown = shownColumns([]);
    return [["name", "layer", "head", ...shown.map((one) => one.name)],
      ...order.map((row) => [data.names[row], data.layer[row], data.head[row], ...shown.map((one) => one.values[row])])];
  }

  function records() {
    const [names, ...all] = sheet();
    return all.map((row) => Object.fromEntries(row.map((value, place) => [names[place], value])));
  }

  return {shown: () => {
    fill();
    if (query.get("focus") === "filter") box.focus();
  }};
}

/** Every column by name, with those that stand outside of the list. */
function columnsOf(data) {
  return new Map([
    ["name", {kind: "text", values: data.names}],
    ["layer", {kind: "number", values: data.layer}],
    ["head", {kind: "number", values: data.head}],
    ...data.columns.map((column) => [column.name, column]),
  ]);
}

/** Stable; what was not measured is last either way. */
function sorted(order, {values}, up) {
  const [before, after] = up ? [-1, 1] : [1, -1];
  return [...order].sort((a, b) => {
    const [one, other] = [values[a], values[b]];
    if (one === other) return a - b;
    if (one === null) return 1;
    if (other === null) return -1;
    return one < other ? before : after;
  });
}

function example(columns) {
  return columns.has("profile.induction") ? "profile.induction > 0.3 and layer < 10" : "layer < 10";
}

function same(one, other) {
  return one.length === other.length && one.every((name) => other.includes(name));
}
