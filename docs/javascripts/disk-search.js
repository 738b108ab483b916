// Search without a server. A browser starts no worker from a disk; there, the search's worker runs in a hidden frame instead.
//
// The frame loads the same script. What it posts is handed to who made the worker, and what is posted to the worker arrives in
// the frame, in order, once the script is there. Over http this file does nothing. It does not know what is searched.

if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      this.frame.srcdoc = `<script src="${encodeURI(decodeURI(address))}"></script>`;
      this.loaded = new Promise((done) => (this.frame.onload = done)).then(() => {
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        return inside;
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
