// Follows a page: the server sends the parts that have changed, and they take the place of the old
// ones. Everything works without this file, but by loading pages again.
"use strict";

const button = document.getElementById("live");
let source = null;
let waiting = new Map();

function say(text, isOn) {
  button.textContent = text;
  button.setAttribute("aria-pressed", String(isOn));
  button.dataset.state = text;
}

// What a person has in hand stays: the focus, what is open, how far it is scrolled, what is typed.
function replace(part, html) {
  const active = document.activeElement;
  const focused = part.contains(active) ? active.id : "";
  const field = focused && "value" in active ? { value: active.value, at: active.selectionStart } : null;
  const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
  const scrolled = [...part.querySelectorAll(".scroll[id]")].map((each) => [each.id, each.scrollLeft]);
  part.innerHTML = html; // The server's own text, in which it has escaped all that is not.
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  scrolled.forEach(([id, left]) => {
    const each = document.getElementById(id);
    if (each) each.scrollLeft = left;
  });
  const again = focused && document.getElementById(focused);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (field && again.value !== field.value) again.value = field.value;
  if (field && again.type === "search" && field.at !== null) again.setSelectionRange(field.at, field.at);
}

function isInHand(part) {
  const selection = window.getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return selects || part.querySelector("input[type=range]:active, select:focus") !== null;
}

function show() {
  for (const [id, html] of waiting) {
    const part = document.getElementById("part-" + id);
    if (part && isInHand(part)) continue;
    waiting.delete(id);
    if (part) replace(part, html);
  }
}

function follow() {
  const here = new URLSearchParams({ path: location.pathname, q: location.search.slice(1) });
  source = new EventSource("/live?" + here);
  source.onopen = () => say("live", true);
  source.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) waiting.set(id, html);
    show();
  };
  source.onerror = () => say("not connected", true);
}

function stop() {
  if (source) source.close();
  source = null;
}

if (document.body.dataset.live && "EventSource" in window) {
  button.hidden = false;
  button.title = "Stop and go on following what happens";
  button.addEventListener("click", () => {
    if (source) {
      stop();
      say("paused", false);
    } else {
      say("…", true);
      follow();
    }
  });
  say("…", true);
  follow();
  setInterval(show, 1000);
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => event.persisted && !source && follow());
}

// A scrubber goes where it is dropped, and says meanwhile where that would be.
document.addEventListener("input", (event) => {
  if (event.target.type !== "range") return;
  event.target.form.querySelector("output").textContent = event.target.value;
});
document.addEventListener("change", (event) => {
  if (event.target.type === "range" || event.target.id === "sort") event.target.form.requestSubmit();
});
