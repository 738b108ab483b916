// How these pages were opened: from one file ("report") or from a server ("served"), and of which atlas.
//
// Written into the page by web/page.py as a block of JSON; read once. Nothing else tells the two apart: every module that
// needs to know (source, router) asks here.

const block = document.getElementById("settings");

/** @type {{mode: "report"|"served", atlas: string, atlases: string[], live: boolean, version: string}} */
export const settings = {mode: "report", atlas: "", atlases: [], live: false, version: "", ...JSON.parse(block?.textContent ?? "{}")};

/** Whether these pages come from a server. */
export const served = settings.mode === "served";
