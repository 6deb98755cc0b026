#include "lab/report/page.h"

namespace quintet {

// Series colours follow Okabe and Ito (2008), which people with any kind of colour vision can tell
// apart; lightened for dark pages.
const char* const kPageStyle = R"css(
:root {
  --bg: #fbfaf8; --card: #ffffff; --ink: #1c1e21; --muted: #5d636b; --line: #e0ddd6; --accent: #0072b2;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #c2629a; --c4: #b98400; --c5: #4aa8dc;
  --c6: #7353ba; --c7: #7d8590; --faint: #c3c0b8;
}
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) {
    --bg: #14161a; --card: #1c1f24; --ink: #e8e6e1; --muted: #a0a5ad; --line: #33373e; --accent: #6cb8ea;
    --c0: #4fa3dd; --c1: #f5894a; --c2: #35c496; --c3: #e294c2; --c4: #e3b341; --c5: #96d3f7;
    --c6: #ab94ea; --c7: #98a0ab; --faint: #4a4f57; color-scheme: dark;
  }
}
:root[data-theme="dark"] {
  --bg: #14161a; --card: #1c1f24; --ink: #e8e6e1; --muted: #a0a5ad; --line: #33373e; --accent: #6cb8ea;
  --c0: #4fa3dd; --c1: #f5894a; --c2: #35c496; --c3: #e294c2; --c4: #e3b341; --c5: #96d3f7;
  --c6: #ab94ea; --c7: #98a0ab; --faint: #4a4f57; color-scheme: dark;
}
:root[data-theme="light"] { color-scheme: light; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 940px; padding: 0 20px 40px; background: var(--bg); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header { padding: 28px 0 0; } header .sub { margin: 0; } header + main > h2:first-child { margin-top: 26px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 6px; padding-right: 48px; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 40px 0 12px; padding-bottom: 6px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 0 0 8px; overflow-wrap: anywhere; }
p { margin: 0 0 12px; overflow-wrap: anywhere; }
li { overflow-wrap: anywhere; }
.sub, figcaption, footer { color: var(--muted); }
.answer { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--accent);
  border-radius: 8px; padding: 16px 20px 6px; }
.answer p { margin-bottom: 10px; }
figure { margin: 18px 0; padding: 16px 18px 12px; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; break-inside: avoid; }
figcaption { font-size: 0.88rem; margin-top: 8px; }
.narrow { display: none; }
svg { display: block; max-width: 100%; height: auto; margin: 0 auto; font-size: 12px; }
svg text { fill: var(--ink); font-family: inherit; }
svg .al { fill: var(--muted); }
svg .hd { font-weight: 600; font-size: 13px; }
svg .gr { stroke: var(--line); stroke-width: 1; }
svg .ax { stroke: var(--muted); stroke-width: 1; }
svg .dg { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 5 4; }
svg .mk { stroke: var(--ink); stroke-width: 1.2; }
svg .iv { fill: var(--accent); fill-opacity: 0.16; }
svg .ln { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
svg .lt { fill: none; stroke-width: 1.2; }
svg .eb { stroke-width: 1.6; }
svg .ink { stroke: var(--ink); }
svg .bd { fill-opacity: 0.18; }
svg .ho { fill: var(--card); stroke-width: 1.8; }
svg .st { stroke: var(--card); stroke-width: 1; }
svg .sg { stroke: var(--faint); } svg .fg { fill: var(--faint); }
svg .s0 { stroke: var(--c0); } svg .s1 { stroke: var(--c1); } svg .s2 { stroke: var(--c2); }
svg .s3 { stroke: var(--c3); } svg .s4 { stroke: var(--c4); } svg .s5 { stroke: var(--c5); }
svg .s6 { stroke: var(--c6); } svg .s7 { stroke: var(--c7); }
svg .f0 { fill: var(--c0); } svg .f1 { fill: var(--c1); } svg .f2 { fill: var(--c2); }
svg .f3 { fill: var(--c3); } svg .f4 { fill: var(--c4); } svg .f5 { fill: var(--c5); }
svg .f6 { fill: var(--c6); } svg .f7 { fill: var(--c7); }
.facts { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px;
  min-width: 118px; flex: 0 1 auto; }
.facts dt { color: var(--muted); font-size: 0.8rem; } .facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 10px 0 18px; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; background: var(--card); }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--accent); }
th[aria-sort="ascending"] button::after { content: " \25B2"; }
th[aria-sort="descending"] button::after { content: " \25BC"; }
code, pre { font: 0.82rem/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
td code { white-space: nowrap; }
pre { overflow-x: auto; padding: 12px 14px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
details { margin: 10px 0; } summary { cursor: pointer; font-weight: 600; padding: 6px 0; }
footer { margin-top: 44px; font-size: 0.85rem; }
#theme { position: absolute; top: 24px; right: max(20px, calc(50% - 450px)); border: 1px solid var(--line);
  background: var(--card); color: var(--ink); border-radius: 999px; width: 38px; height: 38px; font-size: 17px;
  cursor: pointer; }
#tip { position: fixed; z-index: 9; pointer-events: none; background: var(--ink); color: var(--bg); padding: 5px 10px;
  border-radius: 6px; font-size: 0.82rem; max-width: min(340px, 90vw); overflow-wrap: anywhere; }
