// Adds to a page that is complete without it: copying, values under the pointer, printing.
"use strict";
document.documentElement.classList.add("js");

function copyText(text) {
  const fallback = () => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  if (!navigator.clipboard) return Promise.resolve(fallback());
  return navigator.clipboard.writeText(text).catch(fallback);
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => copyText(button.dataset.copy).then(() => {
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));
}

for (const svg of document.querySelectorAll("svg[data-points]")) {
  const points = JSON.parse(svg.dataset.points);
  const cursor = svg.querySelector(".cursor");
  const output = svg.closest("figure").querySelector("output");
  let at = -1;
  const show = (i) => {
    at = Math.max(0, Math.min(points.length - 1, i));
    const [x, y, step, value] = points[at];
    cursor.setAttribute("cx", x);
    cursor.setAttribute("cy", y);
    output.textContent = `step ${step}: ${value}`;
  };
  const hide = () => { cursor.setAttribute("cx", -9); output.textContent = ""; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * 420 / box.width;
    let best = 0;
    points.forEach((p, i) => { if (Math.abs(p[0] - x) < Math.abs(points[best][0] - x)) best = i; });
    show(best);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: points.length - 1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    show(move);
  });
}

for (const cells of document.querySelectorAll(".map .cells")) {
  const [steps, names, values] = ["steps", "names", "cells"].map((key) => JSON.parse(cells.dataset[key]));
  const output = cells.closest("figure").querySelector("output");
  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const share = (at, size, n) => Math.max(0, Math.min(n - 1, Math.floor(at / size * n)));
    const row = share(event.clientY - box.top, box.height, names.length);
    const column = share(event.clientX - box.left, box.width, steps.length);
    output.textContent = `${names[row]}, step ${steps[column]}: ${values[row][column] || "not measured"}`;
  });
  cells.addEventListener("pointerleave", () => { output.textContent = ""; });
}

addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll(".chain details:not([open]), details.others:not([open])")) {
    part.open = true;
    addEventListener("afterprint", () => { part.open = false; }, { once: true });
  }
});
