"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const waiting = Array.from(document.querySelectorAll(".plot"));
  const plots = Array.from(waiting);
  const touch = !matchMedia("(pointer: fine)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    // Named one by one: some of plotly's default ones lead to its servers.
    modeBarButtons: [["toImage", "resetScale2d"]],
  };
  const PRINTED = 680;

  // With a view box the style sheet can shrink a drawing to the paper instead of cutting it.
  const fit = (place) => {
    const { width, height } = place._fullLayout;
    place.style.setProperty("--shape", `${width} / ${height}`);
    for (const each of place.querySelectorAll(".main-svg")) {
      each.setAttribute("viewBox", `0 0 ${width} ${height}`);
    }
  };

  // Linked charts show the same span of time.
  const zoom = (place, change) => {
    const range = ["xaxis.range[0]", "xaxis.range[1]"].map((key) => change[key]);
    if (range[0] === undefined && !change["xaxis.autorange"]) return;
    for (const other of plots) {
      const shown = other._fullLayout;
      if (other === place || !shown || shown.meta !== "linked") continue;
      const whole = charts[Number(other.dataset.chart)].layout.xaxis.range;
      const wanted = range[0] === undefined ? whole : range;
      if (shown.xaxis.range[0] !== wanted[0] || shown.xaxis.range[1] !== wanted[1]) {
        Plotly.relayout(other, { "xaxis.range": [...wanted] });
      }
    }
  };

  const draw = (place) => {
    const { data, layout } = charts[Number(place.dataset.chart)];
    // A finger on a chart scrolls the page; a mouse drags to zoom.
    Plotly.newPlot(place, data, { ...layout, dragmode: touch ? false : "zoom" }, config);
    fit(place);
    place.on("plotly_afterplot", () => fit(place));
    if (layout.meta === "linked") place.on("plotly_relayout", (change) => zoom(place, change));
  };

  const isFolded = (place) => place.closest("details:not([open])") !== null;

  // One at a time, so that a page of a hundred charts can be read while it draws.
  const next = () => {
    const at = waiting.findIndex((place) => !isFolded(place));
    if (at < 0) return;
    draw(waiting.splice(at, 1)[0]);
    setTimeout(next, 0);
  };
  const folds = Array.from(document.querySelectorAll("details.more"));
  for (const each of folds) {
    each.addEventListener("toggle", () => {
      if (!each.open) return;
      next();
      for (const place of plots) if (place._fullLayout && each.contains(place)) Plotly.Plots.resize(place);
    });
  }

  // Paper has nothing to click on: what is folded is opened for it, and all charts are drawn.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...opened, ...folds.filter((each) => !each.open)];
    for (const each of opened) each.open = true;
    while (waiting.length) draw(waiting.shift());
    for (const place of plots) {
      if (place._fullLayout.width > PRINTED) Plotly.relayout(place, { width: PRINTED });
    }
  });
  addEventListener("afterprint", () => {
    for (const place of plots) Plotly.relayout(place, { width: null, autosize: true });
    for (const each of opened) each.open = false;
    opened = [];
  });
  next();
})();
