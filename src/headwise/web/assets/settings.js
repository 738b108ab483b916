// The settings of this page: opened from one file ("report") or from a server ("served"), and of which atlas.
//
// web/html_page.py writes them into the page as JSON. Nothing else distinguishes the two modes: the modules that need to know
// (data_loader, router) read them here.

const block = document.getElementById("settings");

/** @type {{mode: "report"|"served", atlas: string, atlases: string[], live: boolean, version: string}} */
export const settings = {mode: "report", atlas: "", atlases: [], live: false, version: "", ...JSON.parse(block?.textContent ?? "{}")};

/** Whether these pages come from a server. */
export const served = settings.mode === "served";
