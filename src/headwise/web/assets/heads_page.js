// All heads in one table: sorted by a column, filtered by an expression, with selectable columns; each row opens its head.

import {loadData} from "headwise/data_loader";
import {el} from "headwise/dom";
import {saveFile, toCsv} from "headwise/downloads";
import {parseFilter} from "headwise/filter";
import {BARS_NOTE, headTable} from "headwise/heads_table";
import {navigate, replaceUrl} from "headwise/router";

const PRINTED_COLUMNS = 6; // columns that fit on A4, as in print.css

/**
 * The page; filter, sort column and columns are part of the URL.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} pageContext
 */
export async function headsPage(main, {query}, {atlas}) {
  const data = await loadData("heads");
  const columns = columnsOf(data);
  /** @type {TableState} */
  const state = {
    where: query.get("where") ?? "",
    sort: columns.has(query.get("sort") ?? "") ? (query.get("sort") ?? "") : "",
    up: query.get("order") === "up",
    chosen:
      query
        .get("columns")
        ?.split(",")
        .filter((name) => columns.has(name)) ?? defaultColumns(data.columns),
  };
  const box = el("input", {
    type: "text",
    id: "where",
    value: state.where,
    "data-filter": true,
    spellcheck: "false",
    autocomplete: "off",
    placeholder: exampleFilter(columns),
    "aria-describedby": "where-status",
  });
  const status = el("p", {class: "count", id: "where-status", role: "status"});
  const rows = headTable(data, {onOpen: (name) => navigate(`head/${name}`), onSort: (name) => sortBy(name)});
  const choose = columnPicker(data.columns, state.chosen, (chosen) => change({chosen}));
  /** @type {number[]} */
  let order = [];
  let lastValid = ""; // the last valid filter, whose heads are shown

  /** @param {string} name */
  function sortBy(name) {
    const text = columns.get(name)?.kind === "text" || name === "layer" || name === "head" || name === "name";
    change(state.sort === name ? {up: !state.up} : {sort: name, up: text || columns.get(name)?.kind === "test"});
  }

  /** @param {Partial<TableState>} what */
  function change(what) {
    Object.assign(state, what);
    replaceUrl("heads", {
      where: state.where,
      sort: state.sort,
      order: state.sort && state.up ? "up" : "",
      columns: sameNames(state.chosen, defaultColumns(data.columns)) ? "" : state.chosen.join(","),
    });
    fill();
  }

  function fill() {
    /** @type {{holds: (row: number) => boolean, names: string[]}} */
    let found = {holds: () => true, names: []};
    try {
      if (state.where.trim()) found = parseFilter(state.where, columns);
      setStale(false);
      lastValid = state.where.trim();
    } catch (error) {
      setStale(true);
      status.textContent = `${/** @type {Error} */ (error).message} Still showing: ${lastValid || "all heads"}.`;
      if (lastValid) found = parseFilter(lastValid, columns);
      if (!order.length && !lastValid) showRows(found);
      return;
    }
    showRows(found);
  }

  /**
   * Mark the rows as those of an earlier filter: dimmed, without downloads.
   * @param {boolean} is
   */
  function setStale(is) {
    if (is) box.setAttribute("aria-invalid", "true");
    else box.removeAttribute("aria-invalid");
    rows.element.toggleAttribute("data-stale", is);
    for (const button of saving) button.disabled = is;
  }

  /** @param {{holds: (row: number) => boolean, names: string[]}} found */
  function showRows(found) {
    order = data.names.map((_, row) => row).filter(found.holds);
    if (state.sort) order = sortRows(order, columns.get(state.sort) ?? {values: []}, state.up);
    if (!rows.element.hasAttribute("data-stale"))
      status.textContent = `${order.length.toLocaleString("en")} of ${data.names.length.toLocaleString("en")} heads`;
    noMatch.hidden = order.length > 0;
    const shown = shownColumns(found.names);
    printNote.textContent =
      shown.length > PRINTED_COLUMNS
        ? `In print the first ${PRINTED_COLUMNS} of ${shown.length} columns; choose others, or download the CSV.`
        : "";
    rows.show(order, shown, state);
  }

  /** @param {string[]} named */
  function shownColumns(named) {
    const asked = [...named, state.sort].filter((name) => name && !["name", "layer", "head"].includes(name));
    const names = new Set([...state.chosen, ...asked]);
    return data.columns.filter((column) => names.has(column.name));
  }

  box.addEventListener("input", () => change({where: box.value}));
  const saveButton = (label, act) =>
    el("button", {type: "button", class: "plain", "aria-label": `Download the shown rows as ${label}`, on: {click: act}}, label);
  const saving = [
    saveButton("CSV", () => saveFile(`${atlas.model.short}-heads.csv`, "text/csv", toCsv(sheet()))),
    saveButton("JSON", () => saveFile(`${atlas.model.short}-heads.json`, "application/json", JSON.stringify(records(), null, 1))),
  ];
  const printNote = el("p", {class: "small on-paper"});
  const noMatch = el("p", {class: "none", hidden: true}, "No head matches.");
  rows.element.append(noMatch);
  main.append(
    el(
      "header",
      {class: "study-header"},
      el("p", {class: "label"}, "All studies"),
      el("h1", {}, "All heads"),
      el("p", {class: "lede"}, "One row per head. Click a column name to sort by it, a row to open the head."),
    ),
    el(
      "div",
      {class: "table-tools"},
      el("div", {class: "where"}, el("label", {class: "label", for: "where"}, "Where"), box, status),
      choose,
      el("div", {class: "figure-tools"}, el("span", {class: "label"}, "Download"), saving),
    ),
    el("div", {class: "table-section"}, rows.element, el("p", {class: "small"}, BARS_NOTE), printNote),
  );

  function sheet() {
    const shown = shownColumns([]);
    return [
      ["name", "layer", "head", ...shown.map((one) => one.name)],
      ...order.map((row) => [data.names[row], data.layer[row], data.head[row], ...shown.map((one) => one.values[row])]),
    ];
  }

  function records() {
    const [names, ...all] = sheet();
    return all.map((row) => Object.fromEntries(row.map((value, index) => [names[index], value])));
  }

  return {
    shown: () => {
      fill();
      if (query.get("focus") === "filter") box.focus();
    },
  };
}

