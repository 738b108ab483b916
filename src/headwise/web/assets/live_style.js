// The style of the live page, in the page's own variables.

const RULES = `
.live-form { display: grid; gap: 0.6rem; max-width: 60rem; }
.live-form textarea { width: 100%; resize: vertical; font: 1rem/1.5 var(--font-serif); min-height: 4.6rem; }
.live-tools { display: flex; flex-wrap: wrap; gap: 0.7rem 1.2rem; align-items: center; font: 0.86rem/1.4 var(--font-sans); }
.live-modes { display: flex; gap: 1.1rem; }
.live-modes label, .live-length { display: inline-flex; gap: 0.35rem; align-items: center; }
.live-modes input, .live-switches input, .live-map-tools input { accent-color: var(--accent); }
.live-length input { width: 4rem; border: 1px solid var(--line); border-radius: 3px; background: var(--paper); padding: 0.25rem 0.4rem; font-variant-numeric: tabular-nums; }
button.strong { background: var(--accent); border-color: var(--accent); color: var(--accent-ink); font-weight: 600; }
button.strong:hover { filter: brightness(1.08); }
button.strong:disabled { background: var(--panel); border-color: var(--line); color: var(--ink-faint); cursor: default; filter: none; }
.live-state { color: var(--ink-soft); font-variant-numeric: lining-nums tabular-nums; }
.live-state[data-failed] { color: var(--bad); }
progress { width: 9rem; height: 6px; accent-color: var(--accent); }
.live-examples { display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; align-items: baseline; font: 0.84rem/1.5 var(--font-sans); }
.live-examples button { font-size: inherit; text-align: left; color: var(--ink-soft); }
.live-results { display: grid; gap: 2.4rem; }
.live-results[data-stale] > :not(.warning) { opacity: 0.5; }
.live-answer { display: grid; grid-template-columns: minmax(0, 1.5fr) minmax(16rem, 1fr); gap: 1.4rem 3rem; border-top: 1px solid var(--ink); padding-top: 1.2rem; align-items: start; }
.live-said { display: grid; gap: 0.7rem; min-width: 0; }
.tokens { line-height: 2; font-size: 1.12rem; overflow-wrap: anywhere; white-space: pre-wrap; }
.token { font: inherit; color: inherit; background: linear-gradient(var(--accent), var(--accent)) no-repeat left bottom / calc(var(--likely, 0) * 100%) 2px; border: 0; border-radius: 0; padding: 0 0 3px; margin: 0 1px 0 0; white-space: pre-wrap; }
button.token { cursor: pointer; }
button.token[aria-pressed="true"] { background-color: var(--panel); }
.plain-tokens { font: 0.86rem/1.7 var(--font-sans); color: var(--ink-soft); }
.plain-tokens .token { background: var(--panel); padding: 0 1px; }
.token.special { color: var(--accent); }
.live-prompt summary { cursor: pointer; font: 0.86rem var(--font-sans); }
.live-spread { display: grid; gap: 0.3rem; min-width: 0; align-content: start; }
.spread { border-collapse: collapse; width: auto; max-width: 100%; font: 0.84rem/1.3 var(--font-sans); font-variant-numeric: lining-nums tabular-nums; }
.spread th { text-align: left; font-weight: 400; padding: 0.1rem 0.6rem 0.1rem 0; white-space: nowrap; max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }
.spread td { padding: 0.1rem 0 0.1rem 0.6rem; text-align: right; white-space: nowrap; }
.spread th { width: 7rem; }
.spread td:nth-child(2) { width: 11rem; padding: 0; text-align: left; }
.spread td:nth-child(3) { width: 4.2rem; }
.spread td:last-child { width: auto; }
.spread .bar { display: block; height: 0.72rem; background: var(--accent); opacity: 0.75; width: calc(var(--p) * 11rem); max-width: 100%; min-width: 1px; }
.live-score, .live-switch { display: grid; gap: 0.8rem; border-top: 1px solid var(--line); padding-top: 1.2rem; min-width: 0; }
.live-score-body { display: grid; gap: 0.6rem; min-width: 0; }
.verdict { font-size: 1.2rem; }
.verdict strong { font: 600 1.9rem/1 var(--font-serif); font-variant-numeric: lining-nums; }
.warning { color: var(--bad); }
.live-head { display: grid; gap: 0.8rem; border-top: 1px solid var(--line); padding-top: 1.2rem; min-width: 0; scroll-margin-top: 1rem; }
.live-head-title { display: flex; flex-wrap: wrap; gap: 0.4rem 1.4rem; align-items: baseline; font: 0.88rem var(--font-sans); }
.live-map { display: grid; gap: 0.6rem; min-width: 0; }
.live-map[aria-busy="true"] .live-canvas { opacity: 0.75; }
.live-canvas { touch-action: pan-y; cursor: crosshair; max-width: 100%; }
.live-map-tools { display: flex; flex-wrap: wrap; gap: 0.5rem 0.8rem; align-items: center; font: 0.86rem var(--font-sans); }
.live-adding { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: baseline; }
.live-switches { list-style: none; display: grid; gap: 0.3rem; margin: 0; padding: 0; font: 0.9rem var(--font-sans); }
.live-switches li { display: grid; grid-template-columns: 4.6rem minmax(7rem, 14rem) 3.6rem auto; gap: 0.8rem; align-items: center; justify-content: start; }
.live-switches li > button:first-child { justify-self: start; }
.live-both { display: grid; gap: 1.6rem; }
.live-sides { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.4rem 3rem; }
.live-side { display: grid; gap: 0.6rem; align-content: start; min-width: 0; }
.live-side h3 { overflow-wrap: anywhere; }
.live-effect { display: grid; gap: 0.7rem; max-width: 46rem; }
.live-effect .facts div { grid-template-columns: 19rem minmax(0, 1fr); }
.dots { position: relative; height: 1.6rem; margin: 0 0.5rem; border-bottom: 1px solid var(--ink-faint); }
.dots i { position: absolute; bottom: -5px; width: 9px; height: 9px; margin-left: -5px; border-radius: 50%; }
.dots .random { background: var(--ink-faint); opacity: 0.7; }
.dots .own { background: var(--accent); width: 13px; height: 13px; bottom: -7px; margin-left: -7px; }
.live-control { display: grid; gap: 0.6rem; }
@media (max-width: 900px) {
  .live-answer, .live-sides { grid-template-columns: minmax(0, 1fr); }
  .live-effect .facts div { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .live-switches li { grid-template-columns: 4rem minmax(5rem, 1fr) 3rem; }
}
`;

let sheet = null;

/** Give the style to the page, once. */
export function dressLive() {
  if (sheet) return;
  sheet = new CSSStyleSheet();
  sheet.replaceSync(RULES);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