#tip[hidden] { display: none; }
.pt { cursor: default; }
@media screen and (max-width: 640px) {
  body { padding: 0 12px 32px; font-size: 15px; }
  h1 { font-size: 1.4rem; }
  figure { padding: 12px 10px; } .answer { padding: 12px 14px 4px; }
  .wide { display: none; } .narrow { display: block; }
  #theme { top: 18px; right: 12px; }
}
@media print {
  :root, :root:not([data-theme="light"]), :root[data-theme="dark"] {
    --bg: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #bbb; --accent: #0072b2;
    --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #c2629a; --c4: #b98400; --c5: #4aa8dc;
    --c6: #7353ba; --c7: #7d8590; --faint: #c3c0b8; color-scheme: light; }
  body { max-width: none; font-size: 10.5pt; padding: 0; }
  #theme, #tip { display: none; }
  .scroll { overflow: visible; border: 0; } td code { white-space: normal; overflow-wrap: anywhere; }
  h2 { break-after: avoid; } tr { break-inside: avoid; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

const char* const kPageScript = R"js(
"use strict";
(function () {
  // Tables: a click on a heading sorts by it, another turns it round.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", function () {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = function (row) {
          const cell = row.cells[column];
          if (!cell) return "";
          if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
          return cell.textContent;
        };
        const order = function (a, b) {
          const x = key(a), y = key(b);
          if (typeof x === "number" && typeof y === "number") return x - y;
          if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
          return x.localeCompare(y, "en", { numeric: true });
        };
        const rows = Array.from(body.rows).sort(order);
        if (down) rows.reverse();
        body.append(...rows);
      });
    });
  }
  // Marks tell their figures at once rather than after the browser's pause.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  for (const title of document.querySelectorAll("svg title")) {
    const mark = title.parentNode, text = title.textContent;
    title.remove();
    mark.setAttribute("aria-label", text);
    const show = function (event) {
      tip.textContent = text;
      tip.hidden = false;
      const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
      let y = event.clientY + 16;
      if (y + tip.offsetHeight > window.innerHeight) y = event.clientY - tip.offsetHeight - 12;
      tip.style.left = Math.max(x, 4) + "px";
      tip.style.top = y + "px";
    };
    mark.addEventListener("pointermove", show);
    mark.addEventListener("pointerdown", show);
    mark.addEventListener("pointerleave", function () { tip.hidden = true; });
  }
  // Light and dark: as the system has it until told otherwise.
  const root = document.documentElement;
  const toggle = document.createElement("button");
  toggle.id = "theme";
  toggle.type = "button";
  toggle.textContent = "\u25D0";
  toggle.title = "Light or dark";
  toggle.setAttribute("aria-label", "Light or dark");
  toggle.addEventListener("click", function () {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.body.append(toggle);
  // On paper nothing is folded away.
  window.addEventListener("beforeprint", function () {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
  });
})();
)js";

}  // namespace quintet