/**
 * Every column by name, with name, layer and head.
 * @param {HeadTableData} data
 */
function columnsOf(data) {
  /** @type {[string, {kind: string, values: any[]}][]} */
  const entries = [
    ["name", {kind: "text", values: data.names}],
    ["layer", {kind: "number", values: data.layer}],
    ["head", {kind: "number", values: data.head}],
    .../** @type {[string, TableColumn][]} */ (data.columns.map((column) => [column.name, column])),
  ];
  return new Map(entries);
}

/**
 * A stable sort; missing values come last in both directions.
 * @param {number[]} order
 * @param {{values: any[]}} options
 * @param {boolean} up
 */
function sortRows(order, {values}, up) {
  const [before, after] = up ? [-1, 1] : [1, -1];
  return [...order].sort((a, b) => {
    const [one, other] = [values[a], values[b]];
    if (one === other) return a - b;
    if (one === null) return 1;
    if (other === null) return -1;
    return one < other ? before : after;
  });
}

/** @param {Map<string, any>} columns */
function exampleFilter(columns) {
  return columns.has("profile.induction") ? "profile.induction > 0.3 and layer < 10" : "layer < 10";
}

/** @param {string[]} one @param {string[]} other */
function sameNames(one, other) {
  return one.length === other.length && one.every((name) => other.includes(name));
}

/**
 * The columns shown at first.
 * @param {TableColumn[]} columns
 */
function defaultColumns(columns) {
  return columns.filter((column) => column.default).map((column) => column.name);
}

/**
 * Checkboxes per study; `onChange(names)` is called on every change.
 * @param {TableColumn[]} columns
 * @param {string[]} chosen
 * @param {(names: string[]) => void} onChange
 */
function columnPicker(columns, chosen, onChange) {
  const chosenNames = new Set(chosen);
  const studies = [...new Set(columns.map((column) => column.study))];
  const notify = () => onChange(columns.map((column) => column.name).filter((name) => chosenNames.has(name)));
  const summary = el("summary", {}, "Columns");
  return el(
    "details",
    {class: "chooser"},
    summary,
    el(
      "div",
      {class: "chooser-studies"},
      studies.map((study) => {
        const own = columns.filter((column) => column.study === study);
        const boxes = own.map((column) =>
          el("input", {
            type: "checkbox",
            checked: chosenNames.has(column.name),
            on: {
              change(event) {
                chosenNames[event.target.checked ? "add" : "delete"](column.name);
                notify();
              },
            },
          }),
        );
        const all = (on) => {
          boxes.forEach((box, index) => {
            box.checked = on;
            chosenNames[on ? "add" : "delete"](own[index].name);
          });
          notify();
        };
        return el(
          "fieldset",
          {},
          el("legend", {class: "label"}, study.replaceAll("_", " ")),
          el(
            "p",
            {},
            el("button", {type: "button", class: "plain", on: {click: () => all(true)}}, "all"),
            " ",
            el("button", {type: "button", class: "plain", on: {click: () => all(false)}}, "none"),
          ),
          own.map((column, index) => el("label", {}, boxes[index], ` ${column.title}`)),
        );
      }),
    ),
  );
}
