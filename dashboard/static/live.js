// Keeps the parts of a page that are marked with data-live up to date. Without it the page is as good as when it was loaded.
(() => {
  const body = document.body;
  const address = body.dataset.stream + "?page=" + encodeURIComponent(body.dataset.page);
  let source = null;
  let again = 0;

  // busy tells whether somebody is at work in a part: replacing it would take the focus, the selection or what was unfolded.
  const busy = (part) => {
    if (part.contains(document.activeElement) || part.querySelector("details[open]")) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const waiting = new Map(); // the newest of each part that is busy

  const put = (name, html) => {
    const part = body.querySelector(`[data-live="${name}"]`);
    if (!part) return;
    if (busy(part)) {
      waiting.set(name, html);
      return;
    }
    waiting.delete(name);
    part.innerHTML = html; // made by the server, which escapes
  };

  const open = () => {
    clearTimeout(again);
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("parts", (event) => {
      body.classList.remove("stale");
      for (const [name, html] of [...waiting]) put(name, html);
      for (const [name, html] of Object.entries(JSON.parse(event.data))) put(name, html);
    });
    source.addEventListener("stale", () => body.classList.add("stale"));
    source.addEventListener("error", () => {
      body.classList.add("stale");
      if (source && source.readyState === EventSource.CLOSED) { // refused: the browser would not come again
        close();
        again = setTimeout(open, 10000);
      }
    });
  };

  const close = () => {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
