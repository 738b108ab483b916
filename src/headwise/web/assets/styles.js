// The styles of figures, so that a figure looks the same on every page (report, explorer, tests). Colours and fonts come from the
// page's CSS variables.

const RULES = `
.hw-figure { position: relative; margin: 0; min-width: 0; color: var(--ink, #1c1c1e); font-family: var(--font-sans, system-ui, sans-serif); }
.hw-title { font-size: 1.05rem; font-weight: 650; line-height: 1.3; margin: 0 0 .15rem; }
.hw-subtitle { font-size: .88rem; color: var(--ink-soft, #5a5a60); margin: 0; }
.hw-grid { display: grid; row-gap: 0; margin-top: .9rem; justify-content: start; }
.hw-grid[data-wide] { overflow-x: auto; }
.hw-panel { display: grid; grid-template-rows: subgrid; grid-row: span 2; min-width: 0; margin-bottom: 18px; }
.hw-panel-head { min-width: 0; overflow-wrap: anywhere; padding-bottom: 1px; }
.hw-panel-title { font-size: 13px; font-weight: 620; line-height: 1.3; }
.hw-panel-subtitle { font-size: 11.5px; line-height: 1.35; color: var(--ink-soft, #5a5a60); white-space: pre-line; font-variant-numeric: tabular-nums; }
.hw-canvas { position: relative; outline: none; touch-action: manipulation; -webkit-tap-highlight-color: transparent; }
.hw-canvas:focus-visible { outline: 2px solid var(--focus, #1a5fb4); outline-offset: 2px; border-radius: 2px; }
.hw-canvas canvas { position: absolute; left: 0; top: 0; pointer-events: none; }
.hw-canvas[data-opens] { cursor: pointer; }
.hw-window { position: absolute; overflow: auto; overscroll-behavior: auto; scrollbar-width: thin; }
.hw-shared { grid-row: 1 / span 2; align-self: start; position: sticky; top: 4.5rem; }
.hw-zoom { display: inline-flex; gap: 4px; margin-left: .75rem; vertical-align: middle; }
.hw-zoom button { font: inherit; font-size: 13px; line-height: 1; width: 24px; height: 24px; padding: 0; cursor: pointer; color: var(--ink, #1c1c1e);
  background: var(--paper, #fff); border: 1px solid var(--line, #d9d9d6); border-radius: 4px; }
.hw-zoom button:hover { border-color: var(--ink-soft, #5a5a60); }
.hw-zoom button:focus-visible { outline: 2px solid var(--focus, #1a5fb4); outline-offset: 1px; }
.hw-notes { margin: .3rem 0 0; max-width: 62rem; font-size: 12.5px; line-height: 1.5; color: var(--ink-soft, #5a5a60); overflow-wrap: anywhere; }
.hw-notes p { margin: 0 0 .2rem; }
.hw-names { margin: .2rem 0 .8rem; padding: 0 0 0 2.1em; font-size: 12px; line-height: 1.4; color: var(--ink, #1c1c1e); font-variant-numeric: tabular-nums; }
.hw-names[hidden] { display: none; }
.hw-visually-hidden { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.hw-tooltip { position: fixed; z-index: 1000; pointer-events: none; max-width: min(340px, calc(100vw - 12px)); box-sizing: border-box; padding: 8px 10px;
  color: var(--ink, #1c1c1e); background: var(--paper, #fff); border: 1px solid var(--ink-faint, #b4b4b8); border-radius: 5px;
  box-shadow: 0 2px 10px rgb(0 0 0 / .16); font: 12px/1.4 var(--font-sans, system-ui, sans-serif); font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.hw-tooltip[hidden] { display: none; }
.hw-tooltip-name { font-weight: 650; font-size: 13px; white-space: pre-wrap; }
.hw-tooltip-caption { color: var(--ink-soft, #5a5a60); }
.hw-tooltip-rows { display: grid; grid-template-columns: auto auto; column-gap: 12px; margin-top: 4px; justify-content: space-between; }
.hw-tooltip-rows:empty { display: none; }
.hw-tooltip-label { color: var(--ink-soft, #5a5a60); }
.hw-tooltip-label:empty { display: none; }
.hw-tooltip-label:empty + .hw-tooltip-value { grid-column: 1 / -1; text-align: left; }
.hw-tooltip-value { text-align: right; }
.hw-tooltip-swatch { display: inline-block; width: 9px; height: 9px; margin-right: 5px; border-radius: 2px; }
.hw-tooltip-hint { margin-top: 5px; padding-top: 4px; border-top: 1px solid var(--line, #d9d9d6); color: var(--ink-soft, #5a5a60); font-size: 11px; }
@media print { .hw-zoom, .hw-tooltip { display: none; } .hw-panel { break-inside: avoid; } .hw-shared { position: static; } }
`;

/**
 * Add the styles to an element's document or shadow root, once.
 * @param {HTMLElement} element
 */
export function applyFigureStyles(element) {
  const root = /** @type {Document | ShadowRoot} */ (element.getRootNode());
  const home = "adoptedStyleSheets" in root ? root : document;
  sheet ??= made();
  if (!home.adoptedStyleSheets.includes(sheet)) home.adoptedStyleSheets = [...home.adoptedStyleSheets, sheet];
}

/** @type {CSSStyleSheet | null} */
let sheet = null;

function made() {
  const style = new CSSStyleSheet();
  style.replaceSync(RULES);
  return style;
}
